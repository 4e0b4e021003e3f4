"""Control flow inside of `vmap` where a graph is recorded.

The node on the level below does the work of all elements. Where a condition differs from element to
element, each branch is an `if` of its own there, which runs where an element takes it, and a loop
goes on while an element does; who takes part in it is as in `control`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.autodiff.transforms.control import select, truth
from weft.autodiff.transforms.history import twin
from weft.autodiff.transforms.levels import SavedTensors, Unlowered
from weft.autodiff.transforms.lowering import LoweredNode
from weft.autodiff.transforms.regions import taking_part
from weft.autodiff.transforms.vmap import MapLevel
from weft.base.errors import CaptureError, DTypeError
from weft.base.pytree import tree_flatten, tree_unflatten
from weft.core.bind import rebind
from weft.core.operands import as_tensor
from weft.core.tensor import Tensor
from weft.ops.batching import moved
from weft.ops.creation import full, zeros
from weft.ops.elementwise import logical_and
from weft.ops.reduce import any as any_of

__all__: list[str] = []

Function = Callable[..., Any]


class _Lowering(LoweredNode):
    """Takes tensors of one level to the level below, with the axis of the elements, and back."""

    level: MapLevel

    def wholes(self, leaves: Sequence[Any]) -> list[Any]:
        """Leaves for all elements; to be called below."""
        self.look(leaves)
        level = self.level
        return [level.whole(level.entered(x)) if isinstance(x, Tensor) else x for x in leaves]

    def elements(self, leaves: Sequence[Any]) -> list[Any]:
        """The leaves that were taken below, on the level."""
        return [self.level.element(x, True) if isinstance(x, Tensor) else x for x in leaves]

    def results(self, leaves: Sequence[Any]) -> list[Any]:
        """What a node gave for all elements, on the level."""
        return [self.marked(x) for x in self.elements(leaves)]


# --- branches ------------------------------------------------------------------------------------


class _Arm:
    """One branch: what it gives, and what it writes, as it was when the branch was recorded."""

    def __init__(self, lowering: _Lowering, branch: Function, operands: Any, mask: Any) -> None:
        self.lowering = lowering
        self.branch = branch
        self.operands = operands
        self.mask = mask
        self.spec: Any = None
        self.leaves: list[Any] = []
        self.targets: list[Tensor] = []

    def run(self) -> list[Any]:
        """In a recording of its own: what it gives, and what tensors hold that it writes."""
        journal = SavedTensors()
        with self.lowering.above(journal):
            if self.mask is None:
                result = self.branch(*self.operands)
            else:
                with taking_part(self.mask):
                    result = self.branch(*self.operands)
        leaves, self.spec = tree_flatten(result)
        self.targets = [held.tensor for held in journal.entries.values()]
        ends = [twin(target) for target in self.targets]
        journal.restore()
        self.leaves = self.lowering.wholes([*leaves, *ends])
        return [x for x in self.leaves if isinstance(x, Tensor)]

    def nothing(self) -> list[Tensor]:
        """Something of the same types, for where no element takes it."""
        kinds = [x for x in self.leaves if isinstance(x, Tensor)]
        return [zeros(x.shape, dtype=x.dtype, device=x.device) for x in kinds]

    def finish(self, results: Sequence[Tensor]) -> None:
        """Let `leaves` be what the node gives."""
        made = iter(results)
        found = [next(made) if isinstance(x, Tensor) else x for x in self.leaves]
        self.leaves = self.lowering.results(found)

    def ends(self) -> dict[int, Tensor]:
        """What tensors hold afterwards that were written to, by their id."""
        first = len(self.leaves) - len(self.targets)
        return {id(t): x for t, x in zip(self.targets, self.leaves[first:], strict=True)}


def chosen_by_each(
    level: MapLevel,
    cond: Function,
    masks: Sequence[Tensor],
    branches: Sequence[Function],
    operands: Any,
    op: str,
) -> Any:
    """A choice that differs from element to element; `cond` is `weft.cond`, which records below."""
    lowering = _Lowering(level)
    arms = [_Arm(lowering, f, operands, m) for f, m in zip(branches, masks, strict=True)]
    for arm in arms:
        with lowering.below():
            arm.finish(cond(any_of(level.below(arm.mask)), arm.run, arm.nothing))
    spec = arms[0].spec
    for arm in arms[1:]:
        if arm.spec != spec:
            raise DTypeError(
                f"the branches return different structures: {spec} and {arm.spec}", op=op
            )
    _write(masks[:-1], arms, op)
    columns = zip(*[arm.leaves[: spec.leaves] for arm in arms], strict=True)
    return tree_unflatten(spec, [select(masks[:-1], column, op) for column in columns])


def _write(masks: Sequence[Tensor], arms: Sequence[_Arm], op: str) -> None:
    ends = [arm.ends() for arm in arms]
    for target in {id(t): t for arm in arms for t in arm.targets}.values():
        rebind(target, select(masks, [end.get(id(target), target) for end in ends], op), op)


def chosen_once(
    level: MapLevel, choose: Function, chosen: Tensor, branches: Sequence[Function], operands: Any
) -> Any:
    """A choice that is the same for all elements; `choose(chosen, branches)` records it below."""
    lowering = _Lowering(level)
    arms = [_Arm(lowering, branch, operands, None) for branch in branches]

    def lowered(arm: _Arm) -> Function:
        def run() -> Any:
            arm.run()
            if arm.targets:
                raise CaptureError(
                    "a tensor is written to in a branch inside of vmap", op="cond", hint=CARRY
                )
            return tree_unflatten(arm.spec, arm.leaves)

        return run

    with lowering.below():
        leaves, spec = tree_flatten(choose(level.below(chosen), list(map(lowered, arms))))
        return tree_unflatten(spec, lowering.results(leaves))


CARRY = "carry the tensor, and return its new value"


# --- loops ---------------------------------------------------------------------------------------


class _Written(Exception):
    """A body writes to tensors that are not carried."""

    def __init__(self, targets: list[Tensor]) -> None:
        self.targets = targets


def mapped_while_node(
    level: MapLevel, loop: Function, cond_fn: Function, body_fn: Function, init: Any, test: Tensor
) -> Any:
    """A loop for all elements; those that are done keep what they have.

    loop   `weft.while_loop`, which records it below
    test   what the condition is at first
    """
    targets: list[Tensor] = []
    while True:
        try:
            return _while_node(level, loop, cond_fn, body_fn, init, test, targets)
        except _Written as found:
            targets += found.targets


def _while_node(
    level: MapLevel,
    loop: Function,
    cond_fn: Function,
    body_fn: Function,
    init: Any,
    test: Tensor,
    targets: list[Tensor],
) -> Any:
    """`targets` are the tensors that the body writes to: they are carried, too."""
    lowering = _Lowering(level)
    first, spec = tree_flatten(init)
    count = len(first)

    def hold(values: Sequence[Tensor]) -> None:
        for target, value in zip(targets, values, strict=True):
            level.write(target)
            target._data, target._node = value._data, value._node

    def body(state: list[Tensor]) -> list[Any]:
        *parts, on = lowering.elements(state)
        journal = SavedTensors()
        with lowering.above(journal):
            hold(parts[count:])
            with taking_part(on):
                result = body_fn(tree_unflatten(spec, [twin(x) for x in parts[:count]]))
            leaves, now = tree_flatten(result)
            if now != spec:
                raise DTypeError(f"the carry is {spec} before and {now} after", op="while_loop")
            pairs = zip([*leaves, *targets], parts, strict=True)
            after = [select([on], pair, "while_loop") for pair in pairs]
            hold(after[count:])
            following = tree_unflatten(spec, after[:count])
            going = logical_and(on, truth(cond_fn(following)))
        written = [held.tensor for held in journal.entries.values()]
        journal.restore()
        known = {id(target) for target in targets}
        if not known.issuperset(map(id, written)):
            raise _Written([target for target in written if id(target) not in known])
        return lowering.wholes([*after, going])

    going = truth(test)
    with lowering.below():
        start = lowering.wholes([*map(_computed, first), *map(twin, targets), going])
        ended = loop(lambda state: any_of(state[-1]), body, start)
        found = lowering.results(ended)
    for target, value in zip(targets, found[count:-1], strict=True):
        rebind(target, value, "while_loop")
    return tree_unflatten(spec, found[:count])


def _computed(leaf: Any) -> Tensor:
    """A carried value as a tensor; a Python number as one that the graph makes."""
    if isinstance(leaf, Tensor):
        return leaf
    found = as_tensor(leaf, "while_loop")
    return full(found.shape, leaf, dtype=found.dtype)


class _Widened(Exception):
    """A carry differs from element to element after the body, and did not before."""

    def __init__(self, mapped: list[bool]) -> None:
        self.mapped = mapped


def mapped_scan_node(
    level: MapLevel, loop: Function, f: Function, init: Any, xs: Sequence[Tensor], structure: Any
) -> tuple[Any, Any]:
    """A scan for all elements; `loop(f, init, xs)` is `weft.scan`, which records it below."""
    mapped = [isinstance(x, Tensor) and level.mapped(x) for x in tree_flatten(init)[0]]
    while True:
        try:
            return _scan_node(level, loop, f, init, xs, structure, mapped)
        except _Widened as found:
            mapped = found.mapped


def _scan_node(
    level: MapLevel,
    loop: Function,
    f: Function,
    init: Any,
    xs: Sequence[Tensor],
    structure: Any,
    mapped: list[bool],
) -> tuple[Any, Any]:
    """`mapped` says which carries differ from element to element."""
    lowering = _Lowering(level)
    first, spec = tree_flatten(init)
    rows = [level.mapped(x) for x in xs]
    shapes: list[Any] = []

    def lowered(leaves: Sequence[Any]) -> list[Any]:
        lowering.look(leaves)
        found: list[Any] = []
        for x, on in zip(leaves, mapped, strict=True):
            if on:
                found.append(level.whole(level.entered(_computed(x))))
            else:
                found.append(level.below(x) if isinstance(x, Tensor) else x)
        return found

    def lifted(leaves: Sequence[Any], flags: Sequence[bool]) -> list[Any]:
        return [
            level.element(x, on) if isinstance(x, Tensor) else x
            for x, on in zip(leaves, flags, strict=True)
        ]

    def step(state: list[Any], slices: list[Tensor]) -> Any:
        journal = SavedTensors()
        carry = tree_unflatten(spec, lifted(state, mapped))
        with lowering.above(journal):
            given = f(carry, tree_unflatten(structure, lifted(slices, rows)))
        if journal.entries:
            journal.restore()
            raise Unlowered(level)
        if not isinstance(given, tuple) or len(given) != 2:
            return given  # an error that the loop words
        leaves, now = tree_flatten(given[0])
        if now != spec:
            return given
        found = [isinstance(x, Tensor) and level.mapped(x) for x in leaves]
        wider = [a or b for a, b in zip(mapped, found, strict=True)]
        if wider != mapped:
            raise _Widened(wider)
        ys, shape = tree_flatten(given[1])
        shapes.append(shape)
        return lowered(leaves), lowering.wholes([_computed(y) for y in ys])

    with lowering.below():
        below = [level.below(level.entered(x)) for x in xs]
        given = [moved(x, 1, 0) if on else x for x, on in zip(below, rows, strict=True)]
        last, ys = loop(step, lowered(first), given)
        sides = [moved(y, 1, 0) for y in ys]
        carry = [lowering.marked(x) for x in lifted(last, mapped)]
        return tree_unflatten(spec, carry), tree_unflatten(shapes[-1], lowering.results(sides))
