"""A call that runs in a thread of its own, and stands still where it is told to."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from typing import Any

from weft.core.grad_mode import mode

__all__ = ["Quit", "Worker"]


class Quit(BaseException):
    """Ends a run that nobody wants any more."""


class Worker:
    """Runs `work`; the thread that made it waits while it runs, and the other way round."""

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
        """Begin; not before the stepper knows of it, which is asked where to stop."""
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
        """Whether this is asked by the run itself."""
        return threading.current_thread() is self._thread

    def pause(self) -> None:
        """Stand still until somebody says to go on."""
        self._stands.release()
        self._go.acquire()
        if self._quits:
            raise Quit

    # --- from outside -------------------------------------------------------------------------

    def wait(self) -> None:
        """Wait until the run stands still, or is over."""
        self._stands.acquire()

    def go_on(self) -> None:
        self._go.release()

    def abandon(self) -> None:
        """End the run where it stands."""
        if not self.done:
            self._quits = True
            self._go.release()
            self._thread.join()

    def result(self) -> Any:
        """What the work gave; an error that it raised is raised."""
        if self._error is not None:
            raise self._error
        return self._result
