"""`weft.export`: a function as a program that leaves the process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.base.errors import DTypeError
from weft.capture.trace.captured import Captured
from weft.interop.programs.builder import Builder
from weft.interop.programs.data import program_data
from weft.interop.programs.example_sizes import ATTEMPTS
from weft.interop.programs.examples import Examples
from weft.interop.programs.program import Program
from weft.interop.programs.record import PinnedSize, Recorded, recorded_run, refuse

__all__ = ["export"]


def export(function: Callable[..., Any], /, *specs: Any, **named: Any) -> Program:
    """A program: what `function` does for arguments of these types, without its source.

    >>> model = weft.nn.Linear(2, 1)
    >>> program = weft.export(model, weft.spec(("B", 2)))
    >>> program, list(program.state)
    (<program Linear(input: f32[B,2]): 2 tensors of state>, ['weight', 'bias'])
    >>> program.save("model.weft")                          # doctest: +SKIP
    >>> program = weft.load_program("model.weft")           # doctest: +SKIP

    specs, named    the arguments: `weft.spec(shape, dtype)` or a tensor for each tensor, in any
                    tree; plain Python values, which calls must give alike

    The function is recorded once, and is not run: it changes nothing. Tensors that it reads from
    outside (parameters, buffers, moments, the state of random numbers) are the program's `state`,
    a copy. What it writes to them, a call of the program writes to its state. See
    docs/programs.md.
    """
    if isinstance(function, Captured):
        function = function.function
    if not callable(function):
        raise DTypeError(
            f"a function or a module is needed, not {function!r:.60}",
            op="export",
            hint="weft.export(f, weft.spec(...))",
        )
    examples, run = _recorded(function, specs, named)
    try:
        program = Builder(function, examples, run).program()
    finally:
        run.undo()
    program_data(program.routine, program.arguments, [])  # raises what cannot be written down
    return program


def _recorded(
    function: Callable[..., Any], specs: tuple[Any, ...], named: dict[str, Any]
) -> tuple[Examples, Recorded]:
    """A recording on examples. `if x.shape[0] == 5` is decided otherwise by another number than 5:
    where a size is pinned, other numbers are tried."""
    first: PinnedSize | None = None
    for attempt in ATTEMPTS:
        x = Examples(specs, named, attempt)
        try:
            return x, recorded_run(function, x.args, x.kwargs, x.shapes, x.sizes)
        except PinnedSize as error:
            first = first or error
        except Exception:
            if first is None:
                raise
            break  # the function takes only the first number
    assert first is not None
    refuse(first.message, first.hint, first.location)
