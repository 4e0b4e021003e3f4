"""A function that `vmap` or `jvp` runs in a captured function: compile(vmap(f)).

Its own `if` and `while` on tensors cannot be recorded on the level of the transform. So it is
recorded by itself first, for one element and without tangents. If values decide in its graph which
way it goes, that graph is run on the level, by the rules of the transform; or, where masks cannot
do what it does for all elements of a `vmap` at once, for one element after the other. If nothing is
to be decided, or if it writes something, the function itself runs there.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from weft.autodiff.transforms.forward import Forward
from weft.autodiff.transforms.levels import Level, Unlowered, innermost_level, left
from weft.autodiff.transforms.vmap import Mapping
from weft.autodiff.transforms.whole_call import call_whole, has_history, spreads
from weft.base.errors import CaptureError
from weft.base.pytree import tree_flatten, tree_unflatten
from weft.capture.from_source.attempt import Attempt
from weft.capture.from_source.element_loop import one_by_one, result_of, touches_only_its_own
from weft.capture.from_source.journal import Journal
from weft.capture.from_source.run import Unreachable
from weft.capture.from_source.tokens import tokens
from weft.capture.watch.origin import MISSING
from weft.core.bind import recording
from weft.core.tensor import StateTensor, Tensor
from weft.record.control.level_run import LevelRun, decides, differentiates, maskable
from weft.record.control.nested import NestedRecorder, close, graph_recorder

if TYPE_CHECKING:
    from weft.capture.hooks import Hooks


class _AsItIs(Exception):
    """The function itself is to run."""


class _OneByOne(Exception):
    """Each element needs a run of its own; unless the function itself does for all (`maybe`)."""

    def __init__(self, maybe: bool) -> None:
        self.maybe = maybe


#: What Python asks of a tensor, and no graph can answer.
QUESTIONS = ("bool", "int", "float", "item", "numpy")
DIFFER = "elements may have different values: keep to tensors"
WRITES = (
    "it writes to tensors or Python objects from outside: return what it writes instead, then each "
    "element can go its own way"
)


def leveled(hooks: Hooks, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function for a transform to run."""

    @functools.wraps(function, updated=())  # it is no transform, though that may be one
    def run(*args: Any, **kwargs: Any) -> Any:
        level = innermost_level()
        if not isinstance(level, (Mapping, Forward)):
            return function(*args, **kwargs)
        reason = ""
        cause = None
        try:
            return _by_its_graph(hooks, level, function, args, kwargs)
        except _OneByOne as way:
            assert isinstance(level, Mapping)
            found = _by_itself(hooks, level, function, args, kwargs) if way.maybe else MISSING
            return one_by_one(hooks, level, function, args, kwargs) if found is MISSING else found
        except _AsItIs as way:
            reason = str(way)
        except (Exception, Unreachable) as error:  # what is wrong shows where it runs itself
            cause = error if isinstance(error, CaptureError) else None
        try:
            return function(*args, **kwargs)
        except CaptureError as error:
            if cause is not None and cause.op not in QUESTIONS:
                raise cause from error  # why an element cannot have a run of its own
            error.hint = reason or DIFFER
            raise

    run.for_transform = lambda made: leveled(hooks, made)  # type: ignore[attr-defined]
    return run


def _by_itself(
    hooks: Hooks, level: Mapping, function: Callable[..., Any], args: Any, kwargs: Any
) -> Any:
    """What the function itself gives on the level; MISSING where Python asks there.

    It does not ask where it calls `weft.cond` and its like, which draw random numbers as they do in
    a `vmap` that is not captured, or where it differentiates another one, which is mapped by masks.
    """
    flow = hooks.flow
    before = flow.drawn
    leaves, spec = tree_flatten((args, kwargs))
    shape: Any = None

    def run(taken: list[Any]) -> list[Any]:
        nonlocal shape
        inner, named = tree_unflatten(spec, taken)
        found, shape = tree_flatten(function(*inner, **named))
        return found

    with left(level):
        attempt = Attempt(hooks, ())
    level.lowered += 1  # no condition of the graph is asked for
    try:
        with attempt:
            found = _in_one_step(level, run, leaves)
        if flow.drawn == before:
            return tree_unflatten(shape, found)
    except (CaptureError, Unlowered):
        pass
    finally:
        level.lowered -= 1
    attempt.undo()
    return MISSING


def _by_its_graph(
    hooks: Hooks, level: Level, function: Callable[..., Any], args: Any, kwargs: Any
) -> Any:
    leaves, spec = tree_flatten((args, kwargs))
    given = [x for x in leaves if isinstance(x, Tensor) and level.has(x)]
    flow = hooks.flow
    before, logged = (flow.leveled, flow.asked), len(flow.aliases.log)
    with left(level):
        here = graph_recorder()
        if here is None:
            raise _AsItIs
        nested = flow.nested(here, "element")
        nested.marks_all = True
        inputs = iter([nested.argument(x.type, x.requires_grad) for x in given])
        inner, named = tree_unflatten(
            spec, [next(inputs) if isinstance(x, Tensor) and level.has(x) else x for x in leaves]
        )
        journal = Journal(hooks.watch)
        flow.open(journal)
        try:
            with nested.opened():
                parts, shape = tree_flatten(function(*inner, **named))
                results = [result_of(x) for x in parts]
                if not touches_only_its_own(hooks, journal, (function, inner, named)):
                    raise _AsItIs(WRITES)
                made = [nested.value_of(x) for x in results if isinstance(x, Tensor)]
                _check_way(level, nested, (flow.leveled, flow.asked) != before)
        finally:
            flow.close()
            journal.undo()
            del flow.aliases.log[logged:]
        nested.graph.outputs = tuple(made)
        captured = close([nested])
    graph = nested.graph
    found = _in_one_step(level, lambda x: LevelRun(graph).outputs([*captured, *x]), given)
    outputs = iter(found)
    flow.leveled += 1
    return tree_unflatten(shape, [next(outputs) if isinstance(x, Tensor) else x for x in results])


def _in_one_step(
    level: Level, run: Callable[[list[Any]], Sequence[Any]], leaves: Sequence[Any]
) -> list[Any]:
    """What `run` gives of leaves of the level; histories of theirs see it as one step.

    For control flow of the graph, which is a node on the level below: it has a history there.
    """
    tensors = [i for i, x in enumerate(leaves) if isinstance(x, Tensor) and level.has(x)]
    inputs = [leaves[i] for i in tensors]
    if not isinstance(level, Mapping) or not any(has_history(level, x) for x in inputs):
        return list(run(list(leaves)))
    spread = [spreads(level, x) for x in inputs]
    others: list[Any] = []

    def whole(given: Sequence[Tensor]) -> list[Tensor]:
        nonlocal others
        taken = list(leaves)
        with recording(level):
            for i, x, on in zip(tensors, given, spread, strict=True):
                taken[i] = level.element(x, on)
            found = run(taken)
        others = [None if isinstance(x, Tensor) else (x,) for x in found]
        return [level.whole(x) for x in found if isinstance(x, Tensor)]

    made = iter(call_whole(level, whole, inputs, spread))
    return [next(made) if x is None else x[0] for x in others]


def _check_way(level: Level, nested: NestedRecorder, chose: bool) -> None:
    """How a function is to be run whose graph for one element is recorded; if not by that graph.

    chose   whether Python or a transform in it asked a tensor which way to go
    """
    graph = nested.graph
    states = nested.changes()
    acts = bool(states) or tokens.get(nested) is not None
    chose = chose or decides(graph)
    if not chose and (acts or not maskable(graph) or not any(node.graphs for node in graph.nodes)):
        raise _AsItIs
    if any(not isinstance(state.tensor, StateTensor) for state in states):
        raise _AsItIs(WRITES)
    if isinstance(level, Mapping):
        if acts or not maskable(graph):
            raise _OneByOne(bool(states) or differentiates(graph))
    elif acts:
        raise _AsItIs
