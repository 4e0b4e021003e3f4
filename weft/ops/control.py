"""The cards of control flow: `if`, `switch`, `while`, `scan`.

Their branches and bodies are nested graphs. A nested graph is closed: it uses only its own inputs,
so the operands of the node are the inputs of its graphs.

    if      %predicate, operands…     graphs: then, else            results: those of the branch
    switch  %index, operands…         graphs: one for each index    an index beyond them is clamped
    while   constants…, carries…      graphs: condition, body       results: carries…, see below
    scan    constants…, carries…, xs… graph: body                   results: carries…, ys…

A body takes constants and carries (in a scan also the slices of xs). It returns the carries of the
next iteration, followed by ys. A scan stacks its ys along a new first axis. The length of a while
is not known, so it pushes each y on its own stack; with `counted`, the results after the carries
are the number of iterations and these stacks. In a scan, an x that is a stack is popped once in
each iteration, and a y that is a stack is pushed on a stack of stacks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from weft.base import dtypes
from weft.base.dims import substitute
from weft.base.errors import DTypeError, ShapeError
from weft.core.bind import recorder
from weft.core.grad_mode import no_grad
from weft.ir.op import OPS, Op, Trait
from weft.ir.types import StackType, TensorType, Type, fits
from weft.ops.index_cards import GETITEM
from weft.ops.stacks import STACK_POP

if TYPE_CHECKING:
    from weft.ir.graph import Graph

__all__: list[str] = []


# --- type rules --------------------------------------------------------------------------------


def _types(values: Any) -> list[Type]:
    """The types of values, without their layouts over a mesh: these are no matter of type rules."""
    types = [value.type for value in values]
    return [t.cut(None) if isinstance(t, TensorType) and t.cuts else t for t in types]


def check_inputs(graph: Graph, given: Sequence[Type], what: str) -> None:
    """Check the types of a nested graph's inputs."""
    wanted = _types(graph.inputs)
    if len(wanted) != len(given):
        raise ShapeError(f"{what} takes {len(wanted)} inputs, and {len(given)} are given")
    for i, (one, two) in enumerate(zip(wanted, given, strict=True)):
        if not fits(one, two):
            raise DTypeError(f"input {i} of {what} is {one}, and {two} is given")


def _check_predicate(kind: Type, what: str) -> None:
    if not (isinstance(kind, TensorType) and kind.dtype is dtypes.bool and not kind.shape):
        raise DTypeError(f"{what} must be bool[], not {kind}", hint="reduce it: any(x), all(x)")


def _check_results(graph: Graph, wanted: Sequence[Type], what: str) -> None:
    found = _types(graph.outputs)[: len(wanted)]
    if len(found) < len(wanted):
        raise ShapeError(f"{what} gives {len(found)} values for {len(wanted)} that are carried")
    for i, (one, two) in enumerate(zip(wanted, found, strict=True)):
        if not fits(one, two):
            raise DTypeError(f"carried value {i} is {one} before and {two} after {what}")


def _branches_type(operands: Sequence[Type], graphs: Sequence[Graph]) -> tuple[Type, ...]:
    first = _types(graphs[0].outputs)
    for number, graph in enumerate(graphs):
        check_inputs(graph, operands, f"branch {number}")
        found = _types(graph.outputs)
        if len(found) != len(first) or not all(map(fits, found, first)):
            raise DTypeError(
                f"the branches give different types: ({', '.join(map(str, first))}) "
                f"and ({', '.join(map(str, found))})"
            )
    return tuple(first)


def _if_type(predicate: TensorType, *operands: Type, graphs: Sequence[Graph]) -> tuple[Type, ...]:
    _check_predicate(predicate, "the predicate")
    if len(graphs) != 2:
        raise ShapeError(f"an if has two branches, not {len(graphs)}")
    return _branches_type(operands, graphs)


def _switch_type(index: TensorType, *operands: Type, graphs: Sequence[Graph]) -> tuple[Type, ...]:
    if index.dtype.kind not in ("int", "uint") or index.shape:
        raise DTypeError(f"the index must be a 0-d integer, not {index}")
    return _branches_type(operands, graphs)


def _while_type(
    *operands: Type, graphs: Sequence[Graph], consts: int, counted: bool
) -> tuple[Type, ...]:
    condition, body = graphs
    carries = operands[consts:]
    check_inputs(condition, operands, "the condition")
    check_inputs(body, operands, "the body")
    if len(condition.outputs) != 1:
        raise ShapeError(f"the condition gives {len(condition.outputs)} values, not one")
    predicate = condition.outputs[0].type
    _check_predicate(predicate, "the condition")
    assert isinstance(predicate, TensorType)
    _check_results(body, carries, "the body")
    if not counted:
        if len(body.outputs) != len(carries):
            raise ShapeError("the body gives more than the carries, and the loop is not counted")
        return carries
    pushed = [StackType(_element(kind)) for kind in _types(body.outputs[len(carries) :])]
    return (*carries, predicate.like(dtype=dtypes.int64), *pushed)


def _element(kind: Type) -> TensorType | StackType:
    if not isinstance(kind, (TensorType, StackType)):
        raise DTypeError(f"a {kind} cannot be kept for each iteration")
    return kind


def _scan_type(
    *operands: Type, graphs: Sequence[Graph], consts: int, carries: int, length: int, reverse: bool
) -> tuple[Type, ...]:
    (body,) = graphs
    fixed, xs = operands[: consts + carries], operands[consts + carries :]
    slices = [_slice_type(kind, length) for kind in xs]
    check_inputs(body, [*fixed, *slices], "the body")
    carried = operands[consts : consts + carries]
    _check_results(body, carried, "the body")
    ys = [_stacked_type(kind, length) for kind in _types(body.outputs[carries:])]
    return (*carried, *ys)


def _slice_type(kind: Type, length: int) -> Type:
    if isinstance(kind, StackType):
        return kind.element
    if not isinstance(kind, TensorType) or not kind.shape or kind.shape[0] != length:
        raise ShapeError(f"a scan of {length} iterations cannot go over {kind}")
    return kind.like(shape=kind.shape[1:])


def _stacked_type(kind: Type, length: int) -> Type:
    if isinstance(kind, TensorType):
        return kind.like(shape=(length, *kind.shape))
    return StackType(_element(kind))


# --- evaluation --------------------------------------------------------------------------------


def _if(run: Any, predicate: Any, *operands: Any, graphs: Any) -> Any:
    """Runs one of two graphs: `then` where the condition holds, else `else`."""
    return run(graphs[0] if bool(predicate) else graphs[1], operands)


def _switch(run: Any, index: Any, *operands: Any, graphs: Any) -> Any:
    """Runs one of several graphs: the one with the given number."""
    return run(graphs[min(max(int(index), 0), len(graphs) - 1)], operands)


def _while(run: Any, *operands: Any, graphs: Any, consts: int, counted: bool) -> Any:
    """Runs its body repeatedly, as long as its condition holds."""
    condition, body = graphs
    fixed, carried = operands[:consts], list(operands[consts:])
    stacks: list[Any] = [()] * (len(body.outputs) - len(carried))
    count = 0
    while bool(run(condition, [*fixed, *carried])[0]):
        results = run(body, [*fixed, *carried])
        stacks = [(stack, y) for stack, y in zip(stacks, results[len(carried) :], strict=True)]
        carried = results[: len(carried)]
        count += 1
    if not counted:
        return carried
    where = condition.graph.outputs[0].type
    number = run.call(OPS["full"], shape=(), value=count, dtype=dtypes.int64, device=where.device)
    return [*carried, number, *stacks]


def _scan(
    run: Any, *operands: Any, graphs: Any, consts: int, carries: int, length: int, reverse: bool
) -> Any:
    """Runs its body once for each element, from the first to the last."""
    (body,) = graphs
    fixed = operands[:consts]
    carried = list(operands[consts : consts + carries])
    xs = list(operands[consts + carries :])
    outputs = body.graph.outputs[carries:]
    ys: list[list[Any]] = [[] for _ in outputs]
    stacks = [not hasattr(x, "shape") for x in xs]
    for step in reversed(range(length)) if reverse else range(length):
        slices: list[Any] = []
        for i, x in enumerate(xs):
            if stacks[i]:
                pop: Any = STACK_POP.eval
                xs[i], top = pop(run, x)
                slices.append(top)
            else:
                row = _rows.row_of(x, step)
                slices.append(run.call(GETITEM, x, index=step) if row is None else row)
        results = run(body, [*fixed, *carried, *slices])
        carried = results[:carries]
        for kept, y in zip(ys, results[carries:], strict=True):
            kept.append(y)
    return [*carried, *[_together(run, *pair, reverse) for pair in zip(outputs, ys, strict=True)]]


def _together(run: Any, value: Any, ys: list[Any], reverse: bool) -> Any:
    """The ys of all iterations along a new axis; a stack of them if they are stacks."""
    if isinstance(value.type, StackType):
        stack: Any = ()
        for y in ys:
            stack = (stack, y)
        return stack
    if not ys:
        kind = value.type
        shape = (0, *substitute(kind.shape, run.sizes))
        return run.call(OPS["full"], shape=shape, value=0, dtype=kind.dtype, device=kind.device)
    if reverse:
        ys.reverse()
    return stacked(run, ys)


def stacked(run: Any, ys: list[Any]) -> Any:
    """Tensors along a new axis; those with histories keep each its own."""
    histories = [getattr(y, "_node", None) for y in ys]
    if any(node is not None for node in histories) and recorder() is None:
        with no_grad():
            return _rows.with_histories(ys, _stacked(run, ys))
    return _stacked(run, ys)


def _stacked(run: Any, ys: list[Any]) -> Any:
    shape = tuple(ys[0].shape)
    if not shape:
        ys = [run.call(OPS["reshape"], y, shape=(1,)) for y in ys]
    whole = run.call(OPS["concat"], *ys, axis=0)
    return run.call(OPS["reshape"], whole, shape=(len(ys), *shape))


class Rows(Protocol):
    """What keeps the histories of the rows that a scan stacked, where it runs op by op."""

    def with_histories(self, rows: Sequence[Any], whole: Any) -> Any: ...
    def row_of(self, whole: Any, index: int) -> Any: ...


_rows: Rows


def use_rows(rows: Rows) -> None:
    """Keep the histories of rows by this (`weft.autodiff.rows`)."""
    global _rows
    _rows = rows


# --- cards -------------------------------------------------------------------------------------

IF = Op("if", _if_type, _if, traits=Trait.BRANCH, graph_names=("then", "else"))
SWITCH = Op("switch", _switch_type, _switch, traits=Trait.BRANCH)
WHILE = Op("while", _while_type, _while, traits=Trait.LOOP, graph_names=("condition", "body"))
SCAN = Op("scan", _scan_type, _scan, traits=Trait.LOOP, graph_names=("body",))
