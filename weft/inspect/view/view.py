"""`weft.view`: draws tensors, graphs and compiled functions."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from weft.base.errors import DTypeError, GraphError
from weft.capture.trace.captured import Captured
from weft.capture.watch.origin import input_name
from weft.core.tensor import Tensor
from weft.inspect.explain.explain import explain_traced, place_of
from weft.inspect.view.drawing import Drawing
from weft.inspect.view.dynamic import draw_tensor
from weft.inspect.view.frames import draw_graph
from weft.inspect.view.kernels import kernels_of
from weft.inspect.view.page import Page, Panel
from weft.interop.programs.program import Program, load_program
from weft.ir.contexts import is_lowered
from weft.ir.graph import Graph
from weft.ir.literal import Literal
from weft.ir.parse import parse_graph
from weft.runtime.executable import Executable

__all__ = ["drawings_of", "view"]

MOST_ITEMS = 60_000  # of a page; further recordings are omitted
STAGES = ("captured", "optimized", "scheduled")


def view(obj: Any, path: str | os.PathLike[str] | None = None, *, title: str = "") -> Page:
    """A page that shows a graph. Notebooks show it; else use `page.save("graph.html")`.

    >>> x = weft.tensor([1.0, 2.0], requires_grad=True)
    >>> page = weft.view((x * x).sum())
    >>> page
    <page tensor: dynamic graph, 4 items>
    >>> page.save("graph.html")                         # doctest: +SKIP

    obj     a tensor with a history, a graph, a compiled or traced function that was called, a
            program, a placement (`weft.place`), or a file: that of a program (.weft), or the text
            of a graph
    path    a file to write the page to

    The page is one file that needs no network. `page.data` is its content as a dict, `page.svg()`
    only the picture.
    """
    page = obj if isinstance(obj, Page) else _page(obj, title)
    if path is not None:
        page.save(path)
    return page


def _page(obj: Any, title: str) -> Page:
    if isinstance(obj, (str, os.PathLike)) and os.fspath(obj).endswith(".weft"):
        obj = load_program(obj)
    if isinstance(obj, Program):
        obj = obj.compiled_for_tools()
    if not isinstance(obj, Captured):
        return Page(drawings_of(obj), title=title)
    place = place_of(obj.function)
    return Page(drawings_of(obj), _panels(obj), title=title or obj._name(), start=place)


def _panels(obj: Captured[..., Any]) -> list[Panel]:
    """Further tabs for a function: its report."""
    return [Panel("Explained", explain_traced(obj).html_fragment())]


def drawings_of(obj: Any) -> list[Drawing]:
    """The drawings of an object; a function has several."""
    if isinstance(obj, Tensor):
        return [draw_tensor(obj)]
    if isinstance(obj, Graph):
        return [draw_graph(obj)]
    if hasattr(obj, "shown_graph"):  # a placement
        return [draw_graph(obj.shown_graph())]
    if isinstance(obj, (str, os.PathLike)):
        return [draw_graph(_from_file(Path(obj)))]
    if isinstance(obj, Captured):
        return _of_function(obj)
    if isinstance(obj, Executable):
        return _of_executable(obj, "")
    hint = "a tensor, a graph, a compiled function that was called, or a file"
    if callable(obj):
        hint = "f = weft.compile(f); f(…); weft.view(f); or weft.view of the result, a tensor"
    raise DTypeError(f"cannot draw a {type(obj).__name__}", op="view", hint=hint)


def _of_function(function: Captured[..., Any]) -> list[Drawing]:
    programs: list[Any] = list(function.programs)
    if not programs:
        raise GraphError(
            f"{function._name()} has no graph yet",
            op="view",
            hint="call it once: it is recorded when it is first called",
        )
    found: list[Drawing] = []
    # The latest first; backward programs after the forward ones.
    order = sorted(range(len(programs)), key=lambda i: (programs[i].name.endswith("_backward"), -i))
    arguments = {
        input_name(place.name)
        for signature in function.signatures()
        for place in signature.places
        if place.is_argument
    }
    for place, number in enumerate(order):
        name = f"{number}: {programs[number].name}"
        found += _of_executable(programs[number], name, arguments)
        left = len(order) - place - 1
        if left and sum(len(drawing.items) for drawing in found) > MOST_ITEMS:
            found[0].notes.append(f"{left} more recordings are not on this page")
            break
    return found


def _of_executable(
    executable: Executable, recording: str, arguments: Collection[str] = ()
) -> list[Drawing]:
    found = []
    for stage in STAGES:
        graph = executable.graph(stage)
        drawing = draw_graph(graph, stage=stage, recording=recording, arguments=arguments)
        if stage == "scheduled" and not is_lowered(graph):
            _name_kernels(drawing, graph)
        found.append(drawing)
    return found


def _name_kernels(drawing: Drawing, graph: Graph) -> None:
    """Set the kernel of each item: items are in the order of their nodes."""
    kernels = kernels_of(graph)
    drawn_items = (item for item in drawing.items if item.kind not in ("input", "result"))
    for item, node in zip(drawn_items, _in_order(graph), strict=True):
        item.kernel = kernels.get(node, "")


def _in_order(graph: Graph) -> list[Any]:
    found: list[Any] = []
    for node in graph.nodes:
        found.append(node)
        for nested in node.graphs:
            found += _in_order(nested)
    return found


class _AnyConstant(Mapping[str, Any]):
    """A stand-in for the table of large constants: a drawing does not show their values."""

    def __getitem__(self, digest: str) -> Literal:
        unseen = Literal(np.zeros(1000))  # large, like all constants that are not in the text
        unseen._digest = digest
        return unseen

    def __iter__(self) -> Any:
        return iter(())

    def __len__(self) -> int:
        return 0

    def __contains__(self, digest: object) -> bool:
        return True

    def __bool__(self) -> bool:
        return True


def _from_file(path: Path) -> Graph:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise GraphError(
            f"{path} cannot be read: {error.strerror}",
            op="view",
            hint="give a file with the text of a graph, as graph.text() gives it",
        ) from error
    except UnicodeDecodeError as error:
        raise GraphError(
            f"{path} is not a text file", op="view", hint="give a file with the text of a graph"
        ) from error
    return parse_graph(text, _AnyConstant())
