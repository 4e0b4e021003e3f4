"""`vmap` inside of a captured function as a loop of the graph over the elements.

For functions that masks cannot run (see `leveled`), because each element needs a run of its own.
The loop does the same as a Python loop over the elements, also with random numbers, at the cost of
such a loop in compiled code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from weft.autodiff.transforms.vmap import MapLevel
from weft.autodiff.transforms.whole_call import call_whole, spreads
from weft.base.errors import CaptureError
from weft.base.pytree import tree_flatten, tree_unflatten
from weft.capture.from_source.attempt import LoopVariables
from weft.capture.from_source.held import Maybe, undefined
from weft.capture.from_source.journal import Journal, Variable
from weft.capture.from_source.reach import Reach
from weft.capture.from_source.source_loop import SourceLoop
from weft.core.number import Number, as_held
from weft.core.tensor import StateTensor, Tensor, type_of
from weft.record.control.nested import NestedRecorder, known_number

if TYPE_CHECKING:
    from weft.capture.hooks import Hooks

Function = Callable[..., Any]


def touches_only_its_own(hooks: Hooks, journal: Journal, also: Any) -> bool:
    """Whether a function that has run wrote only to objects that it made.

    also   where to look for objects it can reach: the function and its arguments
    """
    changed = journal.changed()
    if any(isinstance(entry, Variable) and entry.outside is not None for entry in changed):
        return False
    objects = [entry for entry in changed if not isinstance(entry, Variable)]
    if not objects:
        return True
    reach = Reach(hooks.watch, also)
    return not any(entry.known(hooks.watch) or reach.holds(entry.obj) for entry in objects)


class _ElementLoop(SourceLoop):
    """The loop over the elements; the results of the function are its ys."""

    def __init__(
        self, hooks: Hooks, function: Function, length: int, rows: Sequence[Tensor]
    ) -> None:
        super().__init__(hooks, LoopVariables(), function, "for", entered=True, rows=rows)
        self.length = length
        self.results: list[Any] = []  # for one element: tensors and Python values
        self.structure: Any = None

    def apply(self, function: Function, args: Any, kwargs: Any) -> None:
        found, self.structure = tree_flatten(function(*args, **kwargs))
        self.results = [result_of(x) for x in found]
        self.ys = [x for x in self.results if isinstance(x, Tensor)]
        if not touches_only_its_own(self.hooks, self.journal, (function, args, kwargs)):
            raise CaptureError("a Python object from outside is written to", op="vmap")

    def check(self, nested: NestedRecorder) -> None:
        super().check(nested)
        hint = "give all elements one size, by a mask or by padding"
        self.check_sizes(nested, ["a result"] * len(self.ys), "vmap", hint)

    def emit(self, rows: list[Tensor], size: int) -> list[Tensor]:
        """The stacked results of all elements."""
        if any(not isinstance(leaf.state.tensor, StateTensor) for leaf in self.states):
            raise CaptureError("a tensor from outside is written to", op="vmap")
        self.hooks.flow.drawn += bool(self.states)
        return self.emit_scan(rows, size)


def result_of(x: Any) -> Any:
    """A leaf of a result: a tensor, or a Python value that is the same for all elements."""
    if isinstance(x, Maybe):
        raise undefined("the result", x.why)
    return as_held(x, x.dtype) if isinstance(x, Number) else x


def in_one_step(
    level: MapLevel,
    leaves: Sequence[Any],
    tensors: Sequence[int],
    run: Callable[[list[Any], dict[int, bool]], list[Any]],
) -> list[Any]:
    """What `run` gives for these leaves, as one step of their histories on the level.

    It is given the leaves, those at `tensors` below the level, and which of them have its axis.
    """
    spread = {i: spreads(level, leaves[i]) for i in tensors}
    others: list[Any] = []

    def whole(given: Sequence[Tensor]) -> list[Tensor]:
        nonlocal others
        taken = list(leaves)
        for i, x in zip(spread, given, strict=True):
            taken[i] = x
        found = run(taken, spread)
        others = [None if isinstance(x, Tensor) else (x,) for x in found]
        return [x for x in found if isinstance(x, Tensor)]

    made = iter(call_whole(level, whole, [leaves[i] for i in spread], list(spread.values())))
    return [next(made) if x is None else x[0] for x in others]


def one_by_one(hooks: Hooks, level: MapLevel, function: Function, args: Any, kwargs: Any) -> Any:
    """The result of a function for all elements of a `vmap`, on its level."""
    leaves, spec = tree_flatten((args, kwargs))
    structure: Any = None

    def run(given: list[Any], spread: dict[int, bool]) -> list[Any]:
        nonlocal structure
        mapped = [i for i, on in spread.items() if on]
        for i, on in spread.items():
            if isinstance(leaves[i], Number) and not on:
                given[i] = known_number(given[i])
        rows = [given[i] for i in mapped]
        loop = _ElementLoop(hooks, function, level.size, rows)

        def step(nested: NestedRecorder) -> None:
            one = list(given)
            kinds = [type_of(x).like(shape=x.shape[1:]) for x in rows]
            for i, row in zip(mapped, loop.slices(nested, rows, kinds), strict=True):
                one[i] = row
            loop.apply(function, *tree_unflatten(spec, one))

        loop.settle(step)
        structure = loop.structure
        made = iter(loop.emit(rows, level.size))
        return [next(made) if isinstance(x, Tensor) else x for x in loop.results]

    tensors = [i for i, x in enumerate(leaves) if isinstance(x, Tensor)]
    found = in_one_step(level, leaves, tensors, run)
    return tree_unflatten(structure, found)
