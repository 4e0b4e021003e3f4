"""The ways of all cards to be divided: calls on parts, put together, are the call on the whole."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from op_calls import function, tensors
from samples import ROWS
from samples.table import Row

import weft
from weft import nn, optim
from weft.autodiff.node import weft_namespace
from weft.core.bind import Recorder, bind, recording
from weft.core.tensor import type_of
from weft.ir.cuts import Interleaved
from weft.ir.op import OPS, Trait
from weft.ir.ways import SUM, Span, Way, local_attrs, ways_of_call

DTYPES = (weft.float64, weft.int64, weft.complex128, weft.bool)
KINDS = {"max": np.maximum, "min": np.minimum, "prod": np.multiply}


def given(state: Any, array: Any, parts: int, seed: int) -> list[Any]:
    """What each rank has of an operand."""
    if state is None:
        return [array] * parts
    if state == SUM:
        rng = np.random.default_rng(seed)
        terms = [rng.normal(size=array.shape).astype(array.dtype) for _ in range(parts - 1)]
        return [*terms, array - sum(terms)]
    return [np.ascontiguousarray(part) for part in cut(array, parts, state)]


def cut(array: Any, parts: int, state: Any) -> list[Any]:
    if not isinstance(state, Interleaved):
        return np.split(array, parts, axis=state)
    sections = np.split(array, state.sections, axis=state)
    pieces = [np.split(section, parts, axis=state) for section in sections]
    return [np.concatenate(each, axis=state) for each in zip(*pieces, strict=True)]


def together(state: Any, found: list[Any], combine: str) -> Any:
    if combine:
        return KINDS[combine].reduce(np.stack(found))
    if state == SUM:
        return sum(found)
    if state is None:
        for other in found[1:]:
            np.testing.assert_array_equal(other, found[0])
        return found[0]
    if isinstance(state, Interleaved):
        pieces = [np.split(part, state.sections, axis=state) for part in found]
        return np.concatenate([p for each in zip(*pieces, strict=True) for p in each], axis=state)
    return np.concatenate(found, axis=state)


def check_way(op: Any, way: Way, parts: int, arrays: list[Any], attrs: Any, wanted: Any) -> None:
    shares = [
        given(state, array, parts, i)
        for i, (state, array) in enumerate(zip(way.inputs, arrays, strict=True))
    ]
    outputs: list[list[Any]] = []
    whole_kinds = [*[type_of(weft.asarray(a)) for a in arrays], *map(type_of, wanted)]
    for rank in range(parts):
        mine = [weft.asarray(share[rank]) for share in shares]
        kinds = []
        for state, whole in zip(way.outputs, wanted, strict=True):
            shape = list(whole.shape)
            if isinstance(state, int):
                shape[state] //= parts
            kinds.append(type_of(whole).like(shape=tuple(shape)))
        if way.rule is not None:
            size = way.parts // parts
            span = Span(weft.asarray(rank * size), size, way.parts)
            outputs.append([way.rule(weft_namespace(), span, *mine, **attrs).numpy()])
            continue
        here = local_attrs(op, attrs, whole_kinds, [type_of(x) for x in mine], kinds)
        out = bind(op, *mine, **here)
        results = out if isinstance(out, tuple) else (out,)
        assert [x.shape for x in results] == [kind.shape for kind in kinds], (op.name, str(way))
        outputs.append([x.numpy() for x in results])
    for state, found, whole in zip(way.outputs, zip(*outputs, strict=True), wanted, strict=True):
        got = together(state, list(found), way.combine)
        message = f"{op.name} {way} in {parts} parts, attributes {attrs}"
        if got.dtype.kind not in "fcbiu":  # narrow floats
            got = got.astype(np.float64)
        if got.dtype.kind in "fc":
            scale = max([1.0, *(abs(x).max() for x in found if x.size)])
            np.testing.assert_allclose(
                got, whole.numpy(), rtol=1e-9, atol=1e-9 * scale, err_msg=message
            )
        else:
            np.testing.assert_array_equal(got, whole.numpy(), err_msg=message)


class Divided(Recorder):
    """Checks all ways of each call."""

    def call(self, op: Any, inputs: Any, attrs: Any) -> Any:
        out = bind(op, *inputs, **attrs)
        results = out if isinstance(out, tuple) else (out,)
        if op.random or op.nested or op.effect:
            return out
        kinds = [type_of(x) for x in inputs]
        arrays = [x.numpy() for x in inputs]
        ways = ways_of_call(op, kinds, [type_of(x) for x in results], attrs)
        more = [way.interleaved(n) for way in ways for n in (2, 3) if way.parts > n]
        for way in (*ways, *[way for way in more if way is not None and way.parts > 1]):
            terms = SUM in way.inputs
            if terms and not all((abs(a) < 1e6).all() for a in arrays if a.dtype.kind in "fc"):
                continue  # a sum of terms has other infinities, and rounds elsewhere
            least = next((n for n in range(2, way.parts + 1) if way.parts % n == 0), 2)
            for parts in {least, way.parts or 2}:
                if parts <= 8:
                    check_way(op, way, parts, arrays, attrs, results)
        return out


def drawn(*shape: int, seed: int = 0) -> weft.Tensor:
    return weft.asarray(np.random.default_rng([seed, *shape]).normal(size=shape))


def numbers(*shape: int, below: int) -> weft.Tensor:
    return weft.asarray(np.random.default_rng(below).integers(0, below, shape))


def updated(make: Any) -> Any:
    def call() -> None:
        weight = nn.Parameter(drawn(4, 6))
        optimizer = make([weight])
        for step in range(2):
            optimizer.zero_grad()
            (weight * drawn(4, 6, seed=step)).sum().backward()
            optimizer.step()

    return call


def trained(function: Any, *operands: weft.Tensor) -> Any:
    """The call, and the calls of its backward."""

    def call() -> None:
        given = [x.clone() for x in operands]
        for x in given:
            if x.dtype.kind == "float":
                x.requires_grad = True
        (function(*given) * 1.5).sum().backward(create_graph=True)

    return call


F = nn.functional
CALLS: dict[str, Any] = {
    "linear": trained(F.linear, drawn(2, 4, 6), drawn(8, 6), drawn(8)),
    "embedding": trained(F.embedding, numbers(4, 6, below=5), drawn(5, 4)),
    "conv2d": trained(F.conv2d, drawn(4, 2, 5, 5), drawn(6, 2, 3, 3), drawn(6)),
    "conv2d plain": trained(
        lambda x, w: F.conv2d(x, w, padding=1), drawn(2, 4, 5, 5), drawn(2, 4, 3, 3)
    ),
    "conv2d groups": trained(
        lambda x, w: F.conv2d(x, w, groups=2), drawn(2, 4, 5, 5), drawn(6, 2, 3, 3)
    ),
    "max_pool2d": trained(lambda x: F.max_pool2d(x, 2), drawn(4, 2, 6, 6)),
    "max_pool2d indices": lambda: F.max_pool2d(drawn(4, 2, 6, 6), 2, return_indices=True),
    "avg_pool2d": trained(lambda x: F.avg_pool2d(x, 2), drawn(4, 2, 6, 6)),
    "cross_entropy": trained(F.cross_entropy, drawn(6, 4), numbers(6, below=4)),
    "cross_entropy sum": trained(
        lambda x, y: F.cross_entropy(x, y, reduction="sum"), drawn(6, 4, 2), numbers(6, 2, below=4)
    ),
    "cross_entropy none": trained(
        lambda x, y: F.cross_entropy(x, y, reduction="none"), drawn(6, 4), numbers(6, below=4)
    ),
    "nll": trained(F.nll_loss, drawn(6, 4), numbers(6, below=4)),
    "softplus": trained(F.softplus, drawn(4, 6)),
    "bce": lambda: F.binary_cross_entropy(weft.sigmoid(drawn(4, 6)), weft.sigmoid(drawn(4, 6))),
    "layer_norm": trained(lambda x: F.layer_norm(x, (6,)), drawn(4, 6)),
    "lstm": trained(lambda x: nn.LSTM(4, 6, dtype=weft.float64)(x)[0], drawn(3, 2, 4)),
    "gru": trained(lambda x: nn.GRU(4, 6, dtype=weft.float64)(x)[0], drawn(3, 2, 4)),
    **{
        f"optim.{name}": updated(lambda p, name=name: getattr(optim, name)(p, lr=0.1))
        for name in ("Adadelta", "Adagrad", "Adam", "Adamax", "ASGD", "Lion", "NAdam", "RAdam")
    },
    **{
        f"optim.{name}": updated(lambda p, n=name: getattr(optim, n)(p, lr=0.1))
        for name in ("RMSprop", "Rprop", "SGD")
    },
    "optim.SGD momentum": updated(lambda p: optim.SGD(p, lr=0.1, momentum=0.9)),
    "optim.AMSGrad": updated(lambda p: optim.Adam(p, lr=0.1, amsgrad=True)),
}


@pytest.mark.parametrize("name", CALLS)
def test_layers_in_parts(name: str) -> None:
    divided = Divided()
    with recording(divided):
        CALLS[name]()


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_parts_make_the_whole(row: Row) -> None:
    divided = Divided()
    for dtype in row.dtypes():
        if dtype in DTYPES:
            for sample in row.samples(dtype):
                with recording(divided), warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    function(row.name)(*tensors(sample.args), **tensors(sample.kwargs))


#: Cards that run whole, on each rank: nothing says how to divide them.
WHOLE = """
    arange choice_weights constant dim_size eye fits_int64 maximum_at minimum_at multiply_at pinv
    python_defined random_advance searchsorted
"""


def test_cards_say_how_they_may_be_divided() -> None:
    others = Trait.RANDOM | Trait.EFFECT | Trait.COLLECTIVE | Trait.DATA_SHAPE | Trait.STACK
    known = Trait.ELEMENTWISE | Trait.LINEAR | Trait.JOINT | others
    silent = {
        op.name
        for op in OPS.values()
        if op.infer.__module__.startswith("weft.")  # not cards that tests make
        and op.ways is None
        and not op.traits & known
        and not op.nested
    }
    assert {name for name in silent if not name.startswith("function_")} == set(WHOLE.split())
