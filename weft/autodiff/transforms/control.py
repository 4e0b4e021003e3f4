"""Control flow whose condition differs from element to element of a `vmap`.

For `weft.cond`, `weft.switch` and `weft.while_loop`, where `is_mapped(condition)`: all branches run
for all elements, and each element takes the results of its own; a loop runs until all elements are
done, and those that are done keep what they have. What branches write to tensors is chosen alike.

Both branches are differentiated too, and what is not taken counts as zero times its derivative: if
that is infinite or NaN, guard the branch's argument with `weft.where`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from weft.autodiff.transforms.history import twin
from weft.autodiff.transforms.levels import Journal, Level, all_elements, innermost_level, left
from weft.autodiff.transforms.vmap import Mapping, is_mapped
from weft.base.errors import CaptureError, DTypeError
from weft.base.pytree import TreeSpec, tree_flatten, tree_unflatten
from weft.core.bind import rebind, recording
from weft.core.grad_mode import mode
from weft.core.operands import as_tensor, number_kind
from weft.core.symbolic import SymbolicArray
from weft.core.tensor import Tensor
from weft.ops.creation import full
from weft.ops.elementwise import equal, logical_and, not_equal
from weft.ops.reduce import any as any_of
from weft.ops.select import clip, where
from weft.ops.shape import reshape

__all__ = ["is_mapped", "mapped_cond", "mapped_switch", "mapped_while"]

Branch = Callable[..., Any]


def _level() -> Level:
    level = innermost_level()
    assert level is not None  # what is mapped is a tensor of a level
    return level


def mapped_cond(pred: Tensor, true_fn: Branch, false_fn: Branch, operands: Sequence[Any]) -> Any:
    """`weft.cond` for a predicate that is mapped."""
    test = _truth(pred)
    return _chosen([test], [_run(f, operands) for f in (true_fn, false_fn)], "cond")


def mapped_switch(index: Tensor, branches: Sequence[Branch], operands: Sequence[Any]) -> Any:
    """`weft.switch` for an index that is mapped."""
    one = clip(reshape(index, ()), 0, len(branches) - 1)
    tests = [equal(one, number) for number in range(len(branches) - 1)]
    return _chosen(tests, [_run(f, operands) for f in branches], "switch")


def mapped_while(
    cond_fn: Branch, body_fn: Branch, carry: Any, test: Tensor, loop: Branch | None = None
) -> Any:
    """`weft.while_loop` from a carry for which the condition is mapped: `test`.

    Where a graph is recorded on the level below, nobody knows how often: then `loop`, which is
    `weft.while_loop` itself, records one loop there. But where a gradient is taken inside of vmap,
    the recorder is asked: a trace has a path for each number of iterations.
    """
    going = _truth(test)
    level = innermost_level()
    recorded = all_elements(going)._data.__class__ is SymbolicArray
    if loop is not None and recorded and isinstance(level, Mapping) and level.mapped(going):
        with contextlib.suppress(_InnerGradient):
            return _recorded_while(level, cond_fn, body_fn, carry, going, loop)
    while bool(any_of(all_elements(going))):
        leaves, spec = tree_flatten(carry)
        stay = _Ran([_twin(leaf) for leaf in leaves], spec, {})
        carry = _chosen([going], [_run(body_fn, (carry,)), stay], "while_loop")
        going = logical_and(going, _truth(cond_fn(carry)))
    return carry


class _InnerGradient(Exception):
    """What a recorded loop computes has a history on the level itself, which it would lose."""


def _recorded_while(
    level: Mapping, cond_fn: Branch, body_fn: Branch, carry: Any, going: Tensor, loop: Branch
) -> Any:
    """One loop on the level below, over all elements; those that are done keep what they have."""
    spec = tree_flatten(carry)[1]

    def lowered(carry: Any, going: Tensor) -> list[Tensor]:
        found, now = tree_flatten(carry)
        if now != spec:
            raise DTypeError(f"the carry is {spec} before and {now} after", op="while_loop")
        tensors = [*map(_computed, found), going]
        if mode.enabled and any(x._node is not None for x in tensors):
            raise _InnerGradient
        with left(level):
            return [level.whole(x) for x in tensors]

    def lifted(state: Sequence[Tensor]) -> tuple[Any, Tensor]:
        *parts, on = [level.element(x, True) for x in state]
        return tree_unflatten(spec, parts), on

    def body(state: list[Tensor]) -> list[Tensor]:
        with recording(level):
            now, on = lifted(state)
            kept = _Ran([_twin(leaf) for leaf in tree_flatten(now)[0]], spec, {})
            ran = _run(body_fn, (now,))
            if ran.writes:
                raise CaptureError(
                    "a tensor is written to in a loop that each element leaves by itself",
                    op="while_loop",
                    hint="carry the tensor, and return its new value",
                )
            after = _chosen([on], [ran, kept], "while_loop")
            return lowered(after, logical_and(on, _truth(cond_fn(after))))

    start = lowered(carry, going)
    with left(level):
        ended = loop(lambda state: any_of(state[-1]), body, start)
    return lifted(ended)[0]


def _computed(leaf: Any) -> Tensor:
    """A carried value as a tensor; a Python number as one that the graph makes."""
    if isinstance(leaf, Tensor):
        return leaf
    found = as_tensor(leaf, "while_loop")
    return full(found.shape, leaf, dtype=found.dtype)


def _truth(value: Any) -> Tensor:
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
    """Run a branch; what it wrote is noted, and taken back."""
    journal = Journal()
    with _level().journal(journal):
        leaves, spec = tree_flatten(branch(*operands))
    kept = [_twin(leaf) for leaf in leaves]
    writes = {key: (held.tensor, _twin(held.tensor)) for key, held in journal.entries.items()}
    journal.restore()
    return _Ran(kept, spec, writes)


def _twin(leaf: Any) -> Any:
    """A tensor as it is now, whatever is written to it later."""
    return twin(leaf) if isinstance(leaf, Tensor) else leaf


def _chosen(tests: Sequence[Tensor], ran: Sequence[_Ran], op: str) -> Any:
    spec = ran[0].spec
    for other in ran[1:]:
        if other.spec != spec:
            raise DTypeError(
                f"the branches return different structures: {spec} and {other.spec}", op=op
            )
    written = {key: pair[0] for branch in ran for key, pair in branch.writes.items()}
    for key, target in written.items():
        ends = [branch.writes[key][1] if key in branch.writes else target for branch in ran]
        rebind(target, _select(tests, ends, op), op)
    columns = zip(*[branch.leaves for branch in ran], strict=True)
    return tree_unflatten(spec, [_select(tests, column, op) for column in columns])


def _select(tests: Sequence[Tensor], values: Sequence[Any], op: str) -> Any:
    """Of each element the value of its branch."""
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
    for test, value in zip(reversed(tests), reversed(values[:-1]), strict=True):
        out = where(test, value, out)
    return out
