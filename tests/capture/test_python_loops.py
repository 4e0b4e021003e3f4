"""Which loops over Python values become loops of the graph, and why the others do not."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from tests.support.loop_rows import PROGRAMS, UNROLLED, N
from weft.errors import CaptureError


@pytest.mark.parametrize("backend", ["interpret", "native"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_loop_stays_one(name: str, backend: str, capsys: Any) -> None:
    function = PROGRAMS[name]
    captured = weft.compile(function, backend=backend)
    for x in ([1.0, 2.0, 3.0], [0.5, -1.0, 0.0]):
        expected = function(weft.tensor(x))
        shown = capsys.readouterr().out
        got = captured(weft.tensor(x))
        assert capsys.readouterr().out == shown
        assert got.type == expected.type
        np.testing.assert_allclose(got.numpy(), expected.numpy(), rtol=1e-4)
    assert len(captured.recordings) == 1
    nodes = [node.op.name for node in captured.paths()[0].nodes]
    text = str(captured.explain())
    if name in UNROLLED:
        assert len(nodes) > N
        assert f"was unrolled {N} times: " in text
        assert UNROLLED[name] in text
    else:
        assert "scan" in nodes or "while" in nodes
        assert len(nodes) < N
        assert "unrolled" not in text


def test_gradients_go_through_such_loops() -> None:
    def loss(x: Any) -> Any:
        for j, i in enumerate(reversed(range(20))):
            x = x * 0.9 + weft.sin(x) * i / (j + 1)
        return x.sum()

    x = weft.tensor([0.3, -0.2, 1.0])
    expected = weft.grad(loss)(x)
    for way in (weft.compile(weft.grad(loss)), weft.grad(weft.compile(loss))):
        np.testing.assert_allclose(way(x).numpy(), expected.numpy(), rtol=1e-4)
    mapped = weft.compile(weft.vmap(loss))
    rows = weft.stack([x, x * 2])
    np.testing.assert_allclose(mapped(rows).numpy(), weft.vmap(loss)(rows).numpy(), rtol=1e-4)


def test_iterators_are_gone_through_once() -> None:
    @weft.compile
    def f(x: Any) -> Any:
        pairs = zip(range(20), range(20, 0, -1), strict=False)
        first = next(pairs)
        for i, j in pairs:
            x = x + i * j
        left = list(pairs)
        table = dict(enumerate(range(3)))
        kept = list(reversed(range(4)))
        both = sorted(zip(range(3), reversed(range(3)), strict=False))
        return x, first, left, table, kept, both, [i for i, _ in enumerate(range(3))]

    def g(x: Any) -> Any:
        numbers = reversed(range(30))
        for i in numbers:
            x = x + i
        return x, list(numbers)

    x = weft.ones(2)
    assert [str(part) for part in f(x)] == [str(part) for part in f.function(x)]
    assert [str(part) for part in weft.compile(g)(x)] == [str(part) for part in g(x)]


def test_an_iterator_that_a_loop_left_early_is_refused() -> None:
    @weft.compile
    def f(x: Any) -> Any:
        numbers = enumerate(range(30))
        for i, _ in numbers:
            x = x + i
            if x.sum() > 20:
                break
        return x, list(numbers)

    with pytest.raises(CaptureError, match="left it early"):
        f(weft.ones(2))


def test_a_sampler_is_one_loop() -> None:
    """Denoising: fifty steps from the last to the first, each with another table entry."""
    weft.manual_seed(0)
    betas = weft.linspace(1e-4, 0.02, 50)
    alphas = 1 - betas
    table = weft.randn((50, 8))
    layer = weft.nn.Linear(8, 8)

    @weft.no_grad()
    def sample(n: int) -> Any:
        x = weft.randn((n, 8))
        for i in reversed(range(50)):
            t = weft.full((n,), i, dtype=weft.int64)
            noise = weft.tanh(layer(x) + table[t])
            x = (x - betas[i] / weft.sqrt(1 - alphas[i]) * noise) / weft.sqrt(alphas[i])
            if i > 0:
                x = x + weft.sqrt(betas[i]) * weft.randn((n, 8))
        return x

    captured = weft.compile(sample)
    weft.manual_seed(1)
    expected = sample(4)
    weft.manual_seed(1)
    np.testing.assert_allclose(captured(4).numpy(), expected.numpy(), rtol=1e-3, atol=1e-4)
    assert [node.op.name for node in captured.paths()[0].nodes].count("scan") == 1


WRITES_TO_ROWS = {
    "in place": "for e in w:\n        w *= e\n        t = t + e",
    "with numbers": "for i, e in enumerate(w):\n        w *= e\n        t = t + i * e",
    "an item": "for i, e in enumerate(w):\n        w[-1] = e + i\n        t = t + e",
    "beside others": "for e, f in zip(w, v):\n        w *= f\n        t = t + e",
    "from the last": "for e in reversed(w):\n        w *= e\n        t = t + e",
}


@pytest.mark.parametrize("name", WRITES_TO_ROWS)
def test_rows_are_those_of_their_iteration(name: str, tmp_path: Path) -> None:
    """A loop that writes to what it goes through, of all lengths: with the first iteration taken
    apart, the others read rows as they were before the loop."""
    (tmp_path / "loops.py").write_text(
        f"def f(v):\n    w, t = v * 0.5, 0\n    {WRITES_TO_ROWS[name]}\n    return w, t\n"
    )
    function = runpy.run_path(str(tmp_path / "loops.py"))["f"]
    for dynamic in (True, "auto"):
        compiled = weft.compile(function, dynamic=dynamic)
        for length in (1, 3, 2, 5, 20):
            v = weft.asarray(np.linspace(0.5, 2, length))
            for found, wanted in zip(compiled(v), function(v), strict=True):
                np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-12)
