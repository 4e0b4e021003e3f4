"""Facts about each program: passes, kernels, work and memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weft.base.dims import has_dims
from weft.compile import run_passes
from weft.inspect.explain.facts import (
    Figures,
    InPlace,
    Kernel,
    Message,
    Pass,
    Program,
    Reason,
    with_text,
)
from weft.inspect.explain.kernels import KernelView, kernels_of
from weft.inspect.explain.memory import interpreted_memory, planned_memory
from weft.ir.graph import Graph, Node
from weft.ir.types import TensorType
from weft.passes.pipeline import optimize
from weft.runtime.executable import Executable
from weft.runtime.peak import Peak
from weft.schedule.plan import Work, control_work, work_of

__all__ = ["program_facts"]


def program_facts(
    executable: Executable,
    peak: Peak,
    measured: float | None,
    times: Mapping[str, float],
    *,
    ran: bool,
) -> Program:
    """The facts about one program. `times`: the measured times of its kernels, by number."""
    program = executable.program.latest()
    code = program.machine_code()
    seconds = dict(executable.seconds)  # before the report itself runs the passes
    optimized = executable.optimized
    kernels: list[Kernel] = []
    scheduled = optimized.node_count()
    if code is None:
        memory = interpreted_memory(optimized)
        roof = Roof(peak, memory.peak + memory.inputs)
        done = sum((_node_work(node) for node in optimized.nodes), Work())
        work = roof.figures(done, _itemsize(optimized), measured)
    else:
        views = kernels_of(code)
        memory = planned_memory(code.plan)
        roof = Roof(peak, memory.peak + memory.inputs + memory.outputs)
        scheduled = sum(len(part.graph.nodes) for _, part in code.plan.walk())
        kernels = [_kernel(view, roof, times.get(view.number)) for view in views]
        work = _work(code.plan.work(), kernels, measured)
        seconds |= code.seconds
        seconds["other"] = max(0.0, seconds["code"] - sum(code.seconds.values()))
    return Program(
        name=executable.name,
        recording=executable.recording,
        backend=_backend(program, code),
        captured=executable.captured.node_count(),
        optimized=optimized.node_count(),
        scheduled=scheduled,
        inputs=[str(value.type) for value in executable.captured.inputs],
        outputs=[str(value.type) for value in executable.captured.outputs],
        passes=passes(executable),
        seconds=seconds,
        measured=measured,
        from_disk=code is not None and not code.seconds["llvm"],
        reason=program.reason,
        kernels=kernels,
        memory=memory,
        in_place=[] if code is None else [_in_place(optimized, *pair) for pair in code.in_place],
        work=work,
        ran=ran,
        messages=[
            Message(
                each.name,
                each.over,
                each.value,
                each.to,
                each.nbytes,
                each.why,
                with_text(each.location),
            )
            for each in program.inserted()
        ],
    )


def _backend(program: Any, code: Any) -> str:
    """What runs a program: "interpret", "dataflow", "split", "native", or a kind of device."""
    if program.device != "cpu":
        return str(program.device)
    return str(program.way) if code is None else "native"


def passes(executable: Executable) -> list[Pass]:
    """Each pass that changed something.

    The passes run again to get the graphs between them; the times are those of the first run.
    """
    graphs: list[Graph] = []
    optimize(executable.captured, run_passes(), told=graphs.append)
    first = len(executable.captured.history)
    times = [stage.seconds for stage in executable.optimized.history[first:]]
    rows = []
    before = executable.captured.node_count()
    for number, graph in enumerate(graphs):
        stage = graph.history[-1]
        after = graph.node_count()
        seconds = times[number] if len(times) == len(graphs) else stage.seconds
        rows.append(Pass(stage.name, stage.note, before, after, seconds))
        before = after
    return rows


def _kernel(kernel: KernelView, roof: Roof, measured: float | None) -> Kernel:
    figures = roof.figures(kernel.work, kernel.itemsize, measured)
    return Kernel(
        **vars(figures),
        number=kernel.number,
        name=kernel.name,
        kind=kernel.kind,
        ops=kernel.ops,
        places=[with_text(place) for place in kernel.locations],
        why=[
            Reason(node.op.name, text, joined, with_text(node.location))
            for node, text, joined in kernel.reasons
        ],
        reads=sum(kernel.reads.values()),
        writes=[str(value.type) for value in kernel.step.outputs],
        room=kernel.step.room,
        parallel=kernel.step.parallel,
        measured=measured,
    )


def _in_place(graph: Graph, output: int, given: int) -> InPlace:
    value = graph.inputs[given]
    return InPlace(output, given, value.name, str(value.type))


# --- work ----------------------------------------------------------------------------------------


class Roof:
    """The roofline model of this machine, for a program with this memory footprint."""

    def __init__(self, peak: Peak, footprint: int) -> None:
        self.peak = peak
        self.speed = peak.moved(footprint)
        self.memory = "memory" if self.speed == peak.bytes else "cache"

    def figures(self, work: Work, itemsize: int, measured: float | None) -> Figures:
        arithmetic, moving = work.flops / self.peak.flops(itemsize), work.bytes / self.speed
        bound = "arithmetic" if arithmetic > moving else self.memory if moving else ""
        return _figures(work, max(arithmetic, moving), bound, measured)


def _figures(work: Work, roofline: float, bound: str, measured: float | None) -> Figures:
    known = measured and roofline and not work.open
    share = roofline / measured if measured and known else None
    return Figures(work.flops, work.bytes, work.open, roofline, bound, share)


def _work(work: Work, kernels: list[Kernel], measured: float | None) -> Figures:
    """The figures of the whole program; its roofline is the sum over its kernels."""
    seconds: dict[str, float] = {}
    for kernel in kernels:
        if "." not in kernel.number:
            seconds[kernel.bound] = seconds.get(kernel.bound, 0.0) + kernel.roofline
    bound = max(seconds, key=lambda name: seconds[name], default="")
    return _figures(work, sum(seconds.values()), bound, measured)


def _node_work(node: Node) -> Work:
    """The work of an interpreted node, including its nested graphs."""
    if not node.graphs:
        return work_of(node)
    inner = [sum((_node_work(n) for n in graph.nodes), Work()) for graph in node.graphs]
    return control_work(node, inner)


def _itemsize(graph: Graph) -> int:
    sizes = [
        value.type.dtype.itemsize
        for value in graph.values()
        if isinstance(value.type, TensorType)
        and value.type.dtype.kind == "float"
        and not has_dims(value.type.shape)
    ]
    return max(sizes, key=sizes.count) if sizes else 4
