"""Stepping through compiled functions: places, names, iterations, backward, changes, the prompt."""

from __future__ import annotations

import io
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from weft import nn
from weft.base.errors import DTypeError, RangeError, WeftError
from weft.cli import main

HERE = Path(__file__).name


def line_of(text: str) -> int:
    """The number of the only line of this file that ends with a mark."""
    lines = Path(__file__).read_text().splitlines()
    found = [number for number, line in enumerate(lines, 1) if line.endswith(f"# {text}")]
    assert len(found) == 1, (text, found)
    return found[0]


def root(a: Any) -> Any:
    """The square root, by Newton's method."""
    x = a
    n = 0
    while abs(x * x - a) > 1e-3 * a:
        x = (x + a / x) / 2  # the step
        n = n + 1  # the count
    y = x * 3 if x > 1 else x
    return y


def newton(a: float, start: float | None = None) -> list[float]:
    """The values of x in `root`, as NumPy's float32 has them."""
    x, one = [np.float32(a if start is None else start)], np.float32(a)
    while abs(x[-1] * x[-1] - one) > np.float32(1e-3) * one:
        x.append((x[-1] + one / x[-1]) / np.float32(2))
    return [float(value) for value in x]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.last = nn.Linear(4, 1)

    def forward(self, x: Any) -> Any:
        h = self.first(x)  # hidden
        z = h.tanh()  # activation
        return self.last(z)


def made(capture: str, backend: str, function: Any = root) -> Any:
    return weft.compile(function, capture=capture, backend=backend)


# --- moving and looking ------------------------------------------------------------------------


@pytest.mark.parametrize("stage", ["captured", "optimized"])
@pytest.mark.parametrize("backend", ["interpret", "native"])
def test_each_iteration_has_its_values(stage: str, backend: str) -> None:
    f = made("source", backend)
    before = f(weft.asarray(2.0))
    seen = []
    with weft.step(f, stage=stage) as s:
        s.break_at(line_of("the step"))
        place = s.start(weft.asarray(2.0))
        assert place is not None
        while (place := s.run()) is not None:
            assert s.location.line == line_of("the step")
            seen.append((s.iteration, float(s["x"])))
        assert np.array_equal(s.result.numpy(), before.numpy())
    assert seen == list(enumerate(newton(2.0)[:-1]))
    assert len(f.recordings) == 1  # the function itself was not touched
    assert np.array_equal(f(weft.asarray(2.0)).numpy(), before.numpy())


def test_a_traced_function_has_them_too() -> None:
    f = made("trace", "interpret")
    seen = []
    with weft.step(f) as s:
        s.break_at(line_of("the step"))
        s.start(weft.asarray(2.0))
        while s.run():
            seen.append((float(s["x"]), s["n"]))
    assert seen == [(x, n) for n, x in enumerate(newton(2.0)[:-1])]


def test_python_numbers_that_the_graph_counts_are_numbers() -> None:
    with weft.step(made("source", "interpret")) as s:
        s.break_at(line_of("the count"), iteration=1)
        s.start(weft.asarray(2.0))
        s.run()
        assert s["n"] == 1
        assert isinstance(s["n"], int)
        assert float(s["x"]) == newton(2.0)[2]
        assert s.eval("x + n").numpy() == np.float32(newton(2.0)[2]) + 1
        assert {"a", "x", "n"} <= set(s.names())
        with pytest.raises(RangeError, match="no variable 'y' here"):
            s["y"]


def test_at_the_end_all_variables_are_known() -> None:
    with weft.step(made("source", "interpret")) as s:
        s.start(weft.asarray(2.0))
        while s.node is not None:
            s.line()
        assert float(s["y"]) == pytest.approx(3 * newton(2.0)[-1])
        assert s["n"] == 3
        assert s.line() is None
        assert s.done


def lines_between(s: Any, move: Any) -> list[int]:
    found = []
    while s.node is not None:
        found.append(s.location.line)
        move()
    return found


def test_line_by_line_and_op_by_op_and_over() -> None:
    f = made("source", "interpret")
    step, count = line_of("the step"), line_of("the count")
    with weft.step(f) as s:
        s.start(weft.asarray(2.0))
        lines = lines_between(s, s.line)
        test = step - 1
        assert lines == [test, *[test, step, count] * 3, test, count + 1, count + 1]
        s.start(weft.asarray(2.0))
        ops = lines_between(s, s.next)
        assert len(ops) > len(lines)
        assert ops.count(step) == 3 * 3  # divide, add, divide in three iterations
        s.start(weft.asarray(2.0))
        over = lines_between(s, s.over)
        assert step not in over
        s.start(weft.asarray(2.0))
        s.break_at(step, iteration=2)
        s.run()
        assert s.iteration == 2
        s.out()
        assert s.iteration != 2


def test_breakpoints_on_ops_values_and_conditions() -> None:
    def f(x: Any) -> Any:
        h = x * 2
        g = h.exp()
        return (g - g).log() + weft.concat([h, h])[:2]

    compiled = made("source", "interpret", f)
    x = weft.asarray([1.0, 3.0])
    with weft.step(compiled) as s:
        s.break_on("ex*")
        s.start(x)
        s.run()
        assert s.op == "exp"
        assert np.array_equal(s.inputs[0].numpy(), [2, 6])
        assert s.outputs == []
        s.breaks.clear()
        for condition, op, shape in [
            ({"norm_above": 100.0}, "exp", (2,)),
            ({"inf": True}, "log", (2,)),
            ({"shape": (4,)}, "concat", (4,)),
        ]:
            hit = s.break_when(**condition)
            s.run()
            assert (s.op, s.outputs[0].shape) == (op, shape)
            assert s.reason is hit
            assert hit.hits == 1
            s.breaks.clear()
        s.break_when(lambda value, node: node.op.name == "add")
        s.run()
        assert s.op == "add"
        assert s.run() is None


def test_what_breakpoints_do_instead_of_stopping() -> None:
    f = made("source", "interpret")
    seen = []
    with weft.step(f) as s:
        s.break_at(line_of("the count"), do=lambda s: seen.append((s.iteration, float(s["x"]))))
        f(weft.asarray(2.0))  # called in the ordinary way
    assert seen == list(enumerate(newton(2.0)[1:]))


def test_a_handler_moves_a_call_on() -> None:
    f = made("source", "interpret")
    lines = []

    def handler(s: Any) -> None:
        lines.append(s.location.line if s.location else 0)
        s.line()

    with weft.step(f) as s:
        s.on_stop = handler
        s.break_at(line_of("the step"), iteration=0)
        f(weft.asarray(2.0))
    assert lines[:2] == [line_of("the step"), line_of("the count")]
    assert lines[-1] == 0


def test_until() -> None:
    with weft.step(made("source", "interpret")) as s:
        s.start(weft.asarray(2.0))
        s.until(lambda s: s.op == "add" and s.iteration == 1)
        assert (s.op, s.iteration) == ("add", 1)


def test_a_line_without_ops_is_told_of() -> None:
    f = made("source", "interpret")
    s = weft.step(f)
    s.break_at(2)
    s.__enter__()
    s.start(weft.asarray(2.0))
    s.run()
    with pytest.warns(UserWarning, match="no op was run at the line of a breakpoint"):
        s.__exit__(None)


def scaled(v: Any, rate: float) -> Any:
    w = v * rate
    if w.sum() > 1:
        w = w - 1
        w = w * 2
    return w


def nested(x: Any) -> Any:
    total = x.sum() * 0
    for row in x:
        k = row * 2
        while k.sum() < 10:
            k = k * 1.5
            total = total + k.max()
        part = scaled(k, 0.5)
        total = total + part.sum()
    return total


@pytest.mark.parametrize("capture", ["source", "trace"])
@pytest.mark.parametrize("function", [root, nested])
def test_names_are_what_python_itself_has_there(function: Any, capture: str) -> None:
    """Python's own tracing says what each variable is each time a line begins."""
    x = weft.asarray(2.0) if function is root else weft.asarray([[1.0, 2.0], [0.5, 0.25]])
    wanted: dict[int, list[dict[str, Any]]] = {}

    def numbers(values: Any) -> dict[str, Any]:
        return {k: np.asarray(v) for k, v in values if isinstance(v, (weft.Tensor, int, float))}

    def tracer(frame: Any, event: str, arg: Any) -> Any:
        if frame.f_code.co_filename != __file__:
            return None
        if event == "line":
            wanted.setdefault(frame.f_lineno, []).append(numbers(frame.f_locals.items()))
        return tracer

    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        function(x)
    finally:
        sys.settrace(before)
    found: dict[int, list[dict[str, Any]]] = {}
    with weft.step(made(capture, "interpret", function)) as s:
        s.start(x)
        while s.node is not None:
            known = [(name, s[name]) for name in s.names()]
            found.setdefault(s.location.line, []).append(numbers(known))
            s.line()
    compared = 0
    for line, seen in found.items():
        if len(seen) != len(wanted[line]):
            continue  # the head of a loop is one op in the graph
        for one, two in zip(wanted[line], seen, strict=True):
            for name in one.keys() & two.keys():  # one that is dead may be gone
                np.testing.assert_allclose(
                    two[name], one[name], rtol=1e-5, err_msg=f"{name} {line}"
                )
                compared += 1
    assert compared > 15


# --- changing ----------------------------------------------------------------------------------


@pytest.mark.parametrize("stage", ["captured", "optimized"])
def test_a_value_is_changed_and_the_run_goes_on(stage: str) -> None:
    f = made("source", "native")
    with weft.step(f, stage=stage) as s:
        s.break_at(line_of("the step"), iteration=0)
        s.start(weft.asarray(2.0))
        s.run()
        s["x"] = 100.0
        s.breaks.clear()
        s.break_at(line_of("the step"))
        seen = [100.0]
        while s.run():
            seen.append(float(s["x"]))
        found = newton(2.0, start=100.0)
        assert seen == found[:-1]
        assert float(s.result) == np.float32(3) * np.float32(found[-1])
    assert float(f(weft.asarray(2.0))) == np.float32(3) * np.float32(newton(2.0)[-1])


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("x", weft.zeros(3), DTypeError),
        ("x", weft.asarray(1), DTypeError),
        ("nobody", 1.0, RangeError),
        ("k", 2, RangeError),
    ],
)
def test_what_cannot_be_changed(name: str, value: Any, error: type[Exception]) -> None:
    def f(x: Any) -> Any:
        k = 3
        h = x * k
        return h + 1

    with weft.step(made("source", "interpret", f)) as s:
        s.start(weft.asarray(1.0))
        s.until(lambda s: s.op == "add")
        with pytest.raises(error):
            s[name] = value
        assert float(s.finish()) == 4.0


# --- backward and training ---------------------------------------------------------------------


@pytest.mark.parametrize("stage", ["captured", "optimized"])
def test_backward_of_a_loop_goes_through_its_iterations(stage: str) -> None:
    f = made("source", "native")
    a = weft.tensor(2.0, requires_grad=True)
    xs = newton(2.0)
    seen = []
    with weft.step(f, stage=stage) as s:
        s.break_at(line_of("the step"), backward=True)
        s.begin(lambda: f(a).backward())
        while s.run():
            assert s.location.role == "backward"
            assert s.location.forward.line == line_of("the step")
            assert "gradient of x" in str(s.place)
            seen.append((float(s["x"]), float(s.gradient("x"))))
    wanted, g = [], 3.0
    for x in reversed(xs[:-1]):
        wanted.append((x, g))
        g *= 0.5 - 2.0 / (2 * x * x)
    np.testing.assert_allclose(seen, wanted, rtol=1e-3)
    assert a.grad is not None
    slope = 3 / (2 * 2.0**0.5)
    np.testing.assert_allclose(float(a.grad), slope, rtol=1e-3)


def training() -> tuple[Any, Any, Any, Any, Any]:
    weft.manual_seed(0)
    net = Net()
    optimizer = weft.optim.SGD(net.parameters(), lr=0.5)

    def train(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        pred = net(x)
        loss = ((pred - y) ** 2).mean()
        loss.backward()
        optimizer.step()  # the update
        return loss

    return net, train, weft.randn((5, 3)), weft.randn((5, 1)), weft.compile(train, backend="native")


def test_a_training_step_shows_gradients_and_new_parameters() -> None:
    net, _, x, y, compiled = training()
    before = net.last.weight.numpy().copy()
    pred = net(x)
    pred.retain_grad()
    hidden = net.first(x)
    ((pred - y) ** 2).mean().backward()
    wanted = net.last.weight.grad.numpy().copy()
    for p in net.parameters():
        p.grad = None
    with weft.step(compiled) as s:
        s.break_at(line_of("activation"))
        s.break_at(line_of("hidden"), backward=True)
        s.start(x, y)
        s.run()
        np.testing.assert_allclose(s["h"].numpy(), hidden.numpy(), rtol=1e-5)
        assert np.array_equal(s.eval("self.last.weight").numpy(), before)
        s.run()
        assert s.location.role == "backward"
        np.testing.assert_allclose(s.gradient("pred").numpy(), pred.grad.numpy(), rtol=1e-5)
        text = s.where()
        assert "loss.backward()" in text
        assert f"{HERE}:{line_of('hidden')}" in text
        while s.node is not None:
            s.line()
        np.testing.assert_allclose(s.eval("net.last.weight.grad").numpy(), wanted, rtol=1e-5)
        new = before - 0.5 * wanted
        np.testing.assert_allclose(s.eval("net.last.weight").numpy(), new, rtol=1e-5)
        assert np.array_equal(net.last.weight.numpy(), before)  # it is not written yet
        s.finish()
    np.testing.assert_allclose(net.last.weight.numpy(), new, rtol=1e-5)


def test_a_run_that_is_left_changes_nothing() -> None:
    net, _, x, y, compiled = training()
    before = net.last.weight.numpy().copy()
    with weft.step(compiled) as s:
        s.break_at(line_of("the update"))
        s.start(x, y)
        s.run()
    assert np.array_equal(net.last.weight.numpy(), before)
    assert net.last.weight.grad is None


# --- errors ------------------------------------------------------------------------------------


def test_an_error_inside_shows_its_place() -> None:
    def f(x: Any, i: Any) -> Any:
        h = x * 2
        return h[i]  # out of range

    with weft.step(made("source", "native", f)) as s:
        s.start(weft.ones(3), weft.asarray(7))
        with pytest.raises(IndexError, match="out of range"):
            s.run()
        assert s.location.line == line_of("out of range")
        assert np.array_equal(s["h"].numpy(), [2, 2, 2])


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda: weft.step(len), "no compiled function"),
        (lambda: weft.step(made("source", "interpret"), stage="scheduled"), "no stage"),
        (lambda: weft.step(made("source", "interpret")).next(), "nothing is running"),
        (lambda: weft.step(made("source", "interpret"))["x"], "no run is stopped"),
        (lambda: weft.step(made("source", "interpret")).break_at("here"), "no place"),
        (lambda: weft.step(made("source", "interpret")).break_when(), "no condition"),
        (lambda: weft.step().break_at(3), "which file"),
        (lambda: weft.step().start(), "which function"),
    ],
)
def test_mistakes(act: Any, message: str) -> None:
    with pytest.raises(WeftError, match=message):
        act()


# --- the prompt --------------------------------------------------------------------------------


def answers(monkeypatch: pytest.MonkeyPatch, *commands: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(commands) + "\n"))


def test_the_prompt_opens_at_a_breakpoint(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answers(monkeypatch, "p x * 2", "set x x * 0 + 1.5", "p x", "foo", "p nobody", "clear", "c")
    f = made("source", "native")
    with weft.step(f) as s:
        s.break_at(line_of("the step"), iteration=0)
        f(weft.asarray(2.0))
    shown = capsys.readouterr().out
    for text in ("tensor(4.)", "tensor(1.5)", "no command 'foo'", "name 'nobody' is not defined"):
        assert text in shown


SCRIPT = textwrap.dedent(
    """
    import weft

    @weft.compile
    def root(a):
        x = a
        while abs(x * x - a) > 1e-3 * a:
            x = (x + a / x) / 2
        return x

    y = root(weft.tensor(2.0, requires_grad=True))
    print("result", y.detach())
    y.backward()
    print("bye")
    """
)

SESSIONS: dict[str, tuple[list[str], list[str]]] = {
    "steps": (
        ["n", "line", "p x", "w", "g 1", "names", "inputs", "c"],
        [
            "before multiply(f32[], f32[])",
            "script.py:8 in root: x = (x + a / x) / 2",
            "tensor(2.)",
            "script.py:11 in <module>: y = root",
            "-> ",
            "a, x",
            "bye",
        ],
    ),
    "an iteration": (
        ["b script.py:8 2", "b", "c", "p x", "clear", "y", "c"],
        ["stops at script.py:8 in iteration 2", "(met 0 times)", "tensor(1.4166667)", "bye"],
    ),
    "backward": (
        ["b script.py:8", "c", "c", "c", "c", "p x", "grad x", "q"],
        ["result 1.4142", "backward of divide: gradient of x", "tensor(1.)"],
    ),
    "changing": (
        ["b op:divide", "c", "set x x * 0 + 1.5", "clear", "yes", "c"],
        ["result 1.4142", "bye"],
    ),
    "words of pdb": (
        ["s", "list", "bt", "clear", "b 8", "clear", "n", "b", "clear 7", "clear 0", "b", "cont"],
        [
            "before multiply(f32[], f32[])",
            "\n   7 ->     while abs(x * x - a) > 1e-3 * a:\n   8            x = (x + a / x) / 2",
            "script.py:11 in <module>",
            "there are no breakpoints",
            "remove all 1 breakpoints? (y/n) n",
            "0  script.py:8  (met 0 times)",
            "no breakpoint '7'",
            "removed script.py:8",
            "bye",
        ],
    ),
    "the end of the input": ([], ["before while"]),
    "help": (["help", "help break", "b nan", "b inf", "b norm>3.5", "q"], ["norm above 3.5"]),
}


@pytest.mark.parametrize("name", SESSIONS)
def test_weft_debug(
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    commands, wanted = SESSIONS[name]
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    answers(monkeypatch, *commands)
    assert main(["debug", str(script)]) == 0
    shown = capsys.readouterr().out
    at = 0
    for text in wanted:
        assert text in shown[at:], (text, shown)
        at = shown.index(text, at)
    assert ("bye" in shown) == ("bye" in wanted)


def test_weft_debug_goes_on_to_a_breakpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    answers(monkeypatch, "p x", "clear", "y", "c")
    assert main(["debug", "-b", "script.py:8 1", "-b", "nan", str(script)]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("breakpoint: script.py:8 in iteration 1\n")
    assert "tensor(1.5)" in shown
    assert "bye" in shown


def test_weft_debug_in_a_process_of_its_own(tmp_path: Path) -> None:
    script = tmp_path / "failing.py"
    script.write_text(
        "import sys, weft\n"
        "@weft.compile\n"
        "def f(x, i):\n"
        "    h = x * 2\n"
        "    return h[i]\n"
        "print(sys.argv[1:])\n"
        "f(weft.ones(3), weft.asarray(5))\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "weft", "debug", str(script), "--flag", "1"],
        input="c\np h\nc\n",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "['--flag', '1']" in done.stdout
    assert "error: IndexError" in done.stdout  # the prompt opens where it fails
    assert "tensor([2., 2., 2.])" in done.stdout
    assert "failing.py:5" in done.stderr
    assert "inspect/step" not in done.stderr
