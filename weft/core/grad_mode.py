"""Whether op calls are put on the tape: on by default, per thread.

The other mode that a thread has, that of mixed precision, lies beside it: `weft/core/autocast.py`.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from weft.base.dtypes import DType

__all__ = ["enable_grad", "inference_mode", "is_grad_enabled", "no_grad", "set_grad_enabled"]

F = TypeVar("F", bound=Callable[..., Any])


class _Mode(threading.local):
    """The modes of a thread. A captured function has a recording for each, and guards on them."""

    enabled = True
    autocast: DType | None = None


mode = _Mode()


def is_grad_enabled() -> bool:
    """Whether op calls in this thread are recorded for `backward`."""
    return mode.enabled


class Switch:
    """A context and decorator that sets a mode while it is entered.

    Two that set the same are equal: a captured function that is given one is recorded for what it
    sets.
    """

    _wanted: Any

    def __init__(self) -> None:
        self._before: list[Any] = []

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self._wanted is getattr(other, "_wanted", None)

    def __hash__(self) -> int:
        return hash((type(self), self._wanted))

    def __repr__(self) -> str:
        return f"<weft.{type(self).__name__}: {self._wanted}>"


class _GradSwitch(Switch):
    """A context that sets whether op calls are put on the tape."""

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
        return decorated(function, _Fixed, self._wanted)


def decorated(function: F, switch: Callable[[Any], Any], wanted: Any) -> F:
    """`function` running in the mode `switch(wanted)`; of a generator each step does."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with switch(wanted):
            return function(*args, **kwargs)

    @functools.wraps(function)
    def steps(*args: Any, **kwargs: Any) -> Any:
        generator = function(*args, **kwargs)
        sent = None
        try:
            while True:
                with switch(wanted):
                    value = generator.send(sent)
                sent = yield value
        except StopIteration as stop:
            return stop.value
        finally:
            generator.close()

    return steps if inspect.isgeneratorfunction(function) else call  # type: ignore[return-value]


class _Fixed(_GradSwitch):
    def __init__(self, wanted: bool) -> None:
        super().__init__()
        self._wanted = wanted


class no_grad(_GradSwitch):
    """In it nothing is recorded: `with weft.no_grad():`, or `@weft.no_grad()` on a function."""

    _wanted = False


class enable_grad(_GradSwitch):
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
        return decorated(function, _Fixed, self._wanted)
