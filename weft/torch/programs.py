"""Names that PyTorch programs use around their models: memory, windows, tests, random states."""

from __future__ import annotations

import contextlib
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

import weft.core.tensor as core
from weft.base.errors import ShapeError
from weft.base.promotion import promote
from weft.core.public import PUBLIC
from weft.ops import elementwise, select
from weft.ops.creation import arange, eye
from weft.ops.generator import get_rng_state, manual_seed, set_rng_state
from weft.record.control.branches import cond as core_cond
from weft.torch.signal import windows
from weft.torch.tensor import as_type, method

__all__ = [
    *("bartlett_window", "blackman_window", "channels_last", "channels_last_3d"),
    *("cholesky_inverse", "clamp_max", "clamp_min", "cond", "contiguous_format", "fork_rng"),
    *("hamming_window", "hann_window", "is_nonzero", "kaiser_window", "preserve_format"),
    *("promote_types", "random", "set_printoptions", "testing"),
]


class memory_format:
    """How PyTorch lays out a tensor: taken where PyTorch takes it, and without a meaning here."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"torch.{self.name}"


preserve_format = memory_format("preserve_format")
contiguous_format = memory_format("contiguous_format")
channels_last = memory_format("channels_last")
channels_last_3d = memory_format("channels_last_3d")


def set_printoptions(*_args: Any, **_kwargs: Any) -> None:
    """Does nothing: tensors are printed as Weft prints them."""


# --- windows ------------------------------------------------------------------------------------


def _window(name: str) -> Callable[..., Any]:
    make = getattr(windows, name)

    def window(
        window_length: int, periodic: bool = True, *parameters: float, **options: Any
    ) -> Any:
        options.pop("layout", None)
        names = {"kaiser": ("beta",)}.get(name, ())
        named = dict(zip(names, parameters, strict=False))
        return make(window_length, sym=not periodic, **named, **options)

    window.__name__ = window.__qualname__ = f"{name}_window"
    window.__doc__ = f"`torch.signal.windows.{name}`, periodic by default."
    return window


bartlett_window = _window("bartlett")
blackman_window = _window("blackman")
hamming_window = _window("hamming")
hann_window = _window("hann")
kaiser_window = _window("kaiser")


# --- functions ----------------------------------------------------------------------------------


@method("clamp_min")
def clamp_min(input: Any, min: Any) -> Any:
    """Not less than `min`."""
    return select.clip(input, min, None)


@method("clamp_max")
def clamp_max(input: Any, max: Any) -> Any:
    """Not more than `max`."""
    return select.clip(input, None, max)


@method("is_nonzero")
def is_nonzero(input: Any) -> bool:
    """Whether the only element is not 0."""
    if input.numel() != 1:
        raise ShapeError(f"it has {input.numel()} elements, not one", op="is_nonzero")
    return bool(input != 0)


def promote_types(type1: Any, type2: Any) -> Any:
    """The dtype of the result of an operation on tensors of these dtypes."""
    return promote(as_type(type1), as_type(type2))


def cond(pred: Any, true_fn: Any, false_fn: Any, operands: Iterable[Any] = ()) -> Any:
    """`weft.cond`, with its operands in one tuple."""
    return core_cond(pred, true_fn, false_fn, *operands)


def cholesky_inverse(L: Any, upper: bool = False) -> Any:
    """The inverse of the matrix whose Cholesky factor is L."""
    unit = eye(L.shape[-1], dtype=L.dtype, device=L.device)
    part = PUBLIC["linalg.solve_triangular"].function(L, unit, upper=upper)
    turned = elementwise.conj(part.mT)
    return part @ turned if upper else turned @ part


@method("fill_diagonal_")
def fill_diagonal_(self: Any, fill_value: Any, wrap: bool = False) -> Any:
    """Write a value to the main diagonal; with `wrap`, of a tall matrix again and again."""
    rows, columns = self.shape[0], self.shape[1]
    if self.ndim > 2:
        at = arange(rows)
        self[(at,) * self.ndim] = fill_value
    elif wrap and rows > columns:
        at = arange(0, rows * columns, columns + 1)
        self[at // columns, at % columns] = fill_value
    else:
        at = arange(min(rows, columns))
        self[at, at] = fill_value
    return self


# --- memory, which programs only ask about --------------------------------------------------------


@method("pin_memory", "share_memory_")
def _itself(self: Any, *_args: Any) -> Any:
    """The tensor: its memory is like all others'."""
    return self


@method("is_pinned", "is_shared")
def _never(self: Any, *_args: Any) -> bool:
    """False: its memory is like all others'."""
    return False


@method("get_device")
def _get_device(self: Any) -> int:
    """The number of its GPU, or -1 on the CPU."""
    return self.device.index or 0 if self.is_cuda else -1


# --- tests and random states --------------------------------------------------------------------

_TOLERANCES = {"float16": (1e-3, 1e-5), "bfloat16": (1.6e-2, 1e-5), "float32": (1.3e-6, 1e-5)}
_TOLERANCES |= {"complex64": (1.3e-6, 1e-5), "float64": (1e-7, 1e-7), "complex128": (1e-7, 1e-7)}


def assert_close(
    actual: Any,
    expected: Any,
    *,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    check_dtype: bool = True,
    msg: Any = None,
    **_options: Any,
) -> None:
    """Raise an AssertionError unless two tensors, or trees of them, are close."""
    if isinstance(expected, dict):
        assert actual.keys() == expected.keys(), f"keys differ: {[*actual]} and {[*expected]}"
        actual, expected = list(actual.values()), list(expected.values())
    if isinstance(expected, (tuple, list)):
        assert len(actual) == len(expected), f"lengths differ: {len(actual)} and {len(expected)}"
        for one, other in zip(actual, expected, strict=True):
            assert_close(
                one,
                other,
                rtol=rtol,
                atol=atol,
                equal_nan=equal_nan,
                check_dtype=check_dtype,
                msg=msg,
            )
        return
    tensors = isinstance(actual, core.Tensor) and isinstance(expected, core.Tensor)
    if tensors and check_dtype:
        assert actual.dtype is expected.dtype, f"dtypes differ: {actual.dtype}, {expected.dtype}"
    one, other = [
        np.asarray(x.detach() if isinstance(x, core.Tensor) else x) for x in (actual, expected)
    ]
    assert one.shape == other.shape, f"shapes differ: {one.shape} and {other.shape}"
    usual = [(1e-7, 1e-7)]
    if tensors:
        usual = [_TOLERANCES.get(x.dtype.name, (0.0, 0.0)) for x in (actual, expected)]
    relative = max(r for r, _ in usual) if rtol is None else rtol
    absolute = max(a for _, a in usual) if atol is None else atol
    np.testing.assert_allclose(
        one, other, rtol=relative, atol=absolute, equal_nan=equal_nan, err_msg=str(msg or "")
    )


@contextlib.contextmanager
def fork_rng(devices: Any = None, enabled: bool = True, **_options: Any) -> Iterator[None]:
    """What is drawn in it leaves the default generator as it was."""
    state = get_rng_state()
    try:
        yield
    finally:
        if enabled:
            set_rng_state(state)


def _module(name: str, **members: Any) -> types.ModuleType:
    made = types.ModuleType(f"weft.torch.{name}", f"`torch.{name}`.")
    vars(made).update(members)
    return made


testing = _module("testing", assert_close=assert_close)
random = _module(
    "random",
    fork_rng=fork_rng,
    get_rng_state=get_rng_state,
    manual_seed=manual_seed,
    set_rng_state=set_rng_state,
)
