"""Functions of Weft that PyTorch calls with more arguments, or on 0-d tensors along an axis."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import weft.core.tensor as core
from weft.base.device import CPU
from weft.base.dtypes import DTYPES, get_default_dtype
from weft.base.errors import DTypeError
from weft.base.pytree import tree_map
from weft.core.public import PUBLIC
from weft.ops import (
    activations,
    dtype_functions,
    elementwise,
    linalg_matrix,
    linalg_norm,
    rearranging,
    search,
    shape,
)
from weft.ops.cast import astype
from weft.ops.reduce import sum as functions_sum
from weft.torch.creation import full
from weft.torch.tensor import Tensor, as_type, labelled, method

_power = elementwise.pow

#: PyTorch takes a 0-d tensor along axis 0 for a vector of one element.
ALONG_AN_AXIS = """
all amax amin any argmax argmin count_nonzero cumprod cumsum index_add index_copy
index_select logcumsumexp logsumexp mean nanmean nanquantile nansum prod quantile sum cummax cummin
kthvalue mode topk
""".split()  # noqa: SIM905

__all__ = [
    *("atleast_1d", "atleast_2d", "atleast_3d", "real", "resolve_conj", "resolve_neg"),
    *("scalar_tensor", "svd", "take_along_dim"),
    *("allclose", "bucketize", "cdist", "corrcoef", "cross", "diff", "ldexp", "log_softmax"),
    *("norm", "pow", "round", "searchsorted", "softmax", "tensor_split", "tril_indices"),
    *("triu_indices", *[name for name in ALONG_AN_AXIS if name in PUBLIC]),
]


def _along_an_axis(function: Callable[..., Any], sums: bool) -> Callable[..., Any]:
    """Sums of unsigned integers are int64, and 0-d tensors have an axis."""

    @functools.wraps(function)
    def call(input: Any, *args: Any, **kwargs: Any) -> Any:
        data = input._data
        if sums and data.dtype.kind == "u" and kwargs.get("dtype") is None:
            kwargs["dtype"] = DTYPES["int64"]
        if data.shape or not (args or kwargs):
            return function(input, *args, **kwargs)
        out = function(shape.reshape(input, (1,)), *args, **kwargs)
        return tree_map(lambda x: shape.reshape(x, ()) if x.shape == (1,) else x, out)

    return call


_SUMS = ("cumprod", "cumsum", "nansum", "prod", "sum")
for _name in ALONG_AN_AXIS:
    if _name in PUBLIC:
        _function = _along_an_axis(PUBLIC[_name].function, _name in _SUMS)
        globals()[_name] = method(_name)(_function)


@method("__pow__", "pow")
def pow(input: Any, exponent: Any) -> Any:
    """A power; integers have no negative powers."""
    if (
        isinstance(exponent, int)
        and exponent < 0
        and isinstance(input, Tensor)
        and input.dtype.kind in ("int", "uint")
    ):
        raise DTypeError(
            f"integers to the negative power {exponent} are not integers",
            op="pow",
            operands=[input.type],
            hint="cast them first: x.float()",
        )
    return _power(input, exponent)


def _with_dtype(name: str) -> Any:
    function = getattr(activations, name)

    def call(input: Any, dim: Any = None, dtype: Any = None, *, axis: Any = None) -> Any:
        dim = axis if dim is None else dim
        if dim is None:  # the old rule: columns, unless there are none
            dim = 0 if input.ndim in (0, 1, 3) else 1
        input = input if dtype is None else astype(input, as_type(dtype))
        if not input.ndim:
            return shape.reshape(function(shape.reshape(input, (1,)), axis=dim), ())
        return function(input, axis=dim)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"`weft.{name}` along an axis; with `dtype`, of the values in that dtype."
    return method(name)(call)


softmax = _with_dtype("softmax")
log_softmax = _with_dtype("log_softmax")


@method()
def round(input: Any, *, decimals: int = 0) -> Any:
    """To the nearest integer, or to this number of decimals."""
    if not decimals:
        return elementwise.round(input)
    scale = 10.0 ** abs(decimals)
    if decimals > 0:
        return elementwise.round(input * scale) / scale
    return elementwise.round(input / scale) * scale


def _places(found: Any, out_int32: bool) -> Any:
    return astype(found, DTYPES["int32"]) if out_int32 else found


@method()
def bucketize(input: Any, boundaries: Any, *, out_int32: bool = False, right: bool = False) -> Any:
    """In which bucket each value is."""
    return _places(search.bucketize(input, boundaries, right=right), out_int32)


def searchsorted(
    sorted_sequence: Any,
    input: Any,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Any = None,
) -> Any:
    """Where values would stand in sorted ones."""
    side = side or ("right" if right else "left")
    found = search.searchsorted(sorted_sequence, input, side=side, sorter=sorter)
    return _places(found, out_int32)


@method()
def diff(input: Any, n: int = 1, dim: int = -1, prepend: Any = None, append: Any = None) -> Any:
    """Differences of neighbours, n times over."""
    return dtype_functions.diff(input, axis=dim, n=n, prepend=prepend, append=append)


@method()
def norm(
    input: Any, p: Any = "fro", dim: Any = None, keepdim: bool = False, dtype: Any = None
) -> Any:
    """The norm of all elements as one vector, or along axes."""
    input = input if dtype is None else astype(input, as_type(dtype))
    if p == "nuc":
        axes = (-2, -1) if dim is None else tuple(dim)
        return linalg_norm.matrix_norm(
            shape.moveaxis(input, axes, (-2, -1)), ord="nuc", keepdims=keepdim
        )
    order = 2.0 if p in ("fro", None) else p
    axis = tuple(dim) if isinstance(dim, list) else dim
    return linalg_norm.vector_norm(input, axis=axis, ord=order, keepdims=keepdim)


@method()
def allclose(input: Any, other: Any, *args: Any, **kwargs: Any) -> bool:
    """Whether all elements are close to each other."""
    return bool(PUBLIC["allclose"].function(input, other, *args, **kwargs))


@method()
def cross(input: Any, other: Any, dim: int | None = None) -> Any:
    """The cross product along an axis of size 3: the first of them, unless `dim` says which."""
    axis = input.shape.index(3) if dim is None else dim
    return linalg_matrix.cross(input, other, axis=axis)


def _indices(name: str) -> Any:
    def function(
        row: int, col: int, offset: int = 0, *, dtype: Any = None, device: Any = None
    ) -> Any:
        found = labelled(shape.stack(list(PUBLIC[name].function(row, col, offset))))
        return found if dtype is None else found.to(dtype)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"`weft.{name}` as a matrix of two rows."
    return function


tril_indices = _indices("tril_indices")
triu_indices = _indices("triu_indices")


def cdist(x1: Any, x2: Any, p: float = 2.0, compute_mode: str | None = None) -> Any:
    """The distance of each row to each row."""
    return PUBLIC["cdist"].function(x1, x2, p)


@method()
def corrcoef(input: Any) -> Any:
    """Correlations of rows; of one row, a number."""
    found = PUBLIC["corrcoef"].function(input)
    return shape.reshape(found, ()) if found.shape == (1, 1) else found


@method()
def ldexp(input: Any, other: Any) -> Any:
    """input * 2 ** other."""
    return input * _power(2.0, other)


@method()
def tensor_split(input: Any, indices_or_sections: Any, dim: int = 0) -> Any:
    """Parts that end at these places, or this number of parts."""
    places = indices_or_sections
    places = places.tolist() if isinstance(places, core.Tensor) else places
    return PUBLIC["tensor_split"].function(input, places, axis=dim)


def _adjoint(self: Any) -> Any:
    """Conjugate and transposed."""
    return elementwise.conj(shape.matrix_transpose(self)) if self.ndim else elementwise.conj(self)


Tensor.H = Tensor.mH = property(_adjoint)  # type: ignore[attr-defined]


@method()
def sum_to_size(input: Any, *size: Any) -> Any:
    """Summed to a shape that broadcasts to this one."""
    wanted = tuple(size[0]) if len(size) == 1 and not isinstance(size[0], int) else size
    extra = input.ndim - len(wanted)
    axes = [i for i in range(input.ndim) if i < extra or wanted[i - extra] != input.shape[i]]
    return shape.reshape(functions_sum(input, axis=tuple(axes)), wanted) if axes else input


# --- the tensor itself, where there is nothing to do: a write to the result is one to it ----------

_DTYPES = {
    **{name: name for name in ("bfloat16", "bool")},
    **{"byte": "uint8", "char": "int8", "short": "int16", "int": "int32", "long": "int64"},
    **{"half": "float16", "float": "float32", "double": "float64"},
    **{"cfloat": "complex64", "cdouble": "complex128"},
}
for _name, _dtype in _DTYPES.items():
    method(_name)(lambda self, memory_format=None, dtype=DTYPES[_dtype]: self.to(dtype))


@method("contiguous")
def _itself(self: Any, memory_format: Any = None) -> Any:
    """The tensor: its elements are in order."""
    return self


@method("cpu")
def _on_cpu(self: Any, memory_format: Any = None) -> Any:
    """The tensor on the CPU: itself, if it is there."""
    return self if self.device == CPU else self.to_device(CPU)


@method()
def type_as(self: Any, other: Any) -> Any:
    """In the dtype and on the device of another."""
    return self.to(other.dtype)


def real(input: Any) -> Any:
    """The real part; of a real tensor, itself."""
    return elementwise.real(input) if input.dtype.kind == "complex" else input


@method("resolve_conj", "resolve_neg")
def resolve_conj(input: Any) -> Any:
    """The tensor: nothing is put off here."""
    return input


resolve_neg = resolve_conj


@method()
def take_along_dim(input: Any, indices: Any, dim: int | None = None) -> Any:
    """The elements at these places along an axis, or of the flattened tensor."""
    if dim is None:
        return shape.reshape(input, (-1,))[shape.reshape(indices, (-1,))]
    return PUBLIC["take_along_axis"].function(input, indices, axis=dim)


def scalar_tensor(value: Any, *, dtype: Any = None, device: Any = None) -> Any:
    """A 0-d tensor of the default dtype."""
    return full((), value, dtype=dtype or get_default_dtype(), device=device)


def svd(input: Any, some: bool = True, compute_uv: bool = True) -> Any:
    """U, S and V, with input = U diag(S) V^H; `torch.linalg.svd` gives V^H."""
    found = PUBLIC["linalg.svd"].function(input, full_matrices=not some)
    return found[0], found[1], _adjoint(found[2])


def _at_least(function: Any, axes: int) -> Any:
    name = f"atleast_{axes}d"

    def call(*tensors: Any) -> Any:
        listed = len(tensors) == 1 and isinstance(tensors[0], (tuple, list))
        given = tensors[0] if listed else tensors
        found = tuple(x if x.ndim >= axes else function(x) for x in given)
        return found[0] if len(tensors) == 1 and not listed else found

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"With {axes} axes or more."
    return call


atleast_1d = _at_least(rearranging.atleast_1d, 1)
atleast_2d = _at_least(rearranging.atleast_2d, 2)
atleast_3d = _at_least(rearranging.atleast_3d, 3)
