"""Each batching rule on its own: what it gives is what a call for each element gives.

The op calls come from running the rows of samples, forward and backward; each is repeated with any
set of its inputs mapped, and so are its gradients.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
from index_cases import INDICES, numbers
from mapped_calls import Tensor, same, varied
from nn_samples import ROWS as NN_ROWS
from nn_samples.table import tensors as nn_tensors
from op_calls import flat, function, tensors
from samples import ROWS

import weft
from weft.autodiff.transforms.vmap import rule_of
from weft.base.dtypes import DTYPES
from weft.core.bind import Recorder, bind, recording
from weft.core.tensor import type_of
from weft.ir.attributes import attrs_key
from weft.ir.op import OPS, Op, Trait
from weft.ops.batching import Same, looped

Call = tuple[tuple[Tensor, ...], dict[str, Any]]
#: How many calls of one op are tried: of different shapes and attributes.
MOST = 24

#: Cards without a batching rule that are not ELEMENTWISE, by the reason.
WITHOUT_RULE: dict[str, Callable[[Op], bool]] = {
    "it has no inputs": lambda op: not op.inputs,
    "the size of its result depends on values": lambda op: (
        op.name in ("nonzero", "unique_all", "unique_parts", "bincount")
    ),
    "control flow: weft.autodiff.transforms.control does it": lambda op: op.nested,
    "it is an effect": lambda op: Trait.EFFECT in op.traits,
}


class Calls(Recorder):
    """Notes different calls of each op."""

    def __init__(self) -> None:
        self.found: dict[str, dict[Any, Call]] = {}

    def call(self, op: Op, inputs: tuple[Tensor, ...], attrs: dict[str, Any]) -> Any:
        known = self.found.setdefault(op.name, {})
        key = (tuple(str(type_of(x)) for x in inputs), attrs_key(attrs))
        if len(known) < MOST and key not in known:
            known[key] = (tuple(x.detach() for x in inputs), attrs)
        return bind(op, *inputs, **attrs)


def backward(outputs: Any, leaves: list[Tensor]) -> None:
    """Run the derivatives of all outputs, by ops."""
    ends = [out for out in flat(outputs) if out.requires_grad]
    wanted = [x for x in leaves if x.requires_grad]
    if ends and wanted:
        total = sum((weft.abs(out) ** 2).sum() for out in ends)
        weft.autograd.grad(total, wanted, create_graph=True, allow_unused=True)


def leaves_of(tree: Any) -> list[Tensor]:
    found = flat(tree)
    for x in found:
        x.requires_grad = x.dtype.kind in ("float", "complex")
    return found


class Cube(weft.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return 3 * x**2 * g


@cache
def calls() -> dict[str, list[Call]]:
    seen = Calls()
    for row in ROWS:
        for dtype in row.dtypes():
            if dtype.name in ("float64", "complex128", "int64", "bool"):
                for sample in row.samples(dtype):
                    with recording(seen):
                        function(row.name)(*tensors(sample.args), **tensors(sample.kwargs))
    for nn_row in NN_ROWS:
        make = weft.asarray
        inputs, given = nn_tensors(nn_row.inputs, make), nn_tensors(nn_row.call, make)
        f = getattr(weft.nn.functional, nn_row.module) if nn_row.is_function else None
        if f is None:
            parts = nn_tensors(nn_row.args, make), nn_tensors(nn_row.kwargs, make)
            f = getattr(weft.nn, nn_row.module)(*parts[0], **parts[1]).double()
        leaves = leaves_of(inputs) + list(getattr(f, "parameters", list)())
        with recording(seen):
            backward(f(*inputs, **given), leaves)
    for shape, index in INDICES:
        x = weft.tensor(numbers(shape), requires_grad=True)
        with recording(seen):
            y = x * 1
            y[index] = x[index] * 2
            backward(y, [x])
    names = ("SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta", "NAdam", "RAdam", "Adamax")
    for name in (*names, "Lion", "Rprop", "ASGD"):
        for options in OPTIONS.get(name, [{}]):
            p = weft.nn.Parameter(numbers((2, 3)))
            optimizer = getattr(weft.optim, name)([p], lr=0.1, **options)
            for _ in range(2):
                p.grad = numbers((2, 3), seed=1)
                with recording(seen):
                    optimizer.step()
    x = weft.tensor(numbers((2, 3, 4)), requires_grad=True)
    with recording(seen):  # gradients of gradients, of pooling and of tables
        for f in (weft.nn.functional.max_pool2d, weft.nn.functional.avg_pool2d):
            (first,) = weft.autograd.grad((f(x, 2) ** 3).sum(), x, create_graph=True)
            weft.autograd.grad(first.sum(), x, create_graph=True)
        weft.vmap(lambda x: Cube.apply(x))(x)
        weft.make_graph(Cube.apply, x)(x)
    x = numbers((2, 3))
    for name, attrs in (
        ("fence", {}),
        ("named", {"name": "x"}),
        ("sent", {"target": "cpu"}),
        ("assume_shape", {"shape": (2, 3)}),
    ):
        seen.found[name] = {0: ((x,), attrs)}
    seen.found["with_gradient_of"] = {0: ((x, numbers((2, 3), seed=1)), {})}
    seen.found["choose"] = {0: ((x > 0, x, x * 2), {})}
    seen.found["only_where"] = {0: ((x > 0, weft.log(x)), {})}  # some of them NaN
    seen.found["choice_weights"] = {0: ((weft.abs(x) + 1,), {"count": 2})}
    seen.found["log_gamma_slope"] = {0: ((weft.abs(x) + 1, numbers((2, 3), seed=1)), {})}
    seen.found["to_device"] = {0: ((x,), {"device": x.device})}
    return {name: list(found.values()) for name, found in seen.found.items()}


OPTIONS: dict[str, list[dict[str, Any]]] = {
    "SGD": [{}, {"momentum": 0.9}],
    "Adam": [{}, {"amsgrad": True}],
    "RMSprop": [{}, {"momentum": 0.9}, {"centered": True}, {"centered": True, "momentum": 0.9}],
}


def masks(count: int) -> Iterator[tuple[bool, ...]]:
    if count > 4:  # all, and each alone
        yield (True,) * count
        yield from (tuple(i == j for i in range(count)) for j in range(count))
    else:
        yield from (m for m in itertools.product((True, False), repeat=count) if any(m))


def results(out: Any, size: int) -> list[Tensor]:
    parts = out if isinstance(out, tuple) else (out,)
    return [
        weft.broadcast_to(part.tensor, (size, *part.tensor.shape))
        if isinstance(part, Same)
        else part
        for part in parts
    ]


#: Those of collectives are tried by tests/distributed, those of stacks, which only graphs have, by
#: test_transforms_control, and that of the numbers that loops carry by test_loop_counters.
RULES = [
    op
    for op in OPS.values()
    if (op.batch is not None or op.elementwise)
    and not op.name.startswith("random_")
    and Trait.STACK not in op.traits
    and not op.collective
    and op.name not in ("fits_int64", "python_defined")
]


@pytest.mark.parametrize("op", RULES, ids=lambda op: op.name)
def test_the_rule_is_a_loop(op: Op) -> None:
    found = calls().get(op.name)
    assert found, f"nothing calls {op.name}"
    done = 0
    for inputs, attrs in found:
        for mask in masks(len(inputs)):
            if op.name == "repeat" and mask[1]:
                continue
            stacks = [
                weft.stack([varied(x, i) for i in range(3)]) if m else x
                for x, m in zip(inputs, mask, strict=True)
            ]
            what = f"{op.name} {[str(x.type) for x in inputs]} {attrs} {mask}"
            try:
                loop = Rule(op, looped, 3, mask, attrs)(*stacks)
            except (weft.errors.WeftError, ValueError):
                continue  # not every change of the inputs is possible
            rule = Rule(op, rule_of(op), 3, mask, attrs)
            same(rule(*stacks), loop, what)
            check_gradients(rule, Rule(op, looped, 3, mask, attrs), stacks, what)
            done += 1
    assert done


class Rule:
    """A batching rule as a function of tensors."""

    def __init__(self, op: Op, rule: Any, size: int, mask: tuple[bool, ...], attrs: Any) -> None:
        self.call = lambda *given: results(rule(op, size, mask, given, attrs), size)

    def __call__(self, *given: Tensor) -> list[Tensor]:
        return self.call(*given)


def check_gradients(rule: Rule, loop: Rule, stacks: list[Tensor], what: str) -> None:
    """Both have the same gradients."""
    floats = tuple(i for i, x in enumerate(stacks) if x.dtype.kind in ("float", "complex"))
    if not floats:
        return

    def total(f: Rule) -> Callable[..., Tensor]:
        def weighed(*given: Tensor) -> Tensor:
            ends = [out for out in f(*given) if out.dtype.kind in ("float", "complex")]
            if not ends or not all(np.isfinite(e.detach().numpy()).all() for e in ends):
                return weft.tensor(0.0)
            return sum((weft.abs(e) ** 2 * weights(e)).sum() for e in ends)

        return weighed

    try:
        want = weft.grad(total(loop), argnums=floats)(*stacks)
    except weft.errors.GradientError:
        return
    same(list(weft.grad(total(rule), argnums=floats)(*stacks)), list(want), f"gradient of {what}")


def weights(x: Tensor) -> Tensor:
    real = {"complex128": DTYPES["float64"], "complex64": DTYPES["float32"]}
    array = np.cos(np.arange(x.size)).reshape(x.shape)
    return weft.asarray(array, dtype=real.get(x.dtype.name, x.dtype))


@pytest.mark.parametrize("op", RULES, ids=lambda op: op.name)
@pytest.mark.parametrize("size", [0, 1])
def test_no_element_and_one(op: Op, size: int) -> None:
    for inputs, attrs in calls()[op.name][:6]:
        stacks = [weft.broadcast_to(x, (size, *x.shape)) for x in inputs]
        mask = (True,) * len(inputs)
        if op.name == "repeat":
            mask, stacks = (True, False), [stacks[0], inputs[1]]
        try:
            want = results(
                looped(
                    op, 1, mask, [_ones(s, m) for s, m in zip(stacks, mask, strict=True)], attrs
                ),
                1,
            )
        except (weft.errors.WeftError, ValueError):
            continue
        got = results(rule_of(op)(op, size, mask, stacks, attrs), size)
        assert [g.shape for g in got] == [(size, *w.shape[1:]) for w in want]
        assert [g.dtype for g in got] == [w.dtype for w in want]


def _ones(x: Tensor, mapped: bool) -> Tensor:
    """The stack with one element."""
    return x if not mapped or x.shape[0] else weft.ones((1, *x.shape[1:]), dtype=x.dtype)


@pytest.mark.parametrize("op", OPS.values(), ids=lambda op: op.name)
def test_card_has_a_rule_or_a_reason(op: Op) -> None:
    reasons = [reason for reason, holds in WITHOUT_RULE.items() if holds(op)]
    has = op.batch is not None or op.elementwise
    assert has != bool(reasons), f"{op.name}: {reasons or 'no batching rule'}"
