"""Whether op calls are put on the tape: on by default, per thread."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar

__all__ = ["enable_grad", "inference_mode", "is_grad_enabled", "no_grad", "set_grad_enabled"]

F = TypeVar("F", bound=Callable[..., Any])


class _Mode(threading.local):
    enabled = True


mode = _Mode()


def is_grad_enabled() -> bool:
    """Whether op calls in this thread are recorded for `backward`."""
    return mode.enabled


class _Switch:
    """A context and decorator that sets the mode while it is entered."""

    _wanted: bool

    def __init__(self) -> None:
        self._before: list[bool] = []

    def __enter__(self) -> None:
        self._before.append(mode.enabled)
        mode.enabled = self._wanted

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        mode.enabled = self._before.pop()

    def __call__(self, function: F) -> F:
        return _decorated(function, self._wanted)


def _decorated(function: F, wanted: bool) -> F:
    """`function` running in a mode; of a generator each step does."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with _Fixed(wanted):
            return function(*args, **kwargs)

    @functools.wraps(function)
    def steps(*args: Any, **kwargs: Any) -> Any:
        generator = function(*args, **kwargs)
        sent = None
        try:
            while True:
                with _Fixed(wanted):
                    value = generator.send(sent)
                sent = yield value
        except StopIteration as stop:
            return stop.value
        finally:
            generator.close()

    return steps if inspect.isgeneratorfunction(function) else call  # type: ignore[return-value]


class _Fixed(_Switch):
    def __init__(self, wanted: bool) -> None:
        super().__init__()
        self._wanted = wanted


class no_grad(_Switch):
    """In it nothing is recorded: `with weft.no_grad():`, or `@weft.no_grad()` on a function."""

    _wanted = False


class enable_grad(_Switch):
    """In it op calls are recorded, also inside of `no_grad`."""

    _wanted = True


class inference_mode(_Fixed):
    """PyTorch's name for `no_grad`: `with weft.inference_mode():`, or as a decorator."""

    def __init__(self, mode: bool = True) -> None:
        super().__init__(not mode)


class set_grad_enabled(_Fixed):
    """Turn recording on or off at once; as a context, until it is left; or as a decorator."""

    def __init__(self, enabled: bool) -> None:
        super().__init__(bool(enabled))
        self._before.append(mode.enabled)
        mode.enabled = self._wanted

    def __enter__(self) -> None:  # the mode to go back to is the one before the call
        mode.enabled = self._wanted

    def __call__(self, function: F) -> F:
        mode.enabled = self._before.pop()
        return _decorated(function, self._wanted)
