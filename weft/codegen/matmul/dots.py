"""A few rows times a matrix with contiguous columns: a dot product for each element."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from weft.base.dim_algebra import dim_max, dim_min
from weft.base.dims import has_dims, is_zero, typical
from weft.codegen.cancel import cancellable_loop, pollable_run
from weft.codegen.index import Ptr, Size, divide, minimum, offset, unravel
from weft.codegen.kernel import PARAMS, Kernel, Store, argument, each_item
from weft.codegen.machine import Machine
from weft.codegen.matmul.numbers import Number, ones
from weft.codegen.matmul.pack import fold
from weft.codegen.matmul.product import Product
from weft.codegen.scalar.masks import first_lanes
from weft.codegen.scalar.vec import vector_type
from weft.codegen.text import Function, Module

__all__ = ["by_dots", "dots"]

_ITEM = 20_000  # vector loads of one item
#: At most as many rows, or at least as many terms, are faster without a copy of the columns
#: (V8, vectors of four: 64 rows of 64 terms take 8.7 µs in tiles and 10.1 µs here, 16 rows 2.5 and
#: 2.3, 64 rows of 128 terms 41 and 38).
_FEW_ROWS, _LONG = 16, 128


def dots(
    module: Module,
    name: str,
    product: Product,
    number: Number,
    places: tuple[int, int, int | None],
    store: Store,
) -> list[Kernel]:
    """The kernel of a product of one row, or of some; the terms of each operand are contiguous.

    As many columns as there are lanes are summed at once, each in its own vector; if there are
    fewer columns, each has several vectors. Finally the lanes of each vector are added.
    """
    f = module.function(name, "i32", PARAMS)
    lanes = module.machine.lanes(number.width)
    n, k = product.n, product.k
    columns = lanes if has_dims((n,)) else min(n, lanes)
    groups = -(-n // columns)
    many = max(1, _ITEM // max(1, columns * product.m * typical(k) // lanes))
    per_item = many if has_dims((n,)) else max(1, min(groups, many))
    if not module.machine.threads:
        per_item = groups
    side = -(-groups // per_item)
    a, b = (argument(f, place, number.memory) for place in places[:2])
    cost = 20 + per_item * columns * product.m * typical(k) / lanes * 0.5
    run = pollable_run(f, places[2], cost)
    store.begin(f)
    with each_item(f) as item:
        stack, part = divide(item, side)
        batch = unravel(stack, product.batch)
        at = [
            pointer + offset(operand.offset, zip(batch, operand.batch, strict=True))
            for pointer, operand in ((a, product.a), (b, product.b))
        ]
        first = part * per_item
        end = minimum(first + per_item, groups)
        if has_dims((n,)):  # lines beyond the last column are the last one again
            with f.loop(first, end) as group:
                column, step = group * columns, product.b.column
                lines = [(at[1] + minimum(column + c, n - 1) * step, 0) for c in range(columns)]
                (sums,) = _sums(f, product, number, at[0], 1, lines, lanes, run)
                value, left = number.narrowed(f, sums, lanes), minimum(n - column, lanes)
                store.put(f, value, lanes, [*batch, 0, column], first_lanes(f, lanes, left))
        else:
            for rows, near in _blocks(product, number, module.machine):
                with _each(f, near.start, near.stop, near.step) as top, f.loop(first, end) as group:
                    column = minimum(group * columns, n - columns)
                    line = at[1] + column * product.b.column
                    lines = [(line, c * product.b.column) for c in range(columns)]
                    stop = minimum(top + near.step, near.stop)
                    with _each(f, top, stop, rows) as row:
                        place = at[0] + row * product.a.row
                        found = _sums(f, product, number, place, rows, lines, lanes, run)
                        for i, sums in enumerate(found):
                            own = group * columns
                            _put(f, store, number, sums, [*batch, row + i], column, own, product)
    f.do("ret i32 0")
    work = 0
    if product.varies:
        work = product.stacks * (20_000 * side + groups * columns * k * 500 // lanes)
    return [Kernel(name, product.stacks * side, cost, stops=run is not None, work=work)]


def by_dots(product: Product, number: Number, machine: Machine) -> bool:
    """Whether dot products of several rows are faster than tiles, which copy the columns."""
    if product.m == 1:
        return True
    some = machine.is_wasm and number.is_packed and not product.varies
    return some and (product.m <= _FEW_ROWS or product.k >= _LONG)


def _blocks(product: Product, number: Number, machine: Machine) -> list[tuple[int, range]]:
    """The rows, cut so that those of a block stay in the first-level cache while columns pass by:
    how many are summed at once, and where blocks begin."""
    m, lanes = product.m, machine.lanes(number.width)
    if m == 1:
        return [(1, range(0, 1, 1))]
    columns = min(product.n, lanes)
    vectors = max(1, lanes // columns) * columns
    rows = min(m, 4, machine.rows_beside(vectors))
    near = max(1, machine.caches.first // 2 // (product.k * number.size * rows)) * rows
    last = m // rows * rows
    found = [(rows, range(0, last, min(near, last))), (1, range(last, m, m - last or 1))]
    return [(count, blocks) for count, blocks in found if len(blocks)]


@contextmanager
def _each(f: Function, begin: Size, stop: Size, step: int) -> Iterator[Size]:
    """A loop; none if there is only one round."""
    if isinstance(begin, int) and isinstance(stop, int) and stop - begin <= step:
        yield begin
    else:
        with f.loop(begin, stop, step) as index:
            yield index


def _sums(
    f: Function,
    product: Product,
    number: Number,
    row: Ptr,
    rows: int,
    lines: Sequence[tuple[Ptr, int]],
    lanes: int,
    run: Ptr | None,
) -> list[str]:
    """For each row, a vector of its dot products with some columns. Their terms begin at `lines`:
    pointers, and offsets from there."""
    columns = len(lines)
    k, kind = product.k, vector_type(number.kind, lanes)
    wide = max(1, lanes // columns)  # vectors of one column
    cells = [
        [[f.var(kind, "zeroinitializer") for _ in range(wide)] for _ in range(columns)]
        for _ in range(rows)
    ]

    def add(at: Size, u: int, mask: str | None = None) -> None:
        start = at + u * lanes
        step = product.a.row
        xs = [number.load(f, row + i * step + start, lanes, mask) for i in range(rows)]
        for c in range(columns):
            y = number.load(f, lines[c][0] + lines[c][1] + start, lanes, mask)
            for x, own in zip(xs, cells, strict=True):
                sum = own[c][u].load()
                own[c][u].store(f(number.madd(f, lanes, x, y, sum)))

    stride = wide * lanes
    main = k // stride * stride
    if not is_zero(main):
        with cancellable_loop(f, run, 0, main, stride, each=0.5 * rows * columns * wide) as p:
            for u in range(wide):
                add(p, u)
    if has_dims((k,)):
        for u in range(wide):
            rest = dim_min(dim_max(k - main - u * lanes, 0), lanes)
            if not is_zero(rest):
                with f.when(f(f"icmp sgt i64 {f.size(rest)}, 0")):
                    add(f.size(main), u, first_lanes(f, lanes, f.size(rest)))
    for u in range(0 if has_dims((k,)) else -(-(k - main) // lanes)):
        left = min(lanes, k - main - u * lanes)
        add(main, u, ones(left, lanes) if left < lanes else None)
    word = "fadd" if number.dtype.kind == "float" else "add"
    made = []
    for own in cells:
        totals = []
        for c in range(columns):
            total, *others = [cell.load() for cell in own[c]]
            for other in others:
                total = f(f"{word} {kind} {total}, {other}")
            totals.append(total)
        made.append(fold(f, [*totals, *["zeroinitializer"] * (lanes - columns)], kind, word))
    return made


def _put(
    f: Function,
    store: Store,
    number: Number,
    sums: str,
    index: list[Size],
    column: Size,
    wanted: Size,
    product: Product,
) -> None:
    """Pass the group's own sums to the store: the last group is shifted back and overlaps."""
    lanes = f.module.machine.lanes(number.width)
    n = product.n
    kind = vector_type(number.kind, lanes)
    if n == 1:
        one = f(f"extractelement {kind} {sums}, i64 0")
        store.put(f, number.narrowed(f, one, 1), 1, [*index, column])
        return
    value = number.narrowed(f, sums, lanes)
    if n < lanes:
        store.put(f, value, lanes, [*index, column], ones(n, lanes))
    elif n % lanes == 0:
        store.put(f, value, lanes, [*index, column])
    else:
        full = f(f"icmp eq i64 {column}, {wanted}")
        with f.when(full):
            store.put(f, value, lanes, [*index, column])
        with f.when(f(f"xor i1 {full}, true")):
            # The group's own sums are its last ones: move them to the first lanes, for the mask.
            rest = n % lanes
            if rest == 1:
                one = f(f"extractelement {kind} {sums}, i64 {lanes - 1}")
                store.put(f, number.narrowed(f, one, 1), 1, [*index, n - 1])
            else:
                order = ", ".join(f"i32 {(i - rest) % lanes}" for i in range(lanes))
                moved = f(f"shufflevector {kind} {sums}, {kind} poison, <{lanes} x i32> <{order}>")
                value = number.narrowed(f, moved, lanes)
                store.put(f, value, lanes, [*index, n - rest], ones(rest, lanes))
