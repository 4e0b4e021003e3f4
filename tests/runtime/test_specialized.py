"""Graphs with symbolic sizes as machine code: a program for each set of sizes, where some kernel
cannot be one for all (`weft.runtime.sized`)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
import weft.nn.functional as F
from weft.core.bind import bind
from weft.ir.concrete import concrete
from weft.ir.graph import Graph
from weft.ir.interpret import interpret
from weft.runtime import specialized
from weft.runtime.interpreted import InterpretedProgram
from weft.runtime.native import NativeProgram, native
from weft.runtime.sized import SizedProgram
from weft.runtime.specialized import SpecializedProgram


def _scanned(x: Any, w: Any) -> Any:
    return weft.scan(lambda h, row: (weft.tanh(row @ w + h), h.sum()), weft.zeros(w.shape[1]), x)


def _while(x: Any) -> Any:
    return weft.while_loop(lambda y: (y * y).sum() > 1.0, lambda y: y * 0.5, x)


def _attention(q: Any, k: Any) -> Any:
    return F.scaled_dot_product_attention(q, k, k)


Case = tuple[Callable[..., Any], tuple[tuple[Any, ...], ...]]
CASES: dict[str, Case] = {
    "elementwise": (lambda x, y: x * 2 + y, (("B", 4), ("B", 1))),
    "mean by a size": (lambda x: x.sum(axis=0) / x.shape[0], (("B", 3),)),
    "mean": (lambda x: weft.mean(x, axis=0), (("B", 3),)),
    "product": (lambda x, w: weft.softmax(x @ w, axis=1), (("B", 4), (4, "C"))),
    "views": (lambda x: (x.reshape((-1,)), x.T, weft.concat([x, x], axis=1)), (("B", "C"),)),
    "slices": (lambda x: x[1:-1, ::2] * 2, (("2*B+2", "C"),)),
    "made of sizes": (lambda x: weft.arange(x.shape[0]) + weft.ones(x.shape[:1]), (("B", 2),)),
    "rows and columns": (lambda x: F.layer_norm(x, (5,)).sum(axis=0), (("B", 5),)),
    "attention": (_attention, ((2, "T", 8), (2, "S", 8))),
    "convolution": (lambda x, w: F.relu(F.conv2d(x, w, padding=1)),
                    (("B", 2, "H", 6), (3, 2, 3, 3))),
    "sorting": (lambda x: weft.sort(x, axis=0), (("B", 3),)),
    "a scan": (_scanned, (("T", 3), (3, "C"))),
    "a while": (_while, (("B", 2),)),
    "gradients": (weft.grad(lambda w, x: (weft.tanh(x @ w) ** 2).mean()), ((4, "C"), ("B", 4))),
}  # fmt: skip


def _specs(shapes: tuple[tuple[Any, ...], ...]) -> list[Any]:
    names = {name: weft.dim(name, min=1) for name in "BCHST"}
    return [weft.spec(tuple(weft.base.dims.as_dim(s, "", names) for s in sh)) for sh in shapes]


def _inputs(graph: Graph, sizes: dict[str, int], seed: int) -> list[Any]:
    rng = np.random.default_rng(seed)
    shapes = [value.tensor_type.shape for value in concrete(graph, sizes).inputs]
    return [weft.asarray(rng.standard_normal(shape).astype(np.float32)) for shape in shapes]


@pytest.mark.parametrize("name", CASES)
def test_as_the_interpreter(name: str) -> None:
    function, shapes = CASES[name]
    graph = weft.make_graph(function, *_specs(shapes))
    program = SpecializedProgram(graph, native)
    for seed, each in enumerate(((3, 2, 5, 4, 6), (1, 1, 1, 1, 1), (3, 2, 5, 4, 6))):
        inputs = _inputs(graph, dict(zip("BCHST", each, strict=True)), seed)
        wanted = interpret(graph, inputs, bind)
        for got, want in zip(program(list(inputs)), wanted, strict=True):
            assert got.type == want.type
            np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=2e-5, atol=1e-6)
    assert len(program.programs) == 2
    assert all(isinstance(part, NativeProgram) and not part.calls for part in program.programs)


def test_programs_that_were_not_used_for_long_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(specialized, "MOST", 3)
    graph = weft.make_graph(lambda x: x + 1, weft.spec(("B",)))
    program = SpecializedProgram(graph, native)
    for size in (1, 2, 3, 1, 4):
        assert program([weft.zeros(size)])[0].tolist() == [1.0] * size
    assert program.sizes == [{"B": 3}, {"B": 1}, {"B": 4}]


def test_sizes_that_data_decide() -> None:
    graph = weft.make_graph(lambda x: weft.unique_values(x) * 2, weft.spec(("B",)))
    program = native(graph)
    assert not isinstance(program, InterpretedProgram)
    for values in ([3.0, 1.0, 3.0], [], [2.0], [1.0, 3.0, 2.0, 1.0]):
        assert program([weft.tensor(values)])[0].tolist() == sorted({2 * x for x in values})


ERRORS: list[tuple[list[tuple[int, ...]], str]] = [
    ([(3, 4), (2, 4)], "axis 0 has size 2, but B is 3 here"),
    ([(3, 5), (3, 4)], "axis 1 has size 5, not 4"),
    ([(3, 4)], "takes f32"),
    ([(3, 4), (3, 4, 1)], "takes f32"),
]


@pytest.mark.parametrize(("shapes", "words"), ERRORS)
def test_wrong_sizes(shapes: list[tuple[int, ...]], words: str) -> None:
    specs = [weft.spec(("B", 4)), weft.spec(("B", 4))]
    program = SpecializedProgram(weft.make_graph(lambda x, y: x + y, *specs), native)
    with pytest.raises(weft.errors.WeftError, match=words):
        program([weft.ones(shape) for shape in shapes])


def test_what_fails_for_some_sizes_names_the_line() -> None:
    def f(x: Any) -> Any:
        return x[4]

    big = weft.dim("B", min=5)
    program = SpecializedProgram(weft.make_graph(f, weft.spec((big,))), native)
    assert program([weft.arange(5, dtype=weft.float32)])[0].item() == 4
    with pytest.raises(weft.errors.ShapeError, match="at least 5"):
        program([weft.ones(3)])


def test_from_many_threads() -> None:
    graph = weft.make_graph(lambda x: weft.sort(x) * 2, weft.spec(("B",)))
    program = SpecializedProgram(graph, native)
    bad: list[int] = []

    def work(first: int) -> None:
        for size in range(first, first + 20):
            x = np.random.default_rng(size).standard_normal(size % 7 + 1).astype(np.float32)
            if not np.array_equal(program([weft.asarray(x)])[0].numpy(), np.sort(x) * 2):
                bad.append(size)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not bad


def test_a_session_runs_machine_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_BACKEND", "native")
    graph = weft.Graph("line")
    w = weft.tensor([2.0, 3.0])
    with graph:
        x = weft.placeholder((weft.dim("B"), 2), name="x")
        y = (x * w).sum(axis=1)
    session = weft.Session(graph)
    for rows in (1, 3):
        assert session.run(y, {"x": np.ones((rows, 2))}).tolist() == [5.0] * rows
    ((part, *_),) = session._programs.values()
    assert isinstance(part._executables["native"].program, SizedProgram)
    assert part._ops is None
    w.requires_grad_()
    session.run(y, {"x": np.ones((2, 2))}).sum().backward()
    assert w.grad.tolist() == [2.0, 2.0]
