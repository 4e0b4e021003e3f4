"""The kernels of a product: items of tiles, in blocks of terms."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager

from weft.codegen.cancel import asks, long_loop, slow_loop
from weft.codegen.kernel import PARAMS, Kernel, Store, argument
from weft.codegen.matmul.arith import address, divided, least, minus, plus, times, unravel
from weft.codegen.matmul.numbers import Number, ones
from weft.codegen.matmul.pack import copy, panel, turn
from weft.codegen.matmul.plan import FEW, Blocks, MatmulPlan, up
from weft.codegen.matmul.product import Operand, Product
from weft.codegen.matmul.source import Source
from weft.codegen.matmul.tile import Walk, terms, tile
from weft.codegen.scalar.vec import vector_type
from weft.codegen.text import Function, Module

__all__ = ["NOTHING", "blocked"]

NOTHING: Mapping[int, Source] = {}

#: Tiles of at most so many terms, where there are at least so many, are written together with the
#: ops on their sums, up to so many: for each element anew. To put the sums in memory and read them
#: again takes a tenth of the time of such tiles.
SHORT, MANY, WRITTEN_OUT = 64, 8, 80
#: Terms that are copied between two questions whether the run shall end; lanes divide it.
COPIED = 1 << 14
_GAP = 16  # elements between rows of a copy: no power of two apart, so they share the cache well


Places = tuple[int, int, int | None, int | None]
Loop = AbstractContextManager[str]


def blocked(
    module: Module,
    name: str,
    product: Product,
    number: Number,
    plan: MatmulPlan,
    places: Places,
    store: Store,
    prologues: Mapping[int, Source] = NOTHING,
    *,
    ops: int,
) -> list[Kernel]:
    """The kernels of a product that has at least one term and one element.

    `places`, in `%args`, are those of a, b, memory and the run, the last two where they are there.
    `ops`: about how many ops the store takes for an element.
    """
    writer = _Writer(module, product, number, plan, store, ops)
    writer.prologues = prologues
    kernels = []
    if writer.scratch:
        kernels.append(writer.write_copies(f"{name}.copy", places))
    kernels.append(writer.write(name, places))
    return kernels


class _Writer:
    """What is known of a product that is cut by a plan, and the function that is written."""

    f: Function
    prologues: Mapping[int, Source] = NOTHING
    copied: int  # terms of a part of a shared copy
    run: str | None  # where an item takes long; which of its loops asks, ns of a round
    slow: int
    round: float

    def __init__(
        self,
        module: Module,
        product: Product,
        number: Number,
        plan: MatmulPlan,
        store: Store,
        ops: int,
    ) -> None:
        self.module = module
        self.product = product
        self.number = number
        self.plan = plan
        self.store = store
        self.lanes = module.machine.lanes(number.width)
        self.panel = plan.vectors * self.lanes
        self.tiles = -(-product.m // plan.rows)
        self.panels = -(-product.n // self.panel)
        self.blocks = -(-product.k // plan.terms)
        self.down = -(-self.tiles // plan.tiles)  # items below each other
        self.side = -(-self.panels // plan.panels)
        # Whether sums go to the store from registers: not where tiles overlap, or are cut.
        whole = product.n % self.panel == 0 or self.panels == 1
        many = self.tiles * self.panels * product.stacks >= MANY
        short = plan.rows * plan.vectors * ops <= WRITTEN_OUT
        self.direct = self.blocks == 1 and product.k <= SHORT and many and short
        self.direct = self.direct and whole and product.m % plan.rows == 0
        # Whether a panel of b is copied when the one before is done with: where all of a stays in
        # the first cache meanwhile, so shall the panel.
        rows = plan.rows * plan.tiles
        most = Blocks.of(module.machine.caches).near // 2
        near = self.blocks == 1 and rows * product.k * number.size <= most
        self.one_by_one = near and plan.a == "place" and plan.b == "own" and plan.panels > 1
        self.along = product.a.column == 1
        self.straight = product.b.column == 1
        # Bytes from one line of an operand, as it lies, to the next.
        self.a_step = (product.a.row if self.along else product.a.column) * number.size
        self.b_step = (product.b.row if self.straight else product.b.column) * number.size

        # Copies: their lines are as many bytes apart, their parts so long.
        width = number.width
        terms = product.k if plan.b == "shared" else plan.terms
        self.b_panel = up(terms, self.lanes) * self.panel * width
        lines, length = (plan.rows, plan.terms)[:: 1 if self.along else -1]
        self.a_pitch = (up(length, self.lanes) + _GAP) * width
        self.a_own = lines * self.a_pitch
        if plan.a == "shared":  # a panel for each tile, as of b, but without gaps between terms
            self.a_pitch = plan.rows * width
        # Terms are written as whole vectors: what is too much is the next term's, or room.
        self.a_tile = up(product.k * self.a_pitch, 64) + self.lanes * width
        self.a_all = self.tiles * self.a_tile
        self.b_all = self.panels * self.b_panel  # of one matrix
        self.b_stacks = product.stacks if any(product.b.batch) else 1
        self.a_stacks = product.stacks if any(product.a.batch) else 1
        self.b_start = self.a_stacks * self.a_all if plan.a == "shared" else 0
        self.scratch = self.b_start + (self.b_stacks * self.b_all if plan.b == "shared" else 0)

    # --- copies that all threads share ----------------------------------------------------------

    def write_copies(self, name: str, places: Places) -> Kernel:
        """The kernel that copies operands to memory of the product's own."""
        f = self.f = self.module.function(name, "i32", PARAMS)
        product, number = self.product, self.number
        assert places[2] is not None
        scratch = argument(f, places[2])
        items = 0
        cost = product.k * self.panel * 0.1
        run = asks(f, places[3], cost)
        self.copied = COPIED if run is not None else product.k
        pace = self.panel * 0.1 * self.copied
        with f.loop("%begin", "%end") as item:
            if self.plan.a == "shared":
                items = self.a_stacks * self.tiles
                with f.when(f(f"icmp slt i64 {item}, {items}")):
                    stack, t = divided(f, item, self.tiles)
                    batch = unravel(f, stack, product.batch)
                    src = self._start(argument(f, places[0]), product.a, batch)
                    src = address(f, src, times(f, self._row(t), number.size))
                    dst = address(f, scratch, times(f, item, self.a_tile))
                    rows = self.plan.rows
                    move = panel(f.module, number, -(-rows // self.lanes))
                    with self._parts(run, pace) as (start, count):
                        near, far = (times(f, start, s) for s in (self.a_step, self.a_pitch))
                        near, far = address(f, src, near), address(f, dst, far)
                        if 0 in self.prologues:
                            self._compute(far, batch, self._row(t), (start, count))
                        else:
                            self._call(move, near, self.a_step, far, self.a_pitch, count, str(rows))
            if self.plan.b == "shared":
                first = items
                items += self.b_stacks * self.panels
                with f.when(f(f"icmp sge i64 {item}, {first}")):
                    stack, p = divided(f, minus(f, item, str(first)), self.panels)
                    batch = unravel(f, stack, product.batch)
                    dst = address(
                        f, scratch, plus(f, str(self.b_start), times(f, stack, self.b_all))
                    )
                    dst = address(f, dst, times(f, p, self.b_panel))
                    src = self._start(argument(f, places[1]), product.b, batch)
                    with self._parts(run, pace) as (start, count):
                        near = address(f, src, times(f, start, product.b.row * number.size))
                        far = address(f, dst, times(f, start, self.panel * number.width))
                        self._copy_panel(near, far, p, (start, count), batch)
        f.do("ret i32 0")
        return Kernel(name, items, cost, self.scratch, run is not None)

    @contextmanager
    def _parts(self, run: str | None, pace: float) -> Iterator[tuple[str, str]]:
        """The terms of a copy, all at once or in parts that take `pace` ns: the first, how many."""
        f, k = self.f, self.product.k
        if run is None:
            yield "0", str(k)
            return
        with long_loop(f, run, "0", str(k), self.copied, each=pace) as start:
            yield start, least(f, minus(f, str(k), start), str(self.copied))

    # --- the product ----------------------------------------------------------------------------

    def write(self, name: str, places: Places) -> Kernel:
        """The kernel that sums."""
        f = self.f = self.module.function(name, "i32", PARAMS)
        product, plan = self.product, self.plan
        a, b = (argument(f, place) for place in places[:2])
        scratch = argument(f, places[2]) if self.scratch and places[2] is not None else ""
        work = plan.tiles * max(plan.rows, FEW) * plan.panels * plan.vectors * product.k
        cost = 10 + work * 0.3 * f.module.machine.multiply_cycles
        self.run = asks(f, places[3], cost)
        self.slow, self.round = slow_loop([self.blocks, plan.tiles, plan.panels], cost)
        self.store.begin(f)
        waiting = plan.tiles * plan.panels if self.blocks > 1 else 1
        self.sums = self._room(plan.rows * self.panel * self.number.width * waiting)
        self.a_room = self._room(self.a_own) if plan.a == "own" else ""
        copies = 1 if self.one_by_one else plan.panels
        self.b_room = self._room(self.b_panel * copies) if plan.b == "own" else ""
        with f.loop("%begin", "%end") as item:
            stack, rest = divided(f, item, self.down * self.side)
            side, down = divided(f, rest, self.down)
            batch = unravel(f, stack, product.batch)
            if plan.a == "shared":
                at_a = address(f, scratch, times(f, stack, self.a_all if self.a_stacks > 1 else 0))
            else:
                at_a = self._start(a, product.a, batch)
            if plan.b == "shared":
                each = self.b_all if self.b_stacks > 1 else 0
                start = plus(f, str(self.b_start), times(f, stack, each))
                at_b = address(f, scratch, start)
            else:
                at_b = self._start(b, product.b, batch)
            self._item(at_a, at_b, batch, down, side)
        f.do("ret i32 0")
        items = product.stacks * self.down * self.side
        return Kernel(name, items, cost, self.scratch, self.run is not None)

    def _loop(self, place: int, start: str, stop: str, step: int = 1) -> Loop:
        """A loop of an item (0: over blocks, 1: over tiles, 2: over panels); one of them asks,
        where the item takes long."""
        run = self.run if place == self.slow else None
        return long_loop(self.f, run, start, stop, step, each=self.round)

    def _room(self, size: int) -> str:
        return self.f.var("i8", count=size, align=64)

    def _start(self, pointer: str, operand: Operand, batch: Sequence[str]) -> str:
        """Where a matrix of a stack begins."""
        f, at = self.f, str(operand.offset * self.number.size)
        for step, i in zip(operand.batch, batch, strict=True):
            at = plus(f, at, times(f, i, step * self.number.size))
        return address(f, pointer, at)

    def _item(self, a: str, b: str, batch: list[str], down: str, side: str) -> None:
        f, plan, k = self.f, self.plan, self.product.k
        first = times(f, down, plan.tiles)
        tiles = first, least(f, plus(f, first, str(plan.tiles)), str(self.tiles))
        left = times(f, side, plan.panels)
        panels = left, least(f, plus(f, left, str(plan.panels)), str(self.panels))
        if self.one_by_one:
            with f.loop(*panels) as p:
                self._block(a, b, "0", str(k), tiles, (p, plus(f, p, "1")), batch)
            return
        if self.blocks == 1:
            self._block(a, b, "0", str(k), tiles, panels, batch)
            return
        with self._loop(0, "0", str(k), plan.terms) as start:
            count = least(f, minus(f, str(k), start), str(plan.terms))
            self._block(a, b, start, count, tiles, panels, batch)

    def _block(
        self,
        a: str,
        b: str,
        start: str,
        count: str,
        tiles: tuple[str, str],
        panels: tuple[str, str],
        batch: list[str],
    ) -> None:
        """The terms from `start` on, of an item's tiles."""
        f, plan, product, number = self.f, self.plan, self.product, self.number
        width = number.width
        a_term = self.a_pitch if plan.a == "shared" else product.a.column * number.size
        a = address(f, a, times(f, start, a_term))
        if plan.b == "shared":
            b = address(f, b, times(f, start, self.panel * width))
        else:
            b = address(f, b, times(f, start, product.b.row * number.size))
        if plan.b == "own":
            with f.loop(*panels) as p:
                near = minus(f, p, panels[0])
                room = address(f, self.b_room, times(f, near, self.b_panel))
                self._copy_panel(b, room, p, (start, count), batch)
        more, done = "false", None
        if self.blocks > 1:
            more = f(f"icmp ne i64 {start}, 0")
            done = f(f"icmp sge i64 {plus(f, start, count)}, {product.k}")
        with self._loop(1, *tiles) as t:
            row = self._row(t)
            if plan.a == "shared":
                at_a = address(f, a, times(f, t, self.a_tile))
            else:
                at_a = address(f, a, times(f, row, product.a.row * number.size))
            if plan.a == "own" and 0 in self.prologues:
                self._compute(self.a_room, batch, row, (start, count))
            elif plan.a == "own":
                lines = [str(plan.rows), count][:: 1 if self.along else -1]
                self._call(copy(f.module, number), at_a, self.a_step, self.a_room, self.a_pitch,
                           *lines)  # fmt: skip
            at_a = self.a_room or at_a
            a_step = self.a_step if plan.a == "place" else self.a_pitch
            with self._loop(2, *panels) as p:
                near = minus(f, p, panels[0])
                b_step = self.b_step if plan.b == "place" else self.panel * width
                if plan.b == "own":
                    at_b = address(f, self.b_room, times(f, near, self.b_panel))
                elif plan.b == "shared":
                    at_b = address(f, b, times(f, p, self.b_panel))
                else:
                    at_b = address(f, b, times(f, p, self.panel * number.size))
                walk = Walk(at_a, str(a_step), at_b, str(b_step), count)
                if self.direct:
                    self._at_once(walk, row, p, batch)
                else:
                    near = plus(f, times(f, minus(f, t, tiles[0]), plan.panels), near)
                    sums = self._summed(walk, near, p, more)
                    if done is None:
                        self._put(sums, t, row, p, batch)
                    else:
                        with f.when(done):
                            self._put(sums, t, row, p, batch)

    def _summed(self, walk: Walk, near: str, p: str, more: str) -> str:
        """Where the sums of a tile lie, the terms of a block added."""
        f, plan, n, width = self.f, self.plan, self.product.n, self.number.width
        sums = self.sums
        if self.blocks > 1:
            sums = address(f, sums, times(f, near, plan.rows * self.panel * width))
        given = (
            f"(ptr {walk.a}, i64 {walk.a_step}, ptr {walk.b}, i64 {walk.b_step}, i64 {walk.k}, "
            f"ptr {sums}, i64 {self.panel * width}, i1 {more})"
        )
        whole = n // self.panel  # panels that are
        if plan.b != "place" or n % self.panel == 0:
            f.do(f"call void @{self._tile(self.panel)}{given}")
        elif whole == 0:
            f.do(f"call void @{self._tile(n)}{given}")
        else:  # where b lies there is nothing behind its last column
            inner = f(f"icmp slt i64 {p}, {whole}")
            with f.when(inner):
                f.do(f"call void @{self._tile(self.panel)}{given}")
            with f.when(f(f"xor i1 {inner}, true")):
                f.do(f"call void @{self._tile(n % self.panel)}{given}")
        return sums

    def _at_once(self, walk: Walk, row: str, p: str, batch: list[str]) -> None:
        """A tile whose sums go from registers to the store."""
        f, plan, number, lanes, n = self.f, self.plan, self.number, self.lanes, self.product.n
        tail = n % lanes
        made = terms(
            f,
            number if plan.a == "place" else number.packed,
            number if plan.b == "place" else number.packed,
            walk,
            plan.rows,
            plan.vectors,
            ["zeroinitializer"] * (plan.rows * plan.vectors),
            across=not self.along,
            last=tail if plan.b == "place" else 0,
        )
        left = times(f, p, self.panel)
        for r in range(plan.rows):
            for v in range(plan.vectors):
                index = [*batch, plus(f, row, str(r)), plus(f, left, str(v * lanes))]
                some = tail if v == plan.vectors - 1 else 0
                self._give(made[r * plan.vectors + v], index, some)

    def _give(self, value: str, index: list[str], some: int = 0) -> None:
        """Give a vector of sums to the store; where `some` is not 0 only so many lanes count."""
        f, number, lanes = self.f, self.number, self.lanes
        if some == 1:  # a mask of one lane: LLVM's X86 gets truncating stores of it wrong
            one = f(f"extractelement {vector_type(number.kind, lanes)} {value}, i64 0")
            self.store.put(f, number.narrowed(f, one, 1), 1, index)
        else:
            value = number.narrowed(f, value, lanes)
            self.store.put(f, value, lanes, index, ones(some, lanes) if some else None)

    def _tile(self, columns: int) -> str:
        """The function for a tile of so many columns."""
        plan, number = self.plan, self.number
        return tile(
            self.f.module,
            number if plan.a == "place" else number.packed,
            number if plan.b == "place" else number.packed,
            plan.rows,
            -(-columns // self.lanes),
            across=not self.along,
            last=columns % self.lanes,
        )

    def _row(self, t: str) -> str:
        """The first row of a tile; the last tile goes back to end with the last row."""
        f, rows, m = self.f, self.plan.rows, self.product.m
        row = times(f, t, rows)
        return row if m % rows == 0 else least(f, row, str(m - rows))

    def _compute(self, dst: str, batch: Sequence[str], row: str, terms: tuple[str, str]) -> None:
        """Compute some terms (the first, how many) of a tile of a, in place of a copy."""
        rows, write = (row, str(self.plan.rows)), self.prologues[0].lines
        write(self.f, self.number, dst, self.a_pitch, batch, rows, terms, self.along)

    def _copy_panel(
        self, b: str, dst: str, p: str, terms: tuple[str, str], batch: Sequence[str]
    ) -> None:
        """Copy some terms (the first, which `b` is at, and how many) of a panel of b."""
        f, product, number = self.f, self.product, self.number
        if 1 in self.prologues:
            left = times(f, p, self.panel)
            right = self.prologues[1]
            write = right.panel if self.straight else right.turned
            write(f, number, dst, batch, terms, left, self.plan.vectors, product.n)
            return
        count = terms[1]
        src = address(f, b, times(f, p, self.panel * product.b.column * number.size))
        cols = least(f, minus(f, str(product.n), times(f, p, self.panel)), str(self.panel))
        step = self.panel * number.width
        if self.straight:
            name = panel(f.module, number, self.plan.vectors)
            self._call(name, src, self.b_step, dst, step, count, cols)
        else:
            # The last block or part of terms may be the shortest one.
            whole = min(product.k, self.plan.terms if self.plan.b == "own" else self.copied)
            name = turn(f.module, number, product.k % whole or whole)
            self._call(name, src, self.b_step, dst, step, cols, count)

    def _call(
        self, name: str, src: str, src_step: int, dst: str, dst_step: int, rows: str, cols: str
    ) -> None:
        self.f.do(
            f"call void @{name}(ptr {src}, i64 {src_step}, ptr {dst}, i64 {dst_step}, "
            f"i64 {rows}, i64 {cols})"
        )

    # --- results --------------------------------------------------------------------------------

    def _put(self, sums: str, t: str, row: str, p: str, batch: list[str]) -> None:
        """Give the rows of a tile that are its own to the store."""
        f, plan, lanes, n = self.f, self.plan, self.lanes, self.product.n
        left = times(f, p, self.panel)
        kind = vector_type(self.number.kind, lanes)
        tail = n % lanes
        if self.panels == 1:
            vectors = str(n // lanes)
        elif n % self.panel == 0:
            vectors = str(plan.vectors)
        else:
            vectors = least(f, divided(f, minus(f, str(n), left), lanes)[0], str(plan.vectors))
        skip = "0" if self.product.m % plan.rows == 0 else minus(f, times(f, t, plan.rows), row)
        with f.loop(skip, str(plan.rows)) as r:
            index = [*batch, plus(f, row, r)]
            line = address(f, sums, times(f, r, self.panel * self.number.width))

            def give(v: str, some: int = 0) -> None:
                at = f(f"getelementptr {kind}, ptr {line}, i64 {v}")
                value = f(f"load {kind}, ptr {at}, align {self.number.width}")
                self._give(value, [*index, plus(f, left, times(f, v, lanes))], some)

            if vectors != "0":
                with f.loop("0", vectors) as v:
                    give(v)
            if tail and self.panels == 1:
                give(vectors, tail)
            elif tail:
                with f.when(f(f"icmp eq i64 {p}, {self.panels - 1}")):
                    give(vectors, tail)
