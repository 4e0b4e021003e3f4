"""Methods of compiled and traced functions; `attach` attaches them."""

from __future__ import annotations

from typing import Any, cast

from weft.base.errors import CaptureError
from weft.capture.trace.captured import Captured
from weft.inspect.differences import Diff, diff
from weft.inspect.explain.explain import explain_traced
from weft.inspect.explain.kernels import KernelView, kernels_of
from weft.runtime.executable import Executable

__all__ = ["diff_stages", "explain", "kernels"]


def explain(self: Captured[..., Any], *args: Any, **kwargs: Any) -> Any:
    """A report about the function: see `weft.explain`. With arguments, it is called once."""
    return explain_traced(self, *args, **kwargs)


def kernels(self: Captured[..., Any], program: int = -1) -> list[KernelView]:
    """The kernels of one of its programs (the latest), with their LLVM IR and assembly."""
    self.graph("captured", program)  # raises an error if there is none
    found = cast("Executable", self.programs[program]).program.latest()
    code = found.machine_code()
    if code is not None:
        return kernels_of(code)
    raise CaptureError(
        f"{self!r} runs op by op, without kernels{f': {found.reason}' if found.reason else ''}",
        op="kernels",
        hint='weft.compile(fn, backend="native") compiles kernels',
    )


def diff_stages(
    self: Captured[..., Any], first: str = "captured", second: str = "optimized", program: int = -1
) -> Diff:
    """The differences between two stages of one of its graphs: see `weft.inspect.diff`."""
    return diff(self.graph(first, program), self.graph(second, program))
