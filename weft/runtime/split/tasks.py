"""Segments and transfers as tasks of the dataflow executor."""

from __future__ import annotations

from typing import Any

from weft.base.errors import DeviceError, WeftError
from weft.ir.graph import Node
from weft.ops.placed import SEGMENT, TRANSFER
from weft.runtime.dataflow.tasks import Task, task_for
from weft.runtime.split.cost import node_seconds
from weft.runtime.split.devices import CPU, engine
from weft.runtime.split.measure import known_rates

__all__: list[str] = []


@task_for(SEGMENT)
def _segment(node: Node) -> Task:
    """A segment is compiled once, when the graph is prepared."""
    (graph,) = node.graphs
    name = node.attrs["device"]
    device = engine(name)
    try:
        run = device.compile(graph)
    except WeftError:
        raise
    except Exception as error:
        raise _engine_error(node, name, "cannot compile", error) from error
    count = len(node.outputs)

    def call(values: list[Any], env: Any) -> Any:
        try:
            found = run(values)
        except WeftError:
            raise
        except Exception as error:
            raise _engine_error(node, name, "failed in", error) from error
        if len(found) != count:
            raise DeviceError(f"{name} gave {len(found)} results for {count}", op="segment")
        return found[0] if count == 1 else tuple(found)

    rates = known_rates(device)
    seconds = rates.call + sum(node_seconds(inner, rates) for inner in graph.nodes)
    return Task(call, name, seconds)


def _engine_error(node: Node, name: str, what: str, error: Exception) -> DeviceError:
    (graph,) = node.graphs
    ops = list(dict.fromkeys(inner.op.name for inner in graph.nodes if inner.inputs))
    shown = ", ".join(ops[:6]) + (f" and {len(ops) - 6} more" if len(ops) > 6 else "")
    first = (str(error).strip() or type(error).__name__).splitlines()[0][:300]
    made = DeviceError(
        f"the engine {name} {what} a segment of {len(graph.nodes)} nodes ({shown}): {first}",
        op="segment",
        operands=[value.type for value in node.inputs],
        hint="place these nodes on another device; the error of the engine is above",
    )
    made.location = node.location or made.location
    return made


@task_for(TRANSFER)
def _transfer(node: Node) -> Task:
    source, target = engine(node.attrs["source"]), engine(node.attrs["target"])
    get, put = source.get, target.put
    far = source if source.name != CPU else target

    def call(values: list[Any], env: Any) -> Any:
        return put(get(values[0]))

    rates = known_rates(far)
    kind = node.inputs[0].tensor_type
    size = kind.nbytes if isinstance(kind.nbytes, int) else 0
    seconds = rates.latency + (size / rates.transfer if rates.transfer else 0.0)
    return Task(call, far.name if seconds > 50e-6 else CPU, seconds)
