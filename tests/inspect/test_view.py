"""The page of a graph: what it holds, that it loads nothing, and how it works in a browser."""

from __future__ import annotations

import json
import re
import threading
import urllib.request
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser import Browser, browser, found

import weft
from weft import cli, nn
from weft.inspect.view import Page, Panel
from weft.inspect.view.boxes import layouts_json
from weft.inspect.view.folding import folded_by
from weft.inspect.view.layout import layered
from weft.inspect.view.serve import server
from weft.inspect.view.view import drawings_of

needs_browser = pytest.mark.skipif(
    not found(), reason="no browser: install chromium and chromium-driver to run this"
)


class Block(nn.Module):
    def __init__(self, n: int) -> None:
        super().__init__()
        self.inner = nn.Linear(n, n)

    def forward(self, x: Any) -> Any:
        return x + nn.functional.relu(self.inner(x))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(4) for _ in range(3)])
        self.head = nn.Linear(4, 2)

    def forward(self, x: Any) -> Any:
        for block in self.blocks:
            x = block(x)
        size = abs(x).sum()
        while size > 1.0:
            size = size / 2
            x = x * 0.5
        if x.sum() > 0:  # noqa: SIM108
            x = self.head(x)
        else:
            x = -self.head(x)
        return x


@cache
def compiled_step(backend: str = "interpret") -> Any:
    """A training step that was called twice, with control flow that depends on tensors."""
    weft.manual_seed(0)
    model = Model()
    optimizer = weft.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    @weft.compile(backend=backend)
    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss

    x, y = weft.ones((3, 4)), weft.zeros((3, 2))
    step(x, y)
    step(x, y)
    return step


def ops_of(graph: dict[str, Any], **wanted: str) -> list[dict[str, Any]]:
    """The items of a graph whose fields are these."""
    return [item for item in graph["items"] if all(item.get(key) == wanted[key] for key in wanted)]


def where(page: dict[str, Any], at: int) -> str:
    """The text of the line of a location."""
    file, line, *_ = page["locations"][at]
    first, lines = next(p for p in page["files"][file]["parts"] if p[0] <= line < p[0] + len(p[1]))
    text: str = lines[line - first].strip()
    return text


# --- what the page holds -----------------------------------------------------------------------


def test_tensor() -> None:
    x = weft.tensor([1.0, 2.0], requires_grad=True)
    page = weft.view((x * x).sum())
    graph = page.data["graphs"][0]
    assert graph["kind"] == "dynamic graph"
    assert [item["title"] for item in graph["items"]] == ["leaf", "multiply", "sum", "tensor"]
    assert graph["edges"] == [[0, 1, 0], [0, 1, 0], [1, 2, 0], [2, 3, 0]]
    assert graph["items"][1]["more"]["backward"] == "MulBackward"
    assert graph["items"][1]["more"]["kept for backward"] == "8 bytes"


def test_tensor_with_lines() -> None:
    x = weft.tensor([1.0, 2.0], requires_grad=True)
    with weft.detect_anomaly():
        y = x.exp()
    page = weft.view(y).data
    at = ops_of(page["graphs"][0], title="exp")[0]["at"]
    assert where(page, at) == "y = x.exp()"


def test_tensor_of_several_results_and_without_history() -> None:
    x = weft.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    first = weft.view(weft.linalg.eigh(x).eigenvalues).data["graphs"][0]
    assert first["edges"][-1][:2] == [len(first["items"]) - 2, len(first["items"]) - 1]
    plain = weft.view(weft.ones(3)).data["graphs"][0]
    assert [item["title"] for item in plain["items"]] == ["tensor"]


def test_static_graph() -> None:
    def layer(x: Any, w: Any) -> Any:
        return weft.nn.functional.relu(x @ w).sum(axis=0) * 0.5

    page = weft.view(weft.make_graph(layer, weft.spec((8, 4)), weft.spec((4, 2)))).data
    graph = page["graphs"][0]
    product = ops_of(graph, title="matmul")[0]
    assert product["outputs"] == [{"name": "%0", "type": "f32[8,2]", "bytes": 64}]
    assert product["flops"] == 2 * 8 * 4 * 2
    assert product["moved"] == 4 * (8 * 4 + 4 * 2 + 8 * 2)
    assert where(page, product["at"]) == "return weft.nn.functional.relu(x @ w).sum(axis=0) * 0.5"
    assert ops_of(graph, title="sum")[0]["attrs"]["axis"] == "(0,)"
    assert ops_of(graph, title="multiply")[0]["note"] == "0.5"
    assert ops_of(graph, kind="constant")[0]["hidden"] is True
    assert "matmul" in page["docs"]


def test_symbolic_sizes_have_no_bytes() -> None:
    graph = weft.make_graph(lambda x: x * 2, weft.spec("n"))
    item = ops_of(weft.view(graph).data["graphs"][0], title="multiply")[0]
    assert item["outputs"][0]["bytes"] is None
    assert "flops" not in item


NESTED: list[tuple[str, Callable[..., Any], list[str]]] = [
    ("if", lambda x: weft.cond(x.sum() > 0, lambda: x * 2, lambda: -x), ["then", "else"]),
    (
        "while",
        lambda x: weft.while_loop(lambda v: v.sum() < 9, lambda v: v * 2, x),
        ["condition", "body"],
    ),
    ("scan", lambda x: weft.scan(lambda c, v: (c + v, c * v), weft.zeros(()), x), ["body"]),
]


@pytest.mark.parametrize(("op", "function", "names"), NESTED, ids=[entry[0] for entry in NESTED])
def test_nested_graphs(op: str, function: Callable[..., Any], names: list[str]) -> None:
    graph = weft.view(weft.make_graph(function, weft.ones(3))).data["graphs"][0]
    folding = graph["foldings"][0]
    control = [i for i, fold in enumerate(folding["folds"]) if fold["kind"] == "control"]
    assert [folding["folds"][i]["label"] for i in control] == [op]
    inner = [i for i, fold in enumerate(folding["folds"]) if fold["parent"] == control[0]]
    assert [folding["folds"][i]["label"] for i in inner] == names
    assert graph["items"][folding["folds"][control[0]]["item"]]["title"] == op
    # Each nested graph is given something from outside, and what it gives is used outside.
    for number in inner:
        own = {i for i, fold in enumerate(folding["of"]) if fold == number}
        assert any(a not in own and b in own for a, b, _ in graph["edges"])
        leaves = any(a in own and b not in own for a, b, _ in graph["edges"])
        assert leaves == (folding["folds"][number]["label"] != "condition")


def test_training_step() -> None:
    data = weft.view(compiled_step()).data
    stages = [(graph["recording"], graph["stage"]) for graph in data["graphs"]]
    assert stages[:3] == [("0: step", s) for s in ("captured", "optimized", "scheduled")]
    graph = data["graphs"][0]
    roles = {item["role"] for item in graph["items"] if item["kind"] == "op"}
    assert roles == {"forward", "backward", "update"}
    updates = [item for item in graph["items"] if item["title"].endswith("_update")]
    assert len(updates) == 8
    assert {item["role"] for item in updates} == {"update"}
    linear = ops_of(graph, title="linear")
    assert {item["role"] for item in linear} == {"forward"}
    modules = [data["locations"][item["at"]][3] for item in linear]
    assert modules[:3] == [f"Model.blocks.{i}.inner" for i in range(3)]
    assert modules[3:] == ["Model.head"] * 2  # in both branches


def test_derivative_partners() -> None:
    data = weft.view(compiled_step()).data
    graph = data["graphs"][0]
    items = graph["items"]
    first = ops_of(graph, title="linear")[0]
    partners = [items[i] for i in first["partners"]]
    assert {item["role"] for item in partners} == {"backward"}
    assert {item["of"] for item in partners} == {"linear"}
    assert "matmul" in {item["title"] for item in partners}
    for item in partners:  # the forward line, and its module
        assert where(data, item["forward"]) == "return x + nn.functional.relu(self.inner(x))"
        assert data["locations"][item["forward"]][3] == "Model.blocks.0.inner"
        assert where(data, item["at"]) == "loss.backward()"
    number = items.index(first)
    assert all(number in item["partners"] for item in partners)
    # Gradients inside of branches and loops know their forward op, too.
    assert "while" in {
        items[p]["title"] for i in items if i["role"] == "backward" for p in i.get("partners", [])
    }


def test_update_that_the_user_wrote() -> None:
    w = weft.tensor([1.0, 2.0, 3.0], requires_grad=True)

    @weft.trace(backend="interpret")
    def step(x: Any) -> Any:
        loss = ((w * x) ** 2).sum()
        loss.backward()
        with weft.no_grad():
            w.copy_(w - 0.1 * w.grad)
        w.grad = None
        return loss

    step(weft.ones(3))
    graph = weft.view(step).data["graphs"][0]
    roles = {item["title"]: item["role"] for item in graph["items"] if item["kind"] == "op"}
    assert roles["subtract"] == "update"
    assert roles["pow"] in ("forward", "backward")  # there is one of each


def test_kernels() -> None:
    data = weft.view(compiled_step("native")).data
    graph = data["graphs"][2]
    assert graph["stage"] == "scheduled"
    assert [folding["name"] for folding in graph["foldings"]] == ["kernels", "modules"]
    kernels = {item["kernel"] for item in graph["items"] if "kernel" in item}
    labels = {f["label"] for f in graph["foldings"][0]["folds"] if f["kind"] == "kernel"}
    assert len(kernels) > 3
    assert labels
    assert labels <= kernels


def test_file(tmp_path: Path) -> None:
    step = compiled_step()
    graph = step.graph("captured")
    path = tmp_path / "step.graph"
    path.write_text(graph.text())
    from_file, direct = weft.view(path).data, weft.view(graph).data
    assert from_file["graphs"][0]["items"] == direct["graphs"][0]["items"]
    assert from_file["graphs"][0]["foldings"] == direct["graphs"][0]["foldings"]
    large = weft.make_graph(lambda x: x + weft.asarray(np.arange(50.0)), weft.ones(50))
    path.write_text(large.text())  # its constant is not in the text
    titles = [item["title"] for item in weft.view(str(path)).data["graphs"][0]["items"]]
    assert titles[:2] == ["x", "constant"]


def test_what_is_no_graph(tmp_path: Path) -> None:
    with pytest.raises(weft.errors.DTypeError, match=r"weft\.compile"):
        weft.view(lambda x: x)
    with pytest.raises(weft.errors.GraphError, match="call it once"):
        weft.view(weft.compile(lambda x: x))
    with pytest.raises(weft.errors.GraphError, match="cannot be read"):
        weft.view(tmp_path / "none")
    (tmp_path / "text").write_text("graph of functions")
    with pytest.raises(weft.errors.GraphError, match="line 1"):
        weft.view(tmp_path / "text")


def long_graph(count: int) -> weft.Graph:
    def chain(x: Any) -> Any:
        for _ in range(count // 2):
            x = weft.sin(x) * 1.25
        return x

    return weft.make_graph(chain, weft.ones(3))


def folds_are_sound(graph: dict[str, Any]) -> None:
    for folding in graph["foldings"]:
        children: dict[int, int] = {}
        for fold in folding["folds"]:
            children[fold["parent"]] = children.get(fold["parent"], 0) + 1
        for item, fold in zip(graph["items"], folding["of"], strict=True):
            children[fold] = children.get(fold, 0) + (not item.get("hidden"))
        assert max(children.values()) <= 60
        assert all(fold["parent"] < i for i, fold in enumerate(folding["folds"]))
        drawn = children[-1] + sum(children[fold] - 1 for fold in folding["open"])
        assert drawn <= 64
        places_are_sound(graph, folding)


def places_are_sound(graph: dict[str, Any], folding: dict[str, Any]) -> None:
    """Every box has a place in its fold; the pieces of an edge lead from its start to its end."""
    places = [{box[0] for box in layout["boxes"]} for layout in folding["layouts"]]
    for i, fold in enumerate(folding["folds"]):
        assert f"f{i}" in places[fold["parent"] + 1]
    for i, fold in enumerate(folding["of"]):
        assert (f"i{i}" in places[fold + 1]) != (
            graph["items"][i].get("hidden") and graph["items"][i]["kind"] != "constant"
        )
    for (start, end, _), path in zip(graph["edges"], folding["paths"], strict=True):
        pieces = [
            [
                folding["layouts"][fold + 1]["boxes"][box][0]
                for box in folding["layouts"][fold + 1]["pieces"][number][:2]
            ]
            for fold, number in zip(path[::2], path[1::2], strict=True)
        ]
        assert not pieces or (pieces[0][0], pieces[-1][1]) == (f"i{start}", f"i{end}")


def test_large_graphs_open_folded() -> None:
    graph = weft.view(long_graph(5000)).data["graphs"][0]
    assert sum(item["kind"] == "op" for item in graph["items"]) == 5000
    folds_are_sound(graph)
    for step in weft.view(compiled_step()).data["graphs"]:
        folds_are_sound(step)


# --- the page as a file ------------------------------------------------------------------------


def test_page_loads_nothing() -> None:
    page = weft.view(long_graph(10))
    page.data["files"].clear()  # the code of this test is part of it
    text = page.html
    assert "http://" not in text
    assert "https://" not in text
    assert not re.search(r"<(link|img|iframe|script)[^>]*\b(src|href)=", text)
    assert "@import" not in text
    assert not re.search(r"url\((?!#)", text)
    assert "default-src 'none'" in text  # the browser holds it to that


def test_source_text_cannot_end_the_script(tmp_path: Path) -> None:
    path = tmp_path / "odd.py"
    path.write_text("def f(x):\n    return x * 2  # </script><b>&amp; \u2028\n")
    names: dict[str, Any] = {}
    exec(compile(path.read_text(), str(path), "exec"), names)
    text = weft.view(weft.make_graph(names["f"], weft.ones(2)), title="<i>").html
    assert "</script><b>" not in text
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    assert data is not None
    found = json.loads(data[1])
    assert "</script><b>" in found["files"][0]["parts"][0][1][1]
    assert found["title"] == "<i>"


def test_save_and_notebook(tmp_path: Path) -> None:
    page = weft.view(long_graph(4), tmp_path / "a.html")
    assert (tmp_path / "a.html").read_text() == page.html
    page.save(tmp_path / "a.svg")
    assert (tmp_path / "a.svg").read_text() == page.svg()
    shown = page._repr_html_()
    assert shown.startswith("<iframe srcdoc=")
    assert "<script" not in shown  # all of it is escaped
    assert repr(page) == "<page chain: static graph, 8 items>"


SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("stage", [0, 1, 2])
def test_svg_of_a_training_step(stage: int) -> None:
    picture = ET.fromstring(weft.view(compiled_step()).svg(stage))
    assert picture.tag == f"{SVG}svg"
    _, _, width, height = map(float, picture.attrib["viewBox"].split())
    classes = " ".join(rect.attrib["class"] for rect in picture.iter(f"{SVG}rect"))
    assert all(role in classes for role in ("forward", "backward", "update", "cluster"))
    for rect in picture.iter(f"{SVG}rect"):
        x, y, w, h = (float(rect.attrib[name]) for name in ("x", "y", "width", "height"))
        assert x >= 0
        assert y >= 0
        assert x + w <= width + 1
        assert y + h <= height + 1
    assert len(list(picture.iter(f"{SVG}path"))) > 10


@pytest.mark.parametrize(
    "graph",
    [
        weft.make_graph(lambda x: x, weft.ones(2)),
        weft.make_graph(lambda: weft.ones(2)),
        weft.parse_graph("graph @'<a & b>'() {\n  return\n}"),
    ],
    ids=["no op", "no input", "nothing"],
)
def test_svg_of_small_graphs(graph: weft.Graph) -> None:
    assert ET.fromstring(weft.view(graph).svg()).tag == f"{SVG}svg"
    assert weft.view(graph).html


def test_layout_overlaps_nothing() -> None:
    rng = np.random.default_rng(0)
    sizes = {("item", i): (float(rng.integers(20, 90)), 30.0) for i in range(60)}
    pairs = {tuple(sorted(rng.choice(60, 2, replace=False).tolist())) for _ in range(90)}
    edges = [(("item", a), ("item", b)) for a, b in pairs]
    layout = layered(sizes, edges)
    for a, b in edges:
        assert layout.center(a)[1] < layout.center(b)[1]
    boxes = [(*layout.center(key), *size) for key, size in sizes.items()]
    for i, (x, y, w, h) in enumerate(boxes):
        for x2, y2, w2, h2 in boxes[:i]:
            assert abs(x - x2) >= (w + w2) / 2 or abs(y - y2) >= (h + h2) / 2


def test_arrows_of_boxes_in_another_order_lead_down() -> None:
    sizes = {("fold", i): (40.0, 30.0) for i in range(5)}
    pairs = [(3, 0), (0, 4), (4, 1), (3, 2), (2, 1)]
    edges = [(("fold", a), ("fold", b)) for a, b in pairs]
    layout = layered(sizes, edges)
    for a, b in edges:
        assert layout.center(a)[1] < layout.center(b)[1]
    cycle = [*edges, (("fold", 1), ("fold", 3))]
    layout = layered(sizes, cycle)
    assert 1 <= sum(layout.center(a)[1] >= layout.center(b)[1] for a, b in cycle) <= 2


def _training_step() -> Any:
    model = nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 5))
    opt = weft.optim.Adam(model.parameters(), lr=0.1)

    @weft.compile(backend="native")
    def step(idx: Any, y: Any) -> Any:
        opt.zero_grad()
        loss = nn.functional.cross_entropy(model(idx), y)
        loss.backward()
        opt.step()
        return loss

    for _ in range(3):
        step(weft.asarray([0, 1, 2]), weft.asarray([1, 2, 3]))
    return step


def test_the_page_of_a_function() -> None:
    step = _training_step()
    drawings = [d for d in drawings_of(step) if d.stage == "scheduled"]
    assert len(drawings) == 1
    for drawing in drawings:
        for name in ("kernels", "modules"):
            for layout in layouts_json(drawing, folded_by(drawing, name))["layouts"]:
                layers = [layer for _, _, layer in layout["boxes"]]
                assert all(layers[start] < layers[end] for start, end, _ in layout["pieces"])
    data = weft.view(step).data
    file, line, function, _ = data["locations"][data["start"]]
    assert (data["files"][file]["path"], function) == (__file__, "step")
    assert line == step.function.__code__.co_firstlineno
    items = data["graphs"][0]["items"]
    shown = {item["title"] for item in items if item["kind"] == "input"}
    assert {"idx", "y", "model.0.weight"} <= shown


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "chain.graph"
    path.write_text(long_graph(4).text())
    out = tmp_path / "out.html"
    assert cli.main(["view", str(path), "--no-serve", "-o", str(out)]) == 0
    assert capsys.readouterr().out == f"wrote {out}\n"
    assert "chain" in out.read_text()
    assert cli.main(["view", str(tmp_path / "none"), "--no-serve"]) == 1
    assert "cannot be read" in capsys.readouterr().err


def test_served_page() -> None:
    page = weft.view(long_graph(4))
    with server(page) as found_server:
        threading.Thread(target=found_server.serve_forever, daemon=True).start()
        root = f"http://127.0.0.1:{found_server.server_address[1]}"
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with direct.open(f"{root}/") as answer:
            assert answer.read().decode() == page.html
        with direct.open(f"{root}/graph.svg") as answer:
            assert answer.headers["Content-Type"] == "image/svg+xml"
        found_server.shutdown()


# --- in a browser ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def window() -> Iterator[Browser]:
    with browser() as opened:
        yield opened


def opened(window: Browser, page: Page, folder: Path) -> Browser:
    path = folder / "page.html"
    page.save(path)
    window.open(path)
    return window


def boxes(window: Browser) -> int:
    count: int = window.run("return document.querySelectorAll('.node').length")
    return count


def key_of(window: Browser, text: str) -> str:
    """The first box that shows this text."""
    key: str = window.run(
        "return [...document.querySelectorAll('.node')]"
        ".find(n => n.textContent.includes(arguments[0])).dataset.key",
        text,
    )
    return key


@needs_browser
@pytest.mark.parametrize("kind", ["tensor", "graph", "step", "empty"])
def test_opens_without_complaints(window: Browser, tmp_path: Path, kind: str) -> None:
    made = {
        "tensor": lambda: (weft.tensor([1.0], requires_grad=True) * 2).sum(),
        "graph": lambda: long_graph(10),
        "step": compiled_step,
        "empty": lambda: weft.parse_graph("graph @f() {\n  return\n}"),
    }
    opened(window, weft.view(made[kind]()), tmp_path)
    assert window.complaints() == []
    assert (boxes(window) > 0) == (kind != "empty")


@needs_browser
def test_folds_and_unfolds(window: Browser, tmp_path: Path) -> None:
    opened(window, weft.view(compiled_step()), tmp_path)
    window.click("#close-all")
    folded = boxes(window)
    key = key_of(window, "Model")
    window.click(f"[data-key='{key}'] .fold-sign")  # the ▸ of the box
    assert boxes(window) > folded
    assert window.run("return weft.boxes().get(arguments[0]).cluster", key)
    window.run("document.getElementById('canvas').focus()")
    window.type("#canvas", "Enter")  # it is chosen: the key folds it again
    assert boxes(window) == folded
    window.click("#open-all")
    assert boxes(window) > folded
    assert window.complaints() == []


OVERLAPS = """
const list = [...weft.boxes().values()].filter(b => !b.cluster), found = [];
list.forEach((a, i) => list.slice(0, i).forEach(b => {
  if (2 * Math.abs(a.x - b.x) < a.width + b.width && 2 * Math.abs(a.y - b.y) < a.height + b.height)
    found.push(a.key + " and " + b.key);
}));
return found
"""


@needs_browser
def test_nothing_overlaps_whatever_is_open(window: Browser, tmp_path: Path) -> None:
    opened(window, weft.view(compiled_step()), tmp_path)
    for action in ("", "weft.openAll()", "document.getElementById('constants').click()"):
        before = boxes(window)
        window.run(action)
        assert boxes(window) > before or not action
        assert window.run(OVERLAPS) == []
    assert window.complaints() == []


@needs_browser
def test_chooses_a_node(window: Browser, tmp_path: Path) -> None:
    opened(window, weft.view(compiled_step()), tmp_path)
    window.run("weft.search('linear Model.blocks.0')")
    window.type("#search", "relu")
    window.type("#search", "Enter")
    shown = window.text("#details")
    assert "relu" in shown
    assert "f32[3,4]" in shown
    assert "48 B" in shown
    assert "12 flop" in shown
    assert "Model.blocks.0" in shown
    assert "ITS BACKWARD STEPS" in shown
    assert "where" in shown
    assert window.text("#code .here").split("\n")[-1].strip().startswith("return x + nn.functional")
    assert window.run("return document.querySelectorAll('.chosen').length") == 1
    window.run("document.getElementById('canvas').focus()")
    window.type("#canvas", "p")  # the partner: a backward step, with its forward line
    shown = window.text("#details")
    assert "DERIVATIVE OF RELU" in shown
    assert "loss.backward()" in window.text("#code .here")
    assert "self.inner(x)" in window.text("#code .origin")
    window.type("#canvas", "Escape")
    assert window.run("return document.querySelectorAll('.chosen').length") == 0
    assert window.complaints() == []


@needs_browser
def test_walks_with_the_keys(window: Browser, tmp_path: Path) -> None:
    opened(window, weft.view(long_graph(6)), tmp_path)
    titles = []
    for _ in range(4):
        window.type("#canvas", "ArrowDown")
        titles.append(window.text("#details h2").split("\n")[0])
    assert titles == ["x", "sin", "multiply", "sin"]
    before = window.run("return document.getElementById('view').getAttribute('transform')")
    window.type("#canvas", "+")
    assert window.run("return document.getElementById('view').getAttribute('transform')") != before


@needs_browser
def test_searches_and_marks_lines(window: Browser, tmp_path: Path) -> None:
    opened(window, weft.view(compiled_step()), tmp_path)
    window.type("#search", "linear")
    assert "5 matches" in window.text("#hits")
    assert window.run("return document.querySelectorAll('.found').length") > 0
    window.type("#search", "Escape")
    assert window.run("return document.querySelectorAll('.found').length") == 0
    window.run(
        "[...document.querySelectorAll('.row.used')]"
        ".find(row => row.textContent.includes('self.inner(x)')).click()"
    )
    assert window.run("return document.querySelectorAll('.found').length") > 0


@needs_browser
def test_stages_and_folding(window: Browser, tmp_path: Path) -> None:
    opened(window, weft.view(compiled_step("native")), tmp_path)
    window.run("document.querySelectorAll('#stages button')[2].click()")
    assert "kernel" in window.text("#details")
    assert "kernel 0" in window.run("return document.getElementById('canvas').textContent")
    window.run(
        "const s = document.getElementById('folding'); s.value = 1;"
        "s.dispatchEvent(new Event('change'))"
    )
    assert "▾ Model" in window.run("return document.getElementById('canvas').textContent")
    assert window.complaints() == []


@needs_browser
def test_5000_nodes_stay_usable(window: Browser, tmp_path: Path) -> None:
    opened(window, weft.view(long_graph(5000)), tmp_path)
    assert boxes(window) < 100
    window.type("#search", "sin")
    assert "2,500 matches" in window.text("#hits")
    window.type("#search", "Enter")
    assert "sin" in window.text("#details h2")
    window.type("#search", "Escape")
    window.click("#open-all")
    assert boxes(window) < 450
    assert window.complaints() == []


@needs_browser
def test_picture_from_the_page(window: Browser, tmp_path: Path) -> None:
    opened(window, weft.view(compiled_step()), tmp_path)
    picture = ET.fromstring(window.run("return weft.picture()"))
    assert picture.tag == f"{SVG}svg"
    boxes_drawn = [
        r for r in picture.iter(f"{SVG}rect") if r.attrib.get("fill", "").startswith("rgb")
    ]
    assert len(boxes_drawn) > 10


@needs_browser
def test_panels_are_tabs(window: Browser, tmp_path: Path) -> None:
    page = weft.view(long_graph(4))
    panel = Panel("report", "<h1>All is well</h1><script>document.title = 'ran'</script>")
    opened(window, Page(page.graphs, [panel]), tmp_path)
    assert window.text("#tabs").split() == ["Graph", "report"]
    window.click("#tabs button:last-child")
    assert "All is well" in window.run("return document.querySelector('#panels iframe').srcdoc")
    assert window.run("return document.getElementById('graph-tab').hidden")
    window.click("#tabs button:first-child")
    assert not window.run("return document.getElementById('graph-tab').hidden")
    assert window.complaints() == []
    opened(window, Page([], [panel], title="alone"), tmp_path)
    assert window.text("#title") == "alone"
    assert window.complaints() == []


def test_frames_of_a_lowered_graph_are_scopes() -> None:
    @weft.compile(backend="dataflow")
    def f(x: Any) -> Any:
        while x.sum() < 10:
            x = x * 2 if x[0] > 2 else x + 1
        return x

    f(weft.ones(4))
    drawing = drawings_of(f)[2]
    assert drawing.stage == "scheduled"
    labels = [scope.label for scope in drawing.scopes]
    assert labels == ["f", "frame while_0", "while_0: body", "if_1: then", "if_1: else"]
    where = {item.title: labels[item.scope] for item in drawing.items}
    assert where["less"] == where["flow.enter"] == where["flow.loop_cond"] == "frame while_0"
    assert where["greater"] == where["flow.next_iteration"] == "while_0: body"
    assert where["multiply"] == "if_1: then"
    assert where["add"] == "if_1: else"
    assert where["flow.exit"] == where["x"] == where["result"] == "f"
    sent = next(item for item in drawing.items if item.title == "flow.next_iteration")
    (merge,) = sent.partners
    assert drawing.items[merge].title == "flow.merge"
    assert sent.note.startswith("to %")
    page = weft.view(f.programs[0].graph("scheduled"))
    assert "frame while_0" in page.svg()
