"""Writes: PyTorch casts what is written to the dtype of the tensor, as in `mask[0] = 0`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import weft.core.tensor as core
from weft.base.errors import ShapeError
from weft.core.public import PUBLIC
from weft.ops import scatter as core_scatter
from weft.ops.shape import reshape
from weft.torch.tensor import Tensor, held

__all__ = ["index_fill", "masked_fill", "scatter"]


def _casting(
    function: Callable[..., Any], position: int, keyword: str, of_tensors: bool = True
) -> Callable[..., Any]:
    """A function whose operand at a position is cast to the dtype of the first one."""

    @functools.wraps(function)
    def call(input: Any, *args: Any, **kwargs: Any) -> Any:
        given = list(args)
        if position < len(given) and (of_tensors or not isinstance(given[position], core.Tensor)):
            given[position] = held(given[position], input.dtype)
        if keyword in kwargs:
            kwargs[keyword] = held(kwargs[keyword], input.dtype)
        return function(input, *given, **kwargs)

    return call


masked_fill = _casting(PUBLIC["masked_fill"].function, 1, "value")
index_fill = _casting(PUBLIC["index_fill"].function, 2, "value")
scatter = _casting(core_scatter.scatter, 2, "value", of_tensors=False)

_METHODS = {"masked_fill": 1, "index_fill": 2, "scatter": 2, "fill_": 0}
for _name, _position in _METHODS.items():
    for _each in (_name, f"{_name}_") if _name != "fill_" else (_name,):
        _made = _casting(getattr(Tensor, _each), _position, "value", _name != "scatter")
        setattr(Tensor, _each, _made)


def _set_item(self: Any, key: Any, value: Any, /) -> None:
    """x[key] = value, cast; a value may have more axes of size 1 in front."""
    value = held(value, self.dtype)
    try:
        core.Tensor.__setitem__(self, key, value)
    except ShapeError:
        if not isinstance(value, core.Tensor) or value.shape[:1] != (1,):
            raise
        shape = value.shape
        while shape[:1] == (1,):
            shape = shape[1:]
        core.Tensor.__setitem__(self, key, reshape(value, shape))


Tensor.__setitem__ = _set_item  # type: ignore[method-assign]
