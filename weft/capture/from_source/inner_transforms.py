"""Functions that `vmap` or `jvp` runs inside of a captured function: compile(vmap(f)).

Their `if` and `while` on tensors cannot be recorded on the level of the transform. So the function
is first recorded alone, for one element and without tangents. If the path through its graph depends
on values, the graph is run on the level, by the rules of the transform; or, if it cannot be batched
with masks, for one element after the other. If no value decides, or if the function writes
something, the function itself runs on the level.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from weft.autodiff.transforms.forward import ForwardLevel
from weft.autodiff.transforms.levels import Level, Unlowered, innermost_level, left
from weft.autodiff.transforms.vmap import MapLevel
from weft.autodiff.transforms.whole_call import has_history
from weft.base.errors import CaptureError
from weft.base.pytree import tree_flatten, tree_unflatten
from weft.capture.from_source.attempt import Attempt
from weft.capture.from_source.element_loop import (
    in_one_step,
    one_by_one,
    result_of,
    touches_only_its_own,
)
from weft.capture.from_source.run import Unreachable
from weft.capture.watch.origin import MISSING
from weft.core.bind import recording
from weft.core.tensor import StateTensor, Tensor, labelled
from weft.record.control.level_run import LevelRun, decides, differentiates, maskable
from weft.record.control.nested import NestedRecorder, close, graph_recorder

if TYPE_CHECKING:
    from weft.capture.hooks import Hooks


class _AsItIs(Exception):
    """Run the function itself on the level."""


class _OneByOne(Exception):
    """Run each element separately. With `maybe`, try the function itself first."""

    def __init__(self, maybe: bool) -> None:
        self.maybe = maybe


#: Questions of Python that no graph can answer.
QUESTIONS = ("bool", "int", "float", "item", "numpy")
DIFFER = "elements may have different values: keep to tensors"
WRITES = (
    "it writes to tensors or Python objects from outside: return what it writes instead, then each "
    "element can take its own path"
)


def leveled(hooks: Hooks, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as the transform must call it."""

    @functools.wraps(function, updated=())  # without the attributes that mark a transform
    def run(*args: Any, **kwargs: Any) -> Any:
        level = innermost_level()
        if not isinstance(level, (MapLevel, ForwardLevel)):
            return function(*args, **kwargs)
        reason = ""
        cause = None
        try:
            return _by_its_graph(hooks, level, function, args, kwargs)
        except _OneByOne as way:
            assert isinstance(level, MapLevel)
            found = _by_itself(hooks, level, function, args, kwargs) if way.maybe else MISSING
            return one_by_one(hooks, level, function, args, kwargs) if found is MISSING else found
        except _AsItIs as way:
            reason = str(way)
        except (Exception, Unreachable) as error:  # the function itself shows what is wrong
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
    hooks: Hooks, level: MapLevel, function: Callable[..., Any], args: Any, kwargs: Any
) -> Any:
    """The result of the function itself on the level; MISSING if Python asks a tensor there.

    Python does not ask if the path is decided by `weft.cond` and the like, which then draw random
    numbers as in a `vmap` that is not captured, or by a differentiated function, which uses masks.
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
    level.lowered += 1  # conditions of the graph are not asked
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
        inputs = iter(
            [labelled(nested.argument(x.type, x.requires_grad), x._result_class) for x in given]
        )
        inner, named = tree_unflatten(
            spec, [next(inputs) if isinstance(x, Tensor) and level.has(x) else x for x in leaves]
        )
        try:
            with flow.recording(nested) as journal:
                parts, shape = tree_flatten(function(*inner, **named))
                results = [result_of(x) for x in parts]
                if not touches_only_its_own(hooks, journal, (function, inner, named)):
                    raise _AsItIs(WRITES)
                made = [nested.value_of(x) for x in results if isinstance(x, Tensor)]
                _check_way(level, nested, (flow.leveled, flow.asked) != before)
        finally:
            del flow.aliases.log[logged:]
        nested.graph.outputs = tuple(made)
        captured = close([nested])
    graph = nested.graph
    found = _in_one_step(level, lambda x: LevelRun(graph).outputs([*captured, *x]), given)
    outputs = iter(found)
    flow.leveled += 1
    leaves = [
        labelled(next(outputs), x._result_class) if isinstance(x, Tensor) else x for x in results
    ]
    return tree_unflatten(shape, leaves)


def _in_one_step(
    level: Level, run: Callable[[list[Any]], Sequence[Any]], leaves: Sequence[Any]
) -> list[Any]:
    """The result of `run` on leaves of the level, as one step of their histories.

    For control flow of the graph, which is a node on the level below and has its history there.
    """
    tensors = [i for i, x in enumerate(leaves) if isinstance(x, Tensor) and level.has(x)]
    moves = isinstance(level, MapLevel) and any(has_history(level, leaves[i]) for i in tensors)
    if not isinstance(level, MapLevel) or not moves:
        return list(run(list(leaves)))

    def below(given: list[Any], spread: dict[int, bool]) -> list[Any]:
        with recording(level):
            for i, on in spread.items():
                given[i] = level.element(given[i], on)
            found = run(given)
        return [level.whole(x) if isinstance(x, Tensor) else x for x in found]

    return in_one_step(level, leaves, tensors, below)


def _check_way(level: Level, nested: NestedRecorder, chose: bool) -> None:
    """Decide how to run a function, given its graph for one element.

    Returns to run it by the graph; otherwise raises `_AsItIs` or `_OneByOne`.

    chose   whether Python, or a transform in it, asked a tensor which path to take
    """
    graph = nested.graph
    states = nested.changes()
    acts = bool(states) or nested.token is not None
    chose = chose or decides(graph)
    if not chose and (acts or not maskable(graph) or not any(node.graphs for node in graph.nodes)):
        raise _AsItIs
    if any(not isinstance(state.tensor, StateTensor) for state in states):
        raise _AsItIs(WRITES)
    if isinstance(level, MapLevel):
        if acts or not maskable(graph):
            raise _OneByOne(bool(states) or differentiates(graph))
    elif acts:
        raise _AsItIs
