"""Code on disk is found by the captured graph, unless users have a say in what it becomes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from weft.autodiff.custom_op import _CUSTOM
from weft.ir.dispatch import register_kernel
from weft.ir.graph import Graph
from weft.ir.op import OPS
from weft.passes import pipeline
from weft.runtime import keys
from weft.runtime.keys import code_key


@pytest.fixture(autouse=True)
def _place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path / "kept"))
    monkeypatch.delenv("WEFT_CACHE", raising=False)


@pytest.fixture
def optimized(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The graphs that passes are run on."""
    names: list[str] = []
    really = pipeline._run_all

    def noted(todo: Any, graph: Graph, *rest: Any) -> Graph:
        names.append(graph.name)
        return really(todo, graph, *rest)

    monkeypatch.setattr(pipeline, "_run_all", noted)
    return names


def compiled(function: Callable[..., Any]) -> Any:
    return weft.compile(function, backend="native")


def plus_one(x: Any) -> Any:
    y = x * 1 + 0
    return y + 1


def pick(x: Any, i: Any) -> Any:
    y = x * 2
    return y[i]


def large(x: Any) -> Any:
    return x + weft.tensor(np.arange(5000, dtype=np.float32))


def counted(x: Any) -> Any:
    while x.sum() < 10:
        x = x * 2
    return x


@pytest.mark.parametrize("function", [plus_one, large, counted])
def test_what_is_on_disk_needs_no_passes(function: Any, optimized: list[str]) -> None:
    x = weft.ones(5000)
    want = compiled(function)(x).numpy()
    assert len(optimized) == 1
    again = compiled(function)
    np.testing.assert_array_equal(again(x).numpy(), want)
    np.testing.assert_array_equal(function(x).numpy(), want)
    assert len(optimized) == 1
    (executable,) = again.programs
    assert executable.seconds["passes"] == 0
    assert len(executable.optimized.nodes) <= len(executable.captured.nodes)
    assert len(optimized) == 2  # now that somebody looks at it
    assert executable.optimized is executable.optimized
    assert executable.seconds["passes"] > 0


def test_errors_of_code_on_disk_have_lines(optimized: list[str]) -> None:
    x, good, bad = weft.ones(3), weft.tensor([1]), weft.tensor([7])
    compiled(pick)(x, good)
    again = compiled(pick)
    again(x, good)
    assert len(optimized) == 1
    with pytest.raises(weft.errors.IndexError, match="out of bounds") as caught:
        again(x, bad)
    assert caught.value.location is not None
    assert caught.value.location.text == "return y[i]"


def test_other_graphs_have_other_keys() -> None:
    made = [
        weft.make_graph(lambda x: x + 1, weft.spec(3)),
        weft.make_graph(lambda x: x + 2, weft.spec(3)),
        weft.make_graph(lambda x: x + 1, weft.spec(4)),
        weft.make_graph(lambda x: x + weft.tensor(np.arange(3.0)), weft.spec(3)),
        weft.make_graph(lambda x: x + weft.tensor(np.arange(3.0) + 1), weft.spec(3)),
    ]
    found = [code_key(graph, lambda: pytest.fail("optimized"), b"passes") for graph in made]
    found += [code_key(graph) for graph in made]
    found += [code_key(made[0], lambda: pytest.fail("optimized"), b"others")]
    assert None not in found
    assert len(set(found)) == len(found)


# --- where users have a say ----------------------------------------------------------------------


def test_a_users_pass_is_run(optimized: list[str]) -> None:
    def twice(graph: Graph) -> Graph:
        return weft.optimize(weft.make_graph(lambda x: x + 100, weft.spec(5000)), [])

    x = weft.ones(5000)
    assert compiled(plus_one)(x).numpy()[0] == 2
    added = weft.passes.register(twice)
    try:
        assert [compiled(plus_one)(x).numpy()[0] for _ in range(2)] == [101, 101]
    finally:
        weft.passes.unregister(added)
    before = len(optimized)
    assert compiled(plus_one)(x).numpy()[0] == 2
    assert len(optimized) == before


def test_the_graph_after_the_passes_says_it() -> None:
    graph = weft.make_graph(plus_one, weft.spec(3))
    after = weft.optimize(graph)
    asked: list[int] = []

    def optimized() -> Graph:
        asked.append(1)
        return after

    assert code_key(graph, optimized, b"passes") != code_key(after)
    assert not asked
    assert code_key(graph, optimized, None) == code_key(after)
    assert len(asked) == 1
    register_kernel("add")(lambda x, y: x - y)
    assert code_key(graph, optimized, b"passes") == code_key(after)
    assert len(asked) == 2


def test_users_ops_are_known() -> None:
    own = [op for op in OPS.values() if op.infer.__module__.startswith("weft.")]
    own = [op for op in own if op.name not in _CUSTOM]  # other tests may have made some
    assert len(own) > 150
    assert all(map(keys._is_own, own))

    @weft.custom_op("keys_cube")
    def cube(xp: Any, x: Any) -> Any:
        return x * x * x

    assert not keys._is_own(OPS["keys_cube"])
    graph = weft.make_graph(lambda x: cube(x) + 1, weft.spec(3))
    assert code_key(graph, lambda: graph, b"passes") == code_key(graph)


def _registers() -> None:
    """What tests do that have left something."""
    register_kernel("multiply", dtype=weft.float16)(lambda x, y: x)
    weft.passes.register(lambda graph: graph)


@pytest.mark.parametrize("leaves", [True, False])
def test_registrations_of_one_test_are_gone_in_the_next(leaves: bool) -> None:
    graph = weft.make_graph(plus_one, weft.spec(3))
    assert not keys._users_ops(graph)
    assert not pipeline.has_registered()
    x = weft.ones(2, dtype="float16") * 3
    assert x.numpy()[0] == 3
    if leaves:
        _registers()
        assert (weft.ones(2, dtype="float16") * 3).numpy()[0] == 1
        assert keys._users_ops(graph)
        assert pipeline.has_registered()
