"""One row times a matrix whose columns lie side by side: a dot product for each column."""

from __future__ import annotations

from weft.codegen.cancel import asks, long_loop
from weft.codegen.kernel import PARAMS, Kernel, Store, argument
from weft.codegen.matmul.arith import address, divided, least, plus, times, unravel
from weft.codegen.matmul.numbers import Number, ones
from weft.codegen.matmul.pack import fold
from weft.codegen.matmul.product import Product
from weft.codegen.scalar.vec import vector_type
from weft.codegen.text import Function, Module

__all__ = ["dots"]

_ITEM = 20_000  # loads of a vector that make an item


def dots(
    module: Module,
    name: str,
    product: Product,
    number: Number,
    places: tuple[int, int, int | None],
    store: Store,
) -> list[Kernel]:
    """The kernel of a product of one row, the terms of each operand lying side by side.

    As many columns as there are lanes are summed at once, each in a vector of its own; where there
    are fewer columns, each has several vectors. At the end the vectors are added up across.
    """
    f = module.function(name, "i32", PARAMS)
    lanes = module.machine.lanes(number.width)
    n, k = product.n, product.k
    columns = min(n, lanes)
    groups = -(-n // columns)
    per_item = max(1, min(groups, _ITEM // max(1, columns * k // lanes)))
    side = -(-groups // per_item)
    a, b = (argument(f, place) for place in places[:2])
    cost = 20 + per_item * columns * k / lanes * 0.5
    run = asks(f, places[2], cost)
    store.begin(f)
    with f.loop("%begin", "%end") as item:
        stack, part = divided(f, item, side)
        batch = unravel(f, stack, product.batch)
        at = [
            address(
                f,
                pointer,
                _offset(f, operand.offset, operand.batch, batch, number.size),
            )
            for pointer, operand in ((a, product.a), (b, product.b))
        ]
        first = times(f, part, per_item)
        with f.loop(first, least(f, plus(f, first, str(per_item)), str(groups))) as group:
            column = least(f, times(f, group, columns), str(n - columns))
            line = address(f, at[1], times(f, column, product.b.column * number.size))
            sums = _sums(f, product, number, at[0], line, columns, lanes, run)
            _put(f, store, number, sums, [*batch, "0"], column, times(f, group, columns), product)
    f.do("ret i32 0")
    return [Kernel(name, product.stacks * side, cost, stops=run is not None)]


def _offset(f: Function, start: int, steps: tuple[int, ...], batch: list[str], size: int) -> str:
    at = str(start * size)
    for step, i in zip(steps, batch, strict=True):
        at = plus(f, at, times(f, i, step * size))
    return at


def _sums(
    f: Function,
    product: Product,
    number: Number,
    row: str,
    line: str,
    columns: int,
    lanes: int,
    run: str | None,
) -> str:
    """A vector of the dot products of a row with `columns` columns."""
    k, kind = product.k, vector_type(number.kind, lanes)
    step = product.b.column * number.size
    wide = max(1, lanes // columns)  # vectors of a column
    cells = [[f.var(kind, "zeroinitializer") for _ in range(wide)] for _ in range(columns)]

    def add(at: str, u: int, mask: str | None = None) -> None:
        start = times(f, plus(f, at, str(u * lanes)), number.size)
        x = number.load(f, address(f, row, start), lanes, mask)
        for c in range(columns):
            y = number.load(f, address(f, address(f, line, str(c * step)), start), lanes, mask)
            sum = f.get(kind, cells[c][u])
            f.set(kind, cells[c][u], f(number.madd(f, lanes, x, y, sum)))

    stride = wide * lanes
    main = k // stride * stride
    if main:
        with long_loop(f, run, "0", str(main), stride, each=0.5 * columns * wide) as p:
            for u in range(wide):
                add(p, u)
    for u in range(-(-(k - main) // lanes)):
        left = min(lanes, k - main - u * lanes)
        add(str(main), u, ones(left, lanes) if left < lanes else None)
    word = "fadd" if number.dtype.kind == "float" else "add"
    rows = []
    for c in range(columns):
        total, *others = [f.get(kind, cell) for cell in cells[c]]
        for other in others:
            total = f(f"{word} {kind} {total}, {other}")
        rows.append(total)
    return fold(f, [*rows, *["zeroinitializer"] * (lanes - columns)], kind, word)


def _put(
    f: Function,
    store: Store,
    number: Number,
    sums: str,
    index: list[str],
    column: str,
    wanted: str,
    product: Product,
) -> None:
    """Give those sums to the store that are the group's own: the last group goes back."""
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
            # The group's own sums are its last ones: they move to the front, where masks begin.
            rest = n % lanes
            if rest == 1:
                one = f(f"extractelement {kind} {sums}, i64 {lanes - 1}")
                store.put(f, number.narrowed(f, one, 1), 1, [*index, str(n - 1)])
            else:
                order = ", ".join(f"i32 {(i - rest) % lanes}" for i in range(lanes))
                moved = f(f"shufflevector {kind} {sums}, {kind} poison, <{lanes} x i32> <{order}>")
                value = number.narrowed(f, moved, lanes)
                store.put(f, value, lanes, [*index, str(n - rest)], ones(rest, lanes))
