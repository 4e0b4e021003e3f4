"""A function that `vmap` or `jvp` runs in a captured function: compile(vmap(f)).

Its own `if` and `while` on tensors cannot be recorded on the level of the transform. So it is
recorded by itself first, for one element and without tangents. If values decide in its graph which
way it goes, that graph is run on the level, by the rules of the transform; if not, or if it does
more than compute a result, the function itself runs there.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from weft.autodiff.transforms.forward import Forward
from weft.autodiff.transforms.levels import ClosedLevel, Level, innermost_level, left
from weft.autodiff.transforms.vmap import Mapping
from weft.base.errors import CaptureError, WeftError
from weft.base.pytree import tree_flatten, tree_unflatten
from weft.capture.control.level_run import LevelRun, decides, maskable
from weft.capture.control.nested import NestedRecorder, close, graph_recorder
from weft.capture.from_source.element_loop import one_by_one, result_of, touches_only_its_own
from weft.capture.from_source.journal import Journal
from weft.capture.from_source.run import Unreachable
from weft.capture.from_source.tokens import tokens
from weft.core.tensor import StateTensor, Tensor

if TYPE_CHECKING:
    from weft.capture.from_source.hooks import SourceHooks


class _AsItIs(Exception):
    """The function itself is to run."""


class _OneByOne(Exception):
    """Each element needs a run of its own."""


def leveled(hooks: SourceHooks, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function for a transform to run."""

    @functools.wraps(function, updated=())  # it is no transform, though that may be one
    def run(*args: Any, **kwargs: Any) -> Any:
        level = innermost_level()
        if not isinstance(level, (Mapping, Forward)):
            return function(*args, **kwargs)
        try:
            return _by_its_graph(hooks, level, function, args, kwargs)
        except _OneByOne:
            assert isinstance(level, Mapping)
            return one_by_one(hooks, level, function, args, kwargs)
        except ClosedLevel:
            raise
        except (Exception, Unreachable) as error:  # what is wrong shows where it runs itself
            reason = error if isinstance(error, WeftError) else None
        try:
            return function(*args, **kwargs)
        except CaptureError as error:
            raise error from reason

    return run


def _by_its_graph(
    hooks: SourceHooks, level: Level, function: Callable[..., Any], args: Any, kwargs: Any
) -> Any:
    leaves, spec = tree_flatten((args, kwargs))
    given = [x for x in leaves if isinstance(x, Tensor) and level.has(x)]
    flow = hooks.flow
    before, logged = flow.leveled, len(flow.mixed.log)
    with left(level):
        here = graph_recorder()
        if here is None:
            raise _AsItIs
        nested = flow.nested(here, "element")
        nested.marks_all = True
        inputs = iter([nested.carried(x.type, x._node is not None) for x in given])
        inner, named = tree_unflatten(
            spec, [next(inputs) if isinstance(x, Tensor) and level.has(x) else x for x in leaves]
        )
        journal = Journal(hooks.watch)
        flow.open(journal)
        try:
            with nested.opened():
                found, shape = tree_flatten(function(*inner, **named))
                results = [result_of(x) for x in found]
                if not touches_only_its_own(hooks, journal, (function, inner, named)):
                    raise _AsItIs
                made = [nested.value_of(x) for x in results if isinstance(x, Tensor)]
                _check_way(level, nested, flow.leveled != before)
        finally:
            flow.close()
            journal.undo()
            del flow.mixed.log[logged:]
        nested.graph.outputs = tuple(made)
        captured = close([nested])
    outputs = iter(LevelRun(nested.graph).outputs([*captured, *given]))
    flow.leveled += 1
    return tree_unflatten(shape, [next(outputs) if isinstance(x, Tensor) else x for x in results])


def _check_way(level: Level, nested: NestedRecorder, leveled: bool) -> None:
    """How a function is to be run whose graph for one element is recorded; if not by that graph."""
    states = nested.changes()
    if not leveled and not decides(nested.graph):
        raise _AsItIs
    if any(not isinstance(state.tensor, StateTensor) for state in states):
        raise _AsItIs
    if not isinstance(level, Mapping):
        if states or tokens.get(nested) is not None:
            raise _AsItIs
    elif states or not maskable(nested.graph):
        raise _OneByOne
