"""Kernels that are written for CPUs, on a GPU: a thread for each item of work.

Such a kernel gives the same bits however its items are cut (`weft.codegen.kernel`), so the result
of a gather, a draw of random numbers, a sort or a pooling is that of the CPU. `GpuMachine` makes
items small. A kernel that fails (an index out of range) writes its status to the program's flag;
those that run after it do nothing then, as they may rely on its checks.
"""

from __future__ import annotations

from weft.codegen.cuda.builder import KernelBuilder
from weft.codegen.cuda.loops import Launch
from weft.codegen.kernel import Kernel
from weft.codegen.tables import KERNELS
from weft.codegen.text import Module
from weft.ir.graph import Node

__all__ = ["ITEM_OPS", "emit_items"]

#: How much longer an item takes on one thread of a GPU than on a CPU.
SLOWER = 25.0
#: Above this estimate, in ns, the card is called: CuPy shares one row among threads.
LONGEST = 2e6
#: What has such kernels: all but convolutions, whose items are large.
ITEM_OPS = frozenset(name for name in KERNELS if not name.startswith("conv"))
THREADS = 128


def emit_items(module: Module, name: str, node: Node) -> tuple[list[Launch], list[Kernel]] | None:
    """The kernels of a node, in order. Their buffers are its operands, its results, scratch memory
    and the flag. None if there are none, or if they would take too long."""
    made = KERNELS[node.op.name](module, name, node)
    if made is None or any(kernel.stops or kernel.varies for kernel in made):
        return None
    kept = [kernel for kernel in made if kernel.items]
    if sum(map(_nanoseconds, kept)) > LONGEST:
        return None
    count = len(node.inputs) + len(node.outputs) + 1
    return [_wrapped(module, kernel, count, bool(node.op.may_fail)) for kernel in kept], kept


def _nanoseconds(kernel: Kernel) -> float:
    waves = max(1.0, kernel.items / (1 << 17))
    return 2000.0 + kernel.cost * SLOWER * waves


def _wrapped(module: Module, kernel: Kernel, count: int, may_fail: bool) -> Launch:
    name = kernel.name.replace(".", "_")
    builder = KernelBuilder(module, name, count + 1)
    f = builder.f
    builder.stop_if(builder.buffer(count, "i32"))
    threads = min(THREADS, module.machine.threads)
    table = f.var("ptr", count=count, align=16)
    item = builder.block() * threads + builder.thread()
    with f.when(f(f"icmp ult i64 {item}, {kernel.items}")):
        for place in range(count):
            (table + place).store(f"%a{place}")
        given = f"ptr {table}, i64 {item}, i64 {item + 1}"
        status = f(f"call i32 @{kernel.name}({given})")
        if may_fail:
            with f.when(f(f"icmp ne i32 {status}, 0")):
                builder.buffer(count, "i32").store(status)
    builder.end(threads)
    return Launch(name, -(-kernel.items // threads), threads)
