"""Scans in parts of their rows: which are, that parts give what the whole does, and threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import weft
from weft.codegen.cpu import CpuTarget
from weft.codegen.machine import host
from weft.ir.graph import Node
from weft.passes.lowering.lower import lowered
from weft.passes.pipeline import optimize
from weft.runtime.native import NativeProgram
from weft.schedule.scan_rows import row_scan

T, B, H = 300, 24, 16  # long enough for threads


def values(*shape: int) -> weft.Tensor:
    rng = np.random.default_rng(sum(shape))
    return weft.asarray(rng.standard_normal(shape).astype(np.float32))


# --- bodies: (carry, x, weights) -> carry, y ----------------------------------------------------


def _cell(h: Any, x: Any, w: Any) -> Any:
    h = weft.tanh(x + h @ w["square"])
    return h, h * 2.0


def _softmax(h: Any, x: Any, w: Any) -> Any:
    h = weft.softmax(x + h @ w["square"], axis=1)
    return h, h.sum(axis=-1, keepdims=True)


def _masked(h: Any, x: Any, w: Any) -> Any:
    return h * w["mask"] + x, weft.where(w["mask"] > 0, h, 0.0)


def _pieces(h: Any, x: Any, w: Any) -> Any:
    left, right = h[..., :8], h[:, 8:]
    turned = weft.permute_dims(weft.reshape(x, (B, 4, 4)), (0, 2, 1))
    return weft.concat([right, left], axis=1) + weft.reshape(turned, (B, H)), turned


def _of_matrices(h: Any, x: Any, w: Any) -> Any:
    grid = weft.reshape(h, (B, 4, 4))
    return weft.reshape(weft.tanh(grid @ grid) * 0.1, (B, H)) + x * 0.1 + w["row"], x.max(axis=1)


def _equal_rows(h: Any, x: Any, w: Any) -> Any:
    return h + weft.broadcast_to(w["row"], (B, H)) * x + weft.ones((B, H)), h


def _over_rows(h: Any, x: Any, w: Any) -> Any:
    return weft.tanh(h - h.mean(axis=0) + x), h


def _turned(h: Any, x: Any, w: Any) -> Any:
    return weft.permute_dims(weft.permute_dims(h, (1, 0)) + 1.0, (1, 0)) + x, h


def _first_row(h: Any, x: Any, w: Any) -> Any:
    return h * 0.5 + h[0] * 0.3 + x, h


def _flipped(h: Any, x: Any, w: Any) -> Any:
    return h * 0.5 + h[::-1] * 0.3 + x, h


def _counted(h: Any, x: Any, w: Any) -> Any:
    return h + x, (h * h).sum()


def _column(h: Any, x: Any, w: Any) -> Any:
    return weft.tanh(w["tall"] @ h + x), h


def _both_ways(h: Any, x: Any, w: Any) -> Any:
    return weft.tanh(h * w["tall"][:, :H] + x), w["tall"] @ h


#: Body, and in how many parts its scan is done; 0: it is not.
BODIES: dict[str, tuple[Callable[..., Any], int]] = {
    "cell": (_cell, 3),
    "softmax": (_softmax, 3),
    "masked": (_masked, 3),
    "pieces": (_pieces, 3),
    "of_matrices": (_of_matrices, 3),
    "equal_rows": (_equal_rows, 3),
    "over_rows": (_over_rows, 0),
    "turned": (_turned, 0),
    "first_row": (_first_row, 0),
    "flipped": (_flipped, 0),
    "counted": (_counted, 0),
    "column": (_column, 0),
    "both_ways": (_both_ways, 0),
}


def _graph(name: str, reverse: bool = False) -> tuple[Any, list[weft.Tensor]]:
    weights = {
        "square": values(H, H) * 0.1,
        "row": values(H),
        "mask": values(B, 1) * 0.3,
        "tall": values(B, B) * 0.1,
    }

    def run(h: Any, xs: Any, *given: Any) -> Any:
        w = dict(zip(weights, given, strict=True))
        return weft.scan(lambda c, x: BODIES[name][0](c, x, w), h, xs, reverse=reverse)

    given = [values(B, H), values(T, B, H), *weights.values()]
    return optimize(weft.make_graph(run, *[x.type for x in given])), given


@contextmanager
def _threads(number: int) -> Iterator[None]:
    before = weft.get_num_threads()
    weft.set_num_threads(number)
    try:
        yield
    finally:
        weft.set_num_threads(before)


def _scan(graph: Any) -> Node:
    return next(node for node in lowered(graph).nodes if node.op.name == "scan")


@pytest.mark.parametrize("name", BODIES)
def test_parts_give_what_the_whole_does(name: str) -> None:
    graph, given = _graph(name)
    wanted = [np.asarray(x) for x in graph(*given)]
    cut = row_scan(_scan(graph))
    assert (0 if cut is None else cut.parts) == BODIES[name][1]
    assert (CpuTarget(host()).rows(_scan(graph)) is None) == (cut is None)
    if cut is not None:
        cut.body.verify()
        assert {value.type.shape[0] for value in cut.body.outputs} == {B // cut.parts}
    for threads in (1, 2):
        with _threads(threads):
            found = NativeProgram(graph)(given)
        for one, two in zip(found, wanted, strict=True):
            np.testing.assert_allclose(np.asarray(one), two, rtol=2e-4, atol=1e-5)


def test_the_number_of_threads_makes_no_difference() -> None:
    for reverse in (False, True):
        graph, given = _graph("cell", reverse)
        assert CpuTarget(host()).rows(_scan(graph)) is not None
        program = NativeProgram(graph)
        found = []
        for threads in (1, 2, 3):
            with _threads(threads):
                found += [np.asarray(x).tobytes() for x in program(given)]
        assert len(set(found)) == 2  # the last carry, and the ys


def test_from_many_python_threads() -> None:
    graph, given = _graph("cell")
    program = NativeProgram(graph)
    wanted = [np.asarray(x) for x in program(given)]
    wrong: list[Any] = []

    def work() -> None:
        for _ in range(20):
            for one, two in zip(program(given), wanted, strict=True):
                if not np.array_equal(np.asarray(one), two):
                    wrong.append(one)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_what_is_shown_of_it() -> None:
    graph, given = _graph("pieces")
    program = NativeProgram(graph)
    assert "in 3 parts" in program.plan()
    shown = program.scheduled()  # a graph like any other: the body for all rows
    shown.verify()
    for one, two in zip(shown(*given), graph(*given), strict=True):
        np.testing.assert_array_equal(np.asarray(one), np.asarray(two))


@pytest.mark.parametrize(
    ("rows", "parts"),
    [(1, 0), (8, 0), (15, 0), (16, 2), (17, 0), (18, 2), (100, 10), (128, 16), (1024, 16)],
)
def test_parts_are_equal(rows: int, parts: int) -> None:
    specs = weft.spec((rows, 4)), weft.spec((T, rows, 4))
    graph = weft.make_graph(lambda h, xs: weft.scan(lambda c, x: (c * x, c), h, xs), *specs)
    cut = row_scan(_scan(graph))
    assert (0 if cut is None else cut.parts) == parts
