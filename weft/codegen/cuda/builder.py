"""A kernel being written: its parameters, the number of its thread, barriers, shared memory.

    define ptx_kernel void @name(ptr %a0, ptr %a1, …)

The parameters are buffers, which begin at multiples of 16 bytes. In code for the emulation on a
CPU, four more follow: the numbers of the thread and of the block, memory that the threads of a
block share, and the address of a function that waits for all of them.

A part of a larger kernel, one for a single block (`weft.codegen.cuda.block`), is written in the
same way: it is a function that gets the number of its block from its caller.
"""

from __future__ import annotations

from weft.codegen.cuda.machine import GpuMachine
from weft.codegen.index import Index, Ptr
from weft.codegen.text import Module

__all__ = ["EMULATED", "MOST_BUFFERS", "KernelBuilder"]

#: The most buffers of a kernel: its parameters take 4 KiB at most.
MOST_BUFFERS = 480
#: Where threads exchange registers in the emulation, in the memory that they share.
EXCHANGE = 224 << 10
EMULATED = [("i64", "thread"), ("i64", "block"), ("ptr", "shared"), ("ptr", "wait")]


class KernelBuilder:
    """The function of a kernel with so many buffers."""

    def __init__(
        self, module: Module, name: str, buffers: int, machine: GpuMachine | None = None
    ) -> None:
        """`machine`: that of one block, for a part of a larger kernel."""
        self.machine: GpuMachine = machine or module.machine
        params = [("ptr align 16", f"a{i}") for i in range(buffers)]
        self.name = name
        result, linkage, attrs = "ptx_kernel void", "", "nounwind"
        if machine is not None:
            params = [("ptr", f"a{i}") for i in range(buffers)]
            result, linkage, attrs = "void", "internal", "nounwind convergent"
        if self.machine.emulated:
            params, result = [*params, *EMULATED], "void"
        elif machine is not None:
            params = [*params, ("i64", "block")]
        self._is_part = machine is not None
        self.f = module.function(name, result, params, attrs, linkage=linkage)
        self._module = module

    def end(self, threads: int) -> None:
        """End the kernel; so many threads run it, so registers must suffice for them."""
        self.f.do("ret void")
        self.f.note(f'"nvvm.maxntid"="{threads}"')

    def buffer(self, place: int, kind: str) -> Ptr:
        return self.f.ptr(f"%a{place}", kind)

    def thread(self) -> Index:
        """The number of the thread in its block."""
        return self._number("tid", "%thread")

    def block(self) -> Index:
        """The number of the block."""
        if self._is_part:
            return self.f.index("%block")
        return self._number("ctaid", "%block")

    def _number(self, register: str, emulated: str) -> Index:
        f = self.f
        if self.machine.emulated:
            return f.index(emulated)
        name = self._module.declare("i32", f"llvm.nvvm.read.ptx.sreg.{register}.x", "")
        return f.index(f(f"zext i32 {f(f'call i32 @{name}()')} to i64"))

    def stop_if(self, flag: Ptr) -> None:
        """Do nothing if a number is not 0."""
        f = self.f
        with f.when(f(f"icmp ne i32 {flag.load()}, 0")):
            f.do("ret void")
            f.block(f.fresh("never"))

    def wait(self) -> None:
        """Wait for all threads of the block."""
        if self.machine.emulated:
            self.f.do("call void %wait()")
        else:
            name = self._module.declare("void", "llvm.nvvm.barrier0", "", "convergent nounwind")
            self.f.do(f"call void @{name}() convergent")

    def shuffled(self, kind: str, value: str, step: int) -> str:
        """The value, a float or a double, of the thread `step` further in the same warp; all
        threads of the block call this. What the last ones get means nothing."""
        f = self.f
        if self.machine.emulated:
            room = f.ptr("%shared", kind).bytes(EXCHANGE)
            thread = self.thread()
            (room + thread).store(value)
            self.wait()
            inside = f(f"icmp ult i64 {thread % self.machine.warp}, {self.machine.warp - step}")
            at = f.index(f(f"select i1 {inside}, i64 {thread + step}, i64 {thread}"))
            found = (room + at).load()
            self.wait()
            return found
        if kind == "double":
            bits = f(f"bitcast double {value} to i64")
            low, high = f(f"trunc i64 {bits} to i32"), f(f"lshr i64 {bits}, 32")
            parts = [low, f(f"trunc i64 {high} to i32")]
            low, high = (self._shuffle("i32", "i32", part, step) for part in parts)
            wide = f(f"shl i64 {f(f'zext i32 {high} to i64')}, 32")
            bits = f(f"or i64 {wide}, {f(f'zext i32 {low} to i64')}")
            return f(f"bitcast i64 {bits} to double")
        return self._shuffle("float", "f32", value, step)

    def _shuffle(self, kind: str, suffix: str, value: str, step: int) -> str:
        name = self._module.declare(
            kind,
            f"llvm.nvvm.shfl.sync.down.{suffix}",
            f"i32, {kind}, i32, i32",
            "convergent nounwind",
        )
        given = f"i32 -1, {kind} {value}, i32 {step}, i32 31"
        return self.f(f"call {kind} @{name}({given}) convergent")

    def shared(self, kind: str, count: int, align: int = 8) -> Ptr:
        """Memory for `count` elements that the threads of a block share; one for all uses."""
        if self.machine.emulated:
            return self.f.ptr("%shared", kind)
        made = self._module.variable(
            f"shared.{kind}.{count}",
            f"[{count} x {kind}]",
            f"undef, align {align}",
            "internal addrspace(3)",
        )
        return self.f.ptr(f"addrspacecast (ptr addrspace(3) {made} to ptr)", kind)

    def dynamic_shared(self, size: int, align: int) -> Ptr:
        """Memory that the threads of a block share, whose size the launch says: 48 KiB or more."""
        if self.machine.emulated:
            assert size <= EXCHANGE
            return self.f.ptr("%shared", "i8")
        made = self._module.variable(
            "shared_dynamic", "[0 x i8]", f", align {align}", "external addrspace(3)"
        )
        return self.f.ptr(f"addrspacecast (ptr addrspace(3) {made} to ptr)", "i8")
