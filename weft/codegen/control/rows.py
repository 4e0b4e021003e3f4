"""Scans with independent rows: each thread runs the loop for its own rows."""

from __future__ import annotations

from collections.abc import Callable

from weft.base.dims import has_dims, typical
from weft.codegen.cancel import return_if_cancelled
from weft.codegen.control.flow import Frame, emit_control, scratch_of
from weft.codegen.control.stacks import size_of_type
from weft.codegen.kernel import PARAMS, Kernel, argument, each_item
from weft.codegen.machine import Machine
from weft.codegen.text import Function, Module
from weft.ir.graph import Graph, Node
from weft.ir.op import Trait
from weft.ops.cards import SCAN
from weft.schedule.nodes import is_view
from weft.schedule.scan_rows import Let, RowScan, row_scan
from weft.schedule.target import Target

__all__ = ["emit_rows", "in_rows"]

#: Shorter loops are not worth threads; longer iterations use threads by themselves. In ns.
LEAST, MOST = 40_000.0, 150_000.0
#: With the widest vectors.
FLOPS_PER_CYCLE = 20.0
CYCLES_PER_ELEMENT = 0.75  # of one elementwise op, roughly: some take ten times as long as others


def in_rows(node: Node, target: Target, machine: Machine, let: Let | None = None) -> RowScan | None:
    """How a scan is cut into parts for threads, if that is allowed and pays. For `let` see
    `row_scan`."""
    if node.op is not SCAN or not all(_is_generated(n, target) for n in node.graphs[0].nodes):
        return None
    constants = node.inputs[: node.attrs["consts"]]
    # Each part reads them in each iteration: they must stay in the cache.
    if typical(sum(size_of_type(value.type) for value in constants)) > machine.caches.second // 2:
        return None
    once = _nanoseconds(node.graphs[0], machine)
    if once > MOST or once * typical(node.attrs["length"]) < LEAST:
        return None
    return row_scan(node, let)


def _is_generated(node: Node, target: Target) -> bool:
    """Whether a node is at most one kernel of machine code: no loop, stack or call into Python."""
    if node.graphs or Trait.STACK in node.op.traits:
        return False
    if is_view(node) or node.op.creation:
        return True
    if node.op.elementwise or node.op.reduction:
        return target.emits(node)
    return target.kind(node) != ""


def _nanoseconds(body: Graph, machine: Machine) -> float:
    width = machine.vector_bytes / 64
    product, elementwise = 1 / (FLOPS_PER_CYCLE * width), CYCLES_PER_ELEMENT / width
    cycles = 0.0
    for node in body.nodes:
        if not is_view(node):
            given = tuple(value.tensor_type for value in node.inputs)
            made = tuple(value.tensor_type for value in node.outputs)
            flops = typical(node.op.estimate(given, made, **node.attrs).flops)
            cycles += flops * (product if Trait.PRODUCT in node.op.traits else elementwise)
    return cycles / machine.ghz


def emit_rows(module: Module, name: str, node: Node, cut: RowScan, body: str, inner: int) -> Kernel:
    """The kernel of a scan in parts; `body` is the function of one part, which uses `inner` bytes.

    Its `%args` are the operands and results of the scan, scratch memory, and the run.
    """
    inner = -(-inner // 64) * 64
    room = -(-(inner + scratch_of(node, cut.body)) // 64) * 64
    values = [*node.inputs, *node.outputs]
    part = module.function(
        f"{name}.part", "i32", [("ptr", "args"), ("i64", "part"), ("ptr", "run")]
    )
    addresses = []
    for place, (value, is_cut) in enumerate(zip(values, cut.rows, strict=True)):
        start = argument(part, place)
        if is_cut:
            once = size_of_type(value.type)
            if place >= node.attrs["consts"] and not _is_carried(node, place):
                once //= node.attrs["length"]
            each = once // (cut.parts * cut.size) * cut.size
            if has_dims((cut.size,)):  # the rows of the run are not known as a product
                shape = value.tensor_type.shape
                rows = shape[0 if _is_carried(node, place) or place < node.attrs["consts"] else 1]
                each = once // rows * cut.size
            start = start.bytes(part.index("%part") * each)
        addresses.append(start)
    arena = argument(part, len(values)).bytes(part.index("%part") * room)
    count = len(node.inputs)
    given, out = addresses[:count], addresses[count:]
    poll: Callable[[], None] = lambda: return_if_cancelled(part, part.ptr("%run"))  # noqa: E731
    emit_control(Frame(part, node, given, out, [body], arena, inner, _check(part), poll, cut.body))
    part.do("ret i32 0")
    f = module.function(name, "i32", PARAMS)
    run = argument(f, len(values) + 1)
    with each_item(f) as item:
        _check(f)(f(f"call i32 @{name}.part(ptr %args, i64 {item}, ptr {run})"))
    f.do("ret i32 0")
    pace, length = _nanoseconds(cut.body, module.machine), node.attrs["length"]
    work = 0
    if has_dims((cut.parts, length)):
        work = cut.parts * cut.size * length * max(1, round(1000 * pace / typical(cut.size)))
    cost = pace * typical(length)
    return Kernel(name, cut.parts, cost, room * cut.parts, stops=True, work=work)


def _is_carried(node: Node, place: int) -> bool:
    """Whether an operand or result is a carry: it has no axis of iterations."""
    consts: int = node.attrs["consts"]
    carries: int = node.attrs["carries"]
    count = len(node.inputs)
    return consts <= place < consts + carries or count <= place < count + carries


def _check(f: Function) -> Callable[[str], None]:
    def check(status: str) -> None:
        with f.when(f(f"icmp ne i32 {status}, 0")):
            f.do(f"ret i32 {status}")
            f.block(f.fresh("never"))

    return check
