"""The sizes that a build gives numbers to: named sizes that the inputs of a graph tell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from weft.base.asked_sizes import SizeFact
from weft.base.dims import dim
from weft.base.errors import GraphError, ShapeError
from weft.ir.concrete import bounds_of, late_names, names_in, names_of_types
from weft.ir.graph import Graph

__all__ = ["check_facts", "numbers_of_sizes", "whole_sizes"]


def whole_sizes(word: str, sizes: Mapping[str, int] | None) -> dict[str, int]:
    """Sizes as numbers of Python."""
    found = dict(sizes or {})
    for name, size in found.items():
        if isinstance(size, (bool, np.bool_)) or not isinstance(size, (int, np.integer)):
            raise ShapeError(
                f"{word}[{name!r}] is {size!r:.40}, where a whole number is expected",
                op="build_library",
            )
        found[name] = int(size)
    return found


def check_facts(
    facts: Sequence[SizeFact],
    sizes: Mapping[str, int] | None,
    max_sizes: Mapping[str, int] | None,
) -> None:
    """Refuse sizes for which the recorded function would have done something else."""
    known = dict(sizes or {})
    for fact in facts:
        for more in _chosen(max_sizes):
            if set(fact.names) <= {*known, *more} and not fact.holds({**known, **more}):
                now = "".join(f", and {name} may be {size}" for name, size in more.items())
                raise ShapeError(
                    f"the program is right only for sizes with {fact}{now}",
                    op="build_library",
                    hint="record its function for such sizes, too: weft.export, or a call of a "
                    "compiled function",
                )


def _chosen(max_sizes: Mapping[str, int] | None) -> Iterator[dict[str, int]]:
    """All that calls may choose."""
    for name, most in (max_sizes or {}).items():
        yield from [{name: number} for number in range(1, most + 1)]
    if not max_sizes:
        yield {}


def numbers_of_sizes(
    graph: Graph, sizes: Mapping[str, int] | None, max_sizes: Mapping[str, int] | None
) -> dict[str, int]:
    """Numbers for the named sizes of a graph; a name for the one that calls choose."""
    _check_late(graph)
    names, given, chosen = names_in(graph), dict(sizes or {}), dict(max_sizes or {})
    if len(chosen) > 1 or any(type(most) is not int or most < 1 for most in chosen.values()):
        raise ShapeError(
            f"max_sizes is {chosen}: one name with a number of at least 1 is expected",
            op="build_library",
            hint="sizes={…} has the others",
        )
    if given.keys() & chosen.keys():
        raise ShapeError(
            f"sizes and max_sizes have {', '.join(given.keys() & chosen.keys())}",
            op="build_library",
        )
    for name, (low, high) in bounds_of(graph).items():
        number = given.get(name, chosen.get(name, low))
        if number < low or (high is not None and number > high):
            said = "" if high is None else f" and at most {high}"
            raise ShapeError(
                f"{name} is {number}, and must be at least {low}{said}", op="build_library"
            )
        if name in chosen:
            given[name] = dim(name, min=max(1, low), max=chosen[name])
    missing = sorted(names - set(given))
    if missing:
        raise GraphError(
            f"@{graph.name} has sizes that are not known: {', '.join(missing)}",
            op="build_library",
            hint=f"sizes={{{', '.join(f'{name!r}: …' for name in missing)}}}; or for one of them "
            "max_sizes={…}, and each call chooses it",
        )
    bad = {name: size for name, size in given.items() if name not in names or size < 1}
    if bad:
        known = ", ".join(sorted(names)) or "none"
        raise ShapeError(
            f"sizes has {bad}: it takes sizes of at least 1 for the names {known}",
            op="build_library",
        )
    return given


def _check_late(graph: Graph) -> None:
    """Refuse sizes that depend on data: a number for them would cut off what a run gives."""
    late = late_names(graph)
    if not late:
        return
    nodes = [node for part in graph.walk() for node in part.nodes]
    telling = next(node for node in nodes if late & names_of_types(v.type for v in node.outputs))
    error = GraphError(
        f"{', '.join(sorted(late))} of @{graph.name} depends on data: each run tells how large the "
        f"result of {telling.op.name} is, and a library has memory for sizes that are known before",
        op="build_library",
        hint="weft.where(mask, x, 0) keeps the size of x; or compute the rest of it outside of the "
        "library, and hand it over as an argument",
    )
    error.location = telling.location
    raise error
