"""The kernels of a product: items of tiles, in blocks of terms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

from weft.base.dim_algebra import Dim
from weft.base.dims import has_dims, is_zero, typical
from weft.codegen.cancel import cancellable_loop, loop_to_poll, pollable_run
from weft.codegen.index import Index, Ptr, Size, divide, minimum, offset, unravel
from weft.codegen.kernel import PARAMS, Kernel, Store, argument, each_item
from weft.codegen.matmul.copies import write_copies
from weft.codegen.matmul.numbers import Number, ones
from weft.codegen.matmul.pack import block_side, copy, panel, transpose
from weft.codegen.matmul.plan import FEW, ITEM, Blocks, MatmulPlan, up
from weft.codegen.matmul.product import Operand, Product
from weft.codegen.matmul.sized import Variant
from weft.codegen.matmul.source import Source
from weft.codegen.matmul.tile import Walk, terms, tile, tile_of_rows
from weft.codegen.scalar.masks import first_lanes
from weft.codegen.scalar.vec import vector_type
from weft.codegen.text import Function, Module

__all__ = ["NOTHING", "Places", "Writer", "blocked"]

NOTHING: Mapping[int, Source] = {}

#: Limits for fusing the epilogue into the tile itself: maximum terms, minimum tiles, maximum
#: unrolled ops. Storing sums and loading them again takes a tenth of the time of such short tiles.
SHORT, MANY, WRITTEN_OUT = 64, 8, 80
#: The same for the vectors of a row of sums that are loaded again: maximum unrolled ops.
UNROLLED = 8
# padding between rows of a copy: a distance that is no power of two avoids cache conflicts
_GAP = 16


Places = tuple[int, int, int | None, int | None]
Loop = AbstractContextManager[Index]


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
    variant: Variant | None = None,
) -> list[Kernel]:
    """The kernels of a product that has at least one term and one element.

    `places` are the positions of a, b, scratch memory and the run in `%args`; the last two may be
    None. `ops`: the estimated ops of the store for each element. `variant`: that of the plan, if
    sizes of the run decide.
    """
    writer = Writer(module, product, number, plan, store, ops, variant)
    writer.prologues = prologues
    kernels = []
    if not is_zero(writer.scratch):
        kernels.append(write_copies(writer, f"{name}.copy", places))
    kernels.append(writer.write(name, places))
    return kernels


class Writer:
    """The sizes of a product cut by a plan, and the function that is being written."""

    f: Function
    prologues: Mapping[int, Source] = NOTHING
    copied: int  # terms of one part of a shared copy
    run: Ptr | None  # if items take long: the loop that polls it, and ns of one iteration
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
        variant: Variant | None = None,
    ) -> None:
        self.module = module
        #: How many rows tiles may have, and the most; the condition for the kernels to run.
        self.counts = (plan.rows,) if variant is None else variant.rows
        self.rows = self.counts[-1]
        self.condition = "" if variant is None else variant.condition
        self.product = product
        self.number = number
        self.plan = plan
        self.store = store
        self.ops = ops
        self.lanes = module.machine.lanes(number.width)
        self.panel = plan.vectors * self.lanes
        self.a_is_row_major = product.a.column == 1
        self.b_is_row_major = product.b.column == 1
        self.tiles = -(-product.m // plan.rows)
        self.panels = -(-product.n // self.panel)
        self.blocks = -(-product.k // plan.terms)
        self.down = -(-self.tiles // plan.tiles)  # items along the rows
        self.beside = self._panels_of_item()
        self.side = -(-self.panels // self.beside)
        # Whether sums go to the store from registers: not if tiles overlap or are partial.
        whole = product.n % self.panel == 0 or self.panels == 1
        many = typical(self.tiles * self.panels * product.stacks) >= MANY
        short = self.rows * plan.vectors * ops <= WRITTEN_OUT
        self.direct = self.blocks == 1 and typical(product.k) <= SHORT and many and short
        self.direct = self.direct and not has_dims((plan.rows, product.n, product.k))
        self.direct = self.direct and whole and product.m % plan.rows == 0
        # Whether panels of b are copied one at a time: if all of a stays in the first-level cache,
        # the panel should stay there as well.
        rows = self.rows * plan.tiles
        most = Blocks.of(module.machine.caches).near // 2
        near = self.blocks == 1 and typical(rows * product.k) * number.size <= most
        self.one_by_one = near and plan.a == "place" and plan.b == "own" and plan.panels > 1
        # Bytes from one line of an operand to the next.
        self.a_step = (product.a.row if self.a_is_row_major else product.a.column) * number.size
        self.b_step = (product.b.row if self.b_is_row_major else product.b.column) * number.size

        # Copies: bytes between their lines, and sizes of their parts.
        width = number.width
        block = _most(plan.terms)
        terms = product.k if plan.b == "shared" else block
        self.b_panel = up(terms, self.lanes) * self.panel * width
        lines, length = (self.rows, block)[:: 1 if self.a_is_row_major else -1]
        self.a_pitch = (up(length, self.lanes) + _GAP) * width
        self.a_own = lines * self.a_pitch
        if plan.a == "shared":  # a panel for each tile, as for b, but without gaps between terms
            self.a_pitch = self.rows * width
        # Terms are written as whole vectors: the excess is overwritten by the next term, or is
        # padding.
        self.a_tile = up(product.k * self.a_pitch, 64) + self.lanes * width
        self.a_all = self.tiles * self.a_tile
        self.b_all = self.panels * self.b_panel  # of one matrix
        self.b_stacks = 1 if all(map(is_zero, product.b.batch)) else product.stacks
        self.a_stacks = 1 if all(map(is_zero, product.a.batch)) else product.stacks
        self.b_start = self.a_stacks * self.a_all if plan.a == "shared" else 0
        self.scratch = self.b_start + (self.b_stacks * self.b_all if plan.b == "shared" else 0)

    # --- the product ----------------------------------------------------------------------------

    def write(self, name: str, places: Places) -> Kernel:
        """The kernel that computes the product."""
        f = self.f = self.module.function(name, "i32", PARAMS)
        product, plan = self.product, self.plan
        a, b = (argument(f, place) for place in places[:2])
        scratch = None if places[2] is None else argument(f, places[2])
        work = plan.tiles * max(self.rows, FEW) * plan.panels * plan.vectors * typical(product.k)
        machine = f.module.machine
        cost = 10 + typical(work) * 0.3 * machine.multiply_cycles
        if machine.has_many_cores:
            stored = plan.tiles * self.rows * plan.panels * plan.vectors
            cost += typical(stored) * (0.3 * self.ops + machine.access_cycles / machine.ghz)
        self.run = pollable_run(f, places[3], cost)
        rounds = [typical(size) for size in (self.blocks, plan.tiles, plan.panels)]
        self.slow, self.round = loop_to_poll(rounds, cost)
        if has_dims((product.k,)) and places[3] is not None:
            # There may be any number of blocks: their loop polls.
            self.run = argument(f, places[3])
            self.slow, self.round = 0, cost / rounds[0]
        self.store.begin(f)
        waiting = plan.tiles * plan.panels if self.blocks != 1 else 1
        self.sums = self.room(self.rows * self.panel * self.number.width * waiting)
        self.a_room = self.room(self.a_own) if plan.a == "own" else None
        copies = 1 if self.one_by_one else plan.panels
        self.b_room = self.room(self.b_panel * copies) if plan.b == "own" else None
        with each_item(f) as item:
            stack, rest = divide(item, self.down * self.side)
            if plan.by_rows:
                down, side = divide(rest, self.side)
            else:
                side, down = divide(rest, self.down)
            batch = unravel(stack, product.batch)
            if plan.a == "shared":
                assert scratch is not None
                at_a = scratch.bytes(stack * (self.a_all if self.a_stacks != 1 else 0))
            else:
                at_a = self.start(a, product.a, batch)
            if plan.b == "shared":
                each = self.b_all if self.b_stacks != 1 else 0
                assert scratch is not None
                at_b = scratch.bytes(self.b_start + stack * each)
            else:
                at_b = self.start(b, product.b, batch)
            self._item(at_a, at_b, batch, down, side)
        f.do("ret i32 0")
        items = product.stacks * self.down * self.side
        pace = round(300 * f.module.machine.multiply_cycles)
        total = self.tiles * self.rows * self.panels * plan.vectors * product.k * product.stacks
        return self.kernel(name, items, cost, total * pace, self.run)

    def kernel(self, name: str, items: int, cost: float, work: int, run: Ptr | None) -> Kernel:
        """The kernel of some items, which take so many ns each, and so many picoseconds in all."""
        if not self.product.varies:
            return Kernel(name, items, cost, self.scratch, run is not None)
        scratch = self.scratch
        if self.condition:
            let = self.module.sizes.let
            items = let(f"{items} if {self.condition} else 0", low=0)
            if not is_zero(scratch):
                scratch = let(f"{scratch} if {self.condition} else 0", low=0)
        return Kernel(name, items, cost, scratch, run is not None, work=work)

    def _loop(self, place: int, start: Size, stop: Size, step: int = 1) -> Loop:
        """A loop of an item (0: over blocks, 1: over tiles, 2: over panels); one of them polls the
        run, if items take long."""
        run = self.run if place == self.slow else None
        return cancellable_loop(self.f, run, start, stop, step, each=self.round)

    def room(self, size: int) -> Ptr:
        return self.f.var("i8", count=size, align=64)

    def start(self, pointer: Ptr, operand: Operand, batch: Sequence[Size]) -> Ptr:
        """The address of a matrix of the batch."""
        at = offset(operand.offset, zip(batch, operand.batch, strict=True))
        return pointer.of(self.number.memory) + at

    def _item(self, a: Ptr, b: Ptr, batch: list[Size], down: Size, side: Size) -> None:
        f, plan, k = self.f, self.plan, self.product.k
        first = down * plan.tiles
        tiles = first, minimum(first + plan.tiles, self.tiles)
        left = side * self.beside
        panels = left, minimum(left + self.beside, self.panels)
        if self.one_by_one:
            with f.loop(*panels) as p:
                self._block(a, b, 0, k, tiles, (p, p + 1), batch)
            return
        if self.blocks == 1:
            self._block(a, b, 0, k, tiles, panels, batch)
            return
        with self._loop(0, 0, k, plan.terms) as start:
            count = minimum(k - start, plan.terms)
            self._block(a, b, start, count, tiles, panels, batch)

    def _block(
        self,
        a: Ptr,
        b: Ptr,
        start: Size,
        count: Size,
        tiles: tuple[Size, Size],
        panels: tuple[Size, Size],
        batch: list[Size],
    ) -> None:
        """Process the terms from `start` on, for an item's tiles."""
        f, plan, product, number = self.f, self.plan, self.product, self.number
        width = number.width
        a_term = self.a_pitch if plan.a == "shared" else product.a.column * number.size
        a = a.bytes(start * a_term)
        if plan.b == "shared":
            b = b.bytes(start * (self.panel * width))
        else:
            b = b.bytes(start * (product.b.row * number.size))
        stays = self._stays_near()
        decided, copied = plan.b == "own" and not is_zero(stays), ""
        if plan.b == "own":
            copied = f(f"icmp eq i64 {f.size(stays)}, 0") if decided else ""
            with f.when(copied) if decided else nullcontext(), f.loop(*panels) as p:
                self.copy_panel(b, self._own_panel(p, panels[0]), p, (start, count), batch)
        more, done = "false", None
        if self.blocks != 1:
            more = f(f"icmp ne i64 {start}, 0")
            done = f(f"icmp sge i64 {start + count}, {f.size(product.k)}")
        with self._loop(1, *tiles) as t:
            row = self.row(t)
            if plan.a == "shared":
                at_a = a.bytes(t * self.a_tile)
            else:
                at_a = a.bytes(row * (product.a.row * number.size))
            if self.a_room is not None and 0 in self.prologues:
                self.compute(self.a_room, batch, row, (start, count))
            elif self.a_room is not None:
                lines = [plan.rows, count][:: 1 if self.a_is_row_major else -1]
                self.call(copy(f.module, number), at_a, self.a_step, self.a_room, self.a_pitch,
                           *lines)  # fmt: skip
            at_a = self.a_room or at_a
            a_step = self.a_step if plan.a == "place" else self.a_pitch
            with self._loop(2, *panels) as p:
                b_step: Size = self.b_step if plan.b == "place" else self.panel * width
                if plan.b == "own":
                    at_b = self._own_panel(p, panels[0])
                    if decided:
                        there = b.bytes(p * (self.panel * number.size))
                        at_b = f.ptr(f(f"select i1 {copied}, ptr {at_b}, ptr {there}"))
                        steps = f"i64 {b_step}, i64 {f.size(self.b_step)}"
                        b_step = f.index(f(f"select i1 {copied}, {steps}"))
                elif plan.b == "shared":
                    at_b = b.bytes(p * self.b_panel)
                else:
                    at_b = b.bytes(p * (self.panel * number.size))
                walk = Walk(at_a, f.size(a_step), at_b, f.size(b_step), f.size(count))
                if self.direct:
                    self._at_once(walk, row, p, batch)
                else:
                    near = (t - tiles[0]) * plan.panels + (p - panels[0])
                    sums = self._summed(walk, near, p, more)
                    if done is None:
                        self._put(sums, t, row, p, batch)
                    else:
                        with f.when(done):
                            self._put(sums, t, row, p, batch)

    def _stays_near(self) -> int:
        """Whether b is read in place in runs where it stays in the first-level cache, as `choose`
        has it: a size of the run that is 0 or 1; 0 if it is not decided there."""
        b, k, n = self.product.b, self.product.k, self.product.n
        free = self.number.is_packed and self.b_is_row_major and 1 not in self.prologues
        if not free or not has_dims((k,)) or has_dims((n, b.row)) or n % self.panel:
            return 0
        most = Blocks.of(self.module.machine.caches).near
        fits = f"{b.row * self.number.size} * ({k}) <= {most}"
        return self.module.sizes.let(f"1 if {fits} else 0", low=0, high=1)

    def _panels_of_item(self) -> int:
        """Panels of an item: in runs where b is read in place as many as `choose` has them. The
        store then goes along rows."""
        plan, k = self.plan, self.product.k
        stays = 0 if plan.b != "own" else self._stays_near()
        if is_zero(stays) or has_dims((self.tiles, self.panels)) or plan.tiles < self.tiles:
            return plan.panels
        each = max(self.rows, FEW) * plan.vectors
        fit = f"min({self.panels}, max({plan.panels}, {ITEM // self.tiles} // ({each} * ({k}))))"
        return self.module.sizes.let(f"{fit} if {stays} == 1 else {plan.panels}")

    def _own_panel(self, p: Size, first: Size) -> Ptr:
        """The item's own copy of a panel of b, of those from `first` on."""
        assert self.b_room is not None
        return self.b_room.bytes((p - first) * self.b_panel)

    def _summed(self, walk: Walk, near: Size, p: Size, more: str) -> Ptr:
        """Add a block's terms to the sums of a tile; returns their address."""
        f, plan, n, width = self.f, self.plan, self.product.n, self.number.width
        sums = self.sums
        if self.blocks != 1:
            each = self.rows * self.panel * width
            if has_dims((self.blocks,)):  # of one block, the sums of each tile take the same place
                each = f.module.sizes.let(f"{each} if {self.blocks} > 1 else 0", low=0, high=each)
            sums = sums.bytes(near * each)
        given = (
            f"(ptr {walk.a}, i64 {walk.a_step}, ptr {walk.b}, i64 {walk.b_step}, i64 {walk.k}, "
            f"ptr {sums}, i64 {self.panel * width}, i1 {more})"
        )
        whole = n // self.panel  # whole panels
        if plan.b != "place" or n % self.panel == 0:
            self._call_tile(self.panel, given)
        elif whole == 0:
            self._call_tile(n, given)
        else:  # in place, nothing may be read beyond the last column of b
            inner = f(f"icmp slt i64 {p}, {whole}")
            with f.when(inner):
                self._call_tile(self.panel, given)
            with f.when(f(f"xor i1 {inner}, true")):
                self._call_tile(n % self.panel, given)
        return sums

    def _call_tile(self, columns: int, given: str) -> None:
        """Call the function for a tile of so many columns, and of the rows of this run."""
        f, counts = self.f, self.counts
        if len(counts) == 1:
            f.do(f"call void @{self._tile(columns, self.rows)}{given}")
            return
        name = tile_of_rows(
            f.module,
            *self._sides(),
            counts,
            -(-columns // self.lanes),
            across=not self.a_is_row_major,
            last=columns % self.lanes,
        )
        f.do(f"call void @{name}{given[:-1]}, i64 {f.size(self.plan.rows)})")

    def _at_once(self, walk: Walk, row: Size, p: Size, batch: list[Size]) -> None:
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
            across=not self.a_is_row_major,
            last=tail if plan.b == "place" else 0,
        )
        left = p * self.panel
        for r in range(plan.rows):
            for v in range(plan.vectors):
                index = [*batch, row + r, left + v * lanes]
                some = tail if v == plan.vectors - 1 else 0
                self._give(made[r * plan.vectors + v], index, some)

    def _give(self, value: str, index: list[Size], some: Size = 0) -> None:
        """Pass a vector of sums to the store; if `some` is not 0, only the first `some` lanes are
        valid."""
        f, number, lanes = self.f, self.number, self.lanes
        if some == 1:  # a mask of one lane: LLVM's x86 backend miscompiles truncating stores of it
            one = f(f"extractelement {vector_type(number.kind, lanes)} {value}, i64 0")
            self.store.put(f, number.narrowed(f, one, 1), 1, index)
        else:
            value = number.narrowed(f, value, lanes)
            if isinstance(some, int):
                mask = ones(some, lanes) if some else None
            else:
                mask = first_lanes(f, lanes, some)
            self.store.put(f, value, lanes, index, mask)

    def _sides(self) -> tuple[Number, Number]:
        """What tiles read of a and b."""
        plan, number = self.plan, self.number
        return (
            number if plan.a == "place" else number.packed,
            number if plan.b == "place" else number.packed,
        )

    def _tile(self, columns: int, rows: int) -> str:
        """The function for a tile of `columns` columns."""
        return tile(
            self.f.module,
            *self._sides(),
            rows,
            -(-columns // self.lanes),
            across=not self.a_is_row_major,
            last=columns % self.lanes,
        )

    def row(self, t: Size) -> Size:
        """The first row of a tile; the last tile is shifted back to end with the last row."""
        rows, m = self.plan.rows, self.product.m
        row = t * rows
        return row if m % rows == 0 else minimum(row, m - rows)

    def compute(self, dst: Ptr, batch: Sequence[Size], row: Size, terms: tuple[Size, Size]) -> None:
        """Compute some terms (the first, how many) of a tile of a, instead of copying them."""
        rows, write = (row, self.plan.rows), self.prologues[0].lines
        write(self.f, self.number, dst, self.a_pitch, batch, rows, terms, self.a_is_row_major)

    def copy_panel(
        self, b: Ptr, dst: Ptr, p: Size, terms: tuple[Size, Size], batch: Sequence[Size]
    ) -> None:
        """Copy some terms (the first, which `b` points to, and how many) of a panel of b."""
        f, product, number = self.f, self.product, self.number
        if 1 in self.prologues:
            left = p * self.panel
            right = self.prologues[1]
            write = right.panel if self.b_is_row_major else right.transposed_panel
            write(f, number, dst, batch, terms, left, self.plan.vectors, product.n)
            return
        count = terms[1]
        src = b.bytes(p * (self.panel * product.b.column * number.size))
        cols = minimum(product.n - p * self.panel, self.panel)
        step = self.panel * number.width
        if self.b_is_row_major:
            name = panel(f.module, number, self.plan.vectors)
            self.call(name, src, self.b_step, dst, step, count, cols)
        else:
            if has_dims((product.k,)):
                self._transpose(src, dst, step, cols, count)
                return
            # The last block or part of terms may be shorter.
            whole = min(product.k, self.plan.terms if self.plan.b == "own" else self.copied)
            name = transpose(f.module, number, product.k % whole or whole)
            self.call(name, src, self.b_step, dst, step, cols, count)

    def _transpose(self, src: Ptr, dst: Ptr, step: int, cols: Size, count: Size) -> None:
        """Transpose a panel of as many terms as only the run knows."""
        f, number = self.f, self.number
        side = block_side(f.module, number)
        many = f(f"icmp sge i64 {f.size(count)}, {side}")
        with f.when(many):
            name = transpose(f.module, number, side)
            self.call(name, src, self.b_step, dst, step, cols, count)
        with f.when(f(f"xor i1 {many}, true")):
            self.call(transpose(f.module, number, 1), src, self.b_step, dst, step, cols, count)

    def call(
        self, name: str, src: Ptr, src_step: int, dst: Ptr, dst_step: int, rows: Size, cols: Size
    ) -> None:
        size = self.f.size
        self.f.do(
            f"call void @{name}(ptr {src}, i64 {size(src_step)}, ptr {dst}, i64 {size(dst_step)}, "
            f"i64 {size(rows)}, i64 {size(cols)})"
        )

    # --- results --------------------------------------------------------------------------------

    def _put(self, sums: Ptr, t: Size, row: Size, p: Size, batch: list[Size]) -> None:
        """Pass the rows of a tile to the store, except those that the previous tile has."""
        f, plan, lanes, n = self.f, self.plan, self.lanes, self.product.n
        left = p * self.panel
        kind = vector_type(self.number.kind, lanes)
        tail = n % lanes
        if self.panels == 1:
            vectors: Size = n // lanes
        elif n % self.panel == 0:
            vectors = plan.vectors
        else:
            vectors = minimum((n - left) // lanes, plan.vectors)
        skip = 0 if self.product.m % plan.rows == 0 else t * plan.rows - row
        with f.loop(skip, plan.rows) as r:
            index = [*batch, row + r]
            line = sums.bytes(r * (self.panel * self.number.width)).of(kind)

            def give(v: Size, some: Size = 0) -> None:
                value = (line + v).load(self.number.width)
                self._give(value, [*index, left + v * lanes], some)

            if isinstance(vectors, int) and 0 < vectors * self.ops <= UNROLLED:
                for each in range(vectors):
                    give(each)
            elif vectors != 0:
                with f.loop(0, vectors) as v:
                    give(v)
            if has_dims((tail,)):
                is_last = f(f"icmp eq i64 {p}, {f.size(self.panels - 1)}")
                some = f(f"icmp sgt i64 {f.size(tail)}, 0")
                with f.when(f(f"and i1 {is_last}, {some}")):
                    give(vectors, f.size(tail))
            elif tail and self.panels == 1:
                give(vectors, tail)
            elif tail:
                with f.when(f(f"icmp eq i64 {p}, {self.panels - 1}")):
                    give(vectors, tail)


def _most(size: int) -> int:
    """The most that a size can be in a run, where room is needed for it; its value, if known."""
    high = size.bounds[1] if isinstance(size, Dim) else size
    return size if high is None else high
