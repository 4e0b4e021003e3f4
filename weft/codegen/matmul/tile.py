"""The innermost function: a tile of the result, in registers while its terms are summed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

from weft.codegen.index import Ptr, Size, step
from weft.codegen.matmul.numbers import Number, ones
from weft.codegen.scalar.vec import vector_type
from weft.codegen.text import Function, Module

__all__ = ["Tiles", "Walk", "terms", "tile", "tile_of_rows"]


def tile(
    module: Module, a: Number, b: Number, rows: int, vectors: int, *, across: bool, last: int = 0
) -> str:
    """The function that adds `k` terms to a tile of `rows` rows of `vectors` vectors each.

        void @tile(ptr a, i64 a_step, ptr b, i64 b_step, i64 k, ptr sums, i64 sums_step, i1 more)

    a_step is the bytes from a row of a to the next, whose terms are contiguous. With `across` the
    rows are contiguous, and a_step leads to the next term. b_step leads from one term of b to the
    next, sums_step from a row of sums to the next. Sums start from 0 unless `more`. If `last` is
    not 0, only that many lanes of b's last vector exist. k is at least 1.
    """
    name = _name(a, b, rows, vectors, across, last)

    def make(module: Module) -> None:
        f = module.function(name, "void", _PARAMS, "nounwind noinline")
        _write(f, a, b, rows, vectors, across, last)

    return module.once(name, make)


_PARAMS = (
    ("ptr noalias", "a"),
    ("i64", "a_step"),
    ("ptr noalias", "b"),
    ("i64", "b_step"),
    ("i64", "k"),
    ("ptr noalias", "sums"),
    ("i64", "sums_step"),
    ("i1", "more"),
)


def tile_of_rows(
    module: Module,
    a: Number,
    b: Number,
    counts: Sequence[int],
    vectors: int,
    *,
    across: bool = False,
    last: int = 0,
) -> str:
    """A function with one more argument, the rows of the tile: one of `counts`."""
    name = _name(a, b, "_".join(map(str, counts)), vectors, across, last)

    def make(module: Module) -> None:
        tiles = [tile(module, a, b, rows, vectors, across=across, last=last) for rows in counts]
        f = module.function(name, "void", [*_PARAMS, ("i64", "rows")], "nounwind noinline")
        labels = [f.fresh("rows") for _ in counts]
        cases = " ".join(
            f"i64 {rows}, label %{label}" for rows, label in zip(counts, labels, strict=True)
        )
        given = ", ".join(f"{kind} %{param}" for kind, param in _PARAMS)
        f.do(f"switch i64 %rows, label %{labels[-1]} [ {cases} ]")
        for label, one in zip(labels, tiles, strict=True):
            f.block(label)
            f.do(f"tail call void @{one}({given})")
            f.do("ret void")

    return module.once(name, make)


def _name(a: Number, b: Number, rows: int | str, vectors: int, across: bool, last: int) -> str:
    return f"tile.{a}.{b}.{rows}x{vectors}.{'across' if across else 'along'}.{last}"


class Tiles:
    """The (rows, vectors) of tiles of packed operands that a module has."""

    def __init__(self, module: Module, number: Number, *, across: bool) -> None:
        self._has = module.has
        self._number = number.packed
        self._across = across

    def __contains__(self, shape: object) -> bool:
        rows, vectors = cast("tuple[int, int]", shape)
        number = self._number
        return self._has(_name(number, number, rows, vectors, self._across, 0))


def _write(
    f: Function, a: Number, b: Number, rows: int, vectors: int, across: bool, last: int
) -> None:
    lanes = f.module.machine.lanes(a.width)
    kind = vector_type(a.kind, lanes)

    def places() -> Iterator[Ptr]:
        """The addresses of the sums, row by row."""
        for row in range(rows):
            line = f.ptr("%sums", kind).bytes(f.index("%sums_step") * row)
            for v in range(vectors):
                yield line + v

    start, again, begin = (f.fresh(w) for w in ("start", "again", "begin"))
    f.jump(start)
    f.block(start)
    f.branch("%more", again, begin)
    f.block(again)
    old = [place.load(a.width) for place in places()]
    f.jump(begin)
    f.block(begin)
    before = [f(f"phi {kind} [ zeroinitializer, %{start} ], [ {o}, %{again} ]") for o in old]
    walk = Walk(f.ptr("%a"), f.index("%a_step"), f.ptr("%b"), f.index("%b_step"), f.index("%k"))
    made = terms(f, a, b, walk, rows, vectors, before, across=across, last=last)
    for value, at in zip(made, places(), strict=True):
        at.store(value, a.width)
    f.do("ret void")


@dataclass(frozen=True, slots=True)
class Walk:
    """The addresses of a tile's operands, the bytes to their next lines, the number of terms."""

    a: Ptr
    a_step: Size
    b: Ptr
    b_step: Size
    k: Size


#: Rows of `a` that one pointer addresses: base, base + step, base + 2 * step.
_REACH = 3


def terms(
    f: Function,
    a: Number,
    b: Number,
    walk: Walk,
    rows: int,
    vectors: int,
    before: Sequence[str],
    *,
    across: bool,
    last: int = 0,
) -> list[str]:
    """The loop over the terms of a tile: returns its sums, row by row; they start from `before`."""
    lanes = f.module.machine.lanes(a.width)
    kind = vector_type(a.kind, lanes)
    reach = rows if across or isinstance(walk.a_step, int) else _REACH
    far = [walk.a_step * row for row in range(rows)]
    bases = [walk.a.bytes(skip) for skip in far[::reach]]
    start, head, end = f.at, f.fresh("terms"), f.fresh("end")
    f.jump(head)
    f.block(head)
    left, right = f"%{f.fresh('left')}", f"%{f.fresh('rest')}"
    f.do(f"{left} = phi i64 [ {walk.k}, %{start} ], [ {right}, %{head} ]")

    def carried(kind: str, first: str) -> tuple[str, str]:
        """A loop-carried value: its name, and the name of its next value."""
        now, then = f"%{f.fresh('now')}", f"%{f.fresh('then')}"
        f.do(f"{now} = phi {kind} [ {first}, %{start} ], [ {then}, %{head} ]")
        return now, then

    walks = [carried("ptr", base.name) for base in bases]
    b_now, b_then = carried("ptr", walk.b.name)
    sums = [carried(kind, old) for old in before]

    columns = []
    for v in range(vectors):
        mask = ones(last, lanes) if last and v == vectors - 1 else None
        columns.append(b.load(f, f.ptr(b_now, b.memory) + v * lanes, lanes, mask))
    for row in range(rows):
        at = f.ptr(walks[row // reach][0])
        at = at.bytes(row * a.size if across else far[row % reach])
        value = a.splat(f, a.load(f, at, 1), lanes)
        for v in range(vectors):
            now, then = sums[row * vectors + v]
            f.do(f"{then} = {a.madd(f, lanes, value, columns[v], now)}")

    for now, then in walks:
        f.do(f"{then} = {step('i8', now, walk.a_step if across else a.size)}")
    f.do(f"{b_then} = {step('i8', b_now, walk.b_step)}")
    f.do(f"{right} = add nsw i64 {left}, -1")
    f.branch(f(f"icmp sgt i64 {left}, 1"), head, end)
    f.block(end)
    return [then for _, then in sums]
