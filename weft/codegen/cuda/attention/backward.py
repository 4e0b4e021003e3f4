"""The gradients of attention: two kernels, which compute the weights again.

With P the weights and G the gradient of the result: dS = P (G vᵀ - sum(G result)), then dq = dS k,
dk = dSᵀ q and dv = Pᵀ G. The first kernel has rows of q and goes over the keys, for dq; the second
one has keys and goes over the rows of q, for dk and dv. So each sum is one thread's, in one order:
results have the same bits in every run. The first one leaves, for each row of q, what the second
one needs of it: lse in powers of 2, and sum(G result).
"""

from __future__ import annotations

from dataclasses import dataclass

from weft.base.dtypes import float32
from weft.codegen.attention.spec import Attention
from weft.codegen.cuda.attention.tiles import (
    LOG2E,
    NARROW,
    SIDE,
    THREADS,
    Held,
    TileCode,
    Tiles,
    at_once,
)
from weft.codegen.cuda.loops import Launch
from weft.codegen.elementwise import literal, load
from weft.codegen.index import Index, Ptr, Size, minimum, offset
from weft.codegen.matmul.product import Operand
from weft.codegen.scalar.vec import Vec
from weft.codegen.text import Module

__all__ = ["BYTES_OF_ROW", "Places", "emit_backward"]

#: What the first kernel leaves of a row: two float32.
BYTES_OF_ROW = 8
#: The most columns with which a warp has two times 16 rows: its registers hold no more.
TWICE = 64


@dataclass(frozen=True, slots=True)
class Places:
    """Which buffers are what, how the operands that the spec does not have lie, and where gradients
    lie: the offset and the strides of each, in the order of the natural axes. `joined`: they are
    parts of one buffer, and have no -0.0."""

    q: int
    k: int
    v: int
    out: int
    grad: int
    lse: int
    mask: int | None
    dq: int
    dk: int
    dv: int
    scratch: int
    flag: int | None
    out_lies: Operand
    grad_lies: Operand
    lies: tuple[tuple[int, tuple[int, ...]], ...]
    joined: bool = False


def emit_backward(
    module: Module, name: str, spec: Attention, buffers: int, places: Places
) -> list[Launch]:
    """The kernels. Of the scratch memory they need `BYTES_OF_ROW` for each row of q."""
    each = 2 if max(spec.features, spec.values) <= TWICE else 1
    queries = _Queries(module, f"{name}_q", buffers, spec, spec.queries, each)
    keys = _Keys(module, f"{name}_k", buffers, spec, spec.keys, each)
    for code in (queries, keys):
        if places.flag is not None:
            code.builder.stop_if(code.builder.buffer(places.flag, "i32"))
        code.write(places)
        code.builder.end(THREADS)
    return [Launch(code.name, code.blocks, THREADS) for code in (queries, keys)]


class _Backward(TileCode):
    def write(self, places: Places) -> None:
        raise NotImplementedError

    def bring(self, rows: int, given: list[tuple[Ptr, Operand, int]], limit: int) -> list[Held]:
        """The block's own rows of two matrices, as left tiles in registers: by way of shared
        memory, one after the other."""
        made = []
        for source, operand, columns in given:
            tiles = Tiles(self, rows, columns)
            self.builder.wait()
            tiles.copy(self.room, source, operand, self.tile * self.rows, limit)
            self.device.wait_for_copies()
            self.builder.wait()
            made.append(tiles.left(self.room, self.own, self.each))
        self.builder.wait()
        return made

    def begin(self, own: int, more: int) -> None:
        """Shared memory: for `own` rows at first, then for two steps of two matrices."""
        spec = self.spec
        self.step = at_once(spec, more)
        self.first = Tiles(self, self.step, spec.features)
        self.second = Tiles(self, self.step, spec.values)
        self.stage = self.first.bytes + self.second.bytes + self.step * more
        least = max(Tiles(self, own, size).bytes for size in (spec.features, spec.values))
        self.room = self.builder.shared("i8", max(2 * self.stage, least), align=16)

    def store(
        self, places: Places, number: int, sums: list[list[Ptr]], rows: int, scale: float
    ) -> None:
        """Write one of the gradients, rounded, two neighbours at once."""
        f, spec = self.f, self.spec
        columns = spec.values if number == 2 else spec.features
        out = self.builder.buffer((places.dq, places.dk, places.dv)[number], "i16")
        start, (*batch, down, _) = places.lies[number]
        base = out + offset(start, zip(self.batch, batch, strict=True))
        for i, own in enumerate(sums):
            for half in range(2):
                row = self.row(i, half)
                with f.when(f(f"icmp slt i64 {row}, {rows}")):
                    at = base + row * down
                    for n in range(columns // NARROW):
                        pair = []
                        for e in range(2):
                            value = self.vec(own[4 * n + 2 * half + e].load()) * scale
                            pair.append((value + 0.0 if places.joined else value).name)
                        to = at + (self.column + n * NARROW)
                        to.of("i32").store(self.device.pack(spec.dtype, *pair))


class _Queries(_Backward):
    """dq: a block has rows of q and of G, and goes over the keys and values."""

    def write(self, places: Places) -> None:
        f, spec = self.f, self.spec
        self.last_first()
        self.begin(self.rows, 0)
        q, self.k, self.v = (
            self.matrix(place, operand)
            for place, operand in (
                (places.q, spec.q),
                (places.k, spec.k),
                (places.v, spec.v),
            )
        )
        grad = self.matrix(places.grad, places.grad_lies)
        given = [(q, spec.q, spec.features), (grad, places.grad_lies, spec.values)]
        self.q, self.grad = self.bring(self.rows, given, spec.queries)
        self.masked_by = self.mask(places.mask)
        self._rows(places, grad)
        self.sums = self.zeros(self.each, self.first.wide)
        first = self.tile * self.rows
        count: Size = -(-spec.keys // self.step)
        whole: Size = 0 if spec.mask is not None else spec.keys // self.step
        if spec.causal:
            count = minimum(count, (first + (self.rows + self.step - 1)) // self.step)
            whole = minimum(whole, (first + 1) // self.step)
        self.count = count
        self._copy(0)
        if not isinstance(whole, int) or whole:
            with f.loop(0, whole) as j:
                self._over(j, masked=False)
        with f.loop(whole, count) as j:
            self._over(j, masked=True)
        self.store(places, 0, self.sums, spec.queries, spec.scale)

    def _rows(self, places: Places, grad: Ptr) -> None:
        """lse in powers of 2 and sum(G result) of the thread's rows, kept and left for the other
        kernel."""
        f, spec = self.f, self.spec
        lies = places.out_lies
        at = offset(lies.offset, zip(self.batch, lies.batch, strict=True))
        out = self.builder.buffer(places.out, "float") + at
        sums = self.builder.buffer(places.lse, "float")
        left = self.builder.buffer(places.scratch, "float")
        self.lse: list[list[Vec]] = []
        self.less: list[list[Vec]] = []
        for i in range(self.each):
            self.lse.append([])
            self.less.append([])
            for half in range(2):
                row = self.row(i, half)
                known = minimum(row, spec.queries - 1)
                total = self.vec(0.0)
                for n in range(spec.values // NARROW):
                    column = self.column + n * NARROW
                    here = grad + (known * places.grad_lies.row + column)
                    pair = out + (known * lies.row + column)
                    made = f(f"load <2 x float>, ptr {pair}, align 8")
                    slope = load(f, spec.dtype, here, 2, align=4)
                    for e in range(2):
                        a, b = (
                            self.vec(f(f"extractelement <2 x float> {x}, i32 {e}"))
                            for x in (made, slope)
                        )
                        total = a.fma(b, total)
                total = self.over_row(total, "add")
                place = self.stack * spec.queries + known
                lse = self.vec((sums + place).load()) * LOG2E
                inside = f(f"icmp slt i64 {row}, {spec.queries}")
                first = f(f"icmp eq i64 {self.column}, 0")
                with f.when(f(f"and i1 {inside}, {first}")):
                    to = left + place * 2
                    to.store(lse)
                    (to + 1).store(total)
                self.lse[-1].append(lse)
                self.less[-1].append(total)

    def _copy(self, j: Size) -> None:
        to = self.room.bytes(j % 2 * self.stage)
        first, spec = j * self.step, self.spec
        self.first.copy(to, self.k, spec.k, first, spec.keys)
        self.second.copy(to.bytes(self.first.bytes), self.v, spec.v, first, spec.keys)

    def _over(self, j: Index, *, masked: bool) -> None:
        f, device = self.f, self.device
        device.wait_for_copies()
        self.builder.wait()
        after = j + 1
        with f.when(f(f"icmp slt i64 {after}, {f.size(self.count)}")):
            self._copy(after)
        keys = self.room.bytes(j % 2 * self.stage)
        values = keys.bytes(self.first.bytes)
        rooms = self._room(j * self.step) if masked else None
        for n in range(0, self.step, SIDE):
            right = [self.first.rows_as_columns(keys, n, k) for k in range(self.first.wide // SIDE)]
            scores = self.times(self.q, right, 2)
            right = [
                self.second.rows_as_columns(values, n, k) for k in range(self.second.wide // SIDE)
            ]
            slopes = self.times(self.grad, right, 2)
            left = [
                self.packed(self._slopes(i, n, j * self.step, scores[i], slopes[i], rooms))
                for i in range(self.each)
            ]
            self.add_times(self.sums, left, keys, self.first, n)

    def _room(self, first: Size) -> list[list[str]]:
        """For each of the thread's rows: the keys from its first one on that it may look at."""
        spec, key = self.spec, self.column + first
        return [
            [
                self.narrow(
                    (minimum(self.row(i, half) + 1, spec.keys) if spec.causal else spec.keys) - key
                )
                for half in range(2)
            ]
            for i in range(self.each)
        ]

    def _slopes(
        self,
        i: int,
        start: int,
        first: Size,
        raw: list[list[str]],
        slopes: list[list[str]],
        rooms: list[list[str]] | None,
    ) -> list[list[Vec]]:
        """dS of 16 rows and 16 keys, but for the scale."""
        f = self.f
        spots = [(n, half, e) for n in range(2) for half in range(2) for e in range(2)]
        valid = [
            None if rooms is None else f(f"icmp sgt i32 {rooms[i][half]}, {start + n * NARROW + e}")
            for n, half, e in spots
        ]
        places = (
            [
                (self.row(i, half), self.column + first + (start + n * NARROW + e))
                for n, half, e in spots
            ]
            if self.masked_by is not None
            else [(0, 0)] * len(spots)
        )
        scores, counts = self.scores(
            [raw[n][2 * half + e] for n, half, e in spots], valid, places, self.masked_by
        )
        made: list[list[Vec]] = [[], []]
        for (n, half, e), score, counted in zip(spots, scores, counts, strict=True):
            weight = self.exp2(score.fma(self.vec(self.factor), -self.lse[i][half]))
            slope = self.vec(slopes[n][2 * half + e]) - self.less[i][half]
            made[n].append(_hidden(self, weight * slope, counted))
        return made


def _hidden(code: TileCode, value: Vec, counted: str | None) -> Vec:
    """A value, or 0 where its score does not count."""
    if counted is None:
        return value
    zero = literal(float32, 0.0, 1)
    return code.vec(code.f(f"select i1 {counted}, float {value}, float {zero}"))


class _Keys(_Backward):
    """dk and dv: a block has keys and values, and goes over the rows of q and of G."""

    def write(self, places: Places) -> None:
        f, spec = self.f, self.spec
        self.begin(self.rows, BYTES_OF_ROW)
        self.q, k, v = (
            self.matrix(place, operand)
            for place, operand in (
                (places.q, spec.q),
                (places.k, spec.k),
                (places.v, spec.v),
            )
        )
        self.places = places
        self.grad = self.matrix(places.grad, places.grad_lies)
        self.left = self.builder.buffer(places.scratch, "i8").bytes(
            self.stack * (spec.queries * BYTES_OF_ROW)
        )
        given = [(k, spec.k, spec.features), (v, spec.v, spec.values)]
        self.k, self.v = self.bring(self.rows, given, spec.keys)
        self.masked_by = self.mask(places.mask)
        self.of_keys = self.zeros(self.each, self.first.wide)
        self.of_values = self.zeros(self.each, self.second.wide)
        first = self.tile * self.rows
        self.count = -(-spec.queries // self.step)
        start: Size = 0
        whole: Size = 0
        if spec.causal:
            # Steps with a row that may not look at all of the block's keys come first.
            start = minimum(first // self.step, self.count)
            whole = minimum((first + (self.rows + self.step - 2)) // self.step, self.count)
        if spec.mask is not None:
            whole = self.count
        with f.when(f(f"icmp slt i64 {f.size(start)}, {self.count}")):
            self._copy(start)
        if not isinstance(whole, int) or whole:
            with f.loop(start, whole) as j:
                self._over(j, masked=spec.causal)
        if spec.mask is None:
            with f.loop(whole, self.count) as j:
                self._over(j, masked=False)
        self.store(places, 1, self.of_keys, spec.keys, spec.scale)
        self.store(places, 2, self.of_values, spec.keys, 1.0)

    def _copy(self, j: Size) -> None:
        f, spec = self.f, self.spec
        to = self.room.bytes(j % 2 * self.stage)
        first = j * self.step
        self.first.copy(to, self.q, spec.q, first, spec.queries)
        lies = self.places.grad_lies
        self.second.copy(to.bytes(self.first.bytes), self.grad, lies, first, spec.queries)
        row = self.thread + first
        inside = f(f"icmp slt i64 {row}, {spec.queries}")
        known = f.index(f(f"select i1 {inside}, i64 {row}, i64 0"))
        size = f(f"select i1 {inside}, i32 {BYTES_OF_ROW}, i32 0")
        place = to.bytes(self.thread * BYTES_OF_ROW + (self.first.bytes + self.second.bytes))
        with f.when(f(f"icmp slt i64 {self.thread}, {self.step}")):
            source = self.left.bytes(known * BYTES_OF_ROW)
            self.device.copy(place, source, size, BYTES_OF_ROW)

    def _over(self, j: Index, *, masked: bool) -> None:
        f, device = self.f, self.device
        device.wait_for_copies()
        self.builder.wait()
        after = j + 1
        with f.when(f(f"icmp slt i64 {after}, {self.count}")):
            self._copy(after)
        queries = self.room.bytes(j % 2 * self.stage)
        grads = queries.bytes(self.first.bytes)
        rows = grads.bytes(self.second.bytes).bytes(self.column * BYTES_OF_ROW)
        first = j * self.step
        needs = self._needs(first) if masked else None
        for n in range(0, self.step, SIDE):
            right = [
                self.first.rows_as_columns(queries, n, k) for k in range(self.first.wide // SIDE)
            ]
            scores = self.times(self.k, right, 2)
            right = [
                self.second.rows_as_columns(grads, n, k) for k in range(self.second.wide // SIDE)
            ]
            slopes = self.times(self.v, right, 2)
            known = [self._known(rows, n + NARROW * half) for half in range(2)]
            pairs = [
                self._both(i, n, first, scores[i], slopes[i], known, needs)
                for i in range(self.each)
            ]
            weights = [self.packed(weight) for weight, _ in pairs]
            self.add_times(self.of_values, weights, grads, self.second, n)
            self.add_times(
                self.of_keys, [self.packed(slope) for _, slope in pairs], queries, self.first, n
            )

    def _known(self, rows: Ptr, first: int) -> list[tuple[Vec, Vec]]:
        """Minus lse in powers of 2, and sum(G result), of the thread's two rows of q among 8."""
        f = self.f
        made = f(f"load <4 x float>, ptr {rows.bytes(first * BYTES_OF_ROW)}, align 16")
        one = [self.vec(f(f"extractelement <4 x float> {made}, i32 {e}")) for e in range(4)]
        return [(-one[0], one[1]), (-one[2], one[3])]

    def _needs(self, first: Size) -> list[list[str]]:
        """For each of the thread's keys: how many rows of q from its first one on do not see it."""
        return [
            [self.narrow(self.row(i, half) - (self.column + first)) for half in range(2)]
            for i in range(self.each)
        ]

    def _both(
        self,
        i: int,
        start: int,
        first: Size,
        raw: list[list[str]],
        slopes: list[list[str]],
        known: list[list[tuple[Vec, Vec]]],
        needs: list[list[str]] | None,
    ) -> tuple[list[list[Vec]], list[list[Vec]]]:
        """Of 16 keys and 16 rows of q: the weights, and dS but for the scale, turned."""
        f = self.f
        spots = [(n, half, e) for n in range(2) for half in range(2) for e in range(2)]
        valid = [
            None if needs is None else f(f"icmp sle i32 {needs[i][half]}, {start + n * NARROW + e}")
            for n, half, e in spots
        ]
        places = (
            [
                (self.column + first + (start + n * NARROW + e), self.row(i, half))
                for n, half, e in spots
            ]
            if self.masked_by is not None
            else [(0, 0)] * len(spots)
        )
        scores, counts = self.scores(
            [raw[n][2 * half + e] for n, half, e in spots], valid, places, self.masked_by
        )
        weights: list[list[Vec]] = [[], []]
        made: list[list[Vec]] = [[], []]
        for (n, half, e), score, counted in zip(spots, scores, counts, strict=True):
            lse, less = known[n][e]
            weight = self.exp2(score.fma(self.vec(self.factor), lse))
            slope = self.vec(slopes[n][2 * half + e]) - less
            weights[n].append(weight)
            made[n].append(_hidden(self, weight * slope, counted))
        return weights, made
