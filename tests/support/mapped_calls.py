"""Elements for `vmap`, and how its results are compared."""

from __future__ import annotations

import numpy as np

import weft
from weft.core.tensor import type_of

Tensor = weft.Tensor


def varied(x: Tensor, number: int) -> Tensor:
    """Another tensor like x, with values from where x's are."""
    array = x.numpy()
    if array.dtype.kind in "fc":
        with np.errstate(all="ignore"):
            return weft.asarray(array * (1 + 0.03 * number))
    return weft.asarray(np.roll(array.reshape(-1), number).reshape(array.shape))


def same(got: list[Tensor], want: list[Tensor], what: str) -> None:
    for mine, other in zip(got, want, strict=True):
        assert type_of(mine) == type_of(other), what
        a, b = mine.detach().numpy(), other.detach().numpy()
        if a.dtype.kind in "fc":
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9, err_msg=what)
        else:
            np.testing.assert_array_equal(a, b, err_msg=what)
