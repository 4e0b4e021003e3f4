"""Attention with one key, in runs of kernels for any number of keys: a path without products.

The softmax of one score is 1, so the result is the value, and the gradients of query and key are 0.
Like the kernels for more keys, this gives NaN where the score is not finite.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from weft.base.dims import has_dims
from weft.codegen.attention.spec import Attention
from weft.codegen.attention.work import Work
from weft.codegen.index import Ptr, Size
from weft.codegen.kernel import Store
from weft.codegen.matmul.numbers import Number, ones
from weft.codegen.matmul.product import Operand
from weft.codegen.scalar.vec import Vec

__all__ = ["GivenOfOne", "by_keys", "gradients_of_one", "may_have_one_key", "values_of_one"]


def may_have_one_key(spec: Attention, number: Number) -> bool:
    """Whether a kernel has this path: if only the run counts its keys, and nothing is masked."""
    return has_dims((spec.keys,)) and number.is_packed and spec.mask is None and not spec.blank


@contextmanager
def by_keys(w: Work, one: Callable[[], None]) -> Iterator[None]:
    """What is written inside runs for more than one key, and what `one` writes for one key. For
    causal attention, too: every query sees the first key."""
    if not may_have_one_key(w.spec, w.number):
        yield
        return
    f = w.f
    alone = f(f"icmp eq i64 {f.size(w.spec.keys)}, 1")
    with f.when(alone):
        one()
    with f.when(f(f"xor i1 {alone}, true")):
        yield


def values_of_one(
    w: Work,
    given: tuple[Ptr, Ptr, Ptr],
    batch: Sequence[Size],
    queries: tuple[Size, Size, int],
    room: Ptr,
    store: Store,
    lse: Ptr | None,
) -> None:
    """The results of some queries (the first, how many) of a matrix; `given` are q, k and v.

    `lse` is the address of log(sum(exp(score))) of the matrix, if it is wanted; `room` has a row of
    values."""
    f, spec = w.f, w.spec
    q, k, v = given
    key = w.matrix(k, spec.k, batch, 0)
    value = w.matrix(v, spec.v, batch, 0)
    if spec.values % w.lanes:  # rows are stored as whole vectors
        _each(
            w, spec.values, lambda at, mask: w.write(_read(w, value, at, mask), w.element(room, at))
        )
        value = room
    first, skip, count = queries
    with f.loop(skip, count) as r:
        query = first + r
        row = w.matrix(q, spec.q, batch, query)
        score = _dot(w, row, key, spec.features) * spec.scale
        nothing = score - score  # NaN, unless the score is finite
        w.put_row(store, value, spec.values, [*batch, query], w.splat(nothing + 1.0))
        if lse is not None:
            w.write(score + nothing, w.element(lse, query))


@dataclass(frozen=True, slots=True)
class GivenOfOne:
    """What the backward of a matrix reads, and local memory of a row for each gradient."""

    q: Ptr
    k: Ptr
    v: Ptr
    out: tuple[Ptr, Operand]
    grad: tuple[Ptr, Operand]
    lse: Ptr
    rooms: tuple[Ptr, Ptr, Ptr]


def gradients_of_one(
    w: Work,
    given: GivenOfOne,
    batch: Sequence[Size],
    queries: Callable[[], AbstractContextManager[Size]],
    stores: tuple[Store, Store, Store],
) -> None:
    """The gradients of q, k and v of a matrix; `queries` is the loop over its queries."""
    f, spec = w.f, w.spec
    key = w.matrix(given.k, spec.k, batch, 0)
    value = w.matrix(given.v, spec.v, batch, 0)
    dq, dk, dv = given.rooms
    for room, columns in ((dk, spec.features), (dv, spec.values)):
        with f.loop(0, columns, w.lanes) as at:
            w.write(w.number_vec(0.0), w.element(room, at))
    with queries() as query:
        grad = w.matrix(given.grad[0], given.grad[1], batch, query)
        out = w.matrix(given.out[0], given.out[1], batch, query)
        lse = w.read_one(given.lse, query)
        weight = w.splat(lse - lse + 1.0)
        total = f.var(w.whole, "zeroinitializer")

        def of_value(at: Size, mask: str | None) -> None:
            g = _read(w, grad, at, mask)
            less = _read(w, value, at, mask) - _read(w, out, at, mask)
            total.store((w.vec(total.load()) + g * less).name)
            place = w.element(dv, at)
            w.write(w.read(place) + g * weight, place)

        _each(w, spec.values, of_value)
        slope = w.splat(w.fold(w.vec(total.load()), "add")) * weight * spec.scale
        row = w.matrix(given.q, spec.q, batch, query)

        def of_feature(at: Size, mask: str | None) -> None:
            w.write(slope * _read(w, key, at, mask), w.element(dq, at))
            place = w.element(dk, at)
            w.write(w.read(place) + slope * _read(w, row, at, mask), place)

        _each(w, spec.features, of_feature)
        w.put_row(stores[0], dq, spec.features, [*batch, query])
    w.put_row(stores[1], dk, spec.features, [*batch, 0])
    w.put_row(stores[2], dv, spec.values, [*batch, 0])


def _dot(w: Work, x: Ptr, y: Ptr, columns: int) -> Vec:
    """The sum of products of two rows."""
    total = w.f.var(w.whole, "zeroinitializer")

    def add(at: Size, mask: str | None) -> None:
        a, b = (_read(w, row, at, mask).name for row in (x, y))
        total.store(w.f(w.number.madd(w.f, w.lanes, a, b, total.load())))

    _each(w, columns, add)
    return w.fold(w.vec(total.load()), "add")


def _each(w: Work, columns: int, body: Callable[[Size, str | None], None]) -> None:
    """Call `body` for each vector of a row: with its first column, and a mask where the row ends in
    it."""
    whole = columns // w.lanes * w.lanes
    if whole:
        with w.f.loop(0, whole, w.lanes) as at:
            body(at, None)
    if columns > whole:
        body(whole, ones(columns - whole, w.lanes))


def _read(w: Work, row: Ptr, at: Size, mask: str | None) -> Vec:
    return w.vec(w.number.load(w.f, w.element(row, at), w.lanes, mask))
