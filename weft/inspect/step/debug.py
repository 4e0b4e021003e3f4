"""`weft debug script.py`: runs a script, and steps through its compiled functions."""

from __future__ import annotations

import os
import runpy
import sys
import traceback
from collections.abc import Sequence

from weft.base.source import PACKAGE
from weft.inspect.step.prompt import INTRO, add_break, open_prompt
from weft.inspect.step.stepper import Stepper, step
from weft.inspect.step.worker import Quit

__all__ = ["debug"]


def debug(script: str, arguments: Sequence[str], stage: str, breaks: Sequence[str]) -> int:
    """Run a script. The prompt opens at the first compiled call, or at the first breakpoint."""
    before, sys.argv = sys.argv, [script, *arguments]
    sys.path.insert(0, os.path.dirname(os.path.abspath(script)))
    stepper = step(stage=stage)
    try:
        with stepper:
            for text in breaks:
                add_break(stepper, text)
            if not breaks:
                stepper.set_mode("op")
                stepper.on_stop = _first_stop
            runpy.run_path(script, run_name="__main__")
            if stepper.on_stop is _first_stop:
                print(f"{script} ended; it called no compiled function", flush=True)
    except Quit:
        return 0
    except SystemExit as ending:
        return ending.code if isinstance(ending.code, int) else int(ending.code is not None)
    except BaseException as error:
        shown = traceback.TracebackException.from_exception(error)
        _without_own(shown)
        print("".join(shown.format()), file=sys.stderr, end="")
        return 1
    finally:
        sys.argv = before
        sys.path.pop(0)
    return 0


def _first_stop(stepper: Stepper) -> None:
    print(INTRO, flush=True)
    stepper.on_stop = open_prompt
    open_prompt(stepper)


def _without_own(shown: traceback.TracebackException) -> None:
    """Remove the debugger's own frames from a traceback."""
    own = (PACKAGE, "<frozen runpy>")
    kept = [frame for frame in shown.stack if not frame.filename.startswith(own)]
    shown.stack = traceback.StackSummary.from_list(kept)
