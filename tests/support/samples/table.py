"""What a row of test samples is. One file per family of ops holds its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from weft.base.dtypes import DTYPES, KINDS, DType


@dataclass(frozen=True)
class Sample:
    """Arguments of one call; NumPy arrays in them become tensors."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)


def call(*args: Any, **kwargs: Any) -> Sample:
    return Sample(args, kwargs)


@dataclass(frozen=True)
class Row:
    """Samples of one public function and what it is compared with.

    name        as users write it after `weft.`: "sum", "linalg.qr"
    reference   the same function on NumPy arrays (narrow floats are given to it as float32)
    samples     dtype -> calls
    kinds       the dtypes it is run with, as in `weft.base.dtypes.KINDS`
    check       how a result is compared, where "equal to the reference" is not the point
                (signs of eigenvectors): check(result_arrays, *args, **kwargs)
    rtol        in units of the dtype's epsilon
    """

    name: str
    reference: Callable[..., Any] | None
    samples: Callable[[DType], Iterable[Sample]]
    kinds: str = "numeric"
    check: Callable[..., None] | None = None
    rtol: float = 8
    skip: frozenset[str] = frozenset()

    def dtypes(self) -> list[DType]:
        standard = [d for d in DTYPES.values() if not d.name.startswith("float8")]
        return [d for d in standard if d.kind in KINDS[self.kinds] and d.name not in self.skip]


#: Shapes that every op has to take: 0-d, empty, one element, one axis, several.
SHAPES: list[tuple[int, ...]] = [(), (0,), (1,), (5,), (2, 0), (3, 4), (2, 1, 3)]
#: Pairs that broadcast.
PAIRS: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    *((shape, shape) for shape in SHAPES),
    ((3, 4), ()),
    ((), (5,)),
    ((3, 4), (4,)),
    ((3, 1), (1, 4)),
    ((2, 1, 3), (4, 1)),
    ((0, 3), (1, 3)),
]


def values(
    shape: tuple[int, ...], dtype: DType, low: float = -4, high: float = 4, seed: int = 0
) -> np.ndarray[Any, Any]:
    """Reproducible numbers of a dtype between `low` and `high`; special values by `specials`."""
    rng = np.random.default_rng([seed, *shape, len(dtype.name)])
    if dtype.kind == "bool":
        return np.asarray(rng.integers(0, 2, shape), dtype=bool)
    if dtype.kind in ("int", "uint"):
        floor = max(low, 0) if dtype.kind == "uint" else low
        return np.asarray(rng.integers(int(floor), int(high) + 1, shape)).astype(dtype.numpy)
    real = rng.uniform(low, high, shape)
    if dtype.kind == "complex":
        real = real + 1j * rng.uniform(low, high, shape)
    return np.asarray(real).astype(dtype.numpy)


def specials(dtype: DType) -> np.ndarray[Any, Any]:
    """The values at which ops go wrong: limits, zeros of both signs, NaN, infinities, denormals."""
    if dtype.kind == "bool":
        return np.array([False, True])
    if dtype.kind in ("int", "uint"):
        info = np.iinfo(dtype.numpy)
        wanted = [info.min, info.min + 1, -1, 0, 1, 2, 7, info.max - 1, info.max]
        return np.array([v for v in wanted if info.min <= v <= info.max], dtype=dtype.numpy)
    real = np.array([0.0, -0.0, 1, -1, 0.5, -2.5, 3, np.inf, -np.inf, np.nan, 1e-40, 300.5])
    if dtype.kind == "complex":
        parts = np.stack([real, real[::-1]], axis=-1)
        return parts.reshape(-1).view(np.complex128).astype(dtype.numpy)
    return real.astype(dtype.numpy)
