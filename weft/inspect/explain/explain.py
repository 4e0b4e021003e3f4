"""`weft.explain`: a report about a compiled function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.base.errors import CaptureError
from weft.base.source import SourceLocation
from weft.base.world import own_copy
from weft.capture.trace.captured import Captured
from weft.compile import compile as compiled_of
from weft.inspect.explain import captured, facts
from weft.inspect.explain.facts import with_text
from weft.inspect.explain.measure import Inputs, kernel_seconds, seconds_of
from weft.inspect.explain.programs import program_facts
from weft.inspect.explain.report import Report
from weft.interop.programs.call import ProgramBody
from weft.interop.programs.program import Program
from weft.runtime.executable import Executable, instrumented
from weft.runtime.peak import Peak, machine_peak
from weft.runtime.threads import get_num_threads

__all__ = ["explain", "explain_traced"]

#: If LLVM took longer, the program is not compiled again to measure its kernels.
MOST_LLVM_S = 2.0


def explain(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Report:
    """A report about a function: how it was captured, its guards, what each pass changed, its
    kernels and the reasons for them, its memory, its cost, and the time of each stage.

    A plain function or a module is compiled first. It is called once with the arguments, like any
    call, so it writes its state once. Without arguments, a function that was called before is not
    called again. Programs without side effects are then run a few more times on the same inputs to
    measure them. A program (`weft.export`) that was never called is compiled, and not run.

    The report prints as text; `report.as_dict()` is plain data, and `report.html()` a page.
    """
    if isinstance(function, Program):
        if args or kwargs:
            return explain_traced(function.compiled, *function.arguments.inputs(args, kwargs))
        return explain_traced(function.compiled_for_tools())
    traced = function if isinstance(function, Captured) else compiled_of(function)
    return explain_traced(traced, *args, **kwargs)


def explain_traced(traced: Captured[..., Any], *args: Any, **kwargs: Any) -> Report:
    """The report about a compiled or traced function: `compiled.explain(...)`."""
    traced = own_copy(traced, traced.alike)  # ranks that are threads have one each
    inputs = Inputs()
    if args or kwargs or not traced.recordings:
        with instrumented(inputs), traced.recorded_at_first_sight():
            traced(*args, **kwargs)
    if not traced.recordings:
        raise CaptureError(
            f"{traced!r} has not been recorded: there is nothing to explain",
            op="explain",
            hint="weft.explain(fn, *args), with example arguments",
        )
    peak = machine_peak(get_num_threads())
    programs = [
        _program(executable, inputs, peak)
        for executable in traced.programs
        if isinstance(executable, Executable)
    ]
    return Report(
        name=traced._name(),
        place=with_text(place_of(traced.function)),
        capture_by=_captured_by(traced),
        recordings=captured.recordings(traced),
        calls=traced.cache_info(),
        eager_calls=traced.eager_calls,
        capture=captured.captured(traced),
        guards=captured.guards(traced),
        state=captured.state(traced),
        programs=programs,
        recomputation=captured.recomputed(traced),
        compile=_stages(traced, programs),
        sizes=captured.sizes(traced),
        machine=peak,
    )


def _captured_by(traced: Captured[..., Any]) -> str:
    if isinstance(traced.function, ProgramBody):
        return "program"
    return "source" if traced.policy.records else "trace"


def _program(executable: Executable, inputs: Inputs, peak: Peak) -> facts.Program:
    given = inputs.of.get(executable)
    # Ranks would run it a different number of times, and wait for each other.
    together = executable.program.way == "ranks"
    measured = None if given is None or together else seconds_of(executable, given)
    code = executable.program.latest().machine_code()
    times: dict[str, float] = {}
    quick = code is not None and code.seconds["llvm"] < MOST_LLVM_S
    if given is not None and measured is not None and code is not None and quick:
        times = kernel_seconds(code, given)  # compiles it again, with timers
    return program_facts(executable, peak, measured, times, ran=given is not None)


def place_of(function: Any) -> SourceLocation | None:
    """The first line of a function, or of what a call of a module comes to."""
    if isinstance(function, ProgramBody):  # its source is another process's
        return None
    code = getattr(function, "__code__", None)
    if code is None:  # the `forward` of a module, or the `__call__` of another object
        method = getattr(type(function), "forward", None) or type(function).__call__
        code = getattr(method, "__code__", None)
    if code is None:
        return None
    return SourceLocation(code.co_filename, code.co_firstlineno, code.co_name)


def _stages(traced: Captured[..., Any], programs: list[facts.Program]) -> dict[str, float]:
    """Seconds by stage, for all recordings and programs so far."""
    stages = {
        "record": sum(max(0.0, r.seconds - r.prepared) for r in traced.recordings),
        "passes": 0.0,
        "schedule and write": 0.0,
        "LLVM": 0.0,
        "load": 0.0,
        "the rest": 0.0,
    }
    words = {"text": "schedule and write", "llvm": "LLVM", "other": "the rest"}
    for program in programs:
        for name, seconds in program.seconds.items():
            if name != "code":
                stages[words.get(name, name)] += seconds
        if program.backend != "native":
            stages["the rest"] += program.seconds["code"]
    return stages
