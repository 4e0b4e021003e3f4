"""Declared graphs and sessions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
from weft.runtime.executable import Executable, instrumented


def declared() -> tuple[weft.Graph, Any, Any, Any]:
    with weft.Graph("f") as g:
        a = weft.placeholder((None, 4), weft.float32, name="a")
        w = weft.placeholder((4, 2), weft.float32, name="w")
        y = weft.tanh(a @ w)
    return g, a, w, y


def test_the_session_of_the_fourth_seed_text() -> None:
    with weft.Graph() as g:
        a = weft.asarray(2)
        b = weft.asarray(3)
        c = a + b
    with weft.Session(g) as session:
        assert session.run(c).item() == 5


def test_feeds_by_tensor_and_by_name() -> None:
    g, a, _w, y = declared()
    session = weft.Session(g)
    x = np.arange(8.0, dtype=np.float32).reshape(2, 4)
    w = np.ones((4, 2), np.float32)
    want = np.tanh(x @ w)
    for feed in ({a: x, "w": w}, {"a": x.tolist(), "w": weft.asarray(w)}):
        np.testing.assert_allclose(session.run(y, feed).numpy(), want, rtol=1e-6)
    for rows in (0, 1, 5):
        assert session.run(y, {"a": np.zeros((rows, 4)), "w": w}).shape == (rows, 2)


def test_fetches_are_trees() -> None:
    g, a, w, y = declared()
    feed = {a: np.ones((1, 4)), w: np.ones((4, 2))}
    out = weft.Session(g).run({"y": y, "both": [a, y]}, feed)
    assert out["both"][0].tolist() == [[1, 1, 1, 1]]
    assert out["y"].tolist() == out["both"][1].tolist()


def test_only_what_the_fetches_need_is_run() -> None:
    with weft.Graph() as g:
        a = weft.placeholder((2,), name="a")
        b = weft.placeholder((2,), name="b")
        doubled = a * 2
        weft.linalg.inv(weft.stack([a, b]))  # singular: running it would be an error
        total = doubled + b
    session = weft.Session(g)
    assert session.run(doubled, {"a": [1, 2]}).tolist() == [2, 4]
    assert session.run(total, {"a": [1, 2], "b": [0, 1]}).tolist() == [2, 5]


def test_parameters_are_read_when_it_runs() -> None:
    layer = weft.nn.Linear(3, 1)
    with weft.Graph() as g:
        x = weft.placeholder(("B", 3), name="x")
        y = layer(x)
    session = weft.Session(g)
    given = weft.ones((2, 3))
    np.testing.assert_array_equal(session.run(y, {x: given}).numpy(), layer(given).numpy())
    with weft.no_grad():
        layer.weight += 1
    np.testing.assert_array_equal(session.run(y, {x: given}).numpy(), layer(given).numpy())
    session.run(y, {x: given}).sum().backward()
    assert layer.bias.grad.tolist() == [2]


def test_a_graph_may_grow_and_has_gradients_inside() -> None:
    with weft.Graph() as g:
        x = weft.placeholder((), name="x").requires_grad_()
        y = x**3
        (slope,) = weft.autograd.grad(y, x)
    session = weft.Session(g)
    assert session.run(slope, {"x": 2.0}).item() == 12
    with g:
        z = slope + 1
    assert session.run(z, {"x": 2.0}).item() == 13


ERRORS: list[tuple[str, Any, type[Exception], str]] = [
    ("missing", lambda s, a, w, y: s.run(y, {a: np.ones((1, 4))}), ValueError, "need w, which no"),
    ("nothing fed", lambda s, a, w, y: s.run(y), ValueError, "need a, w"),
    ("unknown", lambda s, a, w, y: s.run(y, {"aa": 1}), ValueError, "did you mean 'a'"),
    ("computed", lambda s, a, w, y: s.run(y, {y: 1}), ValueError, "computed by the graph"),
    ("twice", lambda s, a, w, y: s.run(y, {a: np.ones((1, 4)), "a": 1}), ValueError, "fed twice"),
    (
        "shape",
        lambda s, a, w, y: s.run(y, {a: np.ones((1, 3)), w: np.ones((4, 2))}),
        ValueError,
        r"placeholder a is f32\[a_0,4\], fed with f32\[1,3\]",
    ),
    (
        "axes",
        lambda s, a, w, y: s.run(y, {a: np.ones(4), w: np.ones((4, 2))}),
        ValueError,
        "number of axes",
    ),
    (
        "dtype",
        lambda s, a, w, y: s.run(y, {a: np.ones((1, 4), complex), w: np.ones((4, 2))}),
        ValueError,
        "fed with c128",
    ),
    ("fetch", lambda s, a, w, y: s.run(3), TypeError, "a fetch is a tensor of the graph"),
    ("other graph", lambda s, a, w, y: s.run(declared()[3]), ValueError, "another graph"),
]


@pytest.mark.parametrize(
    ("run", "kind", "message"), [row[1:] for row in ERRORS], ids=[row[0] for row in ERRORS]
)
def test_errors(run: Any, kind: type[Exception], message: str) -> None:
    g, a, w, y = declared()
    session = weft.Session(g)
    with pytest.raises(kind, match=message):
        run(session, a, w, y)
    assert session.run(a, {a: np.ones((1, 4))}).shape == (1, 4)  # it goes on working


def test_placeholders_belong_to_a_graph() -> None:
    with pytest.raises(weft.errors.CaptureError, match="none is being declared"):
        weft.placeholder((2,))
    with weft.Graph():
        weft.placeholder((2,), name="a")
        with pytest.raises(weft.errors.GraphError, match="already a placeholder"):
            weft.placeholder((2,), name="a")


def test_unknown_sizes_need_names_to_be_equal() -> None:
    with weft.Graph(), pytest.raises(weft.errors.ShapeError):
        weft.placeholder((None,), name="a") + weft.placeholder((None,), name="b")
    with weft.Graph() as g:
        a, b = weft.placeholder(("N",), name="a"), weft.placeholder(("N",), name="b")
        c = a + b
    session = weft.Session(g)
    assert session.run(c, {"a": [1.0], "b": [2.0]}).tolist() == [3]
    with pytest.raises(weft.errors.GraphError, match="N"):
        session.run(c, {"a": [1.0], "b": [2.0, 3.0]})


def test_a_graph_is_closed_after_an_error() -> None:
    g = weft.Graph()
    with pytest.raises(ZeroDivisionError), g:
        raise ZeroDivisionError
    assert (weft.ones(2) + 1).tolist() == [2, 2]


def test_random_numbers_go_on_from_run_to_run() -> None:
    with weft.Graph() as g:
        a = weft.rand(2)
    with g:
        b = weft.rand(2)
    session = weft.Session(g)
    weft.manual_seed(3)
    got = [session.run((a, b)) for _ in range(2)]
    weft.manual_seed(3)
    want = [(weft.rand(2), weft.rand(2)) for _ in range(2)]
    assert [[x.tolist() for x in pair] for pair in got] == [
        [x.tolist() for x in pair] for pair in want
    ]


@pytest.mark.parametrize("backend", ["native", "interpret"])
def test_tools_see_the_runs_of_a_session(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_BACKEND", backend)
    g, a, w, y = declared()
    session = weft.Session(g)
    seen: list[str] = []

    def note(executable: Executable, inputs: list[Any], proceed: Any) -> Any:
        seen.append(executable.name)
        return proceed(inputs)

    with instrumented(note):
        session.run(y, {a: np.ones((1, 4)), w: np.ones((4, 2))})
    session.run(y, {a: np.ones((1, 4)), w: np.ones((4, 2))})
    assert seen == ["f"]
