"""Recording loops: what they carry, found by recording the body until its types are known."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from weft.autodiff import engine
from weft.autodiff.node import tensor_of
from weft.base.errors import CaptureError, GradientError, ShapeError
from weft.base.pytree import TreeSpec, tree_flatten, tree_unflatten
from weft.base.source import user_location
from weft.capture.control.agree import as_leaf, carry_type, check_structure, line_of, typed
from weft.capture.control.borders import Border, CarriedNode
from weft.capture.control.branches import truth
from weft.capture.control.nested import (
    NestedRecorder,
    State,
    assign_states,
    check_effects,
    close,
    stand_in,
)
from weft.capture.control.node import emit, unfollowed
from weft.capture.recorder import GraphRecorder
from weft.core.bind import get_grad
from weft.core.operands import as_tensor
from weft.core.tensor import Tensor, type_of
from weft.ir.graph import Value
from weft.ir.sizes import local_sizes
from weft.ir.types import TensorType
from weft.ops.control import SCAN, WHILE
from weft.ops.stacks import zero_of

Function = Callable[..., Any]
#: Of a carry: the history that it has in the body, after the body, before the loop.
Histories = tuple[Any, Any, Any]
#: How often a body is recorded before its types count as not settling.
MOST_RECORDINGS = 8


class Loop:
    """What a loop carries: the leaves of the user's tree, then the state that the body writes.

    A leaf is a tensor, a Python number (which becomes a tensor of the dtype that the body gives
    it), or another Python value, which stays what it is.
    """

    def __init__(self, here: GraphRecorder, name: str, init: Any, body: Function) -> None:
        self.here = here
        self.name = name
        self.body = body
        leaves, self.structure = tree_flatten(init)
        self.initial = [as_leaf(leaf, name) for leaf in leaves]
        self.kinds = [type_of(x) if isinstance(x, Tensor) else None for x in self.initial]
        self.names = [f"carry{path}" if path else "the carry" for path in self.structure.paths()]
        #: Which leaves, then states, have a history when an iteration begins.
        self.historic = [isinstance(x, Tensor) and x._node is not None for x in self.initial]
        self.states: list[State] = []
        self.state_kinds: list[TensorType] = []
        self.opaque = ""
        self.keeps: list[bool] = []  # which states keep their history
        where = user_location()
        self.line = f" ({where})" if where else ""
        self.passes = 0  # backward passes when the body began
        self.borders: list[Any] = []  # the histories of the carries in the body
        self.outs: list[Any] = []
        self.ends: list[Tensor] = []

    def enter(self, nested: NestedRecorder) -> Any:
        """The carried tree inside of a nested graph; states hold their inputs there."""
        leaves = []
        for x, kind, historic in zip(self.initial, self.kinds, self.historic, strict=False):
            leaves.append(x if kind is None else nested.carried(kind, historic))
        self.borders = [x._node if isinstance(x, Tensor) else None for x in leaves]
        for state, kind, historic in zip(
            self.states, self.state_kinds, self.historic[len(leaves) :], strict=True
        ):
            nested.hold(state, kind, historic)
            self.borders.append(state.tensor._node)
        self.passes = engine.passes.count
        return tree_unflatten(self.structure, leaves)

    def leave(self, nested: NestedRecorder, carry: Any) -> bool:
        """Note what the body gave; whether all was as assumed, so that the recording holds."""
        leaves, structure = tree_flatten(carry)
        line = line_of(None, self.body)
        words = ("before the loop", "after the body")
        check_structure(self.name, self.structure, structure, words, (self.line, line))
        self.outs = [as_leaf(leaf, self.name) for leaf in leaves]
        kinds = [
            carry_type(self.name, name, (initial, kind), out, self.body, self.line)
            for name, initial, kind, out in zip(
                self.names, self.initial, self.kinds, self.outs, strict=True
            )
        ]
        stable = kinds == self.kinds
        self.kinds = kinds
        known = {state.key for state in self.states}
        for state in nested.changes():
            if state.key not in known:
                stable = False
                self.states.append(state)
                self.state_kinds.append(self._state_kind(nested, state))
                self.historic.append(nested.written[id(state.tensor)].node is not None)
        self.ends = [self._end(state) for state in self.states]
        self.keeps = [nested.kept_node(state) for state in self.states]
        if engine.passes.count != self.passes:
            self._check_passes(nested)
        return self._note_histories() and stable

    def _check_passes(self, nested: NestedRecorder) -> None:
        """Refuse gradients inside of the body that would go on through earlier iterations."""
        names = [*self.names, *[state.title() for state in self.states]]
        for at in escaping(self.histories(nested)):
            raise GradientError(
                f"a gradient is asked for inside of the body by a value that {names[at]} "
                "depends on through the iterations before",
                op=self.name,
                hint="cut that history, x.detach(), or ask for the gradient after the loop",
            )

    def histories(self, nested: NestedRecorder) -> list[Histories]:
        """Of each carry: what its history is in the body, after it and before the loop."""
        ends = [_node_of(x) for x in [*self.outs, *self.ends]]
        starts = [_node_of(x) for x in self.initial]
        starts += [nested.written[id(state.tensor)].node for state in self.states]
        return list(zip(self.borders, ends, starts, strict=False))

    def _note_histories(self) -> bool:
        """What the body gives a history has one in the next iteration.

        Only a backward inside of the body could see that: then it has to be recorded anew.
        """
        found = [isinstance(x, Tensor) and x._node is not None for x in [*self.outs, *self.ends]]
        historic = [a or b for a, b in zip(self.historic, found, strict=True)]
        same = historic == self.historic or engine.passes.count == self.passes
        self.historic = historic
        return same

    def _state_kind(self, nested: NestedRecorder, state: State) -> TensorType:
        entry = nested.written[id(state.tensor)]
        if not state.grad:
            return type_of(tensor_of(entry.data, None))
        return type_of(self._end(state))

    def _end(self, state: State) -> Tensor:
        held = state.now()
        if held is None:
            raise CaptureError(
                f"{state.title()} is there before the loop and None after the body",
                op=self.name,
                hint="set it to None before the loop, too",
            )
        return tensor_of(held._data, held._node)

    def outputs(self, nested: NestedRecorder) -> list[Value]:
        """The carries that the body gives, as values; while it is recorded."""
        pairs = zip(self.outs, self.kinds, strict=True)
        made = [typed(out, kind) for out, kind in pairs if kind is not None]
        self.opaque = unfollowed([*made, *self.ends], nested.start)
        return [nested.value_of(x) for x in [*made, *self.ends]]

    def starts(self) -> list[Tensor]:
        """What the carries start with, in the graph around."""
        found = []
        for x, kind in zip(self.initial, self.kinds, strict=True):
            if kind is not None:
                found.append(stand_in(self.here, typed(x, kind)))
        for state, kind in zip(self.states, self.state_kinds, strict=True):
            held = get_grad(state.tensor) if state.grad else state.tensor
            # A gradient that is not there yet counts as zeros.
            found.append(stand_in(self.here, zero_of(kind) if held is None else held))
        return found

    def pinned(self, first: int) -> frozenset[int]:
        """Which operands, of which the carries begin at `first`, are leaves written to."""
        at = first + sum(kind is not None for kind in self.kinds)
        return frozenset(
            at + i
            for i, (state, keeps) in enumerate(zip(self.states, self.keeps, strict=True))
            if keeps and not state.grad and state.tensor._node is not None
        )

    def finish(self, results: list[Tensor]) -> Any:
        """The carried tree after the loop; states hold their results."""
        count = sum(kind is not None for kind in self.kinds)
        end = count + len(self.states)
        assign_states(self.states, results[count:end], self.keeps)
        made = iter(results)
        leaves = [
            x if kind is None else next(made)
            for x, kind in zip(self.initial, self.kinds, strict=True)
        ]
        return tree_unflatten(self.structure, leaves)

    def unsettled(self) -> CaptureError:
        return CaptureError(
            f"the types that the loop carries do not settle: {', '.join(map(str, self.kinds))}",
            op=self.name,
            hint="start with tensors of the dtypes that the body gives",
        )


def _node_of(x: Any) -> Any:
    return x._node if isinstance(x, Tensor) else None


def escaping(histories: Sequence[Histories]) -> list[int]:
    """Which carries hide a way to a target of a backward pass inside of the body."""
    hidden: dict[Any, list[Any]] = {
        border: [end, start]
        for border, end, start in histories
        if isinstance(border, (Border, CarriedNode))
    }
    found = []
    for at, (border, end, _) in enumerate(histories):
        for target in border.asked if isinstance(border, Border) else ():
            other = target in hidden
            wanted = hidden[target][0] if other else target
            if leads_to([end] if other else hidden[border], wanted, {} if other else hidden):
                found.append(at)
                break
    return found


def leads_to(roots: Sequence[Any], target: Any, hidden: Mapping[Any, Sequence[Any]]) -> bool:
    """Whether a way leads from histories to a target, also through what is hidden by borders."""
    seen: set[Any] = {None}
    waiting = list(roots)
    while waiting:
        node = waiting.pop()
        if node is target and node is not None:
            return True
        if node not in seen:
            seen.add(node)
            waiting.extend(hidden.get(node, node.edges))
    return False


def record_while(
    here: GraphRecorder,
    cond_fn: Function,
    body_fn: Function,
    init: Any,
    name: str = "while_loop",
    body: Function | None = None,
) -> Any:
    """A `while_loop` as a node; `body` is the user's function, for the lines in errors."""
    effects = here.python_effects()
    loop = Loop(here, name, init, body or body_fn)
    for _ in range(MOST_RECORDINGS):
        nested = NestedRecorder(here, "body")
        with nested.opened():
            stable = loop.leave(nested, body_fn(loop.enter(nested)))
            if stable:
                nested.graph.outputs = tuple(loop.outputs(nested))
        if stable:
            break
    else:
        raise loop.unsettled()
    condition = NestedRecorder(here, "condition")
    with condition.opened():
        predicate = as_tensor(truth(cond_fn(loop.enter(condition)), name), name)
        condition.graph.outputs = (condition.value_of(predicate),)
        writes = condition.changes()
    check_effects(here, effects, name)
    if writes:  # a random draw, say: then the condition is computed by the body
        return _rotated(here, cond_fn, body_fn, init, name, body)
    captured = close([condition, nested])
    operands = [*captured, *loop.starts()]
    attrs = {"consts": len(captured), "counted": False}
    graphs = [condition.graph, nested.graph]
    pinned = loop.pinned(len(captured))
    return loop.finish(emit(here, WHILE, operands, graphs, attrs, pinned, loop.opaque))


def _rotated(
    here: GraphRecorder,
    cond_fn: Function,
    body_fn: Function,
    init: Any,
    name: str,
    body: Function | None,
) -> Any:
    """The loop with its condition as one more carried value."""

    def step(pair: Any) -> Any:
        carry = body_fn(pair[0])
        return carry, as_tensor(truth(cond_fn(carry), name), name)

    first = as_tensor(truth(cond_fn(init), name), name)
    carry, _ = record_while(here, lambda pair: pair[1], step, (init, first), name, body or body_fn)
    return carry


def record_scan(
    here: GraphRecorder,
    f: Function,
    init: Any,
    xs: list[Tensor],
    structure: TreeSpec,
    length: int,
    reverse: bool,
) -> tuple[Any, Any]:
    """A `scan` as a node."""
    effects = here.python_effects()
    loop = Loop(here, "scan", init, f)
    slices = [type_of(x).like(shape=x.shape[1:]) for x in xs]
    for _ in range(MOST_RECORDINGS):
        nested = NestedRecorder(here, "body")
        with nested.opened():
            carry = loop.enter(nested)
            parts = [
                nested.carried(kind, x._node is not None)
                for kind, x in zip(slices, xs, strict=True)
            ]
            given = f(carry, tree_unflatten(structure, parts))
            if not isinstance(given, tuple) or len(given) != 2:
                raise CaptureError(
                    f"the body gives {given!r:.60}, not (carry, y)", op="scan", hint="y may be None"
                )
            _check_slices(parts, xs)
            stable = loop.leave(nested, given[0])
            if stable:
                leaves, shape = tree_flatten(given[1])
                ys = [as_tensor(leaf, "scan") for leaf in leaves]
                values = [nested.value_of(y) for y in ys]
                nested.graph.outputs = (*loop.outputs(nested), *values)
        if stable:
            break
    else:
        raise loop.unsettled()
    check_effects(here, effects, "scan")
    _check_sizes(nested, ys, shape, f)
    captured = close([nested])
    starts = loop.starts()
    operands = [*captured, *starts, *[stand_in(here, x) for x in xs]]
    attrs = {"consts": len(captured), "carries": len(starts), "length": length, "reverse": reverse}
    graphs = [nested.graph]
    opaque = loop.opaque or unfollowed(ys, nested.start)
    results = emit(here, SCAN, operands, graphs, attrs, loop.pinned(len(captured)), opaque)
    return loop.finish(results), tree_unflatten(shape, results[len(starts) :])


def _check_slices(parts: Sequence[Tensor], xs: Sequence[Tensor]) -> None:
    for part, x in zip(parts, xs, strict=True):
        asked = part._node.asked if isinstance(part._node, Border) else ()
        if any(leads_to([x._node], target, {}) for target in asked):
            raise GradientError(
                "a gradient is asked for inside of the body by a value that xs depends on",
                op="scan",
                hint="cut that history, x.detach(), or ask for the gradient after the loop",
            )


def _check_sizes(nested: NestedRecorder, ys: list[Tensor], shape: TreeSpec, f: Function) -> None:
    """All ys of one place must have one shape."""
    local = local_sizes(nested.graph)
    for y, path in zip(ys, shape.paths(), strict=True):
        for size in y.shape:
            if local.intersection(getattr(size, "names", ())):
                raise ShapeError(
                    f"y{path} is {y.type}{line_of(y, f)}: the size {size} depends on values, and "
                    "may differ from one iteration to the next",
                    op="scan",
                )
