"""Control flow whose condition differs from element to element of a `vmap`.

For `weft.cond`, `weft.switch` and `weft.while_loop` with `is_mapped(condition)`. Each branch that
some element takes runs for all elements, and each element gets the results of its own branch. A
loop runs until all elements are done; those that are done keep their values. An element that does
not take part in a branch or an iteration computes it with the values of one that does (`regions`).
Writes of branches to tensors are selected in the same way. Each branch that runs advances a random
generator for all elements.

For recorded graphs see `mapped_nodes`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.autodiff.transforms.history import twin
from weft.autodiff.transforms.levels import Level, SavedTensors, all_elements, innermost_level
from weft.autodiff.transforms.regions import taking_part
from weft.autodiff.transforms.vmap import is_mapped
from weft.base.errors import DTypeError
from weft.base.pytree import TreeSpec, tree_flatten, tree_unflatten
from weft.core.bind import rebind
from weft.core.operands import as_tensor, number_kind
from weft.core.symbolic import SymbolicArray
from weft.core.tensor import StateTensor, Tensor
from weft.ops.elementwise import equal, logical_and, logical_not, not_equal
from weft.ops.reduce import any as any_of
from weft.ops.select import choose, clip
from weft.ops.shape import reshape

__all__ = ["is_mapped", "mapped_cond", "mapped_switch", "mapped_while"]

Branch = Callable[..., Any]


def _level() -> Level:
    level = innermost_level()
    assert level is not None  # what is mapped is a tensor of a level
    return level


def mapped_cond(pred: Tensor, true_fn: Branch, false_fn: Branch, operands: Sequence[Any]) -> Any:
    """`weft.cond` for a predicate that is mapped."""
    return _choice(cond_masks(pred), (true_fn, false_fn), operands, "cond")


def mapped_switch(index: Tensor, branches: Sequence[Branch], operands: Sequence[Any]) -> Any:
    """`weft.switch` for an index that is mapped."""
    return _choice(switch_masks(index, len(branches)), branches, operands, "switch")


def cond_masks(pred: Tensor) -> list[Tensor]:
    """Which elements take the one branch, and which the other."""
    test = truth(pred)
    return [test, logical_not(test)]


def switch_masks(index: Tensor, count: int) -> list[Tensor]:
    """Which elements take each branch."""
    one = clip(reshape(index, ()), 0, count - 1)
    return [equal(one, number) for number in range(count)]


def _choice(
    masks: Sequence[Tensor], branches: Sequence[Branch], operands: Sequence[Any], op: str
) -> Any:
    taken = [(m, f) for m, f in zip(masks, branches, strict=True) if _may_hold(m)]
    if not taken:  # there are no elements
        return branches[-1](*operands)
    if len(taken) == 1 and _is_known(masks[0]):
        return taken[0][1](*operands)
    ran = []
    for mask, branch in taken:
        with taking_part(mask):
            ran.append(_run(branch, operands))
    return _chosen([mask for mask, _ in taken[:-1]], ran, op)


def _is_known(mask: Tensor) -> bool:
    return all_elements(mask)._data.__class__ is not SymbolicArray


def _may_hold(mask: Tensor) -> bool:
    """Whether an element may be in a mask; always true while a graph is recorded."""
    return not _is_known(mask) or bool(any_of(all_elements(mask)))


def mapped_while(cond_fn: Branch, body_fn: Branch, carry: Any, test: Tensor) -> Any:
    """`weft.while_loop` from a carry for which the condition is mapped: `test`.

    While a graph is recorded, the recorder is asked for the number of iterations: a trace has a
    path for each number.
    """
    going = truth(test)
    while bool(any_of(all_elements(going))):
        leaves, spec = tree_flatten(carry)
        stay = _Ran([_twin(leaf) for leaf in leaves], spec, {})
        with taking_part(going):
            ran = _run(body_fn, (carry,))
        carry = _chosen([going], [ran, stay], "while_loop")
        going = logical_and(going, truth(cond_fn(carry)))
    return carry


def truth(value: Any) -> Tensor:
    """A predicate as a tensor `bool[]`."""
    one = reshape(as_tensor(value, "cond"), ())
    return one if one.dtype.kind == "bool" else not_equal(one, 0)


class _Ran:
    """What a branch returned, and what it gave to tensors, by their id."""

    def __init__(
        self, leaves: list[Any], spec: TreeSpec, writes: dict[int, tuple[Tensor, Tensor]]
    ) -> None:
        self.leaves = leaves
        self.spec = spec
        self.writes = writes


def _run(branch: Branch, operands: Sequence[Any]) -> _Ran:
    """Run a branch; its writes are noted and undone."""
    journal = SavedTensors()
    with _level().journal(journal):
        leaves, spec = tree_flatten(branch(*operands))
    kept = [_twin(leaf) for leaf in leaves]
    for key in [k for k, h in journal.entries.items() if isinstance(h.tensor, StateTensor)]:
        del journal.entries[key]  # the state of a random generator, which is not undone
    writes = {key: (held.tensor, _twin(held.tensor)) for key, held in journal.entries.items()}
    journal.restore()
    return _Ran(kept, spec, writes)


def _twin(leaf: Any) -> Any:
    """A tensor with the current value, which later writes do not change."""
    return twin(leaf) if isinstance(leaf, Tensor) else leaf


def _chosen(masks: Sequence[Tensor], ran: Sequence[_Ran], op: str) -> Any:
    spec = ran[0].spec
    for other in ran[1:]:
        if other.spec != spec:
            raise DTypeError(
                f"the branches return different structures: {spec} and {other.spec}", op=op
            )
    written = {key: pair[0] for branch in ran for key, pair in branch.writes.items()}
    for key, target in written.items():
        ends = [branch.writes[key][1] if key in branch.writes else target for branch in ran]
        rebind(target, select(masks, ends, op), op)
    columns = zip(*[branch.leaves for branch in ran], strict=True)
    return tree_unflatten(spec, [select(masks, column, op) for column in columns])


def select(masks: Sequence[Tensor], values: Sequence[Any], op: str) -> Any:
    """For each element the value of its branch; there are masks for all branches but the last."""
    tensors = any(isinstance(value, Tensor) for value in values)
    if not tensors and all(value is values[0] or value == values[0] for value in values):
        return values[0]
    if not all(isinstance(v, Tensor) or number_kind(v) is not None for v in values):
        raise DTypeError(
            f"elements take different branches, which return {values[0]!r:.40} and "
            f"{values[-1]!r:.40}: only tensors and numbers can differ",
            op=op,
        )
    out = values[-1]
    for mask, value in zip(reversed(masks), reversed(values[:-1]), strict=True):
        out = choose(mask, value, out)
    return out
