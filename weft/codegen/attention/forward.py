"""Attention, forward: blocks of keys, with the softmax kept up to date as they pass by.

For each query the largest score so far (`tops`), the sum of exp(score - top) (`totals`) and the sum
of values weighted so (`sums`) are kept. A block with a larger score scales them down first.
"""

from __future__ import annotations

from weft.codegen.attention.cut import number_if_supported, tile_rows
from weft.codegen.attention.spec import Attention
from weft.codegen.attention.work import GAP, Right, Work, largest
from weft.codegen.cancel import asks, long_loop
from weft.codegen.kernel import PARAMS, Kernel, Store
from weft.codegen.math import call
from weft.codegen.matmul.arith import address, divided, least, minus, plus, times, unravel
from weft.codegen.matmul.numbers import Number
from weft.codegen.matmul.plan import even, up
from weft.codegen.scalar.vec import Vec
from weft.codegen.text import Module

__all__ = ["emit_forward"]

_QUERIES = 128  # of an item
_KEYS = 512  # of a block


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
    """The kernel of attention; q, k, v, mask, lse and run are places in `%args`.

    The result goes through `store`, indexed (batch…, query, column). To `lse`, where it is given,
    goes for each (batch…, query), dense, the logarithm of the sum of exp(score), which the backward
    needs: infinity for a query that got 0 because it may look nowhere. None where there is no
    kernel for it.
    """
    number = number_if_supported(spec)
    if number is None:
        return None
    if not spec.queries * spec.values * spec.stacks:
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
        second = module.machine.caches.second  # has room for a block of keys and an item's sums
        most = max(8, min(_QUERIES, second * 3 // 32 // (self.out_pitch * w.width)))
        self.chunk = even(spec.queries, most)
        self.chunks = -(-spec.queries // self.chunk)
        self.rows = tile_rows(self.chunk, module.machine)
        self.tiles = -(-self.chunk // self.rows)
        fit = second // 8 // (up(max(spec.features, spec.values), w.lanes) * w.width)
        most = max(w.columns, min(_KEYS, fit) // w.columns * w.columns)
        self.keys = min(most, up(spec.keys, w.columns))
        self.blocks = -(-spec.keys // self.keys)
        self.pitch = self.keys + GAP

    def write(
        self, places: tuple[int, int, int, int | None, int | None], run: int | None
    ) -> Kernel:
        w, spec = self.w, self.spec
        f = w.f = w.module.function(self.name, "i32", PARAMS)
        self.q, self.k, self.v, self.mask, self.lse = w.arguments(*places)
        pairs = self.chunk * spec.keys * (0.6 if spec.causal else 1.0)
        cost = 50 + pairs * (spec.features + spec.values + 40) / w.lanes * 0.3
        self.run, self.round = asks(f, run, cost), cost / self.blocks
        self.store.begin(f)
        count = self.tiles * self.rows
        self.turned = w.room(self.keys * up(spec.features, w.lanes))
        self.scores = w.room(self.rows * self.pitch)
        self.sums = w.room(count * self.out_pitch)
        self.tops, self.totals = w.room(count), w.room(count)
        size = w.copy_size(self.keys, spec.values, 2)
        self.values = w.room(size) if size else ""
        size = w.left_size(self.rows, spec.features)
        self.left = w.room(size) if size else ""
        with f.loop("%begin", "%end") as item:
            stack, part = divided(f, item, self.chunks)
            self.own = times(f, part, self.chunk)  # the first query that is the item's own
            self.first = least(f, self.own, str(spec.queries - self.chunk))
            self.stack, self.batch = stack, unravel(f, stack, spec.batch)
            self._item()
        f.do("ret i32 0")
        items = spec.stacks * self.chunks
        return Kernel(self.name, items, cost, stops=self.run is not None)

    def _item(self) -> None:
        w, spec = self.w, self.spec
        f = w.f
        with f.loop("0", str(self.tiles * self.rows)) as i:
            w.write(w.vec("0.0", 1), w.element(self.totals, i))
            w.write(w.vec("0xFFF0000000000000", 1), w.element(self.tops, i))
        queries = w.matrix(self.q, spec.q, self.batch, self.first)
        end = str(spec.keys)
        if spec.causal:
            end = least(f, plus(f, self.first, str(self.chunk)), end)
        with long_loop(f, self.run, "0", end, self.keys, each=self.round) as start:
            count = least(f, minus(f, end, start), str(self.keys))
            rows = w.matrix(self.k, spec.k, self.batch, start)
            w.turned(rows, w.step(spec.k), self.turned, count, spec.features)
            values = w.right(
                w.matrix(self.v, spec.v, self.batch, start),
                w.step(spec.v),
                count,
                spec.values,
                2,
                self.values,
                self.keys,
            )
            with f.loop("0", str(self.tiles)) as t:
                row = self._row(t)
                limit = count
                if spec.causal:
                    past = plus(f, plus(f, self.first, row), str(self.rows))
                    limit = least(f, minus(f, past, start), count)
                    with f.when(f(f"icmp sgt i64 {limit}, 0")):
                        self._tile(t, row, queries, start, limit, values)
                else:
                    self._tile(t, row, queries, start, limit, values)
        with f.loop("0", str(self.tiles)) as t:
            self._finish(t)

    def _row(self, t: str) -> str:
        """The first query of a tile, counted in the item; the last tile goes back."""
        f = self.w.f
        return least(f, times(f, t, self.rows), str(self.chunk - self.rows))

    def _tile(self, t: str, row: str, queries: str, start: str, limit: str, values: Right) -> None:
        """A tile of queries meets a block of keys."""
        w, spec = self.w, self.spec
        f = w.f
        step = w.step(spec.q)
        left, step = w.left(
            address(f, queries, times(f, row, step)), step, self.rows, spec.features, self.left
        )
        w.multiply(
            self.rows,
            left,
            step,
            w.keys_side(self.turned, spec.features, limit),
            str(spec.features),
            self.scores,
            self.pitch * w.width,
            "false",
        )
        state = times(f, t, self.rows)
        later = f(f"icmp ne i64 {start}, 0") if self.blocks > 1 else "false"
        with f.loop("0", str(self.rows)) as r:
            line = address(f, self.scores, times(f, r, self.pitch * w.width))
            at = plus(f, state, r)
            query = plus(f, plus(f, self.first, row), r)
            own = limit
            if spec.causal:
                own = least(f, minus(f, plus(f, query, "1"), start), limit)
            mask = w.mask_row(self.mask, self.batch, query, start)
            before, top, total = self._softmax(line, own, limit, mask, at)
            w.write(top, w.element(self.tops, at))
            if self.blocks > 1:
                scale = self._scaled(later, before, top, at)
                total = w.read_one(self.totals, at) * scale + total
            w.write(total, w.element(self.totals, at))
        w.multiply(
            self.rows,
            self.scores,
            self.pitch * w.width,
            values,
            limit,
            address(f, self.sums, times(f, state, self.out_pitch * w.width)),
            self.out_pitch * w.width,
            later,
        )

    def _softmax(self, line: str, own: str, limit: str, mask: str, at: str) -> tuple[Vec, Vec, Vec]:
        """Scores become weights: the largest score before and now, and the sum of the weights."""
        w = self.w
        f, lanes = w.f, w.lanes
        before = w.read_one(self.tops, at)
        best = f.var(w.whole, w.spread(before).name)
        with f.loop("0", limit, str(lanes)) as column:
            place = w.element(line, column)
            score, _ = w.score(place, column, own, mask)
            w.write(score, place)
            f.set(w.whole, best, largest(score, w.vec(f.get(w.whole, best))).name)
        top = w.fold(w.vec(f.get(w.whole, best)), "max")
        taken = w.spread(_finite(top))
        total = f.var(w.whole, "zeroinitializer")
        with f.loop("0", limit, str(lanes)) as column:
            place = w.element(line, column)
            less = w.read(place) - taken
            weight = w.vec(call(f, "exp", w.number.dtype, lanes, less.name))
            w.write(weight, place)
            f.set(w.whole, total, (w.vec(f.get(w.whole, total)) + weight).name)
        return before, top, w.fold(w.vec(f.get(w.whole, total)), "add")

    def _scaled(self, later: str, before: Vec, top: Vec, at: str) -> Vec:
        """Scale the sums of earlier blocks to the largest score of now; the factor."""
        w = self.w
        f = w.f
        less = (w.spread(before) - w.spread(_finite(top))).name
        factor = w.vec(call(f, "exp", w.number.dtype, w.lanes, less))
        with f.when(later):
            sums = address(f, self.sums, times(f, at, self.out_pitch * w.width))
            with f.loop("0", str(self.spec.values), str(w.lanes)) as column:
                place = w.element(sums, column)
                w.write(w.read(place) * factor, place)
        return w.vec(f(f"extractelement {w.whole} {factor}, i64 0"), 1)

    def _finish(self, t: str) -> None:
        """Give the queries of a tile that are its own to the store."""
        w, spec = self.w, self.spec
        f = w.f
        row = self._row(t)
        most = f.module.declare("i64", "llvm.smax.i64", "i64, i64")
        skip = minus(f, self.own, self.first)
        skip = f(f"call i64 @{most}(i64 {skip}, i64 {times(f, t, self.rows)})")
        with f.loop(minus(f, skip, row), str(self.rows)) as r:
            at = plus(f, times(f, t, self.rows), r)
            query = plus(f, plus(f, self.first, row), r)
            total, top = w.read_one(self.totals, at), w.read_one(self.tops, at)
            factor = 1.0 / total
            none = total.equals(0.0)
            if spec.blank:
                factor = none.pick(0.0, factor)
            line = address(f, self.sums, times(f, at, self.out_pitch * w.width))
            w.put_row(self.store, line, spec.values, [*self.batch, query], w.spread(factor))
            if self.lse:
                log = top + w.vec(call(f, "log", w.number.dtype, 1, total.name), 1)
                if spec.blank:
                    log = none.pick(float("inf"), log)
                place = plus(f, times(f, self.stack, spec.queries), query)
                w.write(log, w.element(self.lse, place))


def _finite(top: Vec) -> Vec:
    """What is taken off scores: 0 where all are -inf so far, as -inf - -inf would be NaN."""
    return top.equals(float("-inf")).pick(0.0, top)
