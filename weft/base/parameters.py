"""The parameters of a function, faster than `inspect.signature`.

The parameters of an op are those of the functions that describe it. There are hundreds of them, and
they are read when Weft is imported.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import FunctionType
from typing import Any, NamedTuple

__all__ = ["KINDS", "NAMED", "POSITIONAL", "REST", "REST_NAMED", "Given", "parameters_of"]

#: How an argument is passed: by position (or name), by name only, or as one of `*args`.
POSITIONAL, NAMED, REST, REST_NAMED = "positional", "named", "rest", "rest named"

KINDS = {
    inspect.Parameter.POSITIONAL_ONLY: POSITIONAL,
    inspect.Parameter.POSITIONAL_OR_KEYWORD: POSITIONAL,
    inspect.Parameter.KEYWORD_ONLY: NAMED,
    inspect.Parameter.VAR_POSITIONAL: REST,
    inspect.Parameter.VAR_KEYWORD: REST_NAMED,
}


class Given(NamedTuple):
    """A parameter, and how its argument is passed."""

    name: str
    kind: str


def parameters_of(function: Callable[..., Any]) -> list[Given]:
    """The parameters of a function, in their order."""
    if type(function) is not FunctionType or function.__dict__:  # it may have `__signature__`
        found = inspect.signature(function).parameters.values()
        return [Given(parameter.name, KINDS[parameter.kind]) for parameter in found]
    code = function.__code__
    names, count, named = code.co_varnames, code.co_argcount, code.co_kwonlyargcount
    at = count + named
    made = [Given(name, POSITIONAL) for name in names[:count]]
    if code.co_flags & inspect.CO_VARARGS:
        made.append(Given(names[at], REST))
        at += 1
    made += [Given(name, NAMED) for name in names[count : count + named]]
    if code.co_flags & inspect.CO_VARKEYWORDS:
        made.append(Given(names[at], REST_NAMED))
    return made
