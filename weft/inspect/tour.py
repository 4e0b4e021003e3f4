"""`weft demo`: a tour of short programs, each shown with its real output.

A step is source text. It runs line by line as at Python's prompt, and its output is captured, so
the tour shows what really ran. `checks` are not shown: they verify the result of the step, here and
in the tests. A new feature adds a step. The last step, which trains a network, is
`weft.inspect.digits`.
"""

from __future__ import annotations

import ast
import contextlib
import io
import linecache
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the tour.

    title    a few words
    code     the source that is run and shown
    checks   expressions that must be true afterwards
    raises   the class name of the error that the last statement must raise
    """

    title: str
    code: str
    checks: tuple[str, ...]
    raises: str = ""


STEPS: tuple[Step, ...] = (
    Step(
        "A tensor is an array of numbers with a dtype and a shape.",
        """\
import weft
x = weft.asarray([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
x
x.shape, x.dtype, str(x.type)
weft.arange(5), weft.zeros(2, dtype=weft.int8)
weft.linspace(0, 1, 5)
""",
        ("x.shape == (2, 3)", "x.dtype == weft.float32", "str(x.type) == 'f32[2,3]'"),
    ),
    Step(
        "Shapes broadcast: an axis of size 1, or a missing one, stretches to fit.",
        """\
row = weft.asarray([10.0, 20.0, 30.0])
x + row
column = weft.asarray([[100.0], [200.0]])
x + column
(x - x.mean(axis=0)) / x.std(axis=0)
""",
        (
            "(x + row).tolist() == [[11, 22, 33], [14, 25, 36]]",
            "(x + column).tolist() == [[101, 102, 103], [204, 205, 206]]",
        ),
    ),
    Step(
        "Values, not aliases: a write to one tensor never shows in another.",
        """\
a = weft.zeros(4)
b = a[1:3]            # a part of a, and no copy is made for it
b[0] = 7              # now b gets an array of its own
b += 1
a, b
import numpy as np
array = np.ones(3)
t = weft.asarray(array)
array[0] = 99         # nor does a write to the NumPy array it came from
t
""",
        ("a.tolist() == [0, 0, 0, 0]", "b.tolist() == [8, 1]", "t.tolist() == [1, 1, 1]"),
    ),
    Step(
        "dtypes promote; Python numbers are weak and take the tensor's dtype.",
        """\
half = weft.ones(3, dtype=weft.float16)
(half * 2.5).dtype, (half + weft.ones(3)).dtype
count = weft.arange(3, dtype=weft.int8)
(count + 1).dtype, (count + 0.5).dtype, (count + weft.arange(3)).dtype
weft.result_type(weft.uint8, weft.int8), weft.result_type(weft.float16, weft.bfloat16)
""",
        (
            "(half * 2.5).dtype is weft.float16",
            "(half + weft.ones(3)).dtype is weft.float32",
            "(count + 1).dtype is weft.int8",
            "(count + 0.5).dtype is weft.float32",
            "weft.result_type(weft.uint8, weft.int8) is weft.int16",
        ),
    ),
    Step(
        "Numbers at the edge have one documented result: NaN propagates, integers wrap.",
        """\
nan = weft.asarray([3.0, weft.nan, 1.0])
weft.max(nan), weft.sort(nan)
one = weft.asarray([1.0, -1.0, 0.0])
one / 0
small = weft.asarray([127, -128], dtype=weft.int8)
small + 1, small // -1, small // 0
""",
        (
            "weft.isnan(weft.max(nan))",
            "weft.sort(nan).tolist()[:2] == [1, 3]",
            "(one / 0).tolist()[:2] == [weft.inf, -weft.inf]",
            "(small + 1).tolist() == [-128, -127]",
            "(small // -1).tolist() == [-127, -128]",
            "(small // 0).tolist() == [0, 0]",
        ),
    ),
    Step(
        "Linear algebra: matrix products, solving, decompositions.",
        """\
m = weft.asarray([[4.0, 1.0], [1.0, 3.0]])
v = weft.asarray([1.0, 2.0])
m @ v
solution = weft.linalg.solve(m, v)
solution
weft.linalg.eigvalsh(m)
weft.linalg.cholesky(m)
""",
        (
            "(m @ v).tolist() == [6, 7]",
            "weft.max(weft.abs(m @ solution - v)) < 1e-6",
        ),
    ),
    Step(
        "Random numbers come from a counter: the same seed gives the same numbers everywhere.",
        """\
weft.manual_seed(0)
first = weft.randn(3)
first
weft.manual_seed(0)
weft.all(weft.randn(3) == first)
weft.randint(0, 10, (2, 4))
weft.permutation(6)
""",
        (
            "first.shape == (3,)",
            "(weft.manual_seed(0), weft.all(weft.randn(3) == first))[1]",
            "sorted(weft.permutation(6).tolist()) == [0, 1, 2, 3, 4, 5]",
        ),
    ),
    Step(
        "Errors name the op, the operands, your own line, and the way out.",
        """\
def layer(inputs, weights):
    return inputs @ weights

layer(weft.ones((2, 3)), weft.ones((4, 5)))
""",
        (
            "'matmul' in str(error)",
            "'f32[2,3], f32[4,5]' in str(error)",
            "'return inputs @ weights' in str(error)",
            "'to fix' in str(error)",
        ),
        raises="ShapeError",
    ),
    Step(
        "Gradients: of any order, through whatever Python did.",
        """\
w = weft.tensor([1.0, 2.0], requires_grad=True)
loss = (w * w).sum() if w[0] > 0 else w.sum()
loss.backward()
w.grad
weft.grad(weft.grad(weft.sin))(weft.tensor(0.5)), -weft.sin(0.5)
""",
        ("w.grad.tolist() == [2, 4]",),
    ),
    Step(
        "weft.compile: the same Python as one graph of machine code, its loop included.",
        """\
@weft.compile
def root(a):
    x = a
    while abs(x * x - a) > 1e-6 * a:
        x = (x + a / x) / 2
    return x

root(weft.tensor(2.0)), root(weft.tensor(81.0)), len(root.recordings)
a = weft.tensor(9.0, requires_grad=True)
root(a).backward()
a.grad                # through the loop, however long it was: 1 / (2 * 3)
print(root.graph("captured", 0))
""",
        ("abs(a.grad - 1 / 6) < 1e-4", "root(weft.tensor(81.0)) == 9"),
    ),
    Step(
        "Nothing of it is hidden: what was captured, each value in each round, where time goes.",
        """\
[(loop.op, loop.place.text) for loop in root.explain().capture.loops]
with weft.step(root) as s:
    stop = s.break_at(5, do=lambda s: print("round", s.iteration, "x =", s["x"]))
    y = root(weft.tensor(2.0))

with weft.profile(roofline=False) as p:
    y = root(weft.tensor(2.0))

sorted({event.kind for event in p.events if event.kind != "compile"})
""",
        ("abs(y - 2**0.5) < 1e-5", "any(event.kind == 'control' for event in p.events)"),
    ),
)


class TourError(AssertionError):
    """A step of the tour did not behave as described."""


def shown() -> Iterator[str]:
    """Run the tour, and yield the text of each step after it has run."""
    namespace: dict[str, Any] = {"__name__": "tour"}
    for number, step in enumerate(STEPS, 1):
        session = run(step, namespace, f"<step {number}>")
        yield f"{number}. {step.title}\n\n{session}\n"


def run(step: Step, namespace: dict[str, Any], file: str = "<step>") -> str:
    """Run one step and check it; returns the indented text of the session."""
    lines = step.code.splitlines()
    # Error messages show the user's line: make its source available.
    linecache.cache[file] = (len(step.code), None, step.code.splitlines(keepends=True), file)
    out: list[str] = []
    raised = ""
    for statement in ast.parse(step.code).body:
        above = [part.lineno for part in getattr(statement, "decorator_list", ())]
        source = lines[min([statement.lineno, *above]) - 1 : statement.end_lineno]
        out += [f"{'... ' if i else '>>> '}{line}" for i, line in enumerate(source)]
        printed, error = _execute(statement, file, namespace)
        out += printed.splitlines()
        if error is not None:
            raised = type(error).__name__
            if raised != step.raises:
                raise error
            namespace["error"] = error
            out += f"{type(error).__module__}.{raised}: {error}".splitlines()
    if raised != step.raises:
        raise TourError(f"{step.title} {step.raises} should be raised, not {raised or 'nothing'}")
    for check in step.checks:
        if not eval(check, namespace):
            raise TourError(f"{step.title} Not true: {check}")
    return "\n".join(f"    {line}" for line in out)


def _execute(
    statement: ast.stmt, file: str, namespace: dict[str, Any]
) -> tuple[str, Exception | None]:
    """Run one statement; returns its output, including the value of an expression."""
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            if isinstance(statement, ast.Expr):
                value = eval(compile(ast.Expression(statement.value), file, "eval"), namespace)
                if value is not None:
                    print(repr(value))
            else:
                exec(compile(ast.Module([statement], []), file, "exec"), namespace)
    except Exception as error:
        return printed.getvalue(), error
    return printed.getvalue(), None
