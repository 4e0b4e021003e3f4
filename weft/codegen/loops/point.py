"""The values of a group at one point of its loops (or at `lanes` points along one axis)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from weft.base.dim_algebra import Dim
from weft.base.dtypes import DType
from weft.codegen.elementwise import emit, literal, load, memory_type, number_of_size, splat, store
from weft.codegen.index import Ptr, Size
from weft.codegen.loops.access import Access, access_of, dtype_of
from weft.codegen.text import Function, Module
from weft.ir.graph import Node, Value
from weft.ops.cards import IDENTITY
from weft.schedule.groups import Group, Leaf, Operand, Scalar

__all__ = ["Point"]


class Point:
    """
    pointer   the address of an access's first element, for the outer indices of this point
    index     the index along each axis (of the first lane)
    axis      the axis that lanes run along
    mask      which lanes are valid, and their number, if not all are
    known     values computed already, as scalars: reductions, and what is the same for a row
    aligned   bytes that all buffers begin at multiples of, if lanes begin at multiples of `lanes`
    """

    def __init__(
        self,
        f: Function,
        group: Group,
        pointer: Callable[[Access], Ptr],
        index: Mapping[int, Size],
        *,
        axis: int | None = None,
        lanes: int = 1,
        mask: tuple[str, Size] | None = None,
        known: Mapping[Value, str] | None = None,
        scalars: Mapping[Access, str] | None = None,
        saved: Mapping[Value, Callable[[Point], str]] | None = None,
        aligned: int = 0,
    ) -> None:
        self.f = f
        self.group = group
        self.index = index
        self.axis = axis
        self.lanes = lanes
        self.mask = mask
        self._pointer = pointer
        self._known = known or {}
        self._scalars = scalars or {}
        self._saved = saved or {}
        self._aligned = aligned
        self._values: dict[Any, str] = {}
        self._offsets: dict[tuple[tuple[int, int], ...], Size] = {}  # element offsets, by steps

    # --- values -------------------------------------------------------------------------------

    def value(self, value: Value) -> str:
        found = self._values.get(value)
        if found is None:
            if value in self._known:
                found = splat(self.f, dtype_of(value), self._known[value], self.lanes)
            elif value in self._saved:
                found = self._saved[value](self)
            else:
                found = self._computed(value)
            self._values[value] = found
        return found

    def give(self, value: Value | Access, name: str) -> None:
        """Set a value (or what an access reads) that was computed elsewhere."""
        self._values[value] = name

    def moved(self, index: Mapping[int, Size]) -> Point:
        """Another point, with these indices along other axes."""
        return Point(
            self.f,
            self.group,
            self._pointer,
            {**self.index, **index},
            axis=self.axis,
            lanes=self.lanes,
            mask=self.mask,
            aligned=self._aligned,
        )

    def _computed(self, value: Value) -> str:
        # An explicit stack: a chain of a thousand ops would exceed the recursion limit.
        stack = [value]
        while stack:
            top = stack[-1]
            if top in self._values:
                stack.pop()
                continue
            node = top.node
            assert node is not None
            open_ = [
                operand
                for operand in self.group.operands[node]
                if isinstance(operand, Value)
                and operand not in self._values
                and operand not in self._known
                and operand not in self._saved
            ]
            if open_:
                stack += open_
                continue
            self._values[top] = self._emitted(node)
            stack.pop()
        return self._values[value]

    def _emitted(self, node: Node) -> str:
        self.f.here(node.location)
        given = [
            (dtype_of(value), self.operand(node, operand))
            for value, operand in zip(node.inputs, self.group.operands[node], strict=True)
        ]
        out = dtype_of(node.outputs[0])
        if node.op is IDENTITY:
            return given[0][1]
        made = emit(self.f, node.op.name, given, out, self.lanes, node.attrs)
        assert made is not None, node.op.name
        return made

    def operand(self, node: Node, operand: Operand) -> str:
        if isinstance(operand, Scalar):
            dtype = _scalar_dtype(node, operand, self.group)
            if isinstance(operand.number, Dim):
                number = number_of_size(self.f, operand.number, dtype)
                return splat(self.f, dtype, number, self.lanes)
            if dtype.kind == "complex":  # only moved: as an integer
                bits = int.from_bytes(operand.number.tobytes(), "little")
                return splat(self.f, dtype, str(bits), self.lanes)
            return literal(dtype, operand.number, self.lanes)
        if isinstance(operand, Leaf):
            return self.load(access_of(self.group, operand, self.group.places[node]))
        return self.value(operand)

    # --- memory -------------------------------------------------------------------------------

    def load(self, access: Access) -> str:
        found = self._values.get(access)
        if found is None:
            found = self._values[access] = self._loaded(access)
        return found

    def _loaded(self, access: Access) -> str:
        f, dtype, lanes = self.f, access.dtype, self.lanes
        if access in self._scalars:
            return splat(f, dtype, self._scalars[access], lanes)
        step = 0 if self.axis is None else access.step(self.axis)
        if lanes == 1 or step == 0:
            one = load(f, dtype, self.at(access), 1)
            return splat(f, dtype, one, lanes) if lanes > 1 else one
        if step == 1:
            mask = self.mask[0] if self.mask else None
            return load(f, dtype, self.at(access), lanes, mask, self._align(access))
        room = self._strided(access, step)
        return load(f, dtype, room, lanes)

    def _strided(self, access: Access, step: int) -> Ptr:
        """Gather strided elements into a contiguous buffer."""
        f, lanes, kind = self.f, self.lanes, memory_type(access.dtype)
        name = f.module.once(f"gathered.{kind}.{lanes}", lambda m: _gathered(m, kind, lanes))
        room = f.var(kind, count=lanes, align=64)
        count = self.mask[1] if self.mask else lanes
        by = f.size(step)
        f.do(f"call void @{name}(ptr {room}, ptr {self.at(access)}, i64 {by}, i64 {count})")
        return room

    def store(self, access: Access, value: str) -> None:
        f, dtype, lanes = self.f, access.dtype, self.lanes
        step = 1 if self.axis is None else access.step(self.axis)
        if lanes == 1 or step == 1:
            mask = self.mask[0] if self.mask and lanes > 1 else None
            align = self._align(access) if lanes > 1 else 0
            store(f, dtype, self.at(access), value, lanes, mask, align)
            return
        kind = memory_type(dtype)
        room = f.var(kind, count=lanes, align=64)
        store(f, dtype, room, value, lanes)
        count = self.mask[1] if self.mask else lanes
        name = f.module.once(f"scattered.{kind}", lambda m: _scattered(m, kind))
        by = f.size(step)
        f.do(f"call void @{name}(ptr {self.at(access)}, ptr {room}, i64 {by}, i64 {count})")

    def _align(self, access: Access) -> int:
        """Bytes that the address of the first lane is known to be a multiple of; or 0."""
        sizes, size = self.group.space.sizes, access.dtype.itemsize
        if not self._aligned or self.axis is None or sizes[self.axis] % self.lanes:
            return 0
        steps = [self.lanes if axis == self.axis else step for axis, step in access.steps]
        return math.gcd(self._aligned, *(step * size for step in (access.offset, *steps)))

    def at(self, access: Access) -> Ptr:
        """The address of the first lane."""
        place = self._pointer(access)
        offset = self._offsets.get(access.steps)
        if offset is None:
            offset = 0
            for axis, step in access.steps:
                if axis in self.index:
                    offset = offset + self.index[axis] * step
            self._offsets[access.steps] = offset
        return place + offset


def _scalar_dtype(node: Node, operand: Scalar, group: Group) -> DType:
    place = next(i for i, op in enumerate(group.operands[node]) if op is operand)
    return dtype_of(node.inputs[place])


def _gathered(module: Module, kind: str, lanes: int) -> None:
    params = [("ptr", "to"), ("ptr", "from"), ("i64", "step"), ("i64", "count")]
    f = module.function(f"gathered.{kind}.{lanes}", "void", params)
    f.do(f"store [{lanes} x {kind}] zeroinitializer, ptr %to, align 64")
    with f.loop(0, f.index("%count")) as i:
        one = (f.ptr("%from", kind) + i * f.index("%step")).load()
        (f.ptr("%to", kind) + i).store(one)
    f.do("ret void")


def _scattered(module: Module, kind: str) -> None:
    params = [("ptr", "to"), ("ptr", "from"), ("i64", "step"), ("i64", "count")]
    f = module.function(f"scattered.{kind}", "void", params)
    with f.loop(0, f.index("%count")) as i:
        one = (f.ptr("%from", kind) + i).load()
        (f.ptr("%to", kind) + i * f.index("%step")).store(one)
    f.do("ret void")
