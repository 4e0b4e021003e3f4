"""Examples of the arguments of a program, from specs."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np

from weft.base.dims import has_dims
from weft.base.errors import DTypeError
from weft.base.pytree import tree_flatten, tree_unflatten
from weft.capture.trace.result_leaves import is_plain
from weft.core.tensor import Tensor, type_of, wrap
from weft.interop.programs.arguments import KINDS
from weft.interop.programs.example_sizes import replaced_shape, sizes_of_attempt
from weft.ir.types import TensorType
from weft.ops.creation import zeros

__all__ = ["Examples", "bound"]


class Examples:
    """A tensor for each spec, and what is known of them.

    args, kwargs    the arguments of the recorded call
    tensors         the tensors in them, in order; `number` has their numbers by id
    shapes, sizes   of those with symbolic sizes: their shapes by id, and the numbers of this call,
                    which are others in each attempt
    """

    def __init__(self, specs: tuple[Any, ...], named: dict[str, Any], attempt: int = 0) -> None:
        leaves, self.spec = tree_flatten((specs, named))
        kinds = [leaf for leaf in leaves if isinstance(leaf, TensorType)]
        self.sizes = sizes_of_attempt(kinds, attempt)
        self.tensors: list[Tensor] = []
        self.types: list[TensorType] = []
        self.number: dict[int, int] = {}
        self.shapes: dict[int, tuple[int, ...]] = {}
        self.leaves = [self._example(leaf) for leaf in leaves]
        self.args, self.kwargs = tree_unflatten(self.spec, self.leaves)

    def _example(self, leaf: Any) -> Any:
        if isinstance(leaf, TensorType):
            shape = replaced_shape(leaf.shape, self.sizes)
            made = zeros(shape, dtype=leaf.dtype, device=leaf.device)
            if has_dims(leaf.shape):
                self.shapes[id(made)] = leaf.shape
        elif isinstance(leaf, Tensor):
            made = wrap(leaf._data)
            made.requires_grad = leaf.requires_grad
            leaf = type_of(leaf)
        elif is_plain(leaf):
            return leaf
        else:
            kind = "an array" if isinstance(leaf, np.ndarray) else f"a {type(leaf).__name__}"
            raise DTypeError(
                f"{kind} is no argument of a program",
                op="export",
                hint="weft.spec(shape, dtype) or weft.asarray(x) for arrays; bind modules and "
                "other objects: weft.export(lambda x: f(model, x), ...)",
            )
        self.number[id(made)] = len(self.tensors)
        self.tensors.append(made)
        self.types.append(leaf)
        return made


_KINDS = {kind: name for name, kind in KINDS.items()}


def bound(
    function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[tuple[str, str, Any]]:
    """Of each parameter that the call gives: its name, its kind and its value."""
    if not inspect.isroutine(function):
        function = getattr(function, "forward", function)  # of a module
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # a builtin
        positional = [(f"x{i}", "positional", value) for i, value in enumerate(args)]
        return [*positional, *[(name, "keyword", value) for name, value in kwargs.items()]]
    given = signature.bind(*args, **kwargs).arguments
    found: list[tuple[str, str, Any]] = []
    skipped = False
    for name, parameter in signature.parameters.items():
        if name not in given:
            skipped = True
            continue
        kind = _KINDS[parameter.kind]
        if skipped and kind == "any":  # it would stand in another position
            kind = "keyword"
        found.append((name, kind, given[name]))
    return found
