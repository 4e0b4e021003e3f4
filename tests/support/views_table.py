"""The table of views into consumers: which calls there are, which views, and around what.

The calls are those that the sample rows of `support/samples` and `support/nn_samples` make,
forward and backward, one card at a time: a card that has a row is in this table without an edit.
Functions which the schedule matches as a whole (attention, norms) are in it as functions, too.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from nn_samples import ROWS as NN_ROWS
from nn_samples.table import filled
from nn_samples.table import flat as flat_results
from nn_samples.table import tensors as nn_tensors
from op_calls import flat, function, tensors
from samples import ROWS

import weft
from weft.base.errors import WeftError
from weft.core.bind import Recorder, bind, recording
from weft.core.tensor import type_of
from weft.ir.op import OPS, Op, Trait

Array = np.ndarray[Any, Any]

# --- views -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class View:
    """One way in which an operand can be a view.

    fits   whether an operand of this shape can be such a view
    base   the array from which the view takes the operand
    view   the operand, from a tensor that holds the base
    """

    name: str
    fits: Callable[[tuple[int, ...]], bool]
    base: Callable[[Array], Array]
    view: Callable[[Any, tuple[int, ...]], Any]


def junk(shape: tuple[int, ...], like: Array) -> Array:
    """An array of elements that nobody may read: a sum with one of them in it shows it."""
    kind = like.dtype.kind
    return np.full(shape, True if kind == "b" else 77 if kind in "iu" else np.nan, like.dtype)


def _put(a: Array, shape: tuple[int, ...], index: Any) -> Array:
    base = junk(shape, a)
    base[index] = a
    return base


def _inner(shape: tuple[int, ...]) -> tuple[slice, ...]:
    return tuple(slice(1, n + 1) for n in shape)


def _halves(size: int) -> tuple[int, int]:
    """Two factors of a size, as near to each other as there are."""
    low = next(d for d in range(math.isqrt(size), 0, -1) if size % d == 0)
    return low, size // low


def _turned(a: Array) -> Array:
    low, high = _halves(a.size)
    return np.ascontiguousarray(a.reshape(low, high).T)


def _narrow(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of which a broadcast makes this one: the first long axis has size 1 there."""
    axis = next(i for i, n in enumerate(shape) if n > 1)
    return (*shape[:axis], 1, *shape[axis + 1 :])


def _is_long(shape: tuple[int, ...]) -> bool:
    return math.prod(shape) > 1


VIEWS = [
    View(
        "transposed",
        lambda s: sum(n > 1 for n in s) > 1,
        lambda a: np.ascontiguousarray(a.T),
        lambda b, s: weft.permute_dims(b, tuple(reversed(range(len(s))))),
    ),
    View(
        "heads",  # as attention splits its heads: reshape, then exchange two axes
        lambda s: len(s) > 1 and s[-2] > 1,
        lambda a: np.ascontiguousarray(a.swapaxes(-1, -2)).reshape(*a.shape[:-2], -1),
        lambda b, s: b.reshape((*s[:-2], s[-1], s[-2])).swapaxes(-1, -2),
    ),
    View(
        "sliced",
        _is_long,
        lambda a: _put(a, tuple(n + 3 for n in a.shape), _inner(a.shape)),
        lambda b, s: b[_inner(s)],
    ),
    View(
        "strided",
        _is_long,
        lambda a: _put(a, tuple(2 * n for n in a.shape), (slice(None, None, 2),) * a.ndim),
        lambda b, s: b[(slice(None, None, 2),) * len(s)],
    ),
    View(
        "reversed",
        _is_long,
        lambda a: np.flip(a).copy(),
        lambda b, s: weft.flip(b),
    ),
    View(
        "last reversed",
        lambda s: len(s) > 1 and s[-1] > 1,
        lambda a: a[..., ::-1].copy(),
        lambda b, s: b[..., ::-1],
    ),
    View(
        "broadcast",
        _is_long,
        lambda a: a[tuple(slice(n) for n in _narrow(a.shape))].copy(),
        lambda b, s: weft.broadcast_to(b, s),
    ),
    View(
        "offset",
        lambda s: True,
        lambda a: _put(a.reshape(-1), (a.size + 8,), slice(3, a.size + 3)),
        lambda b, s: b[3 : math.prod(s) + 3].reshape(s),
    ),
    View(
        "picked",
        lambda s: True,
        lambda a: _put(a, (*a.shape, 3), (..., 1)),
        lambda b, s: b[..., 1],
    ),
    View(
        "channels last",
        lambda s: len(s) > 2 and s[1] > 1,
        lambda a: np.ascontiguousarray(np.moveaxis(a, 1, -1)),
        lambda b, s: weft.moveaxis(b, -1, 1),
    ),
    View(
        "copied",  # a view that no strides say: its elements are copied
        lambda s: _halves(math.prod(s) or 1)[0] > 1,
        _turned,
        lambda b, s: b.T.reshape(s),
    ),
]

# --- calls -------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Call:
    """A call of a card or a function: which of its arguments are tensors, and their values."""

    name: str
    function: Callable[..., Any]  # of its tensors
    operands: tuple[Array, ...]

    @property
    def size(self) -> int:
        return max([x.size for x in self.operands], default=0)


def is_consumer(op: Op) -> bool:
    """Whether a card of ours computes something of tensors: not control flow, effects and tokens,
    and not what ranks do together (tests/distributed)."""
    nothing = Trait.EFFECT | Trait.CREATION | Trait.DATA_SHAPE | Trait.COLLECTIVE
    ours = op.infer.__module__.startswith("weft.")  # not cards that tests make
    return ours and not (op.nested or op.traits & nothing) and bool(op.inputs)


#: Cards of lists and stacks, whose operands are no tensors, and those that only pass a value on.
ELSEWHERE = {
    *(name for name in OPS if name.startswith(("list_", "stack_", "function_"))),
    *("assume_shape", "fence", "named", "to_device", "random_bits", "with_gradient_of"),
    "sent",
    "fits_int64",  # of 0-d numbers: test_loop_counters.py
    "python_defined",  # of 0-d numbers: test_numbers.py
    *("only_where", "choose"),  # become `where`, which has rows; see test_dead_iterations.py
}


class Harvest(Recorder):
    """Notes the calls of all cards; of calls with the same shapes and dtypes, one."""

    def __init__(self) -> None:
        self.calls: dict[str, dict[Any, Call]] = {}

    def call(self, op: Op, inputs: tuple[Any, ...], attrs: dict[str, Any]) -> Any:
        if is_consumer(op) and inputs and OPS.get(op.name) is op:
            known = self.calls.setdefault(op.name, {})
            key = (tuple(map(type_of, inputs)), repr(sorted(attrs.items())))
            if key not in known:
                arrays = tuple(x.numpy(copy=True) for x in inputs)
                known[key] = Call(op.name, lambda *xs: bind(op, *xs, **attrs), arrays)
        return bind(op, *inputs, **attrs)


#: One dtype of each kind that machine code treats in a way of its own.
DTYPES = ["float32", "int32", "bool", "bfloat16", "complex64", "float64", "uint8"]


def harvest() -> dict[str, list[Call]]:
    """Calls of each card, those first that have most axes."""
    found = Harvest()
    with recording(found):
        for row in ROWS:
            for dtype in row.dtypes():
                if dtype.name in DTYPES:
                    for sample in row.samples(dtype):
                        _forward_and_back(
                            function(row.name), tensors(sample.args), tensors(sample.kwargs)
                        )
        for call in functions():
            _forward_and_back(call.function, [weft.asarray(x) for x in call.operands], {})
        for work in OTHERS:
            work()
    return {
        name: sorted(calls.values(), key=_rank, reverse=True) for name, calls in found.calls.items()
    }


def _rank(call: Call) -> Any:
    shapes = [x.shape for x in call.operands]
    return [sum(n > 1 for n in s) for s in shapes], all(map(math.prod, shapes)), call.size


def _forward_and_back(call: Callable[..., Any], args: Any, kwargs: Any) -> None:
    given = [x for x in flat((args, kwargs)) if x.dtype.kind == "float"]
    for x in given:
        x.requires_grad = True
    try:
        outs = [y for y in flat(call(*args, **kwargs)) if y.requires_grad]
        for y in outs:
            if y.dtype.kind == "float" and y.size:
                weft.autograd.grad(
                    y, given, weft.ones_like(y), create_graph=True, allow_unused=True
                )
    except WeftError:
        pass  # samples without a gradient: that is another test's business


def functions() -> list[Call]:
    """The rows of nn as functions of their inputs and weights, in float32."""
    made = []
    for row in NN_ROWS:
        if row.name in NEED_NUMBERS:
            continue
        arrays: list[Array] = []

        def keep(array: Array, arrays: list[Array] = arrays) -> int:
            arrays.append(array.astype(np.float32) if array.dtype.kind == "f" else array)
            return _Place(len(arrays) - 1)

        inputs, call = nn_tensors(row.inputs, keep), nn_tensors(row.call, keep)
        if row.is_function:
            target = getattr(weft.nn.functional, row.module)
        else:
            target = getattr(weft.nn, row.module)(
                *nn_tensors(row.args, weft.asarray), **nn_tensors(row.kwargs, weft.asarray)
            )
            if row.prepare is not None:
                row.prepare(target)
            state = {**dict(target.named_parameters()), **dict(target.named_buffers())}
            weights = {
                n: keep(filled(n, x.shape) if x.dtype.kind == "float" else x.numpy(copy=True))
                for n, x in state.items()
            }
            target = _stateless(target)
            inputs = (weights, *inputs)
        made.append(Call(row.name, _placed(target, inputs, call), tuple(arrays)))
    return [call for call in made if call.operands]


#: Functions that ask a tensor for its value.
NEED_NUMBERS = {"nn_functional_one_hot", "nn_BatchNorm1d_cumulative"}


class _Place(int):
    """The number of a tensor among the operands of a call."""


def _placed(target: Callable[..., Any], args: Any, kwargs: Any) -> Callable[..., Any]:
    def fill(tree: Any, given: tuple[Any, ...]) -> Any:
        if isinstance(tree, _Place):
            return given[tree]
        if isinstance(tree, dict):
            return {key: fill(part, given) for key, part in tree.items()}
        if isinstance(tree, (list, tuple)):
            return type(tree)(fill(part, given) for part in tree)
        return tree

    return lambda *given: flat_results(target(*fill(args, given), **fill(kwargs, given)))


def _stateless(module: Any) -> Callable[..., Any]:
    def call(weights: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        own = {name: x.clone() for name, x in weights.items()}  # BatchNorm writes to its buffers
        return weft.functional_call(module, own, *args, **kwargs)

    return call


# --- calls that no row makes -------------------------------------------------------------------


def numbers(*shape: int, dtype: str = "float32") -> Any:
    return weft.asarray(np.random.default_rng(shape).standard_normal(shape), dtype=dtype)


def _indexing() -> None:
    x, i = numbers(5, 4, 3), weft.asarray([[2, 0], [-1, 3]])
    x.requires_grad = True
    for part in (x[i], x[:, i % 4], x[1:, i, 2], x[i, 0, ::2]):
        weft.autograd.grad(part.sum(), x)
    y = numbers(5, 4, 3)
    y[1:3] = numbers(2, 4, 3)
    y[:, ::2] = numbers(4, 1)[:1]
    y[i] = numbers(2, 2, 4, 3)
    y[:, i[0]] = numbers(5, 2, 3)


def _optimizers() -> None:
    options = [{}, {"momentum": 0.9}, {"amsgrad": True}, {"centered": True}]
    options += [{"centered": True, "momentum": 0.9}, {"momentum": 0.9, "nesterov": True}]
    for kind in (x for x in vars(weft.optim).values() if isinstance(x, type)):
        if not issubclass(kind, weft.optim.Optimizer) or kind in _NO_CARD:
            continue
        for option in options:
            if option.keys() <= inspect.signature(kind).parameters.keys():
                weights = [weft.nn.Parameter(numbers(4, 3)), weft.nn.Parameter(numbers(3))]
                for p in weights:
                    p.grad = p.detach() * 0.5
                optimizer = kind(weights, lr=0.1, **option)
                for _ in range(2):
                    optimizer.step()


_NO_CARD = (weft.optim.Optimizer, weft.optim.LBFGS, weft.optim.Muon)


def _draws() -> None:
    weft.bernoulli(weft.sigmoid(numbers(4, 3)))
    weft.randint(0, 9, (4, 3))
    chances = weft.sigmoid(numbers(4, 3))
    weft.random.gamma(chances)
    weft.random.poisson(chances)
    weft.random.binomial(8 + 0 * chances, chances)
    weft.multinomial(chances, 2)


def _second_order() -> None:
    x = numbers(2, 3, 6, 4)
    x.requires_grad = True
    y = weft.nn.functional.max_pool2d(x, 2)
    (g,) = weft.autograd.grad((y * y).sum(), x, create_graph=True)
    weft.autograd.grad((g * g).sum(), x, create_graph=True)


def _large() -> None:
    """Sizes at which products, convolutions and reductions go in blocks."""
    F = weft.nn.functional
    with_grad: list[tuple[Callable[..., Any], list[Any]]] = [
        (weft.matmul, [numbers(37, 65), numbers(65, 50)]),
        (weft.matmul, [numbers(3, 33, 20), numbers(3, 20, 18)]),
        (weft.matmul, [numbers(130, 70), numbers(70)]),
        (F.linear, [numbers(40, 33), numbers(48, 33), numbers(48)]),
        (lambda x, w: F.conv2d(x, w, padding=1), [numbers(2, 8, 17, 15), numbers(9, 8, 3, 3)]),
        (lambda x, w: F.conv2d(x, w), [numbers(2, 33, 9, 8), numbers(20, 33, 1, 1)]),
        (lambda x, w: F.conv2d(x, w, groups=8), [numbers(2, 8, 17, 15), numbers(8, 1, 3, 3)]),
        (lambda x, w: F.conv1d(x, w, stride=2), [numbers(2, 6, 65), numbers(12, 6, 5)]),
        (partial(F.conv_transpose2d, stride=2), [numbers(2, 8, 9, 7), numbers(8, 5, 2, 2)]),
        (lambda x: F.max_pool2d(x, 2), [numbers(2, 5, 18, 16)]),
        (lambda x: F.avg_pool2d(x, 3, stride=2), [numbers(2, 5, 18, 16)]),
        (lambda x: weft.sum(x, axis=1), [numbers(33, 70, 5)]),
        (lambda x: weft.max(x, axis=-1), [numbers(33, 130)]),
        (lambda x: weft.softmax(x, axis=-1), [numbers(33, 130)]),
        (lambda x: weft.cumulative_sum(x, axis=0), [numbers(33, 20)]),
        (lambda x: weft.sort(x, axis=0), [numbers(40, 6)]),
        (lambda x: weft.argsort(x, axis=-1), [numbers(6, 40)]),
        (lambda x: weft.linalg.inv(x), [numbers(3, 5, 5) + 4 * weft.eye(5)]),
    ]  # fmt: skip
    for call, args in with_grad:
        _forward_and_back(call, args, {})


OTHERS: list[Callable[[], None]] = [_indexing, _optimizers, _draws, _second_order, _large]


def whole() -> Iterable[Call]:
    """Functions that the schedule matches as a whole, at sizes where it does."""
    F = weft.nn.functional
    heads = (2, 3, 20, 8)
    yield from functions()
    for causal in (False, True):
        yield Call(
            f"attention{'-causal' * causal}",
            lambda q, k, v, causal=causal: F.scaled_dot_product_attention(
                q, k, v, is_causal=causal
            ),
            tuple(numbers(*heads, i).numpy()[..., 0] for i in (1, 2, 3)),
        )
    yield Call(
        "layer_norm-large",
        lambda x, w, b: F.layer_norm(x, (40,), w, b),
        (numbers(3, 9, 40).numpy(), numbers(40).numpy(), numbers(40, 1).numpy()[:, 0]),
    )
