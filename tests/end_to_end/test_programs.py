"""Programs in plain Python: eager against references, captured against eager, bit for bit."""

from __future__ import annotations

import inspect
import random
import sys
import types
from typing import Any

import numpy as np
import pytest
from program_runs import Captured, run
from programs import PROGRAMS, THEMES
from programs.compare import Outcome, difference
from programs.modes import MODES, allowed
from programs.table import Call, Program
from sized_calls import ALL, chosen, resized

import weft
from weft import Tensor, nn

STEP = 1e-6

by_program = pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.name)


# --- the programs themselves ----------------------------------------------------------------------


@by_program
def test_eager(program: Program) -> None:
    """Each call gives what the reference says, raises what the row says, and the same twice."""
    for i, given in enumerate(program.calls()):
        out = run(program, program.make(), given)
        error = (program.raises or {}).get(i)
        if error is not None:
            assert out.error is not None, f"call {i} raised nothing"
            assert issubclass(out.error, error), f"call {i} raised {out.error}"
        else:
            assert out.error is None, f"call {i} raised {out.error}: {out.message}"
            if program.reference is not None:
                args = weft.tree_map(_plain, given.args)
                want = weft.tree_leaves(program.reference(*args, **given.kwargs))
                assert len(want) == len(out.leaves)
                for a, b in zip(want, out.leaves, strict=True):
                    np.testing.assert_allclose(b, a, rtol=program.rtol, atol=1e-9)
        assert not difference(out, run(program, program.make(), given))


def _plain(x: Any) -> Any:
    if not isinstance(x, Tensor):
        return x
    return x.numpy(copy=True) if x.ndim else x.item()


@pytest.mark.parametrize(
    "program", [p for p in PROGRAMS if p.gradients and p.smooth], ids=lambda p: p.name
)
def test_gradients(program: Program) -> None:
    """Eager gradients agree with finite differences, and so do those of gradients."""
    for i, given in enumerate(program.calls()):
        if i in (program.raises or {}) or i in program.kinks:
            continue
        here = _At(program, given)
        rng = np.random.default_rng(i)
        for _ in range(2):
            direction = [rng.standard_normal(x.shape) for x in here.values]
            values, slopes = here.along(direction)
            for what, value, slope in zip(("gradient", "second"), values, slopes, strict=False):
                scale = max(abs(value), abs(slope), 1.0)
                tolerance = max(program.rtol, 1e-5) * scale
                assert abs(value - slope) <= tolerance, f"call {i}, {what}: {value}, not {slope}"


class _At:
    """A program at one call, as a function of its floating arguments and parameters."""

    def __init__(self, program: Program, given: Call) -> None:
        self.program = program
        self.given = given
        wanted = program.gradients
        chosen = range(len(given.args)) if wanted is True else wanted or ()
        parts = [given.args[i] for i in chosen], given.kwargs if wanted is True else {}
        floats = [x for x in weft.tree_leaves(parts) if _is_float(x)]
        self.given_ids = {id(x) for x in floats}
        function = program.make()
        module = function if isinstance(function, nn.Module) else None
        parameters = list(module.parameters()) if module else []
        self.values = [x.numpy(copy=True) for x in [*floats, *parameters]]

    def outcome(self, values: list[Any], second: bool) -> Outcome:
        rest = iter(values)

        def put(x: Any) -> Any:
            return weft.asarray(next(rest), dtype=x.dtype) if id(x) in self.given_ids else x

        args, kwargs = weft.tree_map(put, (self.given.args, self.given.kwargs))
        function = self.program.make()
        if isinstance(function, nn.Module):
            with weft.no_grad():
                for parameter in function.parameters():
                    parameter[...] = weft.asarray(next(rest), dtype=parameter.dtype)
        return run(self.program, function, Call(*args, **kwargs), second)

    def along(self, direction: list[Any]) -> tuple[list[float], list[float]]:
        """Directional derivatives by the tape and by differences, in first and second order."""
        second = self.program.second_order
        out = self.outcome(self.values, second)
        near = [
            self.outcome([x + s * d for x, d in zip(self.values, direction, strict=True)], False)
            for s in (STEP, -STEP)
        ]
        values = [_dot(out.gradients, direction)]
        slopes = [(_total(near[0]) - _total(near[1])) / (2 * STEP)]
        if second:
            values.append(_dot(out.second, direction))
            first = [sum(_terms(side.gradients, 0.5)) for side in near]
            slopes.append((first[0] - first[1]) / (2 * STEP))
        return values, slopes


def _is_float(x: Any) -> bool:
    return isinstance(x, Tensor) and x.dtype.kind == "float"


def _terms(arrays: list[Any], shift: float = 0.0) -> list[float]:
    """What `compare.weighted` adds up."""
    return [
        float((x * np.cos(np.arange(x.size) * 1.7 + i + shift).reshape(x.shape)).sum())
        for i, x in enumerate(arrays)
    ]


def _total(out: Outcome) -> float:
    arrays = [x for x in out.leaves if isinstance(x, np.ndarray) and x.dtype.kind == "f"]
    return sum(_terms(arrays))


def _dot(a: list[Any], b: list[Any]) -> float:
    return float(sum((x * y).sum() for x, y in zip(a, b, strict=True)))


# --- captured -------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
@by_program
def test_captured(program: Program, mode: str) -> None:
    """All calls, twice, in mixed order: the captured function does what the eager one does."""
    if mode not in program.supports:
        pytest.skip(program.why)
    eager = program.make()
    captured = Captured(mode, program.make())
    calls = list(enumerate(program.calls()))
    again = calls.copy()
    random.Random(program.name).shuffle(again)
    for i, given in [*calls, *again]:
        want = run(program, eager, given, program.second_order)
        got = run(program, captured, given, program.second_order)
        found = difference(want, got, **allowed(mode), near=program.near)
        assert not found, f"call {i}: {found}"


# --- other sizes ----------------------------------------------------------------------------------

#: Programs that go on for ever with no elements, and why others refuse some sizes.
ENDLESS = {"list as state", "power iteration", "dropout until dense"}
ONE_TYPE = {
    "armijo",
    "drawn on one path",
}  # both sides of an `if` have one type, whose sizes differ


def _tensors(given: Call) -> list[Any]:
    return [x for x in weft.tree_leaves((given.args, given.kwargs)) if isinstance(x, Tensor)]


def _sized() -> list[Any]:
    """Each program with each size of its arguments, once interpreted and once in machine code."""
    found = []
    for program in PROGRAMS:
        if "source" not in program.supports:
            continue
        for old in sorted({n for x in _tensors(program.calls()[0]) for n in x.shape if n > 1}):
            for one_in, backend in ((4, "interpret"), (36, "native")):
                if chosen(one_in, program.name, old, backend):
                    name = f"{program.name}-{old}-{backend}"
                    found.append(pytest.param(program, old, backend, id=name))
    return found


@pytest.mark.parametrize(("program", "old", "backend"), _sized())
def test_other_sizes(program: Program, old: int, backend: str) -> None:
    """The compiled program, recorded once for the row's sizes, is eager at other sizes, too."""
    eager, own = program.make(), program.make()
    captured = Captured("source", own)
    captured.call = weft.compile(own, capture="source", backend=backend)
    run(program, captured, program.calls()[0])
    run(program, eager, program.calls()[0])
    near = max(program.near, 1e-9 if backend == "interpret" else 1e-6)
    for new in (7, 0, 1, 2, 12) if ALL else (7, 0, 1):
        if new == old or (new == 0 and program.name in ENDLESS):
            continue

        def put(x: Any, new: int = new) -> Any:
            if not isinstance(x, Tensor):
                return x
            return weft.asarray(resized(x.numpy(), old, new), dtype=x.dtype)

        first = program.calls()[0]
        args, kwargs = weft.tree_map(put, (first.args, first.kwargs))
        with np.errstate(all="ignore"):
            want = run(program, eager, Call(*args, **kwargs), program.second_order)
            got = run(program, captured, Call(*args, **kwargs), program.second_order)
        if want.error is not None or (got.error is not None and program.name in ONE_TYPE):
            assert got.error is not None
            continue
        found = difference(want, got, loose=True, near=near, gradients_near=max(near, 1e-8))
        assert not found, f"{old} -> {new}: {found}"


# --- the suite ------------------------------------------------------------------------------------


def test_size() -> None:
    names = [program.name for program in PROGRAMS]
    assert len(set(names)) == len(names) >= 130
    assert sum(program.reference is not None for program in PROGRAMS) >= 40
    assert sum(program.second_order for program in PROGRAMS) >= 40
    for program in PROGRAMS:
        assert (program.supports == set(MODES) and not program.near) or program.why, program.name


@pytest.mark.parametrize("theme", THEMES, ids=lambda theme: theme.__name__)
def test_every_line_runs(theme: types.ModuleType) -> None:
    """The inputs of the rows take all paths: no line of any program is left out."""
    file = theme.__file__
    seen: set[int] = set()

    def watch(frame: types.FrameType, event: str, _arg: Any) -> Any:
        if frame.f_code.co_filename != file:
            return None
        seen.add(frame.f_lineno)
        return watch

    before = sys.gettrace()
    sys.settrace(watch)
    try:
        for program in theme.PROGRAMS:
            function = program.make()
            for i, given in enumerate(program.calls()):
                out = run(program, function, given)
                if program.reference is not None and i not in (program.raises or {}):
                    program.reference(*weft.tree_map(_plain, given.args), **given.kwargs)
                assert out.error is None or i in (program.raises or {})
    finally:
        sys.settrace(before)
    source = inspect.getsource(theme)
    wanted = _lines(compile(source, file or "", "exec"), top=True)
    text = source.splitlines()
    missed = [f"{n}: {text[n - 1].strip()}" for n in sorted(wanted - seen)]
    assert not missed, "\n".join(missed)


def _lines(code: types.CodeType, top: bool = False) -> set[int]:
    """The lines of all functions in a piece of code."""
    inner = [const for const in code.co_consts if isinstance(const, types.CodeType)]
    if top:
        inner = [const for const in inner if const.co_name != "<listcomp>"]  # of rows
    is_function = not top and code.co_flags & inspect.CO_OPTIMIZED
    own = {line for _, _, line in code.co_lines() if line} if is_function else set()
    return own.union(*map(_lines, inner)) if inner else own
