"""The forward of attention: a block has some rows of q, and goes over the keys and values.

The softmax is computed as keys come: a row keeps the largest score so far and the sum of the powers
relative to it; where a larger one comes, what was summed before is scaled.
"""

from __future__ import annotations

import math

from weft.base.dtypes import float32
from weft.codegen.attention.spec import Attention
from weft.codegen.cuda.attention.tiles import LOG2E, NARROW, SIDE, THREADS, TileCode, Tiles, at_once
from weft.codegen.cuda.loops import Launch
from weft.codegen.elementwise import emit, literal
from weft.codegen.epilogue import Epilogue
from weft.codegen.index import Index, Size, minimum
from weft.codegen.scalar.vec import Vec
from weft.codegen.text import Module

__all__ = ["emit_forward"]

#: The most columns with which a warp has two times 16 rows: its registers hold no more.
TWICE = 64


def emit_forward(
    module: Module,
    name: str,
    spec: Attention,
    buffers: int,
    places: tuple[int, int, int],
    epilogue: Epilogue,
    *,
    mask: int | None = None,
    lse: int | None = None,
    flag: int | None = None,
) -> list[Launch]:
    """The kernel. Its buffers: q, k and v at `places`, the mask, what the epilogue reads and
    writes, lse, and the program's flag if it may fail."""
    each = 2 if max(spec.features, spec.values) <= TWICE else 1
    code = _Forward(module, name, buffers, spec, spec.queries, each)
    if flag is not None:
        code.builder.stop_if(code.builder.buffer(flag, "i32"))
    code.write(places, epilogue, mask, lse)
    return [Launch(name, code.blocks, THREADS)]


class _Forward(TileCode):
    def write(
        self, places: tuple[int, int, int], epilogue: Epilogue, mask: int | None, lse: int | None
    ) -> None:
        f, spec, builder = self.f, self.spec, self.builder
        self.last_first()
        self.step = at_once(spec)
        queries = Tiles(self, self.rows, spec.features)
        self.keys = Tiles(self, self.step, spec.features)
        self.values = Tiles(self, self.step, spec.values)
        self.stage = self.keys.bytes + self.values.bytes
        size = max(2 * self.stage, queries.bytes)
        self.room = builder.shared("i8", size, align=16)
        self.k, self.v = (
            self.matrix(place, operand)
            for place, operand in zip(places[1:], (spec.k, spec.v), strict=True)
        )
        first = self.tile * self.rows
        queries.copy(self.room, self.matrix(places[0], spec.q), spec.q, first, spec.queries)
        self.device.wait_for_copies()
        builder.wait()
        self.q = queries.left(self.room, self.own, self.each)
        builder.wait()
        self.masked_by = self.mask(mask)
        self.sums = self.zeros(self.each, self.values.wide)
        lowest = literal(float32, -math.inf, 1)
        self.top = [[f.var("float", lowest) for _ in range(2)] for _ in range(self.each)]
        self.total = [[f.var("float", "0.0") for _ in range(2)] for _ in range(self.each)]
        whole, self.count = self._counts(first)
        self._copy(0)
        if not isinstance(whole, int) or whole:
            with f.loop(0, whole) as j:
                self._over(j, masked=False)
        with f.loop(whole, self.count) as j:
            self._over(j, masked=True)
        self._finish(epilogue, lse)
        builder.end(THREADS)

    def _counts(self, first: Size) -> tuple[Size, Size]:
        """How many steps over keys need no masks, and how many there are."""
        spec, step = self.spec, self.step
        count: Size = -(-spec.keys // step)
        whole: Size = 0 if spec.mask is not None else spec.keys // step
        if spec.causal:
            count = minimum(count, (first + (self.rows + step - 1)) // step)
            whole = minimum(whole, (first + 1) // step)
        return whole, count

    def _copy(self, j: Size) -> None:
        """Start to copy the keys and values of a step."""
        to = self.room.bytes(j % 2 * self.stage)
        first, spec = j * self.step, self.spec
        self.keys.copy(to, self.k, spec.k, first, spec.keys)
        self.values.copy(to.bytes(self.keys.bytes), self.v, spec.v, first, spec.keys)

    def _over(self, j: Index, *, masked: bool) -> None:
        """One step: the scores of some keys, and their values."""
        f, device = self.f, self.device
        device.wait_for_copies()
        self.builder.wait()  # for the copies of all, and for those that read what comes next
        after = j + 1
        with f.when(f(f"icmp slt i64 {after}, {f.size(self.count)}")):
            self._copy(after)
        at = self.room.bytes(j % 2 * self.stage)
        tiles = []
        for k in range(self.keys.wide // SIDE):
            found = [self.keys.rows_as_columns(at, n, k) for n in range(0, self.step, SIDE)]
            tiles.append([tile for pair in found for tile in pair])
        scores = self.times(self.q, tiles, self.step // NARROW)
        weights = [
            self._weights(i, rows, j * self.step, masked=masked) for i, rows in enumerate(scores)
        ]
        values = at.bytes(self.keys.bytes)
        for n in range(self.step // SIDE):
            left = [self.packed(rows[2 * n : 2 * n + 2]) for rows in weights]
            self.add_times(self.sums, left, values, self.values, n * SIDE)

    def _weights(
        self, i: int, raw: list[list[str]], first: Size, *, masked: bool
    ) -> list[list[Vec]]:
        """The powers of 16 rows of scores, relative to the largest so far."""
        f, spec = self.f, self.spec
        made: list[list[Vec | None]] = [[None] * 4 for _ in raw]
        for half in range(2):
            row, key = self.row(i, half), self.column + first
            room = ""
            if masked:
                limit = minimum(row + 1, spec.keys) if spec.causal else spec.keys
                room = self.narrow(limit - key)
            spots = [(n, e) for n in range(len(raw)) for e in range(2)]
            valid = [
                f(f"icmp sgt i32 {room}, {n * NARROW + e}") if masked else None for n, e in spots
            ]
            scores, _ = self.scores(
                [raw[n][2 * half + e] for n, e in spots],
                valid,
                [(row, key + (n * NARROW + e)) for n, e in spots],
                self.masked_by,
            )
            highest = scores[0]
            for score in scores[1:]:
                highest = self.larger(highest, score)
            highest = self.over_row(highest, "max")
            before = self.vec(self.top[i][half].load())
            highest = self.larger(before, highest)
            self.top[i][half].store(highest)
            # Of a row without a score that counts, so far, all powers are 0.
            start = highest.equals(-math.inf).pick(self.vec(0.0), highest) * -self.factor
            less = self.exp2(before.fma(self.vec(self.factor), start))
            powers = [self.exp2(score.fma(self.vec(self.factor), start)) for score in scores]
            total = self.vec(self.total[i][half].load()) * less
            for (n, e), power in zip(spots, powers, strict=True):
                made[n][2 * half + e] = power
                total = total + power
            self.total[i][half].store(total)
            for place in range(2 * half, len(self.sums[i]), 4):
                for one in self.sums[i][place : place + 2]:
                    one.store(self.vec(one.load()) * less)
        return made  # type: ignore[return-value]

    def _finish(self, epilogue: Epilogue, lse: int | None) -> None:
        """Divide by the sums of powers, and write results."""
        f, spec = self.f, self.spec
        epilogue.begin(f)
        for i in range(self.each):
            for half in range(2):
                total = self.over_row(self.vec(self.total[i][half].load()), "add")
                none = total.equals(0.0)
                inverse = self.vec(1.0) / total
                if spec.blank:
                    inverse = none.pick(self.vec(0.0), inverse)
                row = self.row(i, half)
                with f.when(f(f"icmp slt i64 {row}, {spec.queries}")):
                    self._write(epilogue, i, half, row, inverse)
                    if lse is not None:
                        top = self.vec(self.top[i][half].load())
                        self._write_sum(lse, row, top, total, none)

    def _write(self, epilogue: Epilogue, i: int, half: int, row: Size, inverse: Vec) -> None:
        f = self.f
        for n in range(self.spec.values // NARROW):
            pair = "poison"
            for e in range(2):
                value = self.vec(self.sums[i][4 * n + 2 * half + e].load()) * inverse
                pair = f(f"insertelement <2 x float> {pair}, float {value}, i32 {e}")
            epilogue.put(f, pair, 2, [*self.batch, row, self.column + n * NARROW])

    def _write_sum(self, lse: int, row: Size, top: Vec, total: Vec, none: Vec) -> None:
        """The logarithm of the sum of the exponentials of a row's scores."""
        f, spec = self.f, self.spec
        name = emit(f, "log", [(float32, total.name)], float32, 1, {})
        assert name is not None
        found = (top * (self.factor / LOG2E)) + self.vec(name)
        if spec.blank:
            found = none.pick(self.vec(math.inf), found)
        with f.when(f(f"icmp eq i64 {self.column}, 0")):
            to = self.builder.buffer(lse, "float") + (self.stack * spec.queries + row)
            to.store(found)
