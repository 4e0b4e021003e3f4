"""Prints, log records and warnings that the function itself may read back.

They are effects: replays repeat them, at the end of the call. What catches or stores them inside of
the function would see nothing then. Such calls are done at once, and what is not known to come out
the same in each call is no recording.
"""

from __future__ import annotations

import sys
import warnings
from typing import TYPE_CHECKING, Any

from weft.capture.watch.follow import FOLLOW, policy

if TYPE_CHECKING:
    from weft.capture.hooks import Hooks

__all__ = ["Outputs", "caught_file", "has_own_handler"]


class Outputs:
    """Where text goes as a run begins, and which files have got some that is not printed yet."""

    def __init__(self) -> None:
        self.stdout = sys.stdout
        self.filters = warnings.filters

    def catches_warnings(self) -> bool:
        """Whether the function is inside of `warnings.catch_warnings()`."""
        return warnings.filters is not self.filters


def caught_file(hooks: Hooks, file: Any) -> Any:
    """The file that a print must be written to at once: one that the run has made, or put in the
    place of `sys.stdout`. None for others."""
    outputs = hooks.watch.outputs
    if file is None:
        return None if sys.stdout is outputs.stdout else sys.stdout
    if file is outputs.stdout or file is sys.stderr or hooks.watch.known(file) is not None:
        return None
    return file


def has_own_handler(function: Any, args: tuple[Any, ...]) -> str:
    """A handler of the user's own that gets the log records of a call; "" if there is none."""
    logging = sys.modules["logging"]
    holder = getattr(function, "__self__", args[0] if args else None)
    logger: Any = holder if isinstance(holder, logging.Logger) else logging.getLogger()
    while logger is not None:
        for handler in logger.handlers:
            code = getattr(type(handler).emit, "__code__", None)
            file = "" if code is None else code.co_filename
            if file and policy(file) == FOLLOW and "site-packages" not in file:
                return type(handler).__qualname__
        logger = logger.parent if logger.propagate else None
    return ""
