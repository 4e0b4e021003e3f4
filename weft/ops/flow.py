"""The primitives of control flow that the dataflow executor runs: structured nodes lowered.

A branch or a loop has a name. A lowered graph is flat; the context of each value (the frames and
sides of branches that it stands in) follows from these nodes: see `weft.ir.contexts`.

    flow.switch[of]          %x, %p      one result for each side; one is live, the others dead
    flow.merge[of]           values…     the live one. In a loop: one input, the value before the
                                         first iteration; `next_iteration` sends the later ones
    flow.enter[frame]        %x          the value in the frame of a loop; `role` says what for
    flow.loop_cond[frame]    %p          whether another iteration runs
    flow.next_iteration[frame]  %merge, %x    gives %x to that merge of the next iteration
    flow.exit[frame]         %x          the value after the loop

`flow.next_iteration` names its merge as an operand, so the only edge that goes back is one that no
value makes: lowered graphs are as acyclic as others, for all who read them.

A node without inputs would not know when to run inside of a branch, and one whose attributes have
sizes that depend on data would not know these. `flow.start` is such a node as a nested graph; its
inputs say that control has come here, and tell the sizes. `flow.signal` is the first such input.

The type of a result may differ from that of what is passed on in the names of sizes that depend on
data, as the types of operands and of inputs of nested graphs may.

Counters and rows are what loops need besides: `flow.zero`, `flow.step`, `flow.before`, `flow.row`,
`flow.gather`, `flow.number`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from weft.base import dtypes
from weft.base.device import Device
from weft.base.dtypes import DType
from weft.base.errors import DTypeError, GraphError, ShapeError
from weft.base.shapes import Shape
from weft.ir.op import OPS, Op, Trait
from weft.ir.types import StackType, TensorType, Type, fits
from weft.ops.control import stacked
from weft.ops.index_cards import GETITEM

if TYPE_CHECKING:
    from weft.ir.graph import Graph, Node

__all__: list[str] = []

#: What a value is in the frame of a loop. `const`: the same in all iterations; `row`: the same, and
#: each iteration takes one row of it. Others are carried: `carry`, `pop` (a stack that is popped),
#: `count` (iterations), `push` (a stack that each iteration pushes on). `control` is no operand of
#: the loop: it says that control has come, or tells a size.
ROLES = ("const", "carry", "row", "pop", "count", "push", "control")
#: Of these, those that are the same in all iterations.
FIXED_ROLES = ("const", "row", "control")
_CHOOSING = ("bool", "int", "uint")


def _needs_frames(*_args: Any, **_attrs: Any) -> NoReturn:
    raise GraphError(
        "a lowered graph runs in frames",
        hint='weft.compile(graph, backend="dataflow") runs it; '
        "weft.passes.LiftControlFlow().run(graph) makes it structured again",
    )


def _switch_type(
    x: Type,
    predicate: TensorType,
    *,
    of: str,
    sides: int = 2,
    control: bool = False,
) -> tuple[Type, ...]:
    _check_scalar(predicate)
    if sides < 1:
        raise ShapeError(f"a branch has a side at least, not {sides}")
    return (x,) * sides


def _check_scalar(kind: Type) -> None:
    if isinstance(kind, TensorType) and not kind.shape and kind.dtype.kind in _CHOOSING:
        return
    raise DTypeError(f"what chooses must be a 0-d bool or integer, not {kind}")


def _merge_type(*arrays: Type, of: str) -> Type:
    if not arrays:
        raise ShapeError("nothing to merge")
    for kind in arrays[1:]:
        if not fits(kind, arrays[0]):
            raise DTypeError(f"the sides give different types: {arrays[0]} and {kind}")
    return arrays[0]


def _enter_type(x: Type, *, frame: str, role: str) -> Type:
    if role not in ROLES:
        raise DTypeError(f"the role is one of {', '.join(ROLES)}, not {role!r}")
    return x


def _exit_type(x: Type, *, frame: str) -> Type:
    return x


def _next_type(merge: Type, x: Type, *, frame: str) -> tuple[Type, ...]:
    if not fits(x, merge):
        raise DTypeError(f"{merge} is carried, and {x} is given to the next iteration")
    return ()


def _condition_type(predicate: TensorType, *, frame: str) -> TensorType:
    _check_scalar(predicate)
    return predicate


def _start_type(*operands: Type, graphs: Sequence[Graph]) -> tuple[Type, ...]:
    (graph,) = graphs
    if len(graph.nodes) != 1:
        raise ShapeError(f"one node starts here, not {len(graph.nodes)}")
    if len(operands) != len(graph.inputs):
        raise ShapeError(f"{len(graph.inputs)} inputs are needed, and {len(operands)} are given")
    return tuple(value.type for value in graph.outputs)


def _start(run: Any, *operands: Any, graphs: Any) -> Any:
    return run(graphs[0], operands)


def _counter(device: Device) -> TensorType:
    return TensorType(dtypes.int64, (), device)


def _signal_type(*, device: Device) -> TensorType:
    return TensorType(dtypes.bool, (), device)


def _zero_type(signal: TensorType) -> TensorType:
    return _counter(signal.device)


def _step_type(count: TensorType) -> TensorType:
    return count


def _before_type(count: TensorType, *, length: int, reverse: bool) -> TensorType:
    return count.like(dtype=dtypes.bool)


def _row_type(x: TensorType, count: TensorType, *, reverse: bool) -> TensorType:
    if not isinstance(x, TensorType) or not x.shape:
        raise ShapeError(f"{x} has no rows")
    return x.like(shape=x.shape[1:])


def _row(run: Any, x: Any, count: int, *, reverse: bool) -> Any:
    step = x.shape[0] - 1 - count if reverse else count
    return (run.call(GETITEM, x, index=step),)


def _gather_type(
    stack: StackType, *, shape: Shape, dtype: DType, device: Device, reverse: bool
) -> TensorType:
    return TensorType(dtype, shape, device)


def _gather(run: Any, stack: Any, *, shape: Shape, dtype: Any, device: Any, reverse: bool) -> Any:
    rows: list[Any] = []
    while stack:
        stack, top = stack
        rows.append(top)
    if not rows:
        return (run.call(OPS["full"], shape=shape, value=0, dtype=dtype, device=device),)
    if not reverse:
        rows.reverse()
    return (stacked(run, rows),)


def _number_type(count: TensorType, *, device: Device) -> TensorType:
    return _counter(device)


def _number(run: Any, count: int, *, device: Device) -> Any:
    return (run.call(OPS["full"], shape=(), value=count, dtype=dtypes.int64, device=device),)


def _card(name: str, infer: Any, evaluate: Any = _needs_frames, **facts: Any) -> Op:
    return Op(f"flow.{name}", infer, evaluate, traits=Trait.STACK, listed=False, **facts)


FLOW_SWITCH = _card("switch", _switch_type, flow="switch")
FLOW_MERGE = _card("merge", _merge_type, flow="merge")
FLOW_ENTER = _card("enter", _enter_type, flow="enter")
FLOW_EXIT = _card("exit", _exit_type, flow="exit")
FLOW_NEXT = _card("next_iteration", _next_type, flow="next")
FLOW_COND = _card("loop_cond", _condition_type, flow="condition")
FLOW_START = _card("start", _start_type, _start)
FLOW_SIGNAL = _card("signal", _signal_type, lambda run, *, device: (True,))
FLOW_ZERO = _card("zero", _zero_type, lambda run, signal: (0,))
FLOW_STEP = _card("step", _step_type, lambda run, count: (count + 1,))
FLOW_BEFORE = _card(
    "before", _before_type, lambda run, count, *, length, reverse: (count < length,)
)
FLOW_ROW = _card("row", _row_type, _row)
FLOW_GATHER = _card("gather", _gather_type, _gather)
FLOW_NUMBER = _card("number", _number_type, _number)


def called(node: Node) -> Node:
    """The node itself; of a `flow.start`, the one that starts when control comes."""
    return node.graphs[0].nodes[0] if node.op is FLOW_START else node
