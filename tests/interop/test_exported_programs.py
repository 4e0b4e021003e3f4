"""`weft.export` and `weft.load_program`: a program is the function that it was made of."""

from __future__ import annotations

import copy
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from control_flow_rows import HOLDER, ROWS
from op_calls import function, tensors
from samples import ROWS as SAMPLES
from samples.table import Row
from training import CASES
from training.table import Case, of_weft

import weft
from weft.base.pytree import tree_leaves
from weft.errors import (
    CaptureError,
    DTypeError,
    FileError,
    GradientError,
    GraphError,
    RangeError,
    ShapeError,
    WeftError,
)

nn, F = weft.nn, weft.nn.functional


def there_and_back(program: weft.Program, folder: Path, backend: str | None = None) -> weft.Program:
    """The program from its file; and that file again has the same bytes."""
    path, again = folder / "program.weft", folder / "again.weft"
    program.save(path)
    found = weft.load_program(path, backend=backend)
    found.save(again)
    assert again.read_bytes() == path.read_bytes()
    return found


def same(got: Any, want: Any) -> None:
    """Equal in type and in all bits."""
    for a, b in zip(tree_leaves(got), tree_leaves(want), strict=True):
        assert type(a) is type(b)
        if isinstance(a, weft.Tensor):
            assert a.type == b.type
            assert a.detach().numpy().tobytes() == b.detach().numpy().tobytes()
        else:
            assert a == b or a != a


# --- control flow --------------------------------------------------------------------------------

#: Rows that no graph can hold, with what the error says.
REFUSED = {
    "`assert` on a tensor": "raises where it does not hold",
    "writes to an attribute in one branch": "only this process can do",
}


def with_gradients(call: Callable[..., Any], values: list[float]) -> list[Any]:
    HOLDER.last = None
    weft.manual_seed(3)
    x = weft.tensor(values, dtype=weft.float64, requires_grad=True)
    y = call(x)
    (g,) = weft.autograd.grad(y.sum(), x, create_graph=True)
    second = x * 0
    if g.requires_grad:
        wanted = {"materialize_grads": True, "allow_unused": True}
        (second,) = weft.autograd.grad((g * g).sum(), x, **wanted)
    return [y, g, second]


HELD = [name for name in ROWS if name not in REFUSED]


@pytest.mark.parametrize(
    ("name", "backend"),
    [*((name, "interpret") for name in HELD), *((name, "native") for name in HELD[::4])],
)
def test_control_flow(name: str, backend: str, tmp_path: Path) -> None:
    """Values, gradients and gradients of gradients are those of the compiled function."""
    of_row, inputs = ROWS[name]
    program = weft.export(of_row, weft.spec(len(inputs[0]), weft.float64))
    program = there_and_back(program, tmp_path, backend)
    live = weft.compile(of_row, backend=backend)
    for values in inputs:
        weft.manual_seed(3)
        if "random" in program.state:
            program.state["random"] = weft.get_rng_state()
        same(with_gradients(program, values), with_gradients(live, values))


@pytest.mark.parametrize("name", REFUSED)
def test_control_flow_that_is_refused(name: str) -> None:
    of_row, inputs = ROWS[name]
    with pytest.raises(CaptureError, match=REFUSED[name]) as caught:
        weft.export(of_row, weft.spec(len(inputs[0]), weft.float64))
    assert "control_flow_rows.py" in str(caught.value)


# --- ops -----------------------------------------------------------------------------------------


#: The sizes of their results depend on values.
OF_VALUES = frozenset(
    {
        *("nonzero", "argwhere", "flatnonzero", "masked_select", "bincount", "repeat", "unique"),
        *("unique_all", "unique_counts", "unique_inverse", "unique_values", "unique_consecutive"),
    }
)


def _sample_calls() -> list[tuple[Row, Any, tuple[Any, ...], dict[str, Any]]]:
    """One call of each row; dtypes and samples take turns."""
    calls = []
    for i, row in enumerate(SAMPLES):
        dtypes = row.dtypes()
        samples = list(row.samples(dtypes[i % len(dtypes)]))
        sample = samples[i % len(samples)]
        calls.append((row, function(row.name), *tensors((sample.args, sample.kwargs))))
    return calls


def test_ops(tmp_path: Path) -> None:
    """A program of many ops, interpreted, gives all bits that the ops give."""
    calls = _sample_calls()
    given = [(args, kwargs) for row, _, args, kwargs in calls if row.name not in OF_VALUES]
    ops = [op for row, op, _, _ in calls if row.name not in OF_VALUES]
    for start in range(0, len(ops), 25):
        part = slice(start, start + 25)

        def all_of(arguments: Any, ops: Any = ops[part]) -> Any:
            return [op(*args, **kwargs) for op, (args, kwargs) in zip(ops, arguments, strict=True)]

        program = weft.export(all_of, given[part])
        program.save(tmp_path / "ops.weft")
        program = weft.load_program(tmp_path / "ops.weft", backend="interpret")
        assert not program.state
        same(program(given[part]), all_of(given[part]))


def test_ops_whose_sizes_depend_on_values() -> None:
    x = weft.tensor([1, 0, 2])
    for name in OF_VALUES - {"masked_select", "repeat"}:
        program = weft.export(function(name), x)
        for values in ([1, 0, 2], [0, 0, 3], [1, 1, 1]):
            given = weft.tensor(values)
            same(program(given), function(name)(given))


def test_constants(tmp_path: Path) -> None:
    """Every dtype, large and small, with all bits of NaN."""
    nan = np.array([0x7FF8000000000001, 0xFFF0000000000002], np.uint64).view(np.float64)
    rows: list[Any] = [nan, np.tile(nan, 20), np.float32(-0.0), np.array([np.inf, -np.inf])]
    dtypes = ("bool", "int8", "uint64", "float16", "bfloat16", "complex64", "complex128")
    rows += [weft.asarray(np.arange(40) % 2).astype(dtype).numpy() for dtype in dtypes]

    def give() -> Any:
        return [weft.asarray(row) for row in rows]

    program = there_and_back(weft.export(give), tmp_path)
    same(program(), [weft.asarray(row) for row in rows])


# --- training ------------------------------------------------------------------------------------

#: Steps that are more than a graph, and what the error says.
NO_GRAPH = {
    "wgan-gp": "gradient",
    "early exit": "gets a gradient depends on values",
    "cell by hand": "gets a gradient depends on values",
    "inner loop": "gets a gradient depends on values",
    "hooks": "calls <Function",
    "function": "calls <Function",
    "accumulation": "call zero_grad",
    "accumulation inside": "call zero_grad",
    "averaged": "history.append",
}


def _started(case: Case) -> Any:
    weft.manual_seed(0)
    setup = case.make(of_weft())
    weft.manual_seed(1)
    return setup


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_training_steps(case: Case, tmp_path: Path) -> None:
    """Losses and state are those of the compiled step."""
    setup = _started(case)
    inside = case.name.startswith(("schedule inside", "schedule first"))
    said = NO_GRAPH.get(case.name, "scheduler" if inside else None)
    if said is not None:
        with pytest.raises(CaptureError, match=said):
            weft.export(setup.step, *setup.batches[0])
        return
    program = there_and_back(weft.export(setup.step, *setup.batches[0]), tmp_path)
    assert not any(optimizer.state for optimizer in setup.optimizers)  # nothing was changed
    setup = _started(case)
    live = weft.compile(setup.step)
    if "random" in program.state:
        program.state["random"] = weft.get_rng_state()
    fitting = [b for b in setup.batches if _shapes(b) == _shapes(setup.batches[0])]
    for batch in [*fitting, *fitting, *fitting][:4]:
        same(program(*batch), live(*batch))
    for model in setup.models:
        for name, value in model.state_dict().items():
            held = [x for key, x in program.state.items() if key.endswith(f".{name}")]
            held = [x for x in held if x.shape == value.shape]
            assert not held or any((x.numpy() == value.numpy()).all() for x in held), name


def _shapes(batch: Any) -> Any:
    return [tuple(x.shape) for x in tree_leaves(batch)]


def a_step(rate: float = 0.1) -> tuple[Any, Any]:
    weft.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.1), nn.BatchNorm1d(8), nn.Linear(8, 2))
    optimizer = weft.optim.Adam(model.parameters(), lr=rate)

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return model, step


@pytest.mark.parametrize("backend", ["interpret", "native"])
def test_a_training_step(backend: str, tmp_path: Path) -> None:
    model, step = a_step()
    first = {name: x.numpy().copy() for name, x in model.state_dict().items()}
    B = weft.dim("B", min=2)
    program = weft.export(step, weft.spec((B, 4)), weft.spec((B, 2)))
    program = there_and_back(program, tmp_path, backend)
    assert all((x.numpy() == first[name]).all() for name, x in model.state_dict().items())
    assert 'optimizer.state[model.0.weight]["exp_avg"]' in program.state
    other = program.copy()
    live = weft.compile(step, backend=backend)
    weft.manual_seed(5)
    program.state["random"] = weft.get_rng_state()
    for size in (6, 3, 6):
        x, y = weft.ones((size, 4)), weft.zeros((size, 2))
        same(program(x, y).detach(), live(x, y).detach())
    for name, value in model.state_dict().items():
        same(program.state[f"model.{name}"].detach(), value)
        held = other.state[f"model.{name}"].numpy()
        assert (held == first[name]).all(), "a copy has a state of its own"
    same(program.state["model.0.weight"].grad, model[0].weight.grad)
    assert len(program.compiled.recordings) == 1
    before = program.state["model.0.weight"].numpy().copy()
    program.state['optimizer.param_groups[0]["lr"]'] = weft.tensor(0.0, dtype=weft.float64)
    program(x, y)
    assert (program.state["model.0.weight"].numpy() == before).all()
    with pytest.raises(WeftError, match=r"history|freed"):
        program(x, y).backward()
    with pytest.raises(ShapeError, match="B must be at least 2"):
        program(x[:1], y[:1])
    with pytest.raises(GradientError, match="x requires a gradient, and did not when"):
        program(x.requires_grad_(), y)
    program.state["model.3.bias"].requires_grad = False
    with pytest.raises(GradientError, match=r"model.3.bias does not require a gradient, and did"):
        program(weft.ones((6, 4)), y)


def test_state_that_is_replaced(tmp_path: Path) -> None:
    program = weft.export(nn.Linear(2, 1), weft.spec((3, 2)))
    x = weft.ones((3, 2))
    bias = weft.full((1,), 3.0)
    program.state |= {"bias": bias, "weight": weft.ones((1, 2))}
    want = x.sum(axis=1, keepdims=True) + bias
    same(program(x), want)
    state: Any = program.state

    def assigns(name: str, value: Any) -> Any:
        state[name] = value

    for assign in (assigns, lambda name, value: state.update({name: value})):
        for other in (weft.ones((1, 2), dtype=weft.float64), weft.ones((2, 2)), None, 2.0):
            with pytest.raises(DTypeError, match=r"state\['weight'\] is .*where .*f32\[1,2\] is"):
                assign("weight", other)
        with pytest.raises(RangeError, match=r"(?s)Linear has no state 'wieght'.*'weight'"):
            assign("wieght", bias)
    for remove in (lambda: state.pop("bias"), state.clear, lambda: state.__delitem__("bias")):
        with pytest.raises(RangeError, match="keeps all its names"):
            remove()
    same(there_and_back(program, tmp_path)(x), want)
    for name, value in (("weight", weft.ones(2)), ("more", bias)):  # past all checks
        kept = program.copy()
        dict.__setitem__(kept.state, name, value)
        with pytest.raises(DTypeError, match=r"Program.save: .*its state"):
            kept.save(tmp_path / "wrong.weft")
    assert not (tmp_path / "wrong.weft").exists()
    late = program.copy()
    state = late.state
    weft.compile(assigns)("weight", weft.ones(2))  # found by the next call, and by save
    with pytest.raises(DTypeError, match=r"state\['weight'\] is f32\[2\], where f32\[1,2\] is"):
        late(x)
    with pytest.raises(DTypeError, match=r"Program.save: .*its state"):
        late.save(tmp_path / "wrong.weft")
    program.state["weight"] = weft.ones((1, 2), requires_grad=True)
    assert program(x).requires_grad
    assert copy.copy(program.state).keys() == {"weight", "bias"}


def test_gradients_that_add_up(tmp_path: Path) -> None:
    """A program may carry gradients along from call to call: they are state."""
    w = weft.tensor([1.0, 2.0], requires_grad=True)
    w.grad = weft.zeros(2)

    def add(x: Any) -> Any:
        loss = (w * x).sum()
        loss.backward()
        return loss.detach()

    program = there_and_back(weft.export(add, weft.spec(2)), tmp_path)
    assert [entry.name for entry in program.state_entries] == ["w", "w.grad"]
    for _ in range(3):
        program(weft.tensor([3.0, 4.0]))
    assert program.state["w"].grad.tolist() == [9.0, 12.0]
    assert w.grad.tolist() == [0.0, 0.0]
    assert there_and_back(program, tmp_path).state["w"].grad.tolist() == [9.0, 12.0]


def test_threads_share_a_state() -> None:
    count = weft.zeros((), dtype=weft.int64)

    def step(x: Any) -> Any:
        count.add_(1)
        return x + count

    program = weft.export(step, weft.spec(2))
    program(weft.ones(2))
    threads = [
        threading.Thread(target=lambda: [program(weft.ones(2)) for _ in range(50)])
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert program.state["count"].item() == 201
    assert count.item() == 0


# --- state that is assigned ----------------------------------------------------------------------


class Cell(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 2)
        self.h = weft.zeros((1, 2))
        self.register_buffer("calls", weft.zeros(()))

    def forward(self, x: Any) -> Any:
        before = self.h
        self.h = weft.tanh(self.linear(x) + self.h).detach()
        self.calls += 1
        return {"old": before, "new": self.h, "calls": self.calls + 0}


def test_attributes_that_hold_tensors_are_state(tmp_path: Path) -> None:
    cell = Cell()
    program = there_and_back(weft.export(cell, weft.spec((1, 2))), tmp_path)
    assert set(program.state) == {"linear.weight", "linear.bias", "h", "calls"}
    for i in range(3):
        x = weft.full((1, 2), float(i))
        same(
            weft.tree_map(weft.Tensor.detach, program(x)),
            weft.tree_map(weft.Tensor.detach, cell(x)),
        )
    assert program.state["h"].tolist() == cell.h.tolist()


def test_attributes_that_change_places() -> None:
    box = Cell()
    box.a, box.b = weft.ones(2), weft.zeros(2)

    def swap() -> Any:
        box.a, box.b = box.b, box.a
        return box.a + 2 * box.b

    program = weft.export(swap)
    assert [program().tolist() for _ in range(3)] == [[2.0, 2.0], [1.0, 1.0], [2.0, 2.0]]
    assert box.a.tolist() == [1.0, 1.0]


# --- arguments -----------------------------------------------------------------------------------


def test_trees_and_names(tmp_path: Path) -> None:
    def of(batch: Any, /, scale: Any, *rest: Any, flip: bool = False, **more: Any) -> Any:
        out = batch["x"] * scale + sum(rest, start=weft.zeros(2)) + more["last"]
        return {"out": -out if flip else out, "pair": (out.sum(), 3), "none": None}

    s = weft.spec(2)
    program = weft.export(of, {"x": s, "y": s}, weft.spec(()), s, s, flip=True, last=s)
    program = there_and_back(program, tmp_path)
    assert [port.name for port in program.inputs] == [
        *('batch["x"]', 'batch["y"]', "scale", "rest[0]", "rest[1]", 'more["last"]'),
    ]
    assert [port.name for port in program.results] == ['result["out"]', 'result["pair"][0]']
    a, b = weft.ones(2), weft.full((2,), 2.0)
    want = of({"x": a, "y": b}, weft.asarray(2.0), a, b, flip=True, last=b)
    for call in (
        lambda: program({"y": b, "x": a}, 2.0, a, b, last=b),
        lambda: program({"x": a, "y": b}, weft.asarray(2.0), a, b, flip=True, last=b.numpy()),
    ):
        same(call(), want)


def test_names_with_quotes_differ() -> None:
    keys = ("it's", 'it"s', "it s", 3)
    program = weft.export(lambda d: dict(d), {key: weft.spec(2) for key in keys})
    shown = ['["it\'s"]', '["it\\"s"]', '["it s"]', "[3]"]
    assert [port.name for port in program.inputs] == [f"d{key}" for key in shown]
    assert [port.name for port in program.results] == [f"result{key}" for key in shown]


def _program() -> weft.Program:
    def f(x: Any, y: Any, mode: str = "sum") -> Any:
        return x + y if mode == "sum" else x - y

    return weft.export(f, weft.spec(("B", 2)), weft.spec(("B", 2)), "sum")


WRONG: dict[str, tuple[tuple[Any, ...], dict[str, Any], type[WeftError], str]] = {
    "missing": ((weft.ones((3, 2)),), {}, DTypeError, "missing a required argument: 'y'"),
    "too many": ((1, 2, "sum", 4), {}, DTypeError, "too many positional arguments"),
    "name": ((weft.ones((3, 2)),), {"z": 1}, DTypeError, "missing|unexpected"),
    "dtype": ((weft.ones((3, 2)), weft.ones((3, 2), dtype=weft.float64)), {}, DTypeError,
              r"y is f64\[3,2\], where f32\[B,2\] is expected"),
    "fixed size": ((weft.ones((3, 4)), weft.ones((3, 4))), {}, ShapeError,
                   "axis 1 of x has size 4, not 2"),
    "common size": ((weft.ones((3, 2)), weft.ones((4, 2))), {}, ShapeError, r"B is 3 here"),
    "axes": ((weft.ones(2), weft.ones(2)), {}, ShapeError, "1 axes"),
    "no tensor": ((weft.ones((3, 2)), "text"), {}, DTypeError, "y is 'text'"),
    "tree": ((weft.ones((3, 2)), [weft.ones((3, 2))]), {}, DTypeError, "y is"),
    "value": ((weft.ones((3, 2)), weft.ones((3, 2)), "difference"), {}, DTypeError,
              "mode is 'difference', and the program was exported for 'sum'"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_calls(name: str) -> None:
    args, kwargs, error, said = WRONG[name]
    program = _program()
    program(weft.ones((3, 2)), weft.ones((3, 2)))
    with pytest.raises(error, match=said):
        program(*args, **kwargs)
    with pytest.raises(error, match=said):  # inside of a compiled function, too
        weft.compile(lambda: program(*args, **kwargs))()


def test_sizes_that_the_code_asked_are_checked() -> None:
    program = weft.export(lambda x: x * 2 if x.shape[0] > 4 else x, weft.spec("B"))
    assert program(weft.ones(9)).tolist() == [2.0] * 9
    for calls in (program, program.copy()):  # after another call, and at once
        with pytest.raises(ShapeError, match="right only for sizes with B > 4; here B is 3"):
            calls(weft.ones(3))


def _by_size(x: Any) -> Any:
    if x.shape[0] == 5:
        return x - 1
    return x * 2 if x.shape[0] == 37 else x


COMPARED: dict[str, tuple[Any, tuple[Any, ...], tuple[int, ...]]] = {
    "equal": (lambda x: x * 2 if x.shape[0] == 5 else x, ("N",), (5,)),
    "both first numbers": (_by_size, ("N",), (5, 37)),
    "bounds": (lambda x: x * 2 if x.shape[0] == 6 else x, (weft.dim("N", min=2, max=6),), ()),
    "bounds, and the largest": (
        lambda x: x * 2 if x.shape[0] in (4, 5) else x, (weft.dim("N", min=2, max=5),), (4, 5),
    ),
    "interpolate": (
        lambda x: nn.functional.interpolate(x[None, None], size=(5, 4), mode="bilinear"),
        ("N", 5), (5,),
    ),
    "second axis": (lambda x: x * 2 if x.shape[1] == 7 else x, ("N", "M"), ()),
}  # fmt: skip


@pytest.mark.parametrize("name", COMPARED)
def test_sizes_that_the_code_compares_with_a_number(name: str, tmp_path: Path) -> None:
    function, shape, refused = COMPARED[name]
    program = weft.export(function, weft.spec(shape))
    assert any(type(size) is not int for size in program.inputs[0].type.shape)
    assert "compiled" in weft.explain(program).text()  # for example sizes that it takes
    rng = np.random.default_rng(0)
    for n in (2, 3, 4, 5, 37):
        x = weft.asarray(rng.normal(size=(n, *[5] * (len(shape) - 1))).astype("f4"))
        if n in refused:
            with pytest.raises(ShapeError, match=f"right only for sizes with N != {n}; here N"):
                program(x)
        elif n < 6 or not name.startswith("bounds"):
            same(there_and_back(program, tmp_path)(x), function(x))


def test_a_tensor_that_is_given_twice() -> None:
    def add(x: Any, y: Any) -> Any:
        x += 1
        return x * y

    program = weft.export(add, weft.spec(2), weft.spec(2))
    x, y = weft.ones(2), weft.ones(2)
    assert program(x, y).tolist() == [2.0, 2.0]
    assert x.tolist() == [2.0, 2.0]
    with pytest.raises(RangeError, match="x and y are the same tensor"):
        program(x, x)
    held = weft.ones(2)

    def keep(x: Any) -> Any:
        held.add_(x)
        return x + held

    program = weft.export(keep, weft.spec(2))
    with pytest.raises(RangeError, match="x and held are the same tensor"):
        program(program.state["held"])
    with pytest.raises(CaptureError, match="differs from element to element"):
        weft.vmap(program)(weft.ones((3, 2)))
    assert program.state["held"].tolist() == [1.0, 1.0]


# --- what is refused -----------------------------------------------------------------------------


class Straight(weft.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x.round()

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g


def _counts() -> Any:
    box = Cell()
    box.count = 0

    def f(x: Any) -> Any:
        box.count += 1
        return x

    return f


def _grows() -> Any:
    box = Cell()

    def f(x: Any) -> Any:
        box.h = weft.concat([box.h, x[None]])
        return box.h

    return f


def _history() -> Any:
    box = Cell()
    w = weft.ones(2, requires_grad=True)

    w.grad = weft.zeros(2)

    def f(x: Any) -> Any:
        (x * w).sum().backward()
        box.h.add_(w)
        return x

    return f


def _two_names() -> Any:
    box = Cell()
    box.a = box.b = weft.ones(2)

    def f(x: Any) -> Any:
        box.a = x + box.b
        return box.a

    return f


REFUSALS: dict[str, tuple[Any, str]] = {
    "a call into Python": (lambda x: weft.py_call(np.sin, weft.spec(2), x), "calls"),
    "print in a branch": (lambda x: print("big") if x.sum() > 0 else None, "print"),
    "print": (lambda x: [print("x"), x][1], "print"),
    "a step of one's own": (Straight.apply, "calls <Function Straight>"),
    "a counter": (_counts(), "count"),
    "state that grows": (_grows(), r"h is f32\[1,2\], and the function makes it f32\[2,2\]"),
    "a history that is kept": (_history(), "keeps the history of"),
    "two names of one tensor": (_two_names(), "is the same one now"),
    "a number": (lambda x: float(x.sum()) * weft.ones(int(x[0])), "Python asks a tensor"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals(name: str) -> None:
    refused, said = REFUSALS[name]
    with pytest.raises(CaptureError, match=said):
        weft.export(refused, weft.spec(2))


def test_arguments_that_are_refused() -> None:
    for given in (np.ones(2), nn.Linear(2, 2)):
        with pytest.raises(DTypeError, match="is no argument of a program"):
            weft.export(lambda x: x, given)
    with pytest.raises(GraphError, match="which has no text"):
        weft.export(lambda x: {len: x}, weft.spec(2))
    with pytest.raises(CaptureError, match="the size B can only be 5"):
        weft.export(lambda x: x.reshape(5), weft.spec("B"))


# --- where it is used ----------------------------------------------------------------------------


def test_transforms() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    program = weft.export(model, weft.spec(("B", 3)))
    x, t = weft.randn(5, 3), weft.randn(5, 3)

    def close(a: Any, b: Any) -> None:
        for p, q in zip(tree_leaves(a), tree_leaves(b), strict=True):
            np.testing.assert_allclose(p.detach().numpy(), q.detach().numpy(), rtol=2e-6, atol=2e-6)

    for use in (
        lambda f: weft.grad(lambda x: f(x).sum())(x),
        lambda f: weft.vmap(f)(weft.stack([x, t])),
        lambda f: weft.jvp(f, (x,), (t,)),
        lambda f: weft.vmap(weft.grad(lambda r: f(r[None]).sum()))(x),
        lambda f: weft.compile(lambda x: f(x * 2).sum())(x),
        lambda f: weft.compile(weft.grad(lambda x: (f(x) ** 2).sum()))(x),
        lambda f: weft.export(lambda x: f(x) + 1, weft.spec(("N", 3)))(x),
    ):
        close(use(program), use(model))
    with weft.no_grad():
        assert not program(x).requires_grad
    program(x).sum().backward()
    model(x).sum().backward()
    close(program.state["0.weight"].grad, model[0].weight.grad)


def test_no_grad_inside_is_no_grad_outside() -> None:
    def f(x: Any) -> Any:
        with weft.no_grad():
            half = x * 3
        return x * half, half.detach() * 2

    program = weft.export(f, weft.spec(2))
    x = weft.tensor([1.0, 2.0], requires_grad=True)
    (a, b), (c, d) = program(x), f(x)
    same(weft.autograd.grad(a.sum(), x), weft.autograd.grad(c.sum(), x))
    assert b.requires_grad == d.requires_grad == False  # noqa: E712


OTHER_FILES: dict[str, tuple[str, bytes, bytes, str]] = {
    "newer": ("weft.json", b'"version": 1', b'"version": 2', "has version 2 of the format"),
    "another format": ("weft.json", b"weft program", b"waft program", "it is no program"),
    "a lie about types": ("graph.txt", b"f32[B,1] = linear", b"f32[B,2] = linear", "type rule"),
    "an op that nobody knows": ("graph.txt", b"= linear", b"= liner", "there is no op 'liner'"),
    "calls into Python": ("weft.json", b'"custom ops": []', b'"custom ops": ["x"]', "the op 'x'"),
    "deep": ("signature.json", b'"result": ', b'"result": ' + b"[" * 9999, "JSON|deeply"),
    "other state": ("signature.json", b'"f32[1,2]"', b'"f32[2,1]"', "takes other inputs"),
}


@pytest.mark.parametrize("name", OTHER_FILES)
def test_files_that_are_no_programs(name: str, tmp_path: Path) -> None:
    kind, old, new, said = OTHER_FILES[name]
    path, other = tmp_path / "a.weft", tmp_path / "b.weft"
    weft.export(nn.Linear(2, 1), weft.spec(("B", 2))).save(path)
    for method, wanted in (
        (zipfile.ZIP_STORED, said),
        (zipfile.ZIP_DEFLATED, "compressed or encrypted"),
    ):
        with zipfile.ZipFile(path) as whole, zipfile.ZipFile(other, "w", method) as made:
            for part in whole.namelist():
                data = whole.read(part)
                assert part != kind or old in data
                made.writestr(part, data.replace(old, new, 1) if part == kind else data)
        with pytest.raises(FileError, match=wanted):
            weft.load_program(other)
    with pytest.raises(FileNotFoundError):
        weft.load_program(tmp_path / "none.weft")


OTHER_PROCESS = """
import sys, pathlib, numpy as np, weft
for path in sorted(pathlib.Path(sys.argv[1]).glob("*.weft")):
    kept = np.load(path.with_suffix(".npz"))
    given = [weft.asarray(kept[f"in{i}"]) for i in range(sum(n.startswith("in") for n in kept))]
    program = weft.load_program(path, backend="native")
    leaves = weft.tree_leaves(program(*given))
    assert len(leaves) == sum(n.startswith("out") for n in kept), path
    for i, leaf in enumerate(leaves):
        want = kept[f"out{i}"]
        assert leaf.detach().numpy().tobytes() == want.tobytes(), (path, leaf, want)
    assert "native code" in weft.explain(program).text(), weft.explain(program).text()
    assert weft.view(program).data
    print(path.stem, program)
"""


def test_another_process(tmp_path: Path) -> None:
    """It has no source of them, and computes the same bits."""
    model, step = a_step()
    programs = {
        "loop": (ROWS["`while` with break"][0], [np.array([0.5, 1.5])]),
        "model": (model.eval(), [np.ones((3, 4), np.float32)]),
    }
    for name, (of_row, arrays) in programs.items():
        given = [weft.asarray(array) for array in arrays]
        weft.export(of_row, *given).save(tmp_path / f"{name}.weft")
        outs = [
            x.detach().numpy() for x in tree_leaves(weft.compile(of_row, backend="native")(*given))
        ]
        np.savez(
            tmp_path / f"{name}.npz",
            **{f"in{i}": x for i, x in enumerate(arrays)},
            **{f"out{i}": x for i, x in enumerate(outs)},
        )
    model.train()
    x, y = np.ones((3, 4), np.float32), np.zeros((3, 2), np.float32)
    program = weft.export(step, weft.asarray(x), weft.asarray(y))
    program.save(tmp_path / "step.weft")
    program = weft.load_program(tmp_path / "step.weft", backend="native")
    np.savez(tmp_path / "step.npz", in0=x, in1=y, out0=program(weft.asarray(x), weft.asarray(y)))
    (tmp_path / "other.py").write_text(OTHER_PROCESS)
    command = [sys.executable, "other.py", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["loop", "model", "step"]


def test_custom_ops(tmp_path: Path) -> None:
    @weft.custom_op("program_cube", vjp=[lambda xp, g, _out, x: g * 3 * x * x])
    def cube(xp: Any, x: Any) -> Any:
        return x * x * x

    program = weft.export(lambda x: cube(x) + 1, weft.spec(2))
    program = there_and_back(program, tmp_path)
    assert program(weft.tensor([1.0, 2.0])).tolist() == [2.0, 9.0]
    card = weft.ir.op.OPS.pop("program_cube")
    try:
        with pytest.raises(WeftError, match="'program_cube', which is not registered here"):
            weft.load_program(tmp_path / "program.weft")
    finally:
        weft.ir.op.OPS["program_cube"] = card
