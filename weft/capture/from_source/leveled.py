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
from weft.autodiff.transforms.levels import Level, innermost_level, left
from weft.autodiff.transforms.vmap import Mapping
from weft.base.errors import CaptureError, WeftError
from weft.base.pytree import tree_flatten, tree_unflatten
from weft.capture.control.level_run import LevelRun, decides
from weft.capture.control.nested import close, graph_recorder
from weft.capture.from_source.journal import Journal, Variable
from weft.capture.from_source.merge import Maybe
from weft.capture.from_source.merge_entries import same_parts
from weft.capture.from_source.run import Unreachable
from weft.capture.from_source.tokens import tokens
from weft.core.number import Number, as_held
from weft.core.tensor import Tensor

if TYPE_CHECKING:
    from weft.capture.from_source.hooks import SourceHooks


class _AsItIs(Exception):
    """The function itself is to run."""


def leveled(hooks: SourceHooks, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function for a transform to run."""

    @functools.wraps(function, updated=())  # it is no transform, though that may be one
    def run(*args: Any, **kwargs: Any) -> Any:
        level = innermost_level()
        if level.__class__ not in (Mapping, Forward):
            return function(*args, **kwargs)
        try:
            return _by_its_graph(hooks, level, function, args, kwargs)
        except (Exception, Unreachable) as error:  # what is wrong shows where it runs itself
            reason = error if isinstance(error, WeftError) else None
        try:
            return function(*args, **kwargs)
        except CaptureError as error:
            raise error from reason

    return run


def _touches_only_its_own(journal: Journal) -> bool:
    """Whether a function has written to nothing but its own variables."""
    after = journal.contents()
    return all(
        same_parts(before, after.get(key, before))
        for key, (entry, before) in journal.entries.items()
        if not isinstance(entry, Variable) or entry.outside is not None
    )


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
                results = [as_held(x, x.dtype) if isinstance(x, Number) else x for x in found]
                writes = nested.changes() or tokens.get(nested) is not None
                pure = not writes and _touches_only_its_own(journal)
                if not pure or any(isinstance(x, Maybe) for x in results):
                    raise _AsItIs
                made = [nested.value_of(x) for x in results if isinstance(x, Tensor)]
        finally:
            flow.close()
            journal.undo()
            del flow.mixed.log[logged:]
        nested.graph.outputs = tuple(made)
        if not decides(nested.graph) and flow.leveled == before:
            raise _AsItIs
        captured = close([nested])
    outputs = iter(LevelRun(nested.graph).outputs([*captured, *given]))
    flow.leveled += 1
    return tree_unflatten(shape, [next(outputs) if isinstance(x, Tensor) else x for x in results])
