"""Attention, backward: for each block of keys and chunk of queries, weights are recomputed.

With p = exp(score - lse), g the gradient of the result and d = sum(g * result) for each query:

    dv = pᵀ g        ds = p * (g vᵀ - d) * scale        dq = ds k        dk = dsᵀ q

dk and dv are accumulated over the chunks in local memory. dq is accumulated over the blocks, in
scratch memory unless one block holds all keys. One item is one matrix of the batch, so each sum has
a fixed order.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass

from weft.base.dims import has_dims, is_zero, typical
from weft.codegen.attention.cut import Rows, number_if_supported, pollable, work_of
from weft.codegen.attention.one_key import GivenOfOne, by_keys, gradients_of_one
from weft.codegen.attention.spec import Attention
from weft.codegen.attention.work import GAP, Work
from weft.codegen.cancel import cancellable_loop
from weft.codegen.index import Ptr, Size, maximum, minimum, unravel
from weft.codegen.kernel import PARAMS, Kernel, Store, each_item
from weft.codegen.math import call
from weft.codegen.matmul.numbers import Number
from weft.codegen.matmul.plan import up
from weft.codegen.matmul.product import Operand
from weft.codegen.text import Module

__all__ = ["Backward", "emit_backward"]

_KEYS = 256  # keys of a block
#: A block of keys and values and a chunk of weights as parts of the second cache, in 64ths: the
#: first whose memory is not too much for a thread.
_PARTS = (4, 3, 2, 1)


@dataclass(frozen=True, slots=True)
class Backward:
    """What the backward reads besides q, k, v and the mask: positions in `%args`, and layouts.

    out, grad  the result of the forward, not rounded, and its gradient; columns are contiguous
    lse        as the forward wrote it
    """

    out: int
    out_layout: Operand
    grad: int
    grad_layout: Operand
    lse: int


def emit_backward(
    module: Module,
    name: str,
    spec: Attention,
    q: int,
    k: int,
    v: int,
    given: Backward,
    stores: tuple[Store, Store, Store],
    *,
    mask: int | None = None,
    scratch: int | None = None,
    run: int | None = None,
) -> list[Kernel] | None:
    """The kernel of attention's backward; q, k, v, mask, scratch and run are positions in `%args`.

    The gradients of q, k and v go through `stores`, indexed (batch…, row, column): one for each
    matrix of the batch, even if an operand is broadcast. Returns None if there is no kernel for the
    operands.
    """
    number = number_if_supported(spec)
    if number is None or (
        spec.values > 1 and (given.out_layout.column, given.grad_layout.column) != (1, 1)
    ):
        return None
    if is_zero(spec.queries * spec.values):
        return None
    if is_zero(spec.stacks):
        return []
    writer = _Backward(module, name, spec, number, stores, given)
    too_large = writer.stack_size > module.machine.caches.room
    if too_large or (writer.blocks != 1 and scratch is None):
        return None
    return [writer.write((q, k, v, mask, given.out, given.grad, given.lse, scratch), run)]


class _Backward:
    def __init__(
        self,
        module: Module,
        name: str,
        spec: Attention,
        number: Number,
        stores: tuple[Store, Store, Store],
        given: Backward,
    ) -> None:
        self.name = name
        self.spec = spec
        self.stores = stores
        self.given = given
        self.w = w = Work(module, spec, number)
        # Tiles that sum over queries have keys as rows. Their number divides the vector width, so
        # that a partial block ends with whole tiles.
        self.key_rows = min(w.lanes, 8 if module.machine.vector_bytes == 64 else 4)
        self.q_pitch = up(spec.features, w.columns) + GAP
        self.v_pitch = up(spec.values, w.columns) + GAP
        for part in _PARTS:
            self._cut(part * module.machine.caches.second // 64)
            self.stack_size = sum(self._rooms().values()) * w.width
            if self.stack_size <= module.machine.caches.room:
                break

    def _cut(self, size: int) -> None:
        """Choose blocks of keys and chunks of queries of about the given sizes in bytes."""
        w, spec = self.w, self.spec
        wide = (up(spec.features, w.lanes) + up(spec.values, w.lanes)) * w.width
        most = max(w.columns, min(_KEYS, size // wide) // w.columns * w.columns)
        self.keys = most if has_dims((spec.keys,)) else min(most, up(spec.keys, w.columns))
        self.blocks = -(-spec.keys // self.keys)
        rows = size // (max(self.keys, self.q_pitch) * w.width)
        self.cut = cut = Rows.of(w.module, spec.queries, max(8, rows))
        self.chunk, self.chunks = cut.chunk, cut.chunks
        self.rows, self.tiles = cut.rows, cut.tiles
        w.counts = cut.counts
        self.pitch = w.pitch(spec.keys, self.keys)
        self.dq_size = self.tiles * self.rows * self.q_pitch  # elements of a chunk's sums
        self.lines = self.tiles  # from the sums of one chunk to those of the next
        self.may_be_local = self.blocks == 1 or has_dims((self.blocks,))

    def _rooms(self) -> dict[str, int]:
        """The number of elements of each local buffer."""
        w, spec = self.w, self.spec
        chunk = self.cut.largest
        return {
            "packed_k": self.keys * up(spec.features, w.lanes),
            "packed_v": self.keys * up(spec.values, w.lanes),
            "weights": chunk * (self.keys + GAP),
            "slopes": chunk * (self.keys + GAP),
            "dk": self.keys * self.q_pitch,
            "dv": self.keys * self.v_pitch,
            "deltas": chunk,
            "dq": self.cut.room * self.q_pitch if self.may_be_local else 0,
            "left": w.left_size(self.cut.most, max(spec.features, spec.values)),
            "copy_k": w.copy_size(self.keys, spec.features, 2),
            "copy_q": w.copy_size(chunk, spec.features, 2),
            "copy_grad": w.copy_size(chunk, spec.values, 2),
        }

    def write(self, places: tuple[int | None, ...], run: int | None) -> Kernel:
        w, spec = self.w, self.spec
        f = w.f = w.module.function(self.name, "i32", PARAMS)
        (self.q, self.k, self.v, self.mask, self.out, self.grad, self.lse, scratch) = w.arguments(
            *places
        )
        each = (3 * spec.features + 2 * spec.values + 40) / w.lanes * 0.3
        each *= 0.6 if spec.causal else 1.0
        cost = 50 + typical(spec.queries) * typical(spec.keys) * each
        self.run = pollable(f, run, spec.queries * spec.keys, cost)
        self.round = cost / typical(self.blocks * self.chunks)
        for store in self.stores:
            store.begin(f)
        rooms = {word: w.room(size) for word, size in self._rooms().items()}
        self.packed_k, self.packed_v = rooms["packed_k"], rooms["packed_v"]
        self.weights, self.slopes = rooms["weights"], rooms["slopes"]
        self.dk, self.dv, self.deltas = rooms["dk"], rooms["dv"], rooms["deltas"]
        self.left = rooms["left"]
        self.copies = {word: rooms[f"copy_{word}"] for word in ("k", "q", "grad")}
        dq_bytes = self.chunks * self.dq_size * w.width
        with each_item(f) as stack:
            self.stack, self.batch = stack, unravel(stack, spec.batch)
            self.dq = self._sums(rooms["dq"], scratch, stack, dq_bytes)
            with by_keys(w, self._one_key), f.loop(0, spec.keys, self.keys) as start:
                self._block(start)
        f.do("ret i32 0")
        room = 0 if self.blocks == 1 else spec.stacks * dq_bytes
        if has_dims((self.blocks,)):
            room = w.module.sizes.let(f"0 if {self.blocks} == 1 else {room}", low=0)
        work = work_of(spec.stacks, spec, each)
        return Kernel(self.name, spec.stacks, cost, room, self.run is not None, work=work)

    def _sums(self, room: Ptr, scratch: Ptr, stack: Size, size: int) -> Ptr:
        """Where dq is summed up: in local memory, or in scratch memory for several blocks."""
        f = self.w.f
        if not has_dims((self.blocks,)):
            return room if self.blocks == 1 else scratch.bytes(stack * size)
        self.lines = self.w.module.sizes.let(f"0 if {self.blocks} == 1 else {self.tiles}", low=0)
        one = f(f"icmp eq i64 {f.size(self.blocks)}, 1")
        far = scratch.bytes(stack * size)
        return f.ptr(f(f"select i1 {one}, ptr {room}, ptr {far}"), room.kind)

    def _one_key(self) -> None:
        w, spec, layouts = self.w, self.spec, self.given
        given = GivenOfOne(
            *(self.q, self.k, self.v),
            (self.out, layouts.out_layout),
            (self.grad, layouts.grad_layout),
            self.lse.of(w.kind) + self.stack * spec.queries,
            (self.dk.bytes(self.q_pitch * w.width), self.dk, self.dv),  # there is room for two keys
        )

        def queries() -> AbstractContextManager[Size]:
            return cancellable_loop(w.f, self.run, 0, spec.queries, each=self.round)

        gradients_of_one(w, given, self.batch, queries, self.stores)

    def _block(self, start: Size) -> None:
        """Process one block of keys with all queries."""
        w, spec = self.w, self.spec
        f = w.f
        self.start = start
        self.count = count = minimum(spec.keys - start, self.keys)
        self.k_rows = w.matrix(self.k, spec.k, self.batch, start)
        w.pack_keys(self.k_rows, w.step(spec.k), self.packed_k, count, spec.features)
        v_rows = w.matrix(self.v, spec.v, self.batch, start)
        w.pack_keys(v_rows, w.step(spec.v), self.packed_v, count, spec.values)
        self.k_right = w.right(
            self.k_rows, w.step(spec.k), count, spec.features, 2, self.copies["k"], self.keys
        )
        rows: Size = self.keys
        if has_dims((spec.keys,)):
            rows = (count + (self.key_rows - 1)) // self.key_rows * self.key_rows
        for room, pitch in ((self.dk, self.q_pitch), (self.dv, self.v_pitch)):
            with f.loop(0, rows * pitch, w.lanes) as i:
                w.write(w.number_vec(0.0), w.element(room, i))
        with cancellable_loop(f, self.run, 0, self.chunks, each=self.round) as c:
            first = minimum(c * self.chunk, spec.queries - self.chunk)
            if spec.causal:
                end = minimum(first + self.chunk, spec.keys)
                with f.when(f(f"icmp slt i64 {start}, {f.size(end)}")):
                    self._chunk(c, first, end)
            else:
                self._chunk(c, first, spec.keys)
        with f.loop(0, count) as key:
            index = [*self.batch, start + key]
            for store, room, pitch, columns in (
                (self.stores[1], self.dk, self.q_pitch, spec.features),
                (self.stores[2], self.dv, self.v_pitch, spec.values),
            ):
                line = room.bytes(key * (pitch * w.width))
                w.put_row(store, line, columns, index)

    def _chunk(self, c: Size, first: Size, end: Size) -> None:
        """Process one block of keys with the queries from `first` on."""
        w, spec = self.w, self.spec
        f, count = w.f, self.count
        q_step, g_step = w.step(spec.q), w.step(self.given.grad_layout)
        queries = w.matrix(self.q, spec.q, self.batch, first)
        grads = w.matrix(self.grad, self.given.grad_layout, self.batch, first)
        keys = w.keys_side(self.packed_k, spec.features, count)
        values = w.keys_side(self.packed_v, spec.values, count)
        pitch = self.pitch * w.width
        with f.loop(0, self.tiles) as t:
            row = self._row(t)
            for left, step, right, terms, room in (
                (queries, q_step, keys, spec.features, self.weights),
                (grads, g_step, values, spec.values, self.slopes),
            ):
                at = left.bytes(row * step)
                at, near = w.left(at, step, self.rows, terms, self.left)
                to = room.bytes(row * pitch)
                w.multiply(self.rows, at, near, right, terms, to, pitch, "false")
        self._deltas(first)
        with f.loop(0, self.chunk) as r:
            self._weigh(r, first + r)

        # Chunks may overlap: queries of the previous chunk are left out of sums over queries.
        skip = c * self.chunk - first
        left_over = self.chunk - skip
        rights = [
            w.right(
                rows.bytes(skip * step),
                step,
                left_over,
                columns,
                2,
                self.copies[word],
                self.cut.largest,
            )
            for rows, step, columns, word in (
                (queries, q_step, spec.features, "q"),
                (grads, g_step, spec.values, "grad"),
            )
        ]
        with f.loop(0, count, self.key_rows) as key:
            for room, right, out, out_pitch in (
                (self.slopes, rights[0], self.dk, self.q_pitch),
                (self.weights, rights[1], self.dv, self.v_pitch),
            ):
                left = w.element(room, key).bytes(skip * pitch)
                to = out.bytes(key * (out_pitch * w.width))
                w.multiply(
                    self.key_rows, left, pitch, right, left_over, to, out_pitch * w.width, "true",
                    across=True,
                )  # fmt: skip

        more = f(f"icmp ne i64 {self.start}, 0")
        done = f(f"icmp sge i64 {self.start + count}, {f.size(end)}")
        with f.loop(0, self.tiles) as t:
            row = self._row(t)
            left = self.slopes.bytes(row * pitch)
            line = t if self.blocks == 1 else (c * self.lines + t)
            to = self.dq.bytes(line * (self.rows * self.q_pitch * w.width))
            w.multiply(
                self.rows, left, pitch, self.k_right, count, to, self.q_pitch * w.width, more
            )
            with f.when(done):
                own = maximum(skip, t * self.rows)
                with f.loop(own - row, self.rows) as r:
                    index = [*self.batch, first + row + r]
                    at = to.bytes(r * (self.q_pitch * w.width))
                    w.put_row(self.stores[0], at, spec.features, index)

    def _row(self, t: Size) -> Size:
        return minimum(t * self.rows, self.chunk - self.rows)

    def _deltas(self, first: Size) -> None:
        """For each query of a chunk: the sum of its result times the gradient."""
        w, spec = self.w, self.spec
        f, lanes = w.f, w.lanes
        sides = [
            (number, w.matrix(pointer, lies, self.batch, first, number), lies.row * number.size)
            for number, pointer, lies in (
                (w.number.packed, self.out, self.given.out_layout),
                (w.number, self.grad, self.given.grad_layout),
            )
        ]
        with f.loop(0, self.chunk) as r:
            lines = [(number, at.bytes(r * step)) for number, at, step in sides]
            sum = f.var(w.whole, "zeroinitializer")
            with f.loop(0, spec.values, lanes) as column:
                mask = None
                if spec.values % lanes:
                    mask = w.valid(column, spec.values).name
                x, y = (number.load(f, line + column, lanes, mask) for number, line in lines)
                sum.store(f(w.number.madd(f, lanes, x, y, sum.load())))
            w.write(w.fold(w.vec(sum.load()), "add"), w.element(self.deltas, r))

    def _weigh(self, r: Size, query: Size) -> None:
        """Turn a row of scores into weights, and a row of the weights' gradients into those of the
        scores."""
        w, spec = self.w, self.spec
        f, pitch = w.f, self.pitch * w.width
        line, slope = (room.bytes(r * pitch) for room in (self.weights, self.slopes))
        place = self.stack * spec.queries + query
        one = w.read_one(self.lse, place)
        lse, delta = w.splat(one), w.splat(w.read_one(self.deltas, r))
        own = self.count
        if spec.causal:
            own = minimum(query + 1 - self.start, own)
        if spec.blank:  # the query attends to no key: its gradients are 0, whatever the values are
            own = f.index(f(f"select i1 {one.equals(float('inf'))}, i64 0, i64 {own}"))
        mask = w.mask_row(self.mask, self.batch, query, self.start)

        def turn(column: Size, some: bool) -> None:
            at, at_slope = w.element(line, column), w.element(slope, column)
            if some:
                score, valid = w.score(at, column, own, mask)
            else:
                score = w.read(at) * spec.scale
            weight = w.vec(call(f, "exp", w.number.dtype, w.lanes, (score - lse).name))
            w.write(weight, at)
            gradient = weight * (w.read(at_slope) - delta) * spec.scale
            w.write(valid.pick(gradient, 0.0) if some else gradient, at_slope)

        w.each_vector(self.count, turn)
