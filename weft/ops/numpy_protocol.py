"""NumPy's functions on tensors: `np.sin(t)`, `np.sum(t, axis=0)`, `array * t`.

NumPy hands such a call to the tensor (`__array_ufunc__`, `__array_function__`). A function that
Weft has too is called in its place, so gradients and graphs go through it. Any other is computed by
NumPy; it is refused where a gradient would be lost.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np

from weft.base.errors import GradientError, ShapeError
from weft.core.operands import as_tensor
from weft.core.public import PUBLIC, attach
from weft.core.tensor import Tensor
from weft.ops.creation import asarray
from weft.ops.elementwise import multiply, not_equal
from weft.ops.index import nonzero
from weft.ops.linalg_norm import matrix_norm, vector_norm
from weft.ops.matmul import tensordot
from weft.ops.select import where
from weft.ops.shape import permute_dims

#: Names that mean the same in both.
_SAME = """
abs add any all argmax argmin argsort atan2 bitwise_and bitwise_or bitwise_xor broadcast_to ceil
clip concat conj copysign cos cosh count_nonzero cumulative_prod cumulative_sum deg2rad diff
divide equal exp expand_dims expm1 flip floor floor_divide fmod full_like gcd greater
greater_equal heaviside hypot imag isfinite isin isinf isnan isneginf isposinf kron lcm ldexp less
less_equal log log10 log1p log2 logaddexp logical_and logical_not logical_or logical_xor matmul
matrix_transpose max maximum mean min minimum moveaxis multiply nan_to_num nanmean nansum negative
nextafter nonzero not_equal ones_like outer permute_dims positive prod rad2deg real reciprocal
remainder repeat reshape roll round sign signbit sin sinc sinh sort sqrt square squeeze stack std
subtract sum swapaxes take take_along_axis tan tanh tensordot tile tril triu trunc unstack
var vecdot zeros_like hstack vstack dstack column_stack atleast_1d atleast_2d atleast_3d ravel
rot90 fliplr flipud isclose linalg.cholesky linalg.det linalg.inv linalg.matrix_power
linalg.slogdet linalg.solve linalg.eigvalsh linalg.svdvals linalg.pinv fft.fft fft.ifft
fft.fftn fft.ifftn fft.rfft fft.irfft fft.rfftn fft.irfftn fft.hfft fft.ihfft fft.fftshift
fft.ifftshift
"""
#: NumPy's name, where Weft has another one.
_OTHER = {
    "absolute": "abs",
    "arccos": "acos",
    "arccosh": "acosh",
    "arcsin": "asin",
    "arcsinh": "asinh",
    "arctan": "atan",
    "arctan2": "atan2",
    "arctanh": "atanh",
    "fabs": "abs",
    "invert": "bitwise_invert",
    "left_shift": "bitwise_left_shift",
    "right_shift": "bitwise_right_shift",
    "power": "pow",
    "rint": "round",
    "cumsum": "cumulative_sum",
    "cumprod": "cumulative_prod",
    "trace": "linalg.trace",
    "degrees": "rad2deg",
    "radians": "deg2rad",
}


# --- functions of NumPy's that are called differently ------------------------------------------


def _transpose(x: Tensor, axes: Any = None) -> Tensor:
    return permute_dims(x, tuple(reversed(range(x.ndim))) if axes is None else axes)


def _where(condition: Any, x: Any = None, y: Any = None) -> Any:
    test = as_tensor(condition, "where")
    return nonzero(test) if x is None else where(not_equal(test, 0), _operand(x), _operand(y))


def _dot(a: Any, b: Any) -> Tensor:
    first, second = as_tensor(a, "dot"), as_tensor(b, "dot")
    if not (first.ndim and second.ndim):
        return multiply(first, second)
    if second.ndim == 1:
        return tensordot(first, second, axes=1)
    return tensordot(first, second, axes=((first.ndim - 1,), (second.ndim - 2,)))


def _norm(x: Tensor, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Tensor:
    of_vector = axis is not None and not isinstance(axis, (tuple, list))
    if ord is None or of_vector or (axis is None and x.ndim == 1):
        return vector_norm(x, ord=2 if ord is None else ord, axis=axis, keepdims=keepdims)
    if axis is None and x.ndim == 2:
        return matrix_norm(x, ord=ord, keepdims=keepdims)
    raise ShapeError(
        f"ord={ord!r} of the axes {axis} of {x.ndim}",
        op="numpy.linalg.norm",
        hint="use weft.linalg.vector_norm or weft.linalg.matrix_norm",
    )


_CALLED_DIFFERENTLY: dict[str, Callable[..., Any]] = {
    "transpose": _transpose,
    "where": _where,
    "dot": _dot,
    "linalg.norm": _norm,
    "copy": lambda a: a.clone(),
    "shape": lambda a: a.shape,
    "ndim": lambda a: a.ndim,
    "size": lambda a, axis=None: a.size if axis is None else a.shape[axis],
}

# --- what is called for what -------------------------------------------------------------------

#: Parameters of NumPy's, where Weft has another name that is not a spelling of its own.
_PARAMETERS = {"a_min": "min", "a_max": "max", "v": "values"}
_NO_VALUE: Any = np._NoValue


def _found(name: str) -> Any:
    """A function of NumPy's by its name; None in a NumPy that lacks it."""
    found: Any = np
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


_TABLE: dict[str, str | Callable[..., Any]] = {name: name for name in _SAME.split()}
_TABLE |= _OTHER
_TABLE |= _CALLED_DIFFERENTLY
#: NumPy's function to Weft's, or to its name. Functions that an older NumPy lacks are left out.
COUNTERPARTS = {_found(name): ours for name, ours in _TABLE.items() if _found(name) is not None}


def counterpart(
    function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]] | None:
    """Weft's function for one of NumPy's, and its arguments; None where there is none."""
    ours = COUNTERPARTS.get(function)
    if isinstance(ours, str):
        entry = PUBLIC.get(ours)
        if entry is None:
            return None
        ours, known = entry.function, entry.calling.others
    elif ours is not None:
        known = dict.fromkeys(inspect.signature(ours).parameters, "")
    else:
        return None
    places, named = _bound(function, args, kwargs)
    taken = {_PARAMETERS.get(key, key): value for key, value in named.items()}
    if any(key not in known for key in taken):
        return None
    return ours, tuple(map(_operand, places)), taken


def _bound(
    function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """The arguments that a function needs, by position; the others by NumPy's name."""
    signature = None if isinstance(function, np.ufunc) else _signature(function)
    if signature is None:
        return list(args), {key: value for key, value in kwargs.items() if value is not None}
    places: list[Any] = []
    named: dict[str, Any] = {}
    for key, value in signature.bind(*args, **kwargs).arguments.items():
        parameter = signature.parameters[key]
        if parameter.kind is parameter.VAR_POSITIONAL:
            places += value
        elif parameter.default is parameter.empty:
            places.append(value)
        elif value is not parameter.default and value is not _NO_VALUE:
            named[key] = value
    return places, named


@cache
def _signature(function: Any) -> inspect.Signature | None:
    try:
        return inspect.signature(function)
    except ValueError:  # a function written in C, which takes its arguments as ours does
        return None


def _operand(value: Any) -> Any:
    """An array as a tensor, also in a list; NumPy's scalars stay weak like Python numbers."""
    if isinstance(value, np.ndarray):
        return as_tensor(value, "numpy")
    if isinstance(value, (list, tuple)) and any(isinstance(x, (Tensor, np.ndarray)) for x in value):
        return type(value)(asarray(x) if isinstance(x, np.ndarray) else x for x in value)
    return value


def _array_function(
    self: Tensor, function: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    ours = counterpart(function, args, kwargs)
    if ours is None:
        return _by_numpy(function, function.__name__, args, kwargs)
    called, places, named = ours
    return called(*places, **named)


def _array_ufunc(self: Tensor, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
    if method == "__call__":
        ours = counterpart(ufunc, inputs, kwargs)
        if ours is not None:
            called, places, named = ours
            return called(*places, **named)
    return _by_numpy(getattr(ufunc, method), ufunc.__name__, inputs, kwargs)


def _by_numpy(function: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What NumPy computes of the values; an error where that could have had a gradient."""
    given = list(tensors_in([args, list(kwargs.values())]))
    wants_grad = any(x.requires_grad for x in given)
    if not (wants_grad and kwargs.get("out") is not None):
        values = {key: _value(value) for key, value in kwargs.items()}
        result = function(*map(_value, args), **values)
        if not (wants_grad and any(map(_has_slope, _parts(result)))):
            return result
    raise GradientError(
        "a gradient would be lost: NumPy computes this, and knows nothing of gradients",
        op=f"numpy.{name}",
        operands=[x.type for x in given],
        hint="use a function of weft, or x.detach() where no gradient is wanted",
    )


def tensors_in(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from tensors_in(part)


def _value(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.numpy()
    if type(value) in (list, tuple):
        return type(value)(map(_value, value))
    return value


def _parts(result: Any) -> Iterator[Any]:
    if isinstance(result, (list, tuple)):
        for part in result:
            yield from _parts(part)
    else:
        yield result


def _has_slope(part: Any) -> bool:
    """Whether a gradient could have come from this: floats depend on their input by degrees."""
    return isinstance(part, (np.ndarray, np.generic)) and part.dtype.kind not in "biuSUMm"


attach({"__array_function__": _array_function, "__array_ufunc__": _array_ufunc})
