"""Rows of the functions that NumPy and PyTorch have names for, and that are made of others."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from samples.table import Row, Sample, call, specials, values
from weft.base.dtypes import DType

#: Plain functions of others: one dtype of each kind, and a narrow float, show all that there is.
FEW = frozenset({"int8", "int16", "int32", "uint8", "uint16", "uint32", "uint64", "float16"})


def row(name: str, reference: Any, samples: Any, kinds: str = "numeric", **more: Any) -> Row:
    more.setdefault("skip", FEW | {"complex64"})
    return Row(name, reference, samples, kinds, **more)


def of(*calls: Callable[[Callable[..., Any]], Sample]) -> Callable[[DType], Iterable[Sample]]:
    """Samples from calls with `v`, which makes an array of a shape: `v(3, 4)`."""

    def samples(dtype: DType) -> Iterable[Sample]:
        for make in calls:
            seeds = itertools.count()

            def array(*shape: int, low: float = -4, high: float = 4, seeds: Any = seeds) -> Any:
                return values(shape, dtype, low, high, seed=next(seeds))

            yield make(array)

    return samples


def one(
    name: str,
    reference: Any,
    *,
    low: float = -4,
    high: float = 4,
    special: bool = True,
    skip: frozenset[str] = FEW,
) -> Row:
    """A function of one float, element by element."""

    def samples(dtype: DType) -> Iterable[Sample]:
        for shape in [(), (0,), (5,), (2, 1, 3)]:
            yield call(values(shape, dtype, low, high))
        if special:
            yield call(specials(dtype))

    return Row(name, reference, samples, "real floating", skip=skip)


def two(
    name: str, reference: Any, kinds: str = "real floating", *, low: float = -4, **more: Any
) -> Row:
    """A function of two numbers, element by element."""

    def samples(dtype: DType) -> Iterable[Sample]:
        for first, second in [((), ()), ((5,), (5,)), ((2, 1, 3), (4, 1)), ((0, 3), (1, 3))]:
            yield call(values(first, dtype, low, 4), values(second, dtype, low, 4, seed=1))
        every = specials(dtype)
        yield call(every[:, None], every[None, :])

    return row(name, reference, samples, kinds, **more)


# --- references ----------------------------------------------------------------------------------


def joined(real: Any, imag: Any) -> Any:
    out = np.zeros(np.broadcast_shapes(real.shape, imag.shape), (real[..., None] * 1j).dtype)
    out.real, out.imag = real, imag
    return out


def split(x: Any, size: Any, axis: int = 0) -> Any:
    cuts = (
        np.cumsum(size)[:-1]
        if isinstance(size, (list, tuple))
        else range(size, x.shape[axis], size)
    )
    return np.split(x, list(cuts), axis=axis)


def chunk(x: Any, chunks: int, axis: int = 0) -> Any:
    return split(x, max(-(-x.shape[axis] // chunks), 1), axis)


def narrow(x: Any, axis: int, start: int, length: int) -> Any:
    return np.take(
        x, range(start % max(x.shape[axis], 1), start % max(x.shape[axis], 1) + length), axis
    )


def diag_embed(x: Any, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Any:
    size = x.shape[-1] + abs(offset)
    out = np.zeros((*x.shape[:-1], size, size), x.dtype)
    for i in range(x.shape[-1]):
        out[..., i + max(-offset, 0), i + max(offset, 0)] = x[..., i]
    return np.moveaxis(out, (-2, -1), (dim1, dim2))


def block_diag(*parts: Any) -> Any:
    wide = [np.atleast_2d(part) for part in parts]
    out = np.zeros(np.sum([part.shape for part in wide], axis=0), wide[0].dtype)
    row = column = 0
    for part in wide:
        out[row : row + part.shape[0], column : column + part.shape[1]] = part
        row, column = row + part.shape[0], column + part.shape[1]
    return out


def div(a: Any, b: Any, rounding_mode: str | None = None) -> Any:
    if rounding_mode is None:
        return np.divide(a, b)
    if rounding_mode == "floor" and a.dtype.kind == "f":
        return np.floor_divide(a, b)
    if a.dtype.kind == "f":
        return np.trunc(np.divide(a, b))
    exact = [divmod(abs(int(p)), abs(int(q)))[0] for p, q in zip(a, b, strict=True)]
    signs = np.sign(a) * np.sign(b)
    return np.floor_divide(a, b) if rounding_mode == "floor" else np.array(exact) * signs


def masked_fill(x: Any, mask: Any, value: Any) -> Any:
    return np.where(mask, np.asarray(value).astype(x.dtype), x)


def renorm(x: Any, p: float, axis: int, maxnorm: float) -> Any:
    parts = np.moveaxis(x, axis, 0).reshape(x.shape[axis], -1)
    norms = np.linalg.norm(parts, p, axis=1)
    factors = np.where(norms > maxnorm, maxnorm / norms, 1)
    return x * np.expand_dims(factors, [i for i in range(x.ndim) if i != axis % x.ndim])


def cdist(a: Any, b: Any, p: float = 2) -> Any:
    return np.linalg.norm(a[..., :, None, :] - b[..., None, :, :], p, axis=-1)


def added(product: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    return lambda x, a, b, beta=1, alpha=1: beta * x + alpha * product(a, b)


def nan_mean(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    return (
        np.nanmean(x, axis=axis, keepdims=keepdims)
        if x.dtype.kind == "f"
        else np.mean(x, axis=axis, keepdims=keepdims)
    )


def with_nan(v: Any) -> Any:
    x = v(3, 4)
    if x.dtype.kind not in "iu":
        x[1, 2] = x[0, 0] = math.nan
    return x


def lerp(a: Any, b: Any, w: Any) -> Any:
    return np.where(np.abs(w) < 0.5, a + w * (b - a), b - (b - a) * (1 - w))


MASK = np.array([[True, False, True, False]])

ROWS = [
    # parts and joins
    row(
        "split",
        split,
        of(
            lambda v: call(v(5), 2),
            lambda v: call(v(2, 6), 4, axis=1),
            lambda v: call(v(4, 2), [1, 0, 3]),
        ),
        "all",
    ),
    row("chunk", chunk, of(lambda v: call(v(7), 3), lambda v: call(v(2, 6), 4, axis=-1)), "all"),
    row(
        "tensor_split",
        np.array_split,
        of(
            lambda v: call(v(7), 3),
            lambda v: call(v(2, 6), [1, 3], axis=1),
            lambda v: call(v(5), [3, 1, 9]),
        ),
        "all",
    ),
    row(
        "hstack",
        np.hstack,
        of(
            lambda v: call([v(2, 3), v(2, 1)]),
            lambda v: call((v(3), v(0))),
            lambda v: call([v(), v()]),
        ),
        "all",
    ),
    row(
        "vstack", np.vstack, of(lambda v: call([v(2, 3), v(3)]), lambda v: call((v(), v()))), "all"
    ),
    row(
        "dstack",
        np.dstack,
        of(
            lambda v: call([v(2, 3), v(2, 3)]),
            lambda v: call((v(2), v(2))),
            lambda v: call([v(2, 3, 4), v(2, 3)]),
        ),
        "all",
    ),
    row("column_stack", np.column_stack, of(lambda v: call([v(3), v(3, 2), v(3)])), "all"),
    row(
        "block_diag",
        block_diag,
        of(
            lambda v: call(v(2, 3), v(1, 1)),
            lambda v: call(v(2), v(3, 1), v()),
            lambda v: call(v(0, 2), v(1, 1)),
        ),
    ),
    row(
        "cartesian_prod",
        lambda *xs: np.array(list(itertools.product(*xs))) if len(xs) > 1 else xs[0],
        of(lambda v: call(v(2), v(3)), lambda v: call(v(2), v(1), v(2)), lambda v: call(v(3))),
    ),
    # rearranging
    row(
        "narrow",
        narrow,
        of(
            lambda v: call(v(5), 0, 1, 3),
            lambda v: call(v(2, 4), 1, -2, 2),
            lambda v: call(v(3), 0, 1, 0),
        ),
        "all",
    ),
    row(
        "select",
        lambda x, axis, i: np.take(x, i, axis),
        of(lambda v: call(v(5), 0, 1), lambda v: call(v(2, 4), 1, -1)),
        "all",
    ),
    row(
        "unflatten",
        lambda x, axis, s: x.reshape(*x.shape[:axis], *s, *x.shape[axis + 1 :]),
        of(lambda v: call(v(6), 0, (2, 3)), lambda v: call(v(2, 6, 1), 1, (3, -1))),
        "all",
    ),
    row(
        "repeat_interleave",
        np.repeat,
        of(lambda v: call(v(2, 3), 2), lambda v: call(v(2, 3), 2, axis=1)),
        "all",
    ),
    row(
        "transpose",
        lambda x, *a: np.swapaxes(x, *a) if a else np.transpose(x),
        of(lambda v: call(v(2, 3, 4)), lambda v: call(v(2, 3, 4), 0, -1)),
        "all",
    ),
    row(
        "t",
        np.transpose,
        of(lambda v: call(v(2, 3)), lambda v: call(v(3)), lambda v: call(v())),
        "all",
    ),
    row(
        "rot90",
        np.rot90,
        of(
            *(lambda v, k=k: call(v(2, 3, 4), k, (0, 2)) for k in (-1, 0, 1, 2, 3)),
            lambda v: call(v(2, 2)),
        ),
        "all",
    ),
    row("fliplr", np.fliplr, of(lambda v: call(v(2, 3))), "all"),
    row("flipud", np.flipud, of(lambda v: call(v(2, 3)), lambda v: call(v(4))), "all"),
    *(
        row(
            f"atleast_{n}d",
            getattr(np, f"atleast_{n}d"),
            of(
                *(lambda v, s=s: call(v(*s)) for s in [(), (2,), (2, 3), (2, 3, 1)]),
                lambda v: call(v(), v(3)),
            ),
            "all",
        )
        for n in (1, 2, 3)
    ),
    row(
        "diag_embed",
        diag_embed,
        of(
            lambda v: call(v(3)),
            lambda v: call(v(2, 3), 1),
            lambda v: call(v(2, 3), -2),
            lambda v: call(v(2, 3), 0, 0, 2),
        ),
    ),
    row(
        "diag",
        lambda x, k=0: np.diag(x, k),
        of(
            lambda v: call(v(3)),
            lambda v: call(v(3), k=-1),
            lambda v: call(v(3, 4)),
            lambda v: call(v(3, 4), k=2),
        ),
    ),
    row(
        "diagflat",
        lambda x, k=0: np.diagflat(x, k),
        of(lambda v: call(v(2, 2)), lambda v: call(v(), k=1)),
    ),
    # products
    row("mm", np.matmul, of(lambda v: call(v(2, 3), v(3, 4)), lambda v: call(v(2, 0), v(0, 3)))),
    row("bmm", np.matmul, of(lambda v: call(v(2, 2, 3), v(2, 3, 4)))),
    row("mv", np.matmul, of(lambda v: call(v(2, 3), v(3)))),
    row("dot", np.dot, of(lambda v: call(v(3), v(3)), lambda v: call(v(0), v(0)))),
    row(
        "inner",
        np.inner,
        of(lambda v: call(v(2, 3), v(4, 3)), lambda v: call(v(3), v(3)), lambda v: call(v(2), v())),
    ),
    row(
        "kron",
        np.kron,
        of(
            lambda v: call(v(2, 3), v(2, 2)),
            lambda v: call(v(2), v(3, 1)),
            lambda v: call(v(), v(2)),
            lambda v: call(v(0, 2), v(2, 2)),
        ),
    ),
    row(
        "addmm",
        added(np.matmul),
        of(
            lambda v: call(v(4), v(2, 3), v(3, 4)),
            lambda v: call(v(2, 4), v(2, 3), v(3, 4), beta=2, alpha=3),
            lambda v: call(v(2, 4), v(2, 3), v(3, 4), beta=0),
        ),
    ),
    row("addmv", added(np.matmul), of(lambda v: call(v(2), v(2, 3), v(3), alpha=2))),
    row("addr", added(np.outer), of(lambda v: call(v(2, 3), v(2), v(3), beta=2))),
    row(
        "baddbmm",
        added(np.matmul),
        of(lambda v: call(v(2, 2, 4), v(2, 2, 3), v(2, 3, 4), beta=2, alpha=3)),
    ),
    row(
        "addbmm",
        added(lambda a, b: np.matmul(a, b).sum(0)),
        of(lambda v: call(v(2, 4), v(3, 2, 3), v(3, 3, 4))),
    ),
    row(
        "dist",
        lambda a, b, p=2: np.linalg.norm((a - b).ravel(), p),
        of(lambda v: call(v(2, 3), v(3)), lambda v: call(v(3), v(3), 1)),
        "real floating",
    ),
    row(
        "cdist",
        cdist,
        of(lambda v: call(v(3, 2), v(4, 2)), lambda v: call(v(2, 3, 2), v(2, 1, 2), 1)),
        "real floating",
    ),
    # element by element
    row(
        "sub",
        lambda a, b, alpha=1: a - alpha * b,
        of(lambda v: call(v(3), v(2, 3)), lambda v: call(v(3), v(3), alpha=2)),
    ),
    row(
        "div",
        div,
        of(
            lambda v: call(v(5), v(5)),
            lambda v: call(v(9), v(9, low=1), rounding_mode="trunc"),
            lambda v: call(v(9), v(9, low=1), rounding_mode="floor"),
        ),
        "real numeric",
    ),
    row(
        "addcmul",
        lambda x, a, b, value=1: x + value * a * b,
        of(lambda v: call(v(3), v(2, 3), v()), lambda v: call(v(3), v(3), v(3), value=2)),
    ),
    row(
        "addcdiv",
        lambda x, a, b, value=1: x + value * (a / b),
        of(
            lambda v: call(v(3), v(2, 3), v(low=1)),
            lambda v: call(v(3), v(3), v(3, low=1), value=2),
        ),
        "floating",
        rtol=32,
    ),
    row(
        "lerp",
        lerp,
        of(lambda v: call(v(3), v(3), 0.25), lambda v: call(v(3), v(3), v(3))),
        "real floating",
        rtol=64,
    ),
    row("clamp_min", np.maximum, of(lambda v: call(v(5), 1)), "real numeric"),
    row("clamp_max", np.minimum, of(lambda v: call(v(5), 1)), "real numeric"),
    two("float_power", np.float_power, low=0.5),
    two("fmod", np.fmod),
    row(
        "ldexp",
        lambda x, n: np.ldexp(x, n),
        of(lambda v: call(v(3), np.array([3, -2, 0])), lambda v: call(v(), np.array(4))),
        "real floating",
    ),
    two("heaviside", np.heaviside),
    two("isclose", np.isclose, "real numeric"),
    Row(
        "gcd",
        np.gcd,
        of(lambda v: call(v(2, 5), v(5)), lambda v: call(v(3, high=90), v(3, high=90))),
        "integral",
    ),
    Row("lcm", np.lcm, of(lambda v: call(v(2, 5), v(5)), lambda v: call(v(3), v(3))), "integral"),
    one("frac", lambda x: x - np.trunc(x)),
    one("deg2rad", np.deg2rad),
    one("rad2deg", np.rad2deg),
    one("logit", lambda x: np.log(x) - np.log1p(-x), low=0.1, high=0.9),
    one("nan_to_num", np.nan_to_num, skip=FEW | {"bfloat16"}),
    one("isposinf", np.isposinf),
    one("isneginf", np.isneginf),
    row(
        "isreal",
        np.isreal,
        of(lambda v: call(v(3)), lambda v: call(np.real(v(3)).astype(v().dtype))),
        "all",
    ),
    # statistics
    row(
        "aminmax",
        lambda x, axis=None, keepdims=False: (
            x.min(axis, keepdims=keepdims),
            x.max(axis, keepdims=keepdims),
        ),
        of(lambda v: call(v(3, 4)), lambda v: call(v(3, 4), axis=1, keepdims=True)),
        "real",
    ),
    row(
        "nansum",
        np.nansum,
        of(
            lambda v: call(with_nan(v)),
            lambda v: call(with_nan(v), axis=1),
            lambda v: call(v(2, 3)),
        ),
    ),
    row(
        "nanmean",
        nan_mean,
        of(
            lambda v: call(with_nan(v)),
            lambda v: call(with_nan(v), axis=1, keepdims=True),
            lambda v: call(v(2, 3)),
        ),
        "real floating",
    ),
    row(
        "var_mean",
        lambda x, axis=None, correction=0: (x.var(axis, ddof=correction), x.mean(axis)),
        of(lambda v: call(v(3, 4)), lambda v: call(v(3, 4), axis=1, correction=1)),
        "real floating",
        rtol=32,
    ),
    row(
        "std_mean",
        lambda x, axis=None, correction=0: (x.std(axis, ddof=correction), x.mean(axis)),
        of(lambda v: call(v(3, 4)), lambda v: call(v(3, 4), axis=1, correction=1)),
        "real floating",
        rtol=32,
    ),
    row(
        "allclose",
        lambda a, b: np.allclose(a, b),
        of(lambda v: call(v(3), v(3)), lambda v: call(v(3), v(3) * 0 + v(3))),
    ),
    row(
        "cov",
        lambda x, correction=1, fweights=None, aweights=None: np.cov(
            x, ddof=correction, fweights=fweights, aweights=aweights
        ),
        of(
            lambda v: call(v(3, 5)),
            lambda v: call(v(4)),
            lambda v: call(v(2, 3), correction=0, fweights=np.array([1, 2, 1])),
            lambda v: call(v(2, 3), aweights=np.array([0.5, 2, 1])),
        ),
        "floating",
        rtol=64,
    ),
    row("corrcoef", np.corrcoef, of(lambda v: call(v(3, 5))), "floating", rtol=64),
    row(
        "renorm",
        renorm,
        of(lambda v: call(v(3, 4), 2, 0, 1.5), lambda v: call(v(3, 2, 2), 1, -1, 9.0)),
        "real floating",
        rtol=32,
    ),
    row(
        "trapezoid",
        lambda y, x=None, dx=1.0, axis=-1: np.trapezoid(y, x, dx, axis),
        of(
            lambda v: call(v(5)),
            lambda v: call(v(3, 4), v(4)),
            lambda v: call(v(3, 4), dx=0.5, axis=0),
        ),
        "real floating",
        rtol=32,
    ),
    row(
        "vander",
        np.vander,
        of(lambda v: call(v(3)), lambda v: call(v(3), 2), lambda v: call(v(2), 4, True)),
        rtol=32,
    ),
    # choices
    row(
        "masked_fill",
        masked_fill,
        of(lambda v: call(v(3, 4), MASK, 1), lambda v: call(v(3, 4), MASK, v())),
    ),
    row(
        "masked_select",
        lambda x, m: np.broadcast_to(x, (3, 4))[np.broadcast_to(m, (3, 4))],
        of(
            lambda v: call(v(3, 4), np.broadcast_to(MASK, (3, 4))),
            lambda v: call(v(3, 1), np.repeat(MASK, 3, 0)),
        ),
    ),
    # more of two floats, and of parts
    one("exp2", np.exp2),
    two("logaddexp2", np.logaddexp2),
    two("fmax", np.fmax),
    two("fmin", np.fmin),
    two("rsub", lambda a, b: b - a),
    two("complex", joined, skip=FEW | {"bfloat16"}),
    row(
        "polar",
        lambda r, phi: r * np.exp(1j * phi),
        of(lambda v: call(v(3, low=0.5), v(3))),
        "real floating",
        skip=FEW | {"bfloat16"},
        rtol=16,
    ),
    row("angle", np.angle, of(lambda v: call(v(3, 4))), "complex floating", rtol=8),
    row(
        "view_as_real",
        lambda x: np.stack([x.real, x.imag], -1),
        of(lambda v: call(v(3, 2))),
        "complex floating",
    ),
    row(
        "view_as_complex",
        lambda x: x[..., 0] + 1j * x[..., 1],
        of(lambda v: call(v(3, 2))),
        "real floating",
        skip=FEW | {"bfloat16"},
    ),
    row("hsplit", np.hsplit, of(lambda v: call(v(3, 4), 2), lambda v: call(v(6), [1, 4]))),
    row("vsplit", np.vsplit, of(lambda v: call(v(4, 3), 2), lambda v: call(v(4, 1), [1]))),
    row("dsplit", np.dsplit, of(lambda v: call(v(1, 2, 4), 2))),
    row("vdot", np.vdot, of(lambda v: call(v(5), v(5)), lambda v: call(v(0), v(0))), rtol=32),
    row(
        "pdist",
        lambda x: np.array(
            [np.linalg.norm(a - b) for a, b in itertools.combinations(x, 2)], x.dtype
        ),
        of(lambda v: call(v(4, 3))),
        "real floating",
        rtol=32,
    ),
    row(
        "cumulative_trapezoid",
        lambda y, dx=1.0, axis=-1: np.cumsum(
            (np.moveaxis(y, axis, -1)[..., 1:] + np.moveaxis(y, axis, -1)[..., :-1]) * dx / 2, -1
        ).swapaxes(axis, -1),
        of(lambda v: call(v(5)), lambda v: call(v(3, 4), dx=0.5, axis=0)),
        "real floating",
        rtol=32,
    ),
]
