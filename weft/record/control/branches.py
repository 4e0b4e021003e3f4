"""Control flow as functions: `cond` and `switch`. Loops are in `weft.record.control.loops`.

Eagerly, they run as Python. While a graph is recorded, they become nodes with nested graphs if the
predicate is a tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.autodiff.transforms.control import (
    cond_masks,
    is_mapped,
    mapped_cond,
    mapped_switch,
    switch_masks,
)
from weft.autodiff.transforms.lowering import LowerOrAsk
from weft.autodiff.transforms.mapped_nodes import chosen_by_each, chosen_once
from weft.autodiff.transforms.vmap import MapLevel
from weft.base import dtypes
from weft.base.errors import DTypeError, ShapeError
from weft.base.pytree import tree_flatten, tree_unflatten
from weft.base.shapes import size_of
from weft.core.tensor import Tensor, class_among, labelled
from weft.ir.op import Op
from weft.ops.control import IF, SCAN, SWITCH, WHILE
from weft.ops.elementwise import not_equal
from weft.ops.shape import reshape
from weft.record.control.agree import (
    as_leaf,
    branch_types,
    branch_words,
    check_structure,
    line_of,
    typed,
)
from weft.record.control.branch_grad import branches_backward
from weft.record.control.loop_grad import scan_backward, while_backward
from weft.record.control.nested import (
    NestedRecorder,
    check_effects,
    graph_recorder,
    recorded_level,
)
from weft.record.control.node import BACKWARD
from weft.record.control.on_level import on_level
from weft.record.control.recorded_branch import RecordedBranch, assign, emit_branches, states_of
from weft.record.recorder import GraphRecorder

__all__ = ["cond", "switch"]

BACKWARD.update({IF: branches_backward, SWITCH: branches_backward})
BACKWARD.update({WHILE: while_backward, SCAN: scan_backward})


def truth(value: Any, op: str) -> Any:
    """A predicate as a `bool[]` tensor, by Python's rule; a Python value as a bool."""
    if not isinstance(value, Tensor):
        return bool(value)
    if size_of(value.shape) != 1:
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
        if isinstance(level, MapLevel):
            with LowerOrAsk(level):
                return _below(level, lambda p, two: cond(p, *two), pred, ways, operands, "cond")
        with LowerOrAsk(level):
            return on_level(lambda: cond(pred, *ways, *operands))
    here = graph_recorder()
    if here is None and is_mapped(pred):
        return mapped_cond(pred, true_fn, false_fn, operands)
    if here is None or not isinstance(pred, Tensor):
        return (true_fn if pred else false_fn)(*operands)
    chosen = truth(pred, "cond")
    return _branches(here, "cond", IF, chosen, [true_fn, false_fn], operands)


def switch(index: Any, branches: Sequence[Callable[..., Any]], *operands: Any) -> Any:
    """`branches[index](*operands)`. An index out of range is clamped to the first or last branch.

    >>> weft.switch(1, [lambda x: x, lambda x: 2 * x], weft.asarray(3.0))
    tensor(6.)
    """
    if not branches:
        raise ShapeError("there is no branch to choose", op="switch")
    level = recorded_level()
    if level is not None and isinstance(index, Tensor):
        if isinstance(level, MapLevel):
            with LowerOrAsk(level):
                return _below(level, switch, index, branches, operands, "switch")
        with LowerOrAsk(level):
            return on_level(lambda: switch(index, branches, *operands))
    here = graph_recorder()
    if here is None and is_mapped(index):
        return mapped_switch(index, branches, operands)
    if here is None or not isinstance(index, Tensor):
        return branches[min(max(int(index), 0), len(branches) - 1)](*operands)
    if index.dtype.kind not in ("int", "uint") or size_of(index.shape) != 1:
        raise DTypeError(f"the index must be one integer, not {index.type}", op="switch")
    chosen = index if index.shape == () else reshape(index, ())
    return _branches(here, "switch", SWITCH, chosen, list(branches), operands)


def _below(
    level: MapLevel,
    choose: Callable[..., Any],
    chosen: Tensor,
    branches: Sequence[Callable[..., Any]],
    operands: Any,
    name: str,
) -> Any:
    """A choice inside of `vmap`, as nodes on the level below."""
    if not level.mapped(chosen):
        return chosen_once(level, choose, chosen, branches, operands)
    masks = cond_masks(chosen) if name == "cond" else switch_masks(chosen, len(branches))
    return chosen_by_each(level, cond, masks, branches, operands, name)


class _Branch(RecordedBranch):
    """One recorded branch and the tree that it returns."""

    def __init__(
        self, here: GraphRecorder, function: Callable[..., Any], operands: Any, op: str
    ) -> None:
        name = getattr(function, "__name__", "branch").strip("<>")
        super().__init__(NestedRecorder(here, name))
        with self.nested.opened():
            leaves, self.structure = tree_flatten(function(*operands))
            self.leaves = [as_leaf(leaf, op) for leaf in leaves]
            self.note_states()


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
    lines = [line_of(None, function) for function in functions]
    for branch, word, line in zip(branches, words, lines, strict=True):
        check_structure(name, structure, branch.structure, (words[0], word), (lines[0], line))
    columns = [list(column) for column in zip(*[b.leaves for b in branches], strict=True)]
    titles = [f"result{path}" if path else "the result" for path in structure.paths()]
    count = len(columns)
    states = states_of(branches, name)
    columns += [[branch.end_of(state) for branch in branches] for state in states]
    titles += [state.title() for state in states]
    kinds = branch_types(name, columns, titles, functions)
    outputs = [(c, k) for c, k in zip(columns, kinds, strict=True) if k is not None]
    results = emit_branches(
        here, op, chosen, branches, lambda number: [typed(c[number], k) for c, k in outputs]
    )
    made = iter(results)
    leaves = [
        column[0] if kind is None else labelled(next(made), class_among(column))
        for column, kind in zip(columns[:count], kinds, strict=False)
    ]
    assign(states, list(made), branches)
    return tree_unflatten(structure, leaves)
