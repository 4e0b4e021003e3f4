"""The samples table on the device "cuda", against the CPU: values, gradients, draws.

`differences` is used by the tests, with CuPy's stand-in, and by `tools/gpu_check.py`, on a GPU.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from op_calls import flat, function, tensors
from samples.table import Row

import weft
from weft.base.dtypes import DType, as_dtype, float_info

#: Functions of which the CPU's answer is one of several: signs and phases of vectors.
AMBIGUOUS = {"linalg.eig", "linalg.eigh", "linalg.svd", "linalg.qr"}


def up(value: Any) -> Any:
    """The tensors of nested arguments on the GPU."""
    if isinstance(value, weft.Tensor):
        return value.detach().to_device("cuda")
    if isinstance(value, (list, tuple)):
        return type(value)(map(up, value))
    if isinstance(value, dict):
        return {key: up(part) for key, part in value.items()}
    return value


def differences(row: Row, dtype: DType, factor: float = 4) -> Iterator[str]:
    """What differs for the samples of a row, in words."""
    call = function(row.name)
    for sample in row.samples(dtype):
        args, kwargs = (tensors(normal(given)) for given in (sample.args, sample.kwargs))
        try:
            want = flat(call(*args, **kwargs))
            makes = not flat((args, kwargs)) and "device" in inspect.signature(call).parameters
            more = {"device": "cuda"} if makes else {}
            got = flat(call(*up(args), **up(kwargs), **more))
        except Exception as error:
            yield f"{type(error).__name__}: {str(error).splitlines()[0][:160]}"
            continue
        for mine, theirs in zip(want, got, strict=True):
            wrong = differs(row, mine, theirs, factor)
            if wrong:
                yield f"{wrong} {str(sample.args)[:120]}"
        if dtype.kind in ("float", "complex") and row.name not in AMBIGUOUS:
            wrong = _gradients_differ(row, call, args, kwargs, factor)
            if wrong:
                yield f"gradient: {wrong} {str(sample.args)[:120]}"


def normal(value: Any) -> Any:
    """Arguments without denormal numbers, which CuPy's kernels take for zeros."""
    if isinstance(value, (list, tuple)):
        return type(value)(map(normal, value))
    if isinstance(value, dict):
        return {key: normal(part) for key, part in value.items()}
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "fcV":
        return value
    parts = np.ascontiguousarray(value).reshape(-1)
    parts = parts.view(value.real.dtype) if value.dtype.kind == "c" else parts
    small = (parts != 0) & (np.abs(parts.astype(np.float64)) < 1.2e-38)
    usual = np.where(small, parts.dtype.type(0.25), parts)
    return value if not small.any() else usual.view(value.dtype).reshape(value.shape)


def differs(row: Row, mine: Any, theirs: Any, factor: float) -> str:
    if (mine.dtype, mine.shape) != (theirs.dtype, theirs.shape):
        return f"type {theirs.type} for {mine.type}"
    if theirs.device.kind != "cuda":
        return f"on {theirs.device}"
    a, b = mine.numpy(), theirs.numpy()
    if row.name in AMBIGUOUS:
        return ""
    if mine.dtype.kind in ("float", "complex"):
        eps = factor * row.rtol * float_info(as_dtype(mine.dtype)).eps
        wide: Any = np.complex128 if mine.dtype.kind == "complex" else np.float64
        a, b = a.astype(wide), b.astype(wide)
        with np.errstate(all="ignore"):
            largest = np.abs(a[np.isfinite(a)]).max(initial=1.0)
            same = np.isclose(b, a, rtol=eps, atol=eps * largest, equal_nan=True)
            if not same.all():
                return f"{np.count_nonzero(~same)} of {a.size}: {b[~same][:3]} for {a[~same][:3]}"
        return ""
    return "" if np.array_equal(a, b) else f"{b.reshape(-1)[:4]} for {a.reshape(-1)[:4]}"


def _gradients_differ(
    row: Row, call: Callable[..., Any], args: Any, kwargs: Any, factor: float
) -> str:
    try:
        want = _gradients(call, args, kwargs)
    except Exception:  # it has none
        return ""
    try:
        got = _gradients(call, up(args), up(kwargs))
    except Exception as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0][:160]}"
    for mine, theirs in zip(want, got, strict=True):
        if (mine is None) != (theirs is None):
            return "one is None"
        if mine is not None:
            wrong = differs(row, mine, theirs, 4 * factor)
            if wrong:
                return wrong
    return ""


def _gradients(call: Callable[..., Any], args: Any, kwargs: Any) -> list[Any]:
    leaves = [x for x in flat((args, kwargs)) if x.dtype.kind in ("float", "complex")]
    for x in leaves:
        x.requires_grad = True
    outs = [x for x in flat(call(*args, **kwargs)) if x.requires_grad]
    total: Any = None
    for out in outs:
        weights = weft.asarray(np.cos(np.arange(out.size)).reshape(out.shape)).astype(out.dtype)
        weights = weights.to_device(out.device)
        part = weft.sum(weft.real(out * weights))
        total = part if total is None else total + part
    if total is not None:
        total.backward()
    return [x.grad for x in leaves]


DRAWS: dict[str, Callable[[Any], Any]] = {
    **{
        f"rand {name}": lambda device, name=name: weft.rand((1000,), dtype=name, device=device)
        for name in ("float16", "bfloat16", "float32", "float64")
    },
    **{
        f"randn {name}": lambda device, name=name: weft.randn((999,), dtype=name, device=device)
        for name in ("float16", "bfloat16", "float32", "float64", "complex64")
    },
    "few": lambda device: weft.rand((3,), device=device),
    "large": lambda device: weft.randn((40_000,), device=device),
    "randint": lambda device: weft.randint(-5, 1000, (77,), device=device),
    "permutation": lambda device: weft.permutation(50, device=device),
    "bernoulli": lambda device: weft.bernoulli(weft.full((500,), 0.3, device=device)),
    "dropout": lambda device: weft.nn.functional.dropout(weft.ones((64, 8), device=device), 0.4),
    "exponential": lambda device: weft.random.exponential(shape=(64,), device=device),
    "gamma": lambda device: weft.random.gamma(weft.full((64,), 2.5, device=device)),
    "poisson": lambda device: weft.poisson(weft.full((64,), 3.5, device=device)),
}


#: Draws that functions such as `log` are applied to: equal to rounding.
ROUNDED = {"exponential", "gamma"}


def same_draws(name: str) -> bool:
    """Whether a draw is the same on both devices: bit by bit, but for functions."""
    a, b = draw(name, "cpu").numpy(), draw(name, "cuda").numpy()
    if name in ROUNDED:
        return bool(np.allclose(a, b, rtol=1e-6))
    return bool(np.array_equal(a.view(np.uint8), b.view(np.uint8)))


def draw(name: str, device: str) -> Any:
    weft.manual_seed(7)
    found = DRAWS[name](device)
    assert found.device.kind == device.partition(":")[0], name
    return found.cpu()
