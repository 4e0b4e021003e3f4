"""Captured functions inside of `vmap` or `jvp`: vmap(compile(f)).

Inside of a single `vmap`, the function for all elements is called: compile(vmap(f)). Otherwise the
function's own graph is run op by op on the tensors of the transform. So a condition on a mapped
tensor, which Python could not decide, is an `if` in the graph, and each element takes its side.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from weft.autodiff.transforms.levels import ClosedLevel
from weft.autodiff.transforms.vmap import MapLevel, vmap
from weft.autodiff.transforms.whole_call import call_whole, spreads
from weft.base.pytree import tree_flatten, tree_unflatten
from weft.capture.trace.result_leaves import result_of
from weft.capture.trace.segments import Segment
from weft.capture.watch.origin import MISSING
from weft.core import bind as binding
from weft.core.tensor import Tensor
from weft.ir.graph import extract
from weft.ir.signature import Made
from weft.record.control.on_level import call_graph

if TYPE_CHECKING:
    from weft.capture.trace.captured import Captured


def call_for_all(traced: Captured[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result of a call with mapped arguments, by the function for all elements.

    MISSING if that is not possible: inside of other transforms or a recording, with keyword-only
    arguments, or if the function uses a mapped tensor that is not an argument.
    """
    recorders = binding._thread.recorders
    if any(found.__class__ is not MapLevel for found in recorders):
        return MISSING
    level = recorders[-1]
    assert isinstance(level, MapLevel)
    given = _by_position(traced.function, args, kwargs)
    if given is None:
        return MISSING
    leaves, spec = tree_flatten(given)
    tensors = [i for i, x in enumerate(leaves) if isinstance(x, Tensor)]
    spread = [spreads(level, leaves[i]) for i in tensors]
    axes: list[int | None] = [None] * len(leaves)
    for i, on in zip(tensors, spread, strict=True):
        axes[i] = 0 if on else None
    function = _for_all(traced, tree_unflatten(spec, axes))
    shape: Any = None

    def whole(inputs: Sequence[Tensor]) -> list[Tensor]:
        nonlocal shape
        taken = list(leaves)
        for i, x in zip(tensors, inputs, strict=True):
            taken[i] = x
        results, shape = tree_flatten(function(*tree_unflatten(spec, taken)))
        return results

    try:
        results = call_whole(level, whole, [leaves[i] for i in tensors], spread)
    except ClosedLevel:
        return MISSING
    return tree_unflatten(shape, results)


def _by_position(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """All arguments of a call by position; None if some are keyword-only."""
    if not kwargs:
        return args
    try:
        bound = inspect.signature(function).bind(*args, **kwargs)
    except (TypeError, ValueError):
        return None
    return None if bound.kwargs else bound.args


def _for_all(traced: Captured[..., Any], in_axes: Any) -> Captured[..., Any]:
    """The function for all elements of a `vmap`, captured with the same options."""
    key = repr(in_axes)
    with traced._lock:
        found = traced._mapped.get(key)
        if found is None:
            found = traced._mapped[key] = traced.alike(vmap(traced.function, in_axes))
            found.recordings, found.programs = traced.recordings, traced.programs
    return found


def runs_inside(segment: Segment) -> bool:
    """Whether a path can run inside of a transform: it is one graph and writes nothing outside."""
    ending = segment.ending
    if ending is None or ending.effects:
        return False
    signature = ending.signature
    if signature.writes or signature.new_leaves:
        return False
    return not any(isinstance(leaf, Made) and leaf.is_number for leaf in signature.leaves)


def run_inside(segment: Segment, given: list[Any]) -> Any:
    """The result of a path, from the values that its guards fetched."""
    ending = segment.ending
    assert ending is not None
    at = segment.places()
    inputs = [value for value, _ in segment.inputs]
    graph = extract("inside", inputs, segment.nodes, ending.made)
    made = call_graph(graph, [given[at[id(origin)]] for _, origin in segment.inputs])
    return result_of(ending.signature, made, lambda i: given[at[id(ending.origins[i])]])
