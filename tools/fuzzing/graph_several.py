"""Ops with several results, writes by functions, running ops and sums of products by name: `topk`,
`unique`, `x.at[i]`, `scatter`, `cummax`, `einsum`. Operands are up to the writer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuzzing.graph_ops import Step

if TYPE_CHECKING:
    from fuzzing.graphs import GraphWriter, Shape


def _selected(w: GraphWriter, shape: Shape, dtype: str) -> str | None:
    """One of two results, or both."""
    if not shape or not shape[-1]:
        return None
    size = shape[-1] + w.pick([0, 1, 3])
    x = w.tensor((*shape[:-1], size), dtype)
    if w.chance(0.3):
        found = w.bind(f"weft.topk({x}, {shape[-1]}, largest={w.chance(0.6)})", (), "pair")
        return f"({found}[0] + 0.1 * {found}[1].astype(weft.{dtype}))"
    return f"weft.topk({x}, {shape[-1]}, largest={w.chance(0.6)})[0]"


def _extremes(w: GraphWriter, shape: Shape, dtype: str) -> str | None:
    size = max(1, w.some_size())
    if not w.fits(shape, size):
        return None
    x = w.tensor((*shape, size), dtype)
    if w.chance(0.3):
        return f"weft.kthvalue({x}, {w.rng.randint(1, size)}, dim=-1)[0]"
    found = w.bind(f"weft.{w.pick(['aminmax', 'var_mean'])}({x}, axis=-1)", (), "pair")
    return f"({found}[0] * 0.3 + {found}[1])"


def _unique(w: GraphWriter, shape: Shape, dtype: str) -> str | None:
    """How often each of some integers is there, at the places where they are."""
    if len(shape) != 1 or not shape[0]:
        return None
    found = w.bind(f"weft.unique_inverse({w.integers(shape, 4)})", (), "pair")
    return f"({found}[0][{found}[1]].astype(weft.{dtype}) * {w.tensor(shape, dtype)})"


def _running(w: GraphWriter, shape: Shape, dtype: str) -> str | None:
    if not shape or 0 in shape:
        return None
    axis = w.rng.randrange(len(shape))
    x = w.tensor(shape, dtype)
    if w.chance(0.3):
        return f"weft.logcumsumexp({x}, axis={axis})"
    return f"weft.{w.pick(['cummax', 'cummin'])}({x}, axis={axis})[0]"


def _written_at(w: GraphWriter, shape: Shape, dtype: str) -> str | None:
    """A write that gives a new tensor, at places that may be there twice."""
    if not shape or not shape[0]:
        return None
    count = w.pick([1, 2, 3])
    places = w.integers((count,), shape[0])
    given = w.tensor((count, *shape[1:]), dtype)
    name = w.pick(["add", "add", "multiply", "max"])
    return f"{w.tensor(shape, dtype)}.at[{places}].{name}({given})"


def _scattered(w: GraphWriter, shape: Shape, dtype: str) -> str | None:
    if not shape or not shape[-1]:
        return None
    some = (*shape[:-1], w.pick([1, 2, 3]))
    x, given = w.tensor(shape, dtype), w.tensor(some, dtype)
    if w.chance(0.5):
        return f"weft.scatter_add({x}, -1, {w.integers(some, shape[-1])}, {given})"
    rows = w.integers((2,), shape[0]) if shape[0] else None
    if rows is None:
        return None
    return f"weft.index_add({x}, 0, {rows}, {w.tensor((2, *shape[1:]), dtype)})"


def _einsum(w: GraphWriter, shape: Shape, dtype: str) -> str | None:
    size = max(1, w.some_size())
    if len(shape) == 2 and w.fits((shape[0], size)) and w.fits((shape[1], size)):
        one, two = w.tensor((shape[0], size), dtype), w.tensor((shape[1], size), dtype)
        said = w.pick(["ik,jk->ij", "ik,jk->ij", "ij,kj->ik"])
        return f"(weft.einsum('{said}', {one}, {two}) / {size})"
    if len(shape) == 3 and w.fits((*shape, size)):
        one, two = w.tensor((*shape[:2], size), dtype), w.tensor((shape[0], shape[2], size), dtype)
        return f"(weft.einsum('bik,bjk->bij', {one}, {two}) / {size})"
    if len(shape) == 1 and w.fits((shape[0], shape[0])):
        return f"weft.einsum('ii->i', {w.tensor((shape[0], shape[0]), dtype)})"
    return None


SEVERAL: dict[str, list[Step]] = {
    "several": [_selected, _extremes, _unique],
    "scatters": [_written_at, _written_at, _scattered],
    "runs": [_running, _einsum],
}
