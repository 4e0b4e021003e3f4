"""Code of graphs that all threads of one block run together.

The control flow of a CPU's program (`weft.codegen.control`) is written once more for a GPU: each
thread of the block runs all of it, with its own copy of what is small (the run, carries, tops of
stacks), so all take the same branches. Only what goes over elements is shared among threads: they
wait for each other behind it.

`%run` is a table of each thread, of the words of `weft.codegen.contract.RUN`: the bounds of the
free memory of stacks, and for the emulation on a CPU what a kernel's parameters say.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from weft.codegen.contract import RUN
from weft.codegen.control.heap import ALIGN, END, FREE
from weft.codegen.cuda.builder import EMULATED
from weft.codegen.cuda.machine import GpuMachine
from weft.codegen.index import Index, Ptr, Size
from weft.codegen.text import Function, Module

__all__ = ["Team"]

#: Words of `%run` in which the emulation's parameters are.
_WORDS = {"thread": "callback", "shared": "pool", "wait": "parallel"}
_KINDS = {name: kind for kind, name in EMULATED}
#: Sizes of the pieces that memory is copied in: the first that addresses and size are multiples of.
_PIECES = (16, 4, 1)


class Team:
    """The threads of one block; `machine` is that of its kernels' parts."""

    def __init__(self, module: Module, machine: GpuMachine) -> None:
        self.module = module
        self.machine = machine
        module.once("heap", _heap)

    # --- numbers and waits ----------------------------------------------------------------------

    def begin(self, f: Function) -> Ptr:
        """The run of a thread, in the kernel itself."""
        run = f.var("ptr", count=len(RUN), align=16)
        if self.machine.emulated:
            for name, word in _WORDS.items():
                (run + RUN.index(word)).of(_KINDS[name]).store(f"%{name}")
        return run

    def _word(self, f: Function, name: str, kind: str) -> str:
        return (f.ptr("%run", "ptr") + RUN.index(_WORDS[name])).of(kind).load()

    def thread(self, f: Function) -> Index:
        if self.machine.emulated:
            return f.index(self._word(f, "thread", "i64"))
        name = self.module.declare("i32", "llvm.nvvm.read.ptx.sreg.tid.x", "")
        return f.index(f(f"zext i32 {f(f'call i32 @{name}()')} to i64"))

    def wait(self, f: Function) -> None:
        if self.machine.emulated:
            f.do(f"call void {self._word(f, 'wait', 'ptr')}()")
        else:
            name = self.module.declare("void", "llvm.nvvm.barrier0", "", "convergent nounwind")
            f.do(f"call void @{name}() convergent")

    def call(self, f: Function, name: str, addresses: list[Ptr], block: Size) -> None:
        """Call a part of the kernel for one of its blocks."""
        given = [f"ptr {address}" for address in addresses]
        if self.machine.emulated:
            shared, wait = (self._word(f, word, "ptr") for word in ("shared", "wait"))
            given += [f"i64 {self.thread(f)}", f"i64 {block}", f"ptr {shared}", f"ptr {wait}"]
        else:
            given.append(f"i64 {block}")
        f.do(f"call void @{name}({', '.join(given)})")

    def any(self, f: Function, number: str) -> str:
        """A number that some thread has and that is not 0; 0 if there is none. An i32."""
        if self.machine.emulated:
            place = f.ptr(self._word(f, "shared", "ptr"), "i32")
        else:
            made = self.module.variable("shared.status", "i32", "undef", "internal addrspace(3)")
            place = f.ptr(f"addrspacecast (ptr addrspace(3) {made} to ptr)", "i32")
        with f.when(f(f"icmp eq i64 {self.thread(f)}, 0")):
            place.store(0)
        self.wait(f)
        with f.when(f(f"icmp ne i32 {number}, 0")):
            place.store(number)
        self.wait(f)
        found = place.load()
        self.wait(f)
        return found

    # --- memory ---------------------------------------------------------------------------------

    def each(self, f: Function, count: Size) -> AbstractContextManager[Index]:
        """A loop over elements, each by one thread."""
        return f.loop(self.thread(f), count, self.machine.threads)

    def copy(self, f: Function, to: Ptr, source: Ptr, size: int) -> None:
        """Copy memory, and wait."""
        name = self.module.once("copy.team", self._copy)
        f.do(f"call void @{name}(ptr %run, ptr {to}, ptr {source}, i64 {size})")
        self.wait(f)

    def clear(self, f: Function, to: Ptr, size: int) -> None:
        """Set memory to zeros, and wait."""
        with self.each(f, size) as i:
            (to.of("i8") + i).store(0)
        self.wait(f)

    def _copy(self, module: Module) -> None:
        params = [("ptr", "run"), ("ptr", "to"), ("ptr", "from"), ("i64", "size")]
        f = module.function("copy.team", "void", params)
        to, source, size = f.ptr("%to"), f.ptr("%from"), f.index("%size")
        bits = f(f"or i64 {f('ptrtoint ptr %to to i64')}, {f('ptrtoint ptr %from to i64')}")
        bits = f(f"or i64 {bits}, %size")
        for piece in _PIECES:
            odd = f(f"and i64 {bits}, {piece - 1}")
            with f.when(f(f"icmp eq i64 {odd}, 0")):
                kind = f"i{8 * piece}"
                with self.each(f, size // piece) as i:
                    (to.of(kind) + i).store((source.of(kind) + i).load(align=piece), align=piece)
                f.do("ret void")
                f.block(f.fresh("never"))
        f.do("unreachable")


def _heap(module: Module) -> None:
    """`ptr @heap(ptr run, i64 bytes)`: null if the memory of stacks is full."""
    f = module.function("heap", "ptr", [("ptr", "run"), ("i64", "bytes")])
    run = f.ptr("%run", "ptr")
    free = (run + FREE).load_ptr()
    size = (f.index("%bytes") + (ALIGN - 1)) // ALIGN * ALIGN
    beyond = free.bytes(size)
    with f.when(f(f"icmp ule ptr {beyond}, {(run + END).load()}")):
        (run + FREE).store(beyond)
        f.do(f"ret ptr {free}")
        f.block(f.fresh("never"))
    f.do("ret ptr null")
