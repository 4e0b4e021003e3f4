"""Runs a call in its own thread, which can be paused."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from typing import Any

from weft.core.grad_mode import mode

__all__ = ["Quit", "Worker"]


class Quit(BaseException):
    """Raised in a run to end it."""


class Worker:
    """Runs `work` in a thread. Either that thread runs, or the one that created it."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self.done = False
        self._work = work
        self._result: Any = None
        self._error: BaseException | None = None
        self._quits = False
        self._go = threading.Semaphore(0)
        self._stands = threading.Semaphore(0)
        self._with_grad = mode.enabled
        context = contextvars.copy_context()
        self._thread = threading.Thread(target=context.run, args=(self._main,), daemon=True)

    def start(self) -> None:
        """Start the thread, after the stepper knows the worker."""
        self._thread.start()

    def _main(self) -> None:
        mode.enabled = self._with_grad
        try:
            self._result = self._work()
        except Quit:
            pass
        except BaseException as error:
            self._error = error
        self.done = True
        self._stands.release()

    # --- from the run -------------------------------------------------------------------------

    def is_current(self) -> bool:
        """Whether the calling thread is that of the run."""
        return threading.current_thread() is self._thread

    def pause(self) -> None:
        """Pause the run until it is resumed."""
        self._stands.release()
        self._go.acquire()
        if self._quits:
            raise Quit

    # --- from outside -------------------------------------------------------------------------

    def wait(self) -> None:
        """Wait until the run pauses or ends."""
        self._stands.acquire()

    def go_on(self) -> None:
        self._go.release()

    def abandon(self) -> None:
        """End the run where it is paused."""
        if not self.done:
            self._quits = True
            self._go.release()
            self._thread.join()

    def result(self) -> Any:
        """The result of the work; raises its error, if any."""
        if self._error is not None:
            raise self._error
        return self._result
