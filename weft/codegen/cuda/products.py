"""Matrix products by the threads of one block: small ones, inside of a larger kernel.

A thread computes some rows of one column, in the order of terms; narrow floats are summed in
float32. Neighbouring threads read neighbouring columns of the right operand. Where these do not
follow each other in memory, as in a transposed matrix, as many columns as fit are first copied to
memory that the block shares.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from weft.codegen.cuda.builder import KernelBuilder
from weft.codegen.cuda.machine import GpuMachine
from weft.codegen.cuda.matrix import matrices
from weft.codegen.cuda.nodes import rounded
from weft.codegen.elementwise import load, memory_type, store
from weft.codegen.index import Index, Ptr, Size, minimum, unravel
from weft.codegen.text import Module
from weft.ir.graph import Node
from weft.schedule.views import View

__all__ = ["emit_product"]

#: Bytes of shared memory for columns, and how many columns at least.
ROOM, FEWEST = 40 << 10, 8


def emit_product(
    module: Module, name: str, node: Node, views: Sequence[View], machine: GpuMachine
) -> None:
    """A part of a kernel. Buffers: the operands, the result, scratch memory."""
    _Product(module, name, node, views, machine).write()


class _Product:
    def __init__(
        self, module: Module, name: str, node: Node, views: Sequence[View], machine: GpuMachine
    ) -> None:
        self.machine = machine
        self.builder = KernelBuilder(module, name, 4, machine)
        self.f = self.builder.f
        self.dtype = node.inputs[0].tensor_type.dtype
        self.result = node.out.tensor_type.dtype
        self.left, self.right, self.shape = matrices(views, node.out.tensor_type.shape)
        *stack, self.rows, self.columns = self.shape
        self.stack = math.prod(stack)
        self.terms = self.left.shape[-1]
        self.wide = "double" if self.dtype.itemsize == 8 else "float"
        fma = f"llvm.fma.f{64 if self.wide == 'double' else 32}"
        self.fma = module.declare(self.wide, fma, ", ".join([self.wide] * 3))
        kinds = (self.dtype, self.dtype, self.result)
        self.at = [self.builder.buffer(i, memory_type(kind)) for i, kind in enumerate(kinds)]

    def write(self) -> None:
        f = self.f
        columns = ROOM // (8 if self.wide == "double" else 4) // max(1, self.terms) - 1
        if self.right.strides[-1] == 1 or min(columns, self.columns) < FEWEST:
            self._tasks(self.stack, self.columns, lambda item: unravel(item, self._whole()))
        else:
            columns = min(columns, self.columns)
            with f.loop(0, self.stack) as stack, f.loop(0, self.columns, columns) as first:
                self._shared(stack, first, columns)
        f.do("ret void")

    def _whole(self) -> tuple[int, ...]:
        return (*self.shape[:-2], self.rows // self._each(self.stack, self.columns), self.columns)

    def _each(self, stack: int, columns: int) -> int:
        """How many rows a thread computes: several, if there is work for all threads."""
        for each in (8, 4, 2):
            tasks = stack * columns * self.rows // each
            if self.rows % each == 0 and tasks >= self.machine.threads:
                return each
        return 1

    def _tasks(self, stack: int, columns: int, index_of: Callable[[Index], Sequence[Size]]) -> None:
        """All from global memory."""
        f, each = self.f, self._each(stack, columns)
        count = stack * columns * self.rows // each
        with f.loop(self.builder.thread(), count, self.machine.threads) as item:
            *stacked, row, column = index_of(item)
            right = self.at[1] + (self._offset(self.right, [*stacked, 0, column]))
            step = self.right.strides[-2]
            self._sums(stacked, row * each, column, each, lambda t: right + t * step, self.dtype)

    def _shared(self, stack: Index, first: Index, columns: int) -> None:
        """Some columns of one matrix, by way of shared memory."""
        f, builder, threads = self.f, self.builder, self.machine.threads
        room = builder.shared(self.wide, ROOM // (8 if self.wide == "double" else 4))
        stacked = unravel(stack, self.shape[:-2])
        here = minimum(first + columns, self.columns)
        builder.wait()  # for those that read the columns before
        with f.loop(builder.thread(), columns * self.terms, threads) as i:
            term, column = i % self.terms, first + i // self.terms
            with f.when(f(f"icmp slt i64 {column}, {here}")):
                at = self.at[1] + self._offset(self.right, [*stacked, term, column])
                (room + (term * (columns + 1) + i // self.terms)).store(load(f, self.dtype, at, 1))
        builder.wait()
        each = self._each(1, columns)
        with f.loop(builder.thread(), columns * self.rows // each, threads) as item:
            row, place = item // columns * each, item % columns
            column = first + place
            with f.when(f(f"icmp slt i64 {column}, {here}")):
                at = room + place
                self._sums(stacked, row, column, each, lambda t: at + t * (columns + 1), None)

    def _sums(
        self,
        stacked: Sequence[Size],
        row: Size,
        column: Size,
        each: int,
        right: Callable[[Index], Ptr],
        dtype: object,
    ) -> None:
        """Elements of some rows and one column."""
        f, wide = self.f, self.wide
        places = [self._offset(self.left, [*stacked, row + i, 0]) for i in range(each)]
        left = [self.at[0] + place for place in places]
        sums = [f.var(wide, "0.0") for _ in range(each)]
        with f.loop(0, self.terms) as term:
            at = right(term)
            b = at.load() if dtype is None else load(f, self.dtype, at, 1)
            for one, total in zip(left, sums, strict=True):
                a = load(f, self.dtype, one + term * self.left.strides[-1], 1)
                given = f"{wide} {a}, {wide} {b}, {wide} {total.load()}"
                total.store(f(f"call {wide} @{self.fma}({given})"))
        stack: Size = 0
        for size, i in zip(self.shape[:-2], stacked, strict=True):
            stack = stack * size + i
        for i, total in enumerate(sums):
            place = (stack * self.rows + row + i) * self.columns + column
            store(f, self.result, self.at[2] + place, rounded(f, total.load(), self.result), 1)

    @staticmethod
    def _offset(view: View, index: Sequence[Size]) -> Size:
        """Where an element lies, from its index in the result, which has at least as many axes."""
        found: Size = view.offset
        own = index[len(index) - len(view.shape) :]
        for i, size, stride in zip(own, view.shape, view.strides, strict=True):
            if size != 1:
                found = found + i * stride
        return found
