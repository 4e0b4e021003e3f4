"""Calls of functions of several ops on large arrays: one kernel forward, one backward."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from weft.autodiff.composite_node import CompositeNode, note_composite
from weft.autodiff.transforms.reverse import vjp
from weft.core.large import large
from weft.core.quiet import quietly
from weft.core.tensor import Tensor, result_class_of
from weft.ir.attributes import attr_key
from weft.runtime.eager import kernels
from weft.runtime.eager.graphs import Names
from weft.runtime.eager.kernels import EagerCall, call_known, known_call, made_call, operands_of

__all__ = ["fill"]

ndarray = np.ndarray


def fill() -> None:
    """Let large calls run by what is here, and in `weft.runtime.eager.kernels`."""
    large.add = kernels.sum_of_large
    large.composite = call_composite
    large.gradients = kernels.gradients_of_large
    large.kernel = kernels.kernel_for_large
    large.update = kernels.update_large


def call_composite(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Any:
    """The result of a call on large arrays, with its history; None if there is no kernel for it."""
    values = (*args, *kwargs.values())
    inputs = [x for x in values if isinstance(x, Tensor)]
    arrays = [x._data for x in inputs]
    if any(a.__class__ is not ndarray for a in arrays):
        return None
    try:
        constants = [_TENSOR if isinstance(x, Tensor) else attr_key(x) for x in values]
        what = (function, len(args), tuple(kwargs), tuple(constants))
        key = (what, *[(a.dtype, a.shape, a.strides) for a in arrays])
        found, call = call_known(key)
    except TypeError:  # an argument that is no key
        return None

    def whole(*tensors: Any) -> Any:
        given = iter(tensors)
        full = [next(given) if isinstance(x, Tensor) else x for x in values]
        return function(*full[: len(args)], **dict(zip(kwargs, full[len(args) :], strict=True)))

    name = function.__name__.strip("_")
    if not found:

        def make() -> EagerCall | None:
            operands = operands_of(arrays, fixed=range(1, len(arrays)))
            return made_call(name, 1, operands, lambda _names: what, lambda _names: whole)

        call = known_call(key, make)
    if call is None or any(op.kernels.overridden for op in call.ops):
        return None
    try:
        [data] = quietly(call.results, arrays)
    except Exception:  # its ops raise the error that users know
        return None
    out = result_class_of(inputs)()
    out._data = data
    out._node = None

    def gradients(node: CompositeNode, g: Any, wanted: Any) -> list[Any] | None:
        return _gradients(name, what, whole, node, g, wanted)

    note_composite(name, whole, inputs, out, gradients)
    return out


_TENSOR = object()


def _gradients(
    name: str,
    what: Any,
    whole: Callable[..., Any],
    node: CompositeNode,
    g: Any,
    wanted: Sequence[bool] | None,
) -> list[Any] | None:
    edges = node.edges
    asked = tuple(
        [
            edge is not None and (wanted is None or bool(wanted[number]))
            for number, edge in enumerate(edges)
        ]
    )
    arrays = [g, *node.kept]
    key = (what, asked, *[(a.dtype, a.shape, a.strides) for a in arrays])
    found, call = call_known(key)
    if not found:

        def make() -> EagerCall | None:
            def function(_names: Names) -> Callable[..., Any]:
                return lambda g, *inputs: _pulled(whole, asked, g, inputs)

            operands = operands_of(arrays, fixed=range(2, len(arrays)))
            return made_call(name, sum(asked), operands, lambda _names: (what, asked), function)

        call = known_call(key, make)
    if call is None:
        return None
    try:
        results = iter(call.results(arrays))
    except Exception:
        return None
    return [next(results) if yes else None for yes in asked]


def _pulled(
    whole: Callable[..., Any], asked: Sequence[bool], g: Any, inputs: Sequence[Any]
) -> tuple[Any, ...]:
    """The gradients of the inputs that are asked for."""
    chosen = [x for x, yes in zip(inputs, asked, strict=True) if yes]

    def function(*given: Any) -> Any:
        rest = iter(given)
        return whole(*[next(rest) if yes else x for x, yes in zip(inputs, asked, strict=True)])

    _, pull = vjp(function, *chosen)
    found: tuple[Any, ...] = pull(g)
    return found
