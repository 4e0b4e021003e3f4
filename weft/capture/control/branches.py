"""Control flow as functions: `cond`, `switch`; their loops are in `weft.capture.control.loops`.

Eagerly, they run as Python. Where a graph is recorded and the predicate is a tensor, they become
nodes with nested graphs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.autodiff.node import tensor_of
from weft.autodiff.transforms.control import (
    cond_masks,
    is_mapped,
    mapped_cond,
    mapped_switch,
    switch_masks,
)
from weft.autodiff.transforms.lowering import Attempt
from weft.autodiff.transforms.mapped_nodes import chosen_by_each, chosen_once
from weft.autodiff.transforms.vmap import Mapping
from weft.base import dtypes
from weft.base.errors import CaptureError, DTypeError, ShapeError
from weft.base.pytree import TreeSpec, tree_flatten, tree_unflatten
from weft.capture.control.agree import (
    as_leaf,
    branch_types,
    branch_words,
    check_structure,
    line_of,
    typed,
)
from weft.capture.control.branch_grad import branches_backward
from weft.capture.control.loop_grad import scan_backward, while_backward
from weft.capture.control.nested import (
    NestedRecorder,
    State,
    assign_states,
    check_effects,
    close,
    graph_recorder,
    recorded_level,
)
from weft.capture.control.node import BACKWARD, emit, unfollowed
from weft.capture.control.on_level import on_level
from weft.capture.recorder import GraphRecorder
from weft.core.bind import recording
from weft.core.tensor import Tensor
from weft.ir.op import Op
from weft.ops.control import IF, SCAN, SWITCH, WHILE
from weft.ops.elementwise import not_equal
from weft.ops.shape import reshape

__all__ = ["cond", "switch"]

BACKWARD.update({IF: branches_backward, SWITCH: branches_backward})
BACKWARD.update({WHILE: while_backward, SCAN: scan_backward})


def truth(value: Any, op: str) -> Any:
    """A predicate as a `bool[]` tensor, by Python's rule; a Python value as a bool."""
    if not isinstance(value, Tensor):
        return bool(value)
    if value.size != 1:
        raise ShapeError(
            f"the predicate must be one truth value, not {value.type}",
            op=op,
            operands=[value.type],
            hint="say any(x) or all(x)",
        )
    one = value if value.shape == () else reshape(value, ())
    return one if one.dtype is dtypes.bool else not_equal(one, 0)


def cond(
    pred: Any, true_fn: Callable[..., Any], false_fn: Callable[..., Any], *operands: Any
) -> Any:
    """`true_fn(*operands)` if the predicate holds, `false_fn(*operands)` otherwise.

    In a recorded function, both become branches of one `if`, and must give the same structure,
    dtypes and shapes.

    >>> weft.cond(weft.asarray(2.0) > 1, lambda x: x + 1, lambda x: x - 1, weft.asarray(2.0))
    tensor(3.)
    """
    level = recorded_level()
    if level is not None and isinstance(pred, Tensor):
        ways = (true_fn, false_fn)
        if isinstance(level, Mapping):
            with Attempt(level):
                return _below(level, lambda p, two: cond(p, *two), pred, ways, operands, "cond")
        with Attempt(level):
            return on_level(lambda: cond(pred, *ways, *operands))
    here = graph_recorder()
    if here is None and is_mapped(pred):
        return mapped_cond(pred, true_fn, false_fn, operands)
    if here is None or not isinstance(pred, Tensor):
        return (true_fn if pred else false_fn)(*operands)
    chosen = truth(pred, "cond")
    return _branches(here, "cond", IF, chosen, [true_fn, false_fn], operands)


def switch(index: Any, branches: Sequence[Callable[..., Any]], *operands: Any) -> Any:
    """`branches[index](*operands)`; an index below 0 is taken as 0, one beyond as the last.

    >>> weft.switch(1, [lambda x: x, lambda x: 2 * x], weft.asarray(3.0))
    tensor(6.)
    """
    if not branches:
        raise ShapeError("there is no branch to choose", op="switch")
    level = recorded_level()
    if level is not None and isinstance(index, Tensor):
        if isinstance(level, Mapping):
            with Attempt(level):
                return _below(level, switch, index, branches, operands, "switch")
        with Attempt(level):
            return on_level(lambda: switch(index, branches, *operands))
    here = graph_recorder()
    if here is None and is_mapped(index):
        return mapped_switch(index, branches, operands)
    if here is None or not isinstance(index, Tensor):
        return branches[min(max(int(index), 0), len(branches) - 1)](*operands)
    if index.dtype.kind not in ("int", "uint") or index.size != 1:
        raise DTypeError(f"the index must be one integer, not {index.type}", op="switch")
    chosen = index if index.shape == () else reshape(index, ())
    return _branches(here, "switch", SWITCH, chosen, list(branches), operands)


def _below(
    level: Mapping,
    choose: Callable[..., Any],
    chosen: Tensor,
    branches: Sequence[Callable[..., Any]],
    operands: Any,
    name: str,
) -> Any:
    """A choice in a function that `vmap` runs, as nodes on the level below."""
    if not level.mapped(chosen):
        return chosen_once(level, choose, chosen, branches, operands)
    masks = cond_masks(chosen) if name == "cond" else switch_masks(chosen, len(branches))
    return chosen_by_each(level, cond, masks, branches, operands, name)


class _Branch:
    """One recorded branch: what it gives, and what it wrote."""

    def __init__(
        self, here: GraphRecorder, function: Callable[..., Any], operands: Any, op: str
    ) -> None:
        self.function = function
        self.nested = NestedRecorder(here, getattr(function, "__name__", "branch").strip("<>"))
        self.states: dict[tuple[int, bool], tuple[State, Tensor | None, bool]] = {}
        with self.nested.opened():
            result = function(*operands)
            leaves, self.structure = tree_flatten(result)
            self.leaves = [as_leaf(leaf, op) for leaf in leaves]
            for state in self.nested.changes():
                entry = self.nested.written[id(state.tensor)]
                held = state.now()
                end = None if held is None else tensor_of(held._data, held._node)
                self.states[state.key] = (state, end, state.tensor._node is entry.node)

    def end_of(self, state: State) -> Tensor | None:
        """What a state holds at the end of this branch."""
        found = self.states.get(state.key)
        return state.now() if found is None else found[1]


def _branches(
    here: GraphRecorder,
    name: str,
    op: Op,
    chosen: Tensor,
    functions: Sequence[Callable[..., Any]],
    operands: Any,
) -> Any:
    effects = here.python_effects()
    branches = [_Branch(here, function, operands, name) for function in functions]
    check_effects(here, effects, name)
    structure = branches[0].structure
    words = branch_words(name, len(branches))
    for number, branch in enumerate(branches):
        check_structure(
            name,
            structure,
            branch.structure,
            (words[0], words[number]),
            (line_of(None, functions[0]), line_of(None, branch.function)),
        )
    columns = [list(column) for column in zip(*[b.leaves for b in branches], strict=True)]
    kinds = branch_types(name, columns, _names(structure), functions)
    states = _states(name, branches)
    ends = [[branch.end_of(state) for branch in branches] for state in states]
    titles = [state.title() for state in states]
    state_kinds = branch_types(name, ends, titles, functions)
    outputs = [(c, k) for c, k in zip(columns, kinds, strict=True) if k is not None]
    outputs += [(c, k) for c, k in zip(ends, state_kinds, strict=True) if k is not None]
    opaque: list[str] = []
    for number, branch in enumerate(branches):
        nested = branch.nested
        with recording(nested):
            given = [typed(column[number], kind) for column, kind in outputs]
        nested.graph.outputs = tuple([nested.value_of(tensor) for tensor in given])
        opaque = opaque or [unfollowed(given, nested.start)]
    captured = close([branch.nested for branch in branches])
    graphs = [branch.nested.graph for branch in branches]
    results = emit(here, op, [chosen, *captured], graphs, {}, opaque="".join(opaque))
    count = len(results) - len(states)
    keeps = [_keeps_node(state, branches) for state in states]
    assign_states(states, results[count:], keeps)
    made = iter(results)
    leaves = [
        column[0] if kind is None else next(made)
        for column, kind in zip(columns, kinds, strict=True)
    ]
    return tree_unflatten(structure, leaves)


def _names(structure: TreeSpec) -> list[str]:
    return [f"result{path}" if path else "the result" for path in structure.paths()]


def _states(name: str, branches: Sequence[_Branch]) -> list[State]:
    """What any branch writes. A gradient must be there, or be None, after all of them."""
    found: list[State] = []
    for key, (state, *_) in {k: v for b in branches for k, v in b.states.items()}.items():
        ends = [branch.end_of(state) for branch in branches]
        missing = [end is None for end in ends]
        if all(missing):
            if state.now() is not None:  # all of them take it away
                state.tensor.grad = None
            continue
        if any(missing):
            raise CaptureError(
                f"{state.title()} is there after one branch and None after another",
                op=name,
                hint="set the gradient before, x.grad = weft.zeros_like(x), or in all branches",
            )
        assert key == state.key
        found.append(state)
    return found


def _keeps_node(state: State, branches: Sequence[_Branch]) -> bool:
    """Whether a tensor was written without touching its history: a leaf under no_grad()."""
    known = [branch.states[state.key] for branch in branches if state.key in branch.states]
    return all(keeps for _, _, keeps in known)
