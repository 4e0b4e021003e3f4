"""One recording for all sizes: what is asked of them is a guard, and results are those of eager."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from control_flow_rows import HOLDER, ROWS
from sized_calls import chosen

import weft
from weft.capture.trace.captured import CaptureWarning

SIZES = (7, 0, 1, 64, 3)
#: Loops that go on until a sum is large: of no elements, for ever.
ENDLESS = ("while", "tensor loop", "loop state", "augmented", "random numbers")


def compiled(function: Callable[..., Any], **options: Any) -> Any:
    return weft.compile(function, **{"backend": "interpret", "dynamic": "auto", **options})


def run(call: Callable[..., Any], values: list[float]) -> Any:
    """The value and its first two gradients; the class of the error."""
    HOLDER.last = None
    weft.manual_seed(3)
    x = weft.tensor(values, dtype=weft.float64, requires_grad=True)
    try:
        y = call(x)
        (g,) = weft.autograd.grad(y.sum(), x, create_graph=True)
        second = x * 0
        if g.requires_grad:
            (second,) = weft.autograd.grad(
                (g * g).sum(), x, materialize_grads=True, allow_unused=True
            )
    except (AssertionError, IndexError, RuntimeError, ValueError) as error:
        return type(error)
    return [part.detach().numpy() for part in (y, g, second)]


def _control_flow() -> list[Any]:
    """All rows in all modes, and a sample of them in machine code."""
    found = []
    for name in ROWS:
        for mode in ("trace", "source"):
            for dynamic in ("auto", True):
                for backend in ("interpret", "native"):
                    if backend == "interpret" or chosen(12, name, mode, dynamic):
                        own = f"{name}-{mode}-{dynamic}-{backend}"
                        found.append(pytest.param(name, mode, dynamic, backend, id=own))
    return found


@pytest.mark.parametrize(("name", "mode", "dynamic", "backend"), _control_flow())
def test_control_flow(name: str, mode: str, dynamic: Any, backend: str) -> None:
    function, inputs = ROWS[name]
    if "random numbers" in name:
        pytest.skip("it adds two elements to its argument")
    captured = compiled(function, capture=mode, dynamic=dynamic, backend=backend)
    first = inputs[0]
    for size in (2, *SIZES, 2):
        if size == 0 and any(word in name for word in ENDLESS):
            continue
        values = [first[i % len(first)] * (1 if i < 2 else 0.1) for i in range(size)]
        want, got = run(function, values), run(captured, values)
        if isinstance(want, type) or isinstance(got, type):
            assert got is want
            continue
        for a, b in zip(got, want, strict=True):
            np.testing.assert_allclose(
                a, b, rtol=1e-12 if backend == "interpret" else 1e-9, atol=1e-12
            )


# --- what is asked ----------------------------------------------------------------------------


def if_larger(x: Any) -> Any:
    return x * 2 if x.shape[0] > 4 else x + 1


def if_even(x: Any) -> Any:
    return x * 2 if len(x) % 2 == 0 else x + 1


def if_one(x: Any) -> Any:
    return x * 2 if x.shape[0] == 1 else x + 1


def if_any(x: Any) -> Any:
    return x * 2 if x.shape[0] else weft.ones(3)


def if_float(x: Any) -> Any:
    return x * 2 if x.shape[0] < 4.5 else x + 1


def halves(x: Any) -> Any:
    n = x.shape[0] // 2
    return x[:n].sum() - x[n:].sum()


def pairs(x: Any) -> Any:
    if x.shape[0] % 2:
        return x
    return x.reshape(x.shape[0] // 2, 2).sum(1)


def smallest(x: Any) -> Any:
    return x[: min(x.shape[0], 5)] * max(len(x), 2)


def table(x: Any) -> Any:
    return {1: x * 2, 7: x * 3}.get(len(x), x)


def names(x: Any) -> Any:
    return {f"{x.shape[0]} rows": x, str(len(x)): x, repr(x.shape): x}


def parts(x: Any) -> Any:
    return [x[i] for i in range(x.shape[0])]


def total(x: Any) -> Any:
    out = x.sum() * 0
    for i in range(x.shape[0]):
        out = out * 0.5 + x[i] * i
    for i, part in enumerate(reversed(x)):
        out = out + part * i
    return out


def mean(x: Any) -> Any:
    n = x.shape[0]
    return x.sum() / n, n / 2, 0.5 * n, n**2, float(n), n // 2, x / len(x), [n, {"n": n}]


def reciprocal(x: Any) -> Any:
    return 1 / x.shape[0]


def joined(x: Any) -> Any:
    y = weft.concat([x, x[1:]])
    return y.reshape(-1), weft.stack([x, x]), x[::2], weft.arange(len(x)) * x, x[:, None] + x


def reduced(x: Any) -> Any:
    return x.mean(), x.var(), x.max(), weft.cumsum(x), weft.sort(x), x.argmax()


def drawn(x: Any) -> Any:
    return x * weft.rand(x.shape[0]) + weft.randn_like(x)


def listed(x: Any) -> Any:
    h, found = x.sum() * 0, []
    for i in range(x.shape[0]):
        h = weft.tanh(h + x[i])
        found.append(weft.stack([h, h * i]))
    return weft.stack(found, axis=1), weft.concat(found, axis=-1), found[0], found[-1], len(found)


def repeated(x: Any) -> Any:
    return (weft.broadcast_to(x[:1], x.shape) * x).sum() + x[-1:] * x


def cut(x: Any) -> Any:
    rest = x.split([x.shape[0] // 2, x.shape[0] - x.shape[0] // 2])
    return [
        part.sum() for part in (*x.chunk(2), *x.tensor_split(3), *x.tensor_split([2, -1]), *rest)
    ]


def rounded(x: Any) -> Any:
    n = x.shape[0]
    wholes = int(n / 2), math.ceil(n / 4), math.floor(1.5 * n), n >> 1, n << 2, n & 3, divmod(n, 3)
    return wholes, math.sqrt(n), math.log2(n + 1), int(np.prod(x.shape)), x[: int(n / 2)].sum()


def sliced(x: Any) -> Any:
    n = x.shape[0]
    return x[slice(0, max(n - 1, 0))], x[(slice(None, n // 2),)]


def filled(x: Any) -> Any:
    n = -(-x.shape[0] // 4)
    return weft.nn.functional.pad(x, (0, 4 * n - x.shape[0])).reshape(n, 4).sum(axis=1)


def made(x: Any) -> Any:
    return weft.zeros(x.shape[0]), weft.full(x.shape, 2.0), weft.ones(2)


def with_numpy(x: Any) -> Any:
    return x * weft.asarray(np.arange(x.shape[0], dtype=np.float32)), np.zeros(x.shape).sum()


def kinds(x: Any) -> Any:
    n = x.shape[0]
    return isinstance(n, int), type(n) is int, hash(n), bool(n), n.bit_length()


ASKED: list[tuple[Any, int]] = [  # with how many recordings these sizes take
    (if_larger, 3),
    (if_even, 3),
    (if_one, 3),
    (if_any, 3),
    (if_float, 3),
    (halves, 2),
    (pairs, 3),
    (smallest, 4),
    (table, 10),
    (names, 10),
    (parts, 10),
    (total, 4),
    (mean, 2),
    (reciprocal, 3),
    (joined, 3),
    (reduced, 3),
    (drawn, 2),
    (listed, 4),
    (repeated, 3),
    (cut, 4),
    (rounded, 2),
    (sliced, 4),
    (filled, 3),
    (made, 2),
    (with_numpy, 10),
    (kinds, 10),
]


def outcome(call: Callable[..., Any], size: int) -> Any:
    weft.manual_seed(0)
    try:
        found = call(weft.asarray(np.linspace(-1, 2, size, dtype=np.float32)))
    except (ArithmeticError, IndexError, RuntimeError, ValueError) as error:
        return type(error)
    return repr(found)


@pytest.mark.filterwarnings("ignore:.* was recorded 8 times")  # a trace may, for each answer
@pytest.mark.parametrize("mode", ["trace", "source"])
@pytest.mark.parametrize(("function", "most"), ASKED, ids=lambda x: getattr(x, "__name__", None))
def test_what_is_asked(function: Any, most: int, mode: str) -> None:
    call = compiled(function, capture=mode)
    for size in (4, *SIZES, 8, 12, 5, 2):
        assert outcome(call, size) == outcome(function, size), size
    if mode == "source":
        assert len(call.recordings) <= most, [str(r) for r in call.recordings]


def test_the_warning_names_the_line_that_asks_for_a_size() -> None:
    call = compiled(table)
    with pytest.warns(CaptureWarning, match=r"its size is asked for at .*\(x_0 == "):
        [call(weft.ones(size)) for size in range(2, 14)]


# --- several tensors ----------------------------------------------------------------------------


def test_axes_that_stay_equal_share_a_name() -> None:
    call = compiled(lambda x, y: x * y + y.shape[0])
    for size in (3, 5, 6, 0, 1):
        x = weft.ones((size, 2))
        assert (call(x, x + 1) - (2 + size)).abs().sum() == 0
    assert len(call.recordings) == 2
    assert "axis 0 of y is x_0" in call.guards()
    assert call(weft.ones((4, 2)), weft.ones((1, 2))).shape == (4, 2)
    assert "axis 0 of y is x_0 does not hold: x_0 is 4 (axis 0 of x)" in call.recordings[-1].reason


def test_names_that_turn_out_equal_become_one() -> None:
    call = compiled(lambda x, y: x + y if x.shape[0] == y.shape[0] else x.sum() + y.sum())
    for a, b in ((3, 4), (5, 5), (6, 6), (7, 2), (1, 9), (2, 2)):
        x, y = weft.ones(a), weft.ones(b)
        want = x + y if a == b else x.sum() + y.sum()
        assert repr(call(x, y)) == repr(want)
    assert len(call.recordings) == 3


def test_a_size_that_must_be_a_number() -> None:
    call = compiled(lambda x, w: x @ w)
    for size in (3, 5, 7):
        if size == 3:
            call(weft.ones((2, 4)), weft.ones((4, 3)))
        assert call(weft.ones((size, 4)), weft.ones((4, 3))).shape == (size, 3)
    with pytest.raises(weft.errors.ShapeError):
        call(weft.ones((2, 5)), weft.ones((4, 3)))
    assert call(weft.ones((9, 4)), weft.ones((4, 3))).shape == (9, 3)
    assert len(call.recordings) == 2


def test_one_tensor_in_two_places_is_noticed() -> None:
    def write(x: Any, y: Any) -> Any:
        x += 1
        return x.sum() + y.sum()

    call = compiled(write)
    for size in (2, 3, 5):
        assert call(weft.zeros(size), weft.zeros(size)) == size
    x = weft.zeros(4)
    assert call(x, x) == 8
    assert x.sum() == 4


def test_errors_name_the_sizes_of_the_call() -> None:
    def fails(x: Any) -> Any:
        if x.shape[0] > 4:
            raise ValueError(f"too long: {x.shape[0]}")
        return x + weft.ones((x.shape[0], 1))

    call = compiled(fails)
    for size in (2, 3, 4):
        call(weft.ones(size))
    with pytest.raises(ValueError, match="too long: 6"):
        call(weft.ones(6))
    with pytest.raises(ValueError, match="too long: 9"):
        call(weft.ones(9))
    bad = compiled(lambda x: x + weft.ones(3))
    bad(weft.ones(3))
    with pytest.raises(weft.errors.ShapeError, match=r"\(5,\) and \(3,\)"):
        bad(weft.ones(5))


# --- what is declared ----------------------------------------------------------------------------


def test_declared_shapes() -> None:
    call = compiled(
        lambda x, state: x @ x.T + state["n"].sum(),
        dynamic={"x": ("B", 4), "state": {"n": ("2*B",)}},
    )
    for size in (3, 0, 1, 8):
        x = weft.ones((size, 4))
        assert call(x, {"n": weft.zeros(2 * size)}).shape == (size, size)
    assert len(call.recordings) == 1
    with pytest.raises(weft.errors.ShapeError, match="axis 1 of x has size 5, not 4"):
        call(weft.ones((3, 5)), {"n": weft.zeros(6)})
    bounded = compiled(
        lambda x: x * 2 if x.shape[0] > 2 else x, dynamic={"x": (weft.dim("T", min=3),)}
    )
    assert bounded(weft.ones(3)).sum() == 6
    assert not [guard for guard in bounded.guards() if guard == "T > 2"]
    with pytest.raises(weft.errors.ShapeError, match="T must be at least 3"):
        bounded(weft.ones(2))


def test_never() -> None:
    call = compiled(lambda x: x * 2, dynamic=False)
    for size in (2, 3, 4):
        call(weft.ones(size))
    assert len(call.recordings) == 3


def test_always() -> None:
    call = compiled(lambda x, w: x @ w + x.shape[0], dynamic=True)
    for size in (2, 0, 1, 4):
        call(weft.ones((size, 3)), weft.ones((3, 5)))
    assert len(call.recordings) == 1
    with pytest.raises(weft.errors.RangeError, match="a shape for 'y', which is no argument"):
        weft.compile(lambda x: x, dynamic={"y": ("B",)})
    with pytest.raises(weft.errors.RangeError, match="dynamic is 'always'"):
        weft.compile(lambda x: x, dynamic="always")


def test_bounds_that_leave_one_size() -> None:
    call = compiled(lambda x, w: x @ w if 3 <= x.shape[1] <= 3 else x.sum())
    for size in (2, 5, 3, 4, 3):
        x, w = weft.ones((2, size)), weft.ones((3, 2))
        assert call(x, w).shape == ((2, 2) if size == 3 else ())


def test_equal_sizes_that_are_not_written_alike() -> None:
    """min(T, 4) is 4: the backward relies on it as well as the forward."""
    call = compiled(lambda x: weft.linalg.qr(x).R.sum())
    for size in (3, 7, 64, 2, 5):
        x = weft.asarray(np.random.default_rng(size).normal(size=(size, 4)))
        y = x.clone()
        x.requires_grad = y.requires_grad = True
        call(x).backward()
        weft.linalg.qr(y).R.sum().backward()
        np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy(), rtol=1e-9)


def test_types_in_a_loop_that_rely_on_an_answer() -> None:
    """min(k*n, k) is k, but for n = 0: the graphs inside of the loop rely on it."""

    def best(scores: Any, k: int) -> Any:
        totals = weft.zeros(k)
        for _ in range(4):
            if totals.sum() > 3.0:
                break
            grown = (totals[:, None] + scores).reshape(-1)
            totals = weft.sort(grown, descending=True)[:k]
        return totals

    compiled = weft.compile(best)
    for n, k in ((4, 2), (4, 3), (3, 3), (6, 2), (2, 4), (1, 1), (1, 3)):
        scores = weft.asarray(np.random.default_rng(n).normal(size=(1, n)), dtype=weft.float32)
        np.testing.assert_array_equal(compiled(scores, k).numpy(), best(scores, k).numpy())
        for stage in ("captured", "optimized"):
            compiled.graph(stage).verify()
