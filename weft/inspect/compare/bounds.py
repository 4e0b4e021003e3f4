"""Bounds on how much rounding can change the results of a kernel, compared with its ops one by one.

Both start from the same operands. A bound on the absolute error of each element is propagated from
node to node, according to the op:

elementwise   the change of the result if each operand changes by its error and by one rounding,
              plus a few roundings of the result
linear        sums of products: n · eps · Σ|a||b|. The card itself computes the sums, on absolute
              values; error bounds of operands replace one factor. For long sums it is 8√n · eps,
              because roundings partly cancel
selections    max, sort and so on return elements unchanged: the error is that of the elements
others        the change of the result for small random changes of the operands, times the number
              of terms of sums

Two correct computations may differ by twice the bound: the interpreter rounds as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from weft.core.bind import bind
from weft.core.grad_mode import no_grad
from weft.core.tensor import Tensor, wrap
from weft.ir.graph import Node, Value
from weft.ir.interpret import run_node
from weft.ir.op import Trait
from weft.ir.types import TensorType
from weft.schedule.groups import Group
from weft.schedule.nodes import is_view

__all__ = ["SAMPLES", "Bounds", "epsilon", "jittered"]

Array = np.ndarray[Any, Any]
#: Roundings of one op: functions such as exp are accurate to 2 ulp (4 ulp in float64).
ROUNDINGS = 8.0
#: The largest change by one rounding of an operand, in roundings; a larger change is a jump.
STEEP = 1e3
SAMPLES = 4
SINGLE = float(np.finfo(np.float32).eps)


class Bounds:
    """Error bounds of the values of a group of nodes."""

    def __init__(self, group: Group, array_of: Callable[[Value], Array]) -> None:
        """`array_of` returns the interpreter's array of a value."""
        self._array_of = array_of
        self._errors: dict[Value, Array | None] = {}  # None: exact
        for node in group.in_order():
            with no_grad(), np.errstate(all="ignore"):
                made = self._node(node)
            for value, error in zip(node.outputs, made, strict=True):
                self._errors[value] = error

    def of(self, value: Value) -> Array:
        """How much two correct computations of a value may differ, per element."""
        error = self._errors.get(value)
        found = np.zeros(()) if error is None else 2 * error
        known = np.where(np.isnan(found), np.inf, found)
        return np.broadcast_to(known, value.tensor_type.shape)

    def _error(self, value: Value) -> Array | None:
        """The error bound of an operand; for a view, that of its base."""
        if value in self._errors or value.node is None or not is_view(value.node):
            return self._errors.get(value)
        errors = [self._error(other) for other in value.node.inputs]
        if all(error is None for error in errors):
            return None
        given = [
            self._array_of(other) if error is None else error
            for other, error in zip(value.node.inputs, errors, strict=True)
        ]
        (found,) = _evaluated(value.node, given)
        return found

    def _node(self, node: Node) -> list[Array | None]:
        if not all(isinstance(v.type, TensorType) for v in (*node.inputs, *node.outputs)):
            return [None] * len(node.outputs)
        given = [self._array_of(value) for value in node.inputs]
        errors = [self._error(value) for value in node.inputs]
        results = [self._array_of(value) for value in node.outputs]
        if node.op.elementwise:
            return [_elementwise(node, given, errors, results[0])]
        if Trait.LINEAR in node.op.traits and not node.graphs:
            return [_linear(node, given, errors, results[0])]
        if _selects(node, given, results):
            return _selected(node, given, errors, results)
        return _sampled(node, given, errors, results)


# --- rules ---------------------------------------------------------------------------------------


def _elementwise(
    node: Node, given: Sequence[Array], errors: Sequence[Array | None], result: Array
) -> Array:
    wide = [_wide(x) for x in given]
    (middle,) = _evaluated(node, wide)
    size = np.abs(_wide(result))
    error = _roundings(node, result, size)
    for place, (x, own) in enumerate(zip(given, errors, strict=True)):
        rounding = _epsilon(x) if _is_floating(result) else 0.0
        if own is None and not rounding:
            continue
        change = np.abs(wide[place]) * rounding + (0.0 if own is None else own)
        most = np.zeros(())
        for other in _changed(x, wide[place], change):
            (moved,) = _evaluated(node, [*wide[:place], other, *wide[place + 1 :]])
            most = np.maximum(most, np.abs(moved - middle))
        if own is None:
            most = np.minimum(most, STEEP * rounding * (size + np.abs(wide[place])))
        error = error + most
    return np.asarray(error)


def _linear(
    node: Node, given: Sequence[Array], errors: Sequence[Array | None], result: Array
) -> Array:
    sizes = [np.abs(_wide(x)) if _is_floating(x) else x for x in given]
    (total,) = _evaluated(node, sizes)
    error = _roundings(node, result, total)
    for place, own in enumerate(errors):
        if own is not None and _is_floating(given[place]):
            (moved,) = _evaluated(node, [*sizes[:place], own, *sizes[place + 1 :]])
            error = error + np.abs(moved)
    return error


def _selects(node: Node, given: Sequence[Array], results: Sequence[Array]) -> bool:
    """Whether all elements of the results are elements of the operands. Tested with these operands
    and with nearby ones, because an average of equal numbers is an element by chance."""
    if not all(_are_among(result, given) for result in results):
        return False
    rng = np.random.default_rng(0)
    near = [jittered(rng, x) for x in given]
    made = [x._data for x in run_node(node, [wrap(x) for x in near], bind)]
    return all(_are_among(result, near) for result in made)


def _are_among(result: Array, given: Sequence[Array]) -> bool:
    same = [_wide(x) for x in given if x.dtype == result.dtype]
    return _is_floating(result) and any(bool(np.isin(_wide(result), x).all()) for x in same)


def _selected(
    node: Node, given: Sequence[Array], errors: Sequence[Array | None], results: Sequence[Array]
) -> list[Array | None]:
    """The bound of a monotonic selection: all operands plus their errors, then minus."""
    if all(error is None for error in errors):
        return [None] * len(results)
    most = [np.zeros(x.shape) for x in results]
    for sign in (1, -1):
        moved = [
            _wide(x) + sign * error if error is not None and _is_floating(x) else x
            for x, error in zip(given, errors, strict=True)
        ]
        for place, found in enumerate(_evaluated(node, moved)):
            most[place] = np.maximum(most[place], np.abs(found - _wide(results[place])))
    return list(most)


def _sampled(
    node: Node, given: Sequence[Array], errors: Sequence[Array | None], results: Sequence[Array]
) -> list[Array | None]:
    """The bound by sampling: operands changed at random by one rounding and by their errors."""
    rng = np.random.default_rng(0)
    finest = min((x for x in results if _is_floating(x)), key=_epsilon, default=None)
    if finest is not None:  # narrow operands, wide result: intermediate values are rounded less
        given = [
            x.astype(finest.dtype) if x.dtype.kind in "fV" and _epsilon(x) > _epsilon(finest) else x
            for x in given
        ]
    middle = _evaluated(node, given)
    most = [np.zeros(x.shape) for x in results]
    for _ in range(SAMPLES):
        moved = _evaluated(node, [jittered(rng, x, e) for x, e in zip(given, errors, strict=True)])
        for place, (a, b) in enumerate(zip(moved, middle, strict=True)):
            most[place] = np.maximum(most[place], np.abs(a - b))
    found: list[Array | None] = []
    for result, change in zip(results, most, strict=True):
        if not _is_floating(result):
            found.append(change if any(error is not None for error in errors) else None)
            continue
        size = np.abs(_wide(result))
        if not node.graphs and all(error is None for error in errors):
            # A jump, for example a different maximum: it does not occur for exact operands.
            largest = max(_largest(x) for x in (result, *given))
            change = np.where(change > STEEP * _epsilon(result) * largest, 0.0, change)
        known = change[np.isfinite(change)]
        usual = float(known.mean()) if known.size else 0.0
        factor = 4 * _growth(_terms(node))
        error = _roundings(node, result, size)
        found.append(error + factor * np.maximum(change, usual))
    return found


def jittered(rng: np.random.Generator, x: Array, error: Array | None = None) -> Array:
    """A random number near each element: one rounding away, or within its error."""
    if not _is_floating(x):
        if error is None or x.dtype.kind != "b":
            return x
        return np.where((error > 0) & (rng.random(x.shape) < 0.5), ~x, x)
    wide = _wide(x)
    change = np.abs(wide) * _epsilon(x) + (0.0 if error is None else error)
    moved = wide + change * rng.choice([-1.0, 1.0], x.shape)
    return np.asarray(moved.astype(x.dtype))


def _changed(x: Array, wide: Array, change: Array) -> list[Array]:
    if x.dtype.kind == "b":
        return [np.where(change > 0, ~x, x)]
    if x.dtype.kind in "iu":
        step = np.ceil(change).astype(np.int64)
        return [x + step.astype(x.dtype), x - step.astype(x.dtype)]
    if x.dtype.kind == "c":
        return [wide + change, wide - change, wide + 1j * change, wide - 1j * change]
    return [wide + change, wide - change]


# --- figures -------------------------------------------------------------------------------------


def _terms(node: Node) -> float:
    """About how many terms a sum in the node has."""
    if node.graphs:
        inner = [_terms(part) for graph in node.graphs for part in graph.nodes]
        return float(node.attrs.get("length", 1) or 1) * max(inner, default=1.0)
    given = tuple(value.tensor_type for value in node.inputs)
    made = tuple(value.tensor_type for value in node.outputs)
    work = node.op.estimate(given, made, **node.attrs).flops
    return max(1.0, float(work) / max(1, max(kind.size for kind in made)))


def _growth(terms: float) -> float:
    return min(terms, 8 * math.sqrt(terms))


def _roundings(node: Node, result: Array, total: Array) -> Array:
    """The rounding error of a sum, from the sum of the absolute values of its terms."""
    if not _is_floating(result):
        return np.zeros(result.shape)
    size = np.abs(_wide(result))
    own, times, inside = _epsilon(result), ROUNDINGS, _epsilon(result)
    if own > SINGLE and Trait.WIDEN in node.op.traits:  # rounded once at the end
        times, inside = 2.0, SINGLE
    error = times * (own * size + _smallest(result))
    terms = _terms(node)
    return error if terms == 1 else error + _growth(terms) * inside * np.maximum(total, size)


def _is_floating(x: Array) -> bool:
    return x.dtype.kind in "fcV"


def epsilon(dtype: Any) -> float:
    """The distance from 1 to the next number of a floating dtype."""
    return float(_limits(dtype).eps)


def _largest(x: Array) -> float:
    size = np.abs(_wide(x)) if _is_floating(x) else np.zeros(0)
    return float(size[np.isfinite(size)].max(initial=0.0))


def _epsilon(x: Array) -> float:
    return epsilon(x.dtype) if _is_floating(x) else 0.0


def _smallest(x: Array) -> float:
    return float(_limits(x.dtype).smallest_subnormal)


def _limits(dtype: Any) -> Any:
    return ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]


def _wide(x: Array) -> Array:
    if not _is_floating(x):
        return x
    return x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)


def _evaluated(node: Node, given: Sequence[Array]) -> list[Array]:
    """The result of the card for these arrays, as float64 or complex128."""
    tensors = [wrap(np.asarray(x)) for x in given]
    made = run_node(node, tensors, bind)
    return [_signed(np.asarray(x._data)) for x in made if isinstance(x, Tensor)]


def _signed(x: Array) -> Array:
    return _wide(x) if _is_floating(x) else x.astype(np.float64)
