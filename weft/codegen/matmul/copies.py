"""Copies of operands that all threads share: cut along the terms, too, so that all of them copy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from weft.base.dims import has_dims, typical
from weft.codegen.cancel import cancellable_loop, pollable_run
from weft.codegen.index import Ptr, Size, minimum, unravel
from weft.codegen.indexing.access import copy_bytes
from weft.codegen.kernel import PARAMS, Kernel, argument, each_item
from weft.codegen.matmul.pack import panel
from weft.codegen.matmul.plan import even, up

if TYPE_CHECKING:
    from weft.codegen.matmul.blocked import Places, Writer

__all__ = ["write_copies"]

#: Terms that an item copies where their number is known, and what that is a multiple of; those
#: copied between two polls for cancellation where it is not. A multiple of all lane counts.
PIECE, STEP, COPIED = 128, 64, 1 << 14
#: Nanoseconds to copy an element that another core has in its cache.
EACH = 0.1


def write_copies(w: Writer, name: str, places: Places) -> Kernel:
    """The kernel that copies operands to scratch memory."""
    return _Copies(w, name, places).write()


class _Copies:
    """
    copied  terms that are copied at once
    parts   into how many parts the terms are cut, one for an item
    """

    def __init__(self, w: Writer, name: str, places: Places) -> None:
        self.w = w
        self.name = name
        self.places = places
        self.f = w.f = w.module.function(name, "i32", PARAMS)
        k = w.product.k
        self.run: Ptr | None = None
        self.copied, self.parts = k, 1
        if not has_dims((k,)):
            self.copied = min(up(even(k, PIECE), STEP), k)
            self.parts = -(-k // self.copied)
        self.pace = w.panel * EACH * typical(self.copied)
        if has_dims((k,)):
            self.run = pollable_run(self.f, places[3], self.pace)
            self.copied = k if self.run is None else COPIED
        w.copied = self.copied

    def write(self) -> Kernel:
        f, w, product, number = self.f, self.w, self.w.product, self.w.number
        assert self.places[2] is not None
        scratch = argument(f, self.places[2])
        cost = self.pace if self.run is None else w.panel * EACH * typical(product.k)
        self.spare = w.room(up(w.rows, w.lanes) * number.width)
        items = 0
        with each_item(f) as item:
            if w.plan.a == "shared":
                items = w.a_stacks * self.parts * w.tiles
                with f.when(f(f"icmp slt i64 {item}, {f.size(items)}")):
                    # Neighbours copy neighbouring elements of the same lines.
                    stack, part, t = unravel(item, (w.a_stacks, self.parts, w.tiles))
                    batch = unravel(stack, product.batch)
                    src = w.start(argument(f, self.places[0]), product.a, batch)
                    src = src.bytes(w.row(t) * number.size)
                    dst = scratch.bytes((stack * w.tiles + t) * w.a_tile)
                    with self._terms(part) as terms:
                        self._copy_tile(src, dst, batch, t, terms)
            if w.plan.b == "shared":
                first = items
                items += w.b_stacks * self.parts * w.panels
                with f.when(f(f"icmp sge i64 {item}, {f.size(first)}")):
                    # Threads mostly copy what they have written before: whole rows.
                    if w.b_is_row_major:
                        sizes = (w.b_stacks, self.parts, w.panels)
                        stack, part, p = unravel(item - first, sizes)
                    else:
                        sizes = (w.b_stacks, w.panels, self.parts)
                        stack, p, part = unravel(item - first, sizes)
                    batch = unravel(stack, product.batch)
                    dst = scratch.bytes(w.b_start + stack * w.b_all).bytes(p * w.b_panel)
                    src = w.start(argument(f, self.places[1]), product.b, batch)
                    with self._terms(part) as (start, count):
                        near = src.bytes(start * (product.b.row * number.size))
                        far = dst.bytes(start * (w.panel * number.width))
                        w.copy_panel(near, far, p, (start, count), batch)
        f.do("ret i32 0")
        work = 0 if not product.varies else items * product.k * (100 * w.panel) // self.parts
        return w.kernel(self.name, items, cost, work, self.run)

    @contextmanager
    def _terms(self, part: Size) -> Iterator[tuple[Size, Size]]:
        """Terms that are copied at once: the first, and how many."""
        f, k = self.f, self.w.product.k
        if self.parts > 1:
            start = part * self.copied
            yield start, minimum(k - start, self.copied)
        elif self.run is None:
            yield 0, k
        else:
            pace = self.w.panel * EACH * COPIED
            with cancellable_loop(f, self.run, 0, k, self.copied, each=pace) as start:
                yield start, minimum(k - start, self.copied)

    def _copy_tile(
        self, src: Ptr, dst: Ptr, batch: list[Size], t: Size, terms: tuple[Size, Size]
    ) -> None:
        """Copy or compute some terms (the first, and how many) of a tile of a."""
        w, (start, count) = self.w, terms

        def lines(dst: Ptr, first: Size, count: Size) -> None:
            if 0 in w.prologues:
                w.compute(dst, batch, w.row(t), (first, count))
                return
            move = panel(self.f.module, w.number, -(-w.rows // w.lanes))
            w.call(move, src.bytes(first * w.a_step), w.a_step, dst, w.a_pitch, count, w.rows)

        dst = dst.bytes(start * w.a_pitch)
        if self.parts == 1:
            lines(dst, start, count)
            return
        # Lines are written as whole vectors, and what lies behind the last one is another item's.
        last = count - 1
        lines(dst, start, last)
        lines(self.spare, start + last, 1)
        copy_bytes(self.f, dst.bytes(last * w.a_pitch), self.spare, w.a_pitch)
