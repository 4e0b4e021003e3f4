"""Attention, forward: blocks of keys with an online softmax.

For each query the kernel keeps the largest score so far (`tops`), the sum of exp(score - top)
(`totals`) and the weighted sum of values (`sums`). If a block has a larger score, they are rescaled
first.
"""

from __future__ import annotations

from weft.base.dims import has_dims, is_zero, typical
from weft.codegen.attention.cut import Rows, number_if_supported, pollable, work_of
from weft.codegen.attention.one_key import by_keys, values_of_one
from weft.codegen.attention.spec import Attention
from weft.codegen.attention.work import GAP, Right, Work, largest
from weft.codegen.cancel import cancellable_loop
from weft.codegen.index import Ptr, Size, divide, maximum, minimum, unravel
from weft.codegen.kernel import PARAMS, Kernel, Store, each_item
from weft.codegen.math import call
from weft.codegen.matmul.numbers import Number
from weft.codegen.matmul.plan import up
from weft.codegen.scalar.vec import Vec
from weft.codegen.text import Module

__all__ = ["emit_forward"]

_QUERIES = 128  # queries of an item
_KEYS = 512  # keys of a block


def emit_forward(
    module: Module,
    name: str,
    spec: Attention,
    q: int,
    k: int,
    v: int,
    store: Store,
    *,
    mask: int | None = None,
    lse: int | None = None,
    run: int | None = None,
) -> list[Kernel] | None:
    """The kernel of attention; q, k, v, mask, lse and run are positions in `%args`.

    The result goes through `store`, indexed (batch…, query, column). If `lse` is given, the kernel
    also writes log(sum(exp(score))) for each (batch…, query), dense; the backward needs it. It is
    infinity for a query that attends to no key and whose result is 0. Returns None if there is no
    kernel.
    """
    number = number_if_supported(spec)
    if number is None:
        return None
    if is_zero(spec.queries * spec.values * spec.stacks):
        return []
    return [_Forward(module, name, spec, number, store).write((q, k, v, mask, lse), run)]


class _Forward:
    def __init__(
        self, module: Module, name: str, spec: Attention, number: Number, store: Store
    ) -> None:
        self.name = name
        self.spec = spec
        self.store = store
        self.w = w = Work(module, spec, number)
        self.out_pitch = up(spec.values, w.columns) + GAP
        second = module.machine.caches.second  # must hold a block of keys and an item's sums
        most = max(8, min(_QUERIES, second * 3 // 32 // (self.out_pitch * w.width)))
        self.cut = cut = Rows.of(module, spec.queries, most)
        self.chunk, self.chunks = cut.chunk, cut.chunks
        self.rows, self.tiles = cut.rows, cut.tiles
        w.counts = cut.counts
        fit = second // 8 // (up(max(spec.features, spec.values), w.lanes) * w.width)
        most = max(w.columns, min(_KEYS, fit) // w.columns * w.columns)
        # Of keys that only the run counts, a block has as many as it may.
        self.keys = most if has_dims((spec.keys,)) else min(most, up(spec.keys, w.columns))
        self.blocks = -(-spec.keys // self.keys)
        self.pitch = w.pitch(spec.keys, self.keys)

    def write(
        self, places: tuple[int, int, int, int | None, int | None], run: int | None
    ) -> Kernel:
        w, spec = self.w, self.spec
        f = w.f = w.module.function(self.name, "i32", PARAMS)
        self.q, self.k, self.v, self.mask, self.lse = w.arguments(*places)
        self.gives_lse = places[-1] is not None
        each = (0.6 if spec.causal else 1.0) * (spec.features + spec.values + 40) / w.lanes * 0.3
        cost = 50 + typical(self.chunk) * typical(spec.keys) * each
        self.run, self.round = pollable(f, run, spec.keys, cost), cost / typical(self.blocks)
        self.store.begin(f)
        count = self.cut.room
        self.packed_keys = w.room(self.keys * up(spec.features, w.lanes))
        self.scores = w.room(self.cut.most * (self.keys + GAP))
        self.sums = w.room(count * self.out_pitch)
        self.tops, self.totals = w.room(count), w.room(count)
        self.values = w.room(w.copy_size(self.keys, spec.values, 2))
        self.left = w.room(w.left_size(self.cut.most, spec.features))
        with each_item(f) as item:
            stack, part = divide(item, self.chunks)
            self.own = part * self.chunk  # the first query of the item itself
            self.first = minimum(self.own, spec.queries - self.chunk)
            self.stack, self.batch = stack, unravel(stack, spec.batch)
            with by_keys(w, self._one_key):
                self._item()
        f.do("ret i32 0")
        items = spec.stacks * self.chunks
        work = work_of(items, spec, each)
        return Kernel(self.name, items, cost, stops=self.run is not None, work=work)

    def _one_key(self) -> None:
        queries = self.first, self.own - self.first, self.chunk
        lse = self.lse.of(self.w.kind) + self.stack * self.spec.queries if self.gives_lse else None
        given = self.q, self.k, self.v
        values_of_one(self.w, given, self.batch, queries, self.sums, self.store, lse)

    def _item(self) -> None:
        w, spec = self.w, self.spec
        f = w.f
        with f.loop(0, self.tiles * self.rows) as i:
            w.write(w.vec("0.0", 1), w.element(self.totals, i))
            w.write(w.vec("0xFFF0000000000000", 1), w.element(self.tops, i))
        queries = w.matrix(self.q, spec.q, self.batch, self.first)
        end: Size = spec.keys
        if spec.causal:
            end = minimum(self.first + self.chunk, end)
        with cancellable_loop(f, self.run, 0, end, self.keys, each=self.round) as start:
            count = minimum(end - start, self.keys)
            rows = w.matrix(self.k, spec.k, self.batch, start)
            w.pack_keys(rows, w.step(spec.k), self.packed_keys, count, spec.features)
            values = w.right(
                w.matrix(self.v, spec.v, self.batch, start),
                w.step(spec.v),
                count,
                spec.values,
                2,
                self.values,
                self.keys,
            )
            with f.loop(0, self.tiles) as t:
                row = self._row(t)
                limit = count
                if spec.causal:
                    past = self.first + row + self.rows
                    limit = minimum(past - start, count)
                    with f.when(f(f"icmp sgt i64 {limit}, 0")):
                        self._tile(t, row, queries, start, limit, values)
                else:
                    self._tile(t, row, queries, start, limit, values)
        with f.loop(0, self.tiles) as t:
            self._finish(t)

    def _row(self, t: Size) -> Size:
        """The first query of a tile, relative to the item; the last tile is shifted back."""
        return minimum(t * self.rows, self.chunk - self.rows)

    def _tile(
        self, t: Size, row: Size, queries: Ptr, start: Size, limit: Size, values: Right
    ) -> None:
        """Process a tile of queries with a block of keys."""
        w, spec = self.w, self.spec
        f = w.f
        step = w.step(spec.q)
        left, step = w.left(queries.bytes(row * step), step, self.rows, spec.features, self.left)
        w.multiply(
            self.rows,
            left,
            step,
            w.keys_side(self.packed_keys, spec.features, limit),
            spec.features,
            self.scores,
            self.pitch * w.width,
            "false",
        )
        state = t * self.rows
        later = f(f"icmp ne i64 {start}, 0") if self.blocks != 1 else "false"
        with f.loop(0, self.rows) as r:
            line = self.scores.bytes(r * (self.pitch * w.width))
            at = state + r
            query = self.first + row + r
            own = limit
            if spec.causal:
                own = minimum(query + 1 - start, limit)
            mask = w.mask_row(self.mask, self.batch, query, start)
            before, top, total = self._softmax(line, own, limit, mask, at)
            w.write(top, w.element(self.tops, at))
            if has_dims((self.blocks,)):
                joined = f.var(w.kind, total.name)
                with f.when(later):
                    scale = self._scaled("true", before, top, at)
                    joined.store((w.read_one(self.totals, at) * scale + total).name)
                total = w.vec(joined.load(), 1)
            elif self.blocks > 1:
                scale = self._scaled(later, before, top, at)
                total = w.read_one(self.totals, at) * scale + total
            w.write(total, w.element(self.totals, at))
        w.multiply(
            self.rows,
            self.scores,
            self.pitch * w.width,
            values,
            limit,
            self.sums.bytes(state * (self.out_pitch * w.width)),
            self.out_pitch * w.width,
            later,
        )

    def _softmax(
        self, line: Ptr, own: Size, limit: Size, mask: Ptr, at: Size
    ) -> tuple[Vec, Vec, Vec]:
        """Turn scores into weights. Returns the largest score before and now, and the sum of
        weights."""
        w = self.w
        f, lanes = w.f, w.lanes
        before = w.read_one(self.tops, at)
        best = f.var(w.whole, w.splat(before).name)

        def score(column: Size, some: bool) -> Vec:
            place = w.element(line, column)
            if some:
                return w.score(place, column, own, mask)[0]
            return w.read(place) * w.spec.scale

        def look(column: Size, some: bool) -> None:
            best.store(largest(score(column, some), w.vec(best.load())).name)

        w.each_vector(limit, look)
        top = w.fold(w.vec(best.load()), "max")
        taken = w.splat(_finite(top))
        total = f.var(w.whole, "zeroinitializer")

        # Scores are computed again: a vector that is stored under a mask cannot be loaded at once.
        def weigh(column: Size, some: bool) -> None:
            less = score(column, some) - taken
            weight = w.vec(call(f, "exp", w.number.dtype, lanes, less.name))
            w.write(weight, w.element(line, column))
            total.store((w.vec(total.load()) + weight).name)

        w.each_vector(limit, weigh)
        return before, top, w.fold(w.vec(total.load()), "add")

    def _scaled(self, later: str, before: Vec, top: Vec, at: Size) -> Vec:
        """Rescale the sums of earlier blocks to the new maximum; returns the factor."""
        w = self.w
        f = w.f
        less = (w.splat(before) - w.splat(_finite(top))).name
        factor = w.vec(call(f, "exp", w.number.dtype, w.lanes, less))
        with f.when(later):
            sums = self.sums.bytes(at * (self.out_pitch * w.width))
            with f.loop(0, self.spec.values, w.lanes) as column:
                place = w.element(sums, column)
                w.write(w.read(place) * factor, place)
        return w.vec(f(f"extractelement {w.whole} {factor}, i64 0"), 1)

    def _finish(self, t: Size) -> None:
        """Store the results of a tile's own queries."""
        w, spec = self.w, self.spec
        f = w.f
        row = self._row(t)
        skip = maximum(self.own - self.first, t * self.rows)
        with f.loop(skip - row, self.rows) as r:
            at = t * self.rows + r
            query = self.first + row + r
            total, top = w.read_one(self.totals, at), w.read_one(self.tops, at)
            factor = 1.0 / total
            none = total.equals(0.0)
            if spec.blank:
                factor = none.pick(0.0, factor)
            line = self.sums.bytes(at * (self.out_pitch * w.width))
            w.put_row(self.store, line, spec.values, [*self.batch, query], w.splat(factor))
            if self.gives_lse:
                log = top + w.vec(call(f, "log", w.number.dtype, 1, total.name), 1)
                if spec.blank:
                    log = none.pick(float("inf"), log)
                place = self.stack * spec.queries + query
                w.write(log, w.element(self.lse, place))


def _finite(top: Vec) -> Vec:
    """What is subtracted from scores: 0 if all are -inf so far, as -inf - -inf would be NaN."""
    return top.equals(float("-inf")).pick(0.0, top)
