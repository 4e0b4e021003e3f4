"""What became of each graph: passes, kernels, the work they do, and where values lie."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weft.base.dims import has_dims
from weft.codegen.steps import Work, control_work, work_of
from weft.compile import run_passes
from weft.inspect.explain.kernels import KernelView, kernels_of, native_of
from weft.inspect.explain.memory import interpreted_memory, planned_memory
from weft.inspect.explain.places import of_location
from weft.ir.graph import Graph, Node
from weft.ir.types import TensorType
from weft.passes.pipeline import optimize
from weft.runtime.executable import Executable
from weft.runtime.peak import Peak

__all__ = ["described"]


def described(
    executable: Executable, peak: Peak, measured: float | None, times: Mapping[str, float]
) -> dict[str, Any]:
    """All that is known of one program, as data; `times` are of its kernels, by their numbers."""
    program = native_of(executable)
    seconds = dict(executable.seconds)  # before the passes are run for us, where code was on disk
    common: dict[str, Any] = {
        "name": executable.name,
        "captured": executable.captured.node_count(),
        "optimized": executable.optimized.node_count(),
        "inputs": [str(value.type) for value in executable.captured.inputs],
        "outputs": [str(value.type) for value in executable.captured.outputs],
        "passes": passes(executable),
        "seconds": seconds,
        "measured": measured,
    }
    if program is not None:
        code = program.generate()[1]
        kernels = kernels_of(program, code)
        memory = planned_memory(code)
        roof = Roof(peak, memory["peak"] + memory["inputs"] + memory["outputs"])
        common |= {
            "backend": "native",
            "from_disk": not program.seconds["llvm"],
            "reason": "",
            "scheduled": sum(len(part.graph.nodes) for _, part in code.walk()),
            "kernels": [_kernel(kernel, roof, times.get(kernel.number)) for kernel in kernels],
            "memory": memory,
            "in_place": [_in_place(executable.optimized, *pair) for pair in program.in_place],
            "work": _work(code.work(), kernels, roof, measured),
        }
        common["seconds"] |= program.seconds
        known = sum(program.seconds.values())
        common["seconds"]["other"] = max(0.0, seconds["code"] - known)
        return common
    work = sum((_node_work(node) for node in executable.optimized.nodes), Work())
    memory = interpreted_memory(executable.optimized)
    roof = Roof(peak, memory["peak"] + memory["inputs"])
    figures = roof.figures(work, _itemsize(executable.optimized))
    common |= {
        "backend": "interpret",
        "from_disk": False,
        "reason": str(getattr(executable.program, "reason", "")),
        "scheduled": common["optimized"],
        "kernels": [],
        "memory": memory,
        "in_place": [],
        "work": figures | {"share": _share(figures["roofline"], measured)},
    }
    return common


# --- passes --------------------------------------------------------------------------------------


def passes(executable: Executable) -> list[dict[str, Any]]:
    """Each pass that changed something: what, how many ops there were before and after, how long.

    The passes are run once more, for the graphs between them; the times are those of the first run.
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
        rows.append(
            {
                "name": stage.name,
                "note": stage.note,
                "before": before,
                "after": after,
                "seconds": seconds,
            }
        )
        before = after
    return rows


# --- kernels -------------------------------------------------------------------------------------


def _kernel(kernel: KernelView, roof: Roof, measured: float | None) -> dict[str, Any]:
    figures = roof.figures(kernel.work, kernel.itemsize)
    return {
        "number": kernel.number,
        "name": kernel.name,
        "kind": kernel.kind,
        "ops": kernel.ops,
        "places": [of_location(location) for location in kernel.locations],
        "why": [
            {
                "op": node.op.name,
                "why": text,
                "joined": joined,
                "place": of_location(node.location),
            }
            for (node, text), joined in zip(kernel.why, kernel.joined, strict=True)
        ],
        "reads": sum(kernel.reads.values()),
        "writes": [str(value.type) for value in kernel.step.outputs],
        "room": kernel.step.room,
        "parallel": kernel.parallel,
        "measured": measured,
        "share": None if figures["open"] else _share(figures["roofline"], measured),
        **figures,
    }


def _in_place(graph: Graph, output: int, given: int) -> dict[str, Any]:
    value = graph.inputs[given]
    return {"output": output, "input": given, "name": value.name, "type": str(value.type)}


# --- work ----------------------------------------------------------------------------------------


class Roof:
    """The least time that work can take on this machine, for a program of a size in memory."""

    def __init__(self, peak: Peak, footprint: int) -> None:
        self.peak = peak
        self.speed = peak.moved(footprint)
        self.memory = "memory" if self.speed == peak.bytes else "cache"

    def parts(self, work: Work, itemsize: int) -> tuple[float, float]:
        """Seconds of arithmetic alone, and of moving bytes alone."""
        return work.flops / self.peak.flops(itemsize), work.bytes / self.speed

    def figures(self, work: Work, itemsize: int) -> dict[str, Any]:
        """flops and bytes, the least time, and what that is bound by."""
        arithmetic, memory = self.parts(work, itemsize)
        bound = "arithmetic" if arithmetic > memory else self.memory if memory else ""
        found = {"flops": work.flops, "bytes": work.bytes, "open": work.open}
        return found | {"roofline": max(arithmetic, memory), "bound": bound}


def _work(
    work: Work, kernels: list[KernelView], roof: Roof, measured: float | None
) -> dict[str, Any]:
    """Of the whole program: no kernel can be faster than its own roofline, nor can all of them."""
    found = roof.figures(work, 4)
    at: dict[str, float] = {}
    for kernel in kernels:
        if "." not in kernel.number:
            row = roof.figures(kernel.work, kernel.itemsize)
            at[row["bound"]] = at.get(row["bound"], 0.0) + row["roofline"]
    found["roofline"] = sum(at.values())
    found["bound"] = max(at, key=lambda name: at[name], default="")
    share = None if work.open else _share(found["roofline"], measured)
    return found | {"share": share}


def _share(least: float, measured: float | None) -> float | None:
    return least / measured if measured and least else None


def _node_work(node: Node) -> Work:
    """What a node does that is run by its card, with all that is in it."""
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
