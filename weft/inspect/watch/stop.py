"""`weft.breakpoint`: opens Python's debugger at a line of a compiled function.

In a graph it is an effect. Each time a run reaches it, the debugger opens on a frame created for
it, at the user's line, with the values of the run as the user's variables.
"""

from __future__ import annotations

import builtins
import functools
import importlib
import os
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from weft.base.source import PACKAGE, SourceLocation, user_frame
from weft.capture.builtin_table import looks_on
from weft.core.tensor import Tensor
from weft.ops.effects import SHOW, Shown
from weft.record.control.nested import graph_recorder
from weft.record.effects import effect, templated

__all__ = ["breakpoint"]


def breakpoint(*args: Any, **kwargs: Any) -> None:
    """Python's `breakpoint()`; in a graph, each time a run reaches it.

    It calls `sys.breakpointhook`, so PYTHONBREAKPOINT works. In a compiled function, the debugger
    sees the variables of the function with the values of this run. Python's own `breakpoint()` and
    `pdb.set_trace()` do the same there. Arguments go to the hook.

    >>> @weft.compile
    ... def f(x):
    ...     h = x * 2
    ...     weft.breakpoint()
    ...     return h + 1
    >>> import sys
    >>> sys.breakpointhook = lambda: print("h is", sys._getframe(1).f_locals["h"])
    >>> f(weft.asarray([1.0, 2.0]))
    h is tensor([2., 4.])
    tensor([3., 5.])
    >>> sys.breakpointhook = sys.__breakpointhook__
    """
    frame = user_frame()
    if graph_recorder() is None or frame is None:
        _hook(frame, args, kwargs)()
        return
    tensors: list[Tensor] = []
    variables = templated(_variables(frame), tensors)
    where = SourceLocation(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)
    scope, given = frame.f_globals, (args, kwargs)
    opened = Shown(_open, lambda values: (where, scope, variables(values), given), {})
    effect(SHOW, tensors, {"show": opened})


#: Modules that the debugger steps over, to go on in the user's code.
_SKIPPED = ["weft", "weft.*", "contextlib", "numpy", "numpy.*"]


def _hook(
    frame: FrameType | None, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Callable[[], Any]:
    """Opens the debugger: Python's own on the user's frame, or on the one that calls this."""
    plain = os.environ.get("PYTHONBREAKPOINT", "") in ("", "pdb.set_trace")
    if sys.breakpointhook is not sys.__breakpointhook__ or not plain:
        return functools.partial(sys.breakpointhook, *args, **kwargs)

    def opened() -> None:
        pdb = importlib.import_module("pdb")  # rarely needed, and slow to import
        debugger = pdb.Pdb(skip=_SKIPPED)
        if kwargs.get("header") is not None:
            debugger.message(kwargs["header"])
        debugger.set_trace(frame or sys._getframe(1))

    return opened


def _open(
    where: SourceLocation,
    scope: dict[str, Any],
    variables: dict[str, Any],
    given: tuple[tuple[Any, ...], dict[str, Any]],
) -> None:
    """Open the debugger on a frame at the user's line with these variables."""
    code = compile("\n" * (where.line - 1) + "__weft_stop__()\npass", where.file, "exec")
    code = code.replace(co_name=where.function, co_qualname=where.function)
    exec(code, scope, {**variables, "__weft_stop__": _hook(None, *given)})


def _variables(frame: FrameType | None) -> dict[str, Any]:
    """The variables of the running function, including those of functions generated in it.

    Python values from the caller are omitted: no guard may cover them, so they could differ in a
    later call.
    """
    found: dict[str, Any] = {}
    while frame is not None:
        code = frame.f_code
        if not code.co_filename.startswith(PACKAGE):
            given = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
            for name, value in frame.f_locals.items():
                known = isinstance(value, Tensor) or name not in given
                if known and not name.startswith(("__weft", "@", ".")):
                    found.setdefault(name, value)
            if "__weft" not in code.co_qualname:
                break
        frame = frame.f_back
    return found


looks_on(breakpoint)
looks_on(breakpoint, instead_of=builtins.breakpoint)
