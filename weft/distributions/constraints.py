"""Sets of values that parameters and samples must lie in, as data: a name and a check."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.base.errors import RangeError
from weft.core.tensor import Tensor

__all__ = ["Constraint", "check_values"]


@dataclass(frozen=True, eq=False)
class Constraint:
    """A set of values: its name, and a test of NumPy arrays that gives a bool for each value.

    `event_dim` axes together are one value: 1 for vectors, 2 for matrices.
    """

    name: str
    test: Callable[[Any], Any]
    event_dim: int = 0

    def check(self, value: Any) -> Any:
        """Whether each value is in the set, as an array of bools."""
        numbers = value.detach().numpy() if isinstance(value, Tensor) else np.asarray(value)
        with np.errstate(all="ignore"):
            return self.test(numbers.astype(np.float64))

    def __repr__(self) -> str:
        return f"<{self.name}>"


def check_values(what: str, value: Tensor, constraint: Constraint, owner: str) -> None:
    """Raise an error if a value is not in the set; recorded ones are not known, nor checked."""
    if not isinstance(value._data, np.ndarray):
        return
    if not np.all(constraint.check(value)):
        numbers = value.detach().numpy()
        shown = np.array2string(numbers, threshold=8, precision=4)
        raise RangeError(
            f"{what} of {owner} must be {constraint.name}, and some of it is not: {shown}",
            op=owner,
            hint="fix the values, or pass validate_args=False to go on with them",
        )


def _whole(x: Any) -> Any:
    return x == np.floor(x)


def _definite(x: Any) -> Any:
    symmetric = np.all(np.abs(x - np.swapaxes(x, -1, -2)) < 1e-5 * (1 + np.abs(x)), axis=(-1, -2))
    values = np.linalg.eigvalsh(np.where(np.isfinite(x), x, 0.0))
    return symmetric & np.all(values > 0, axis=-1) & np.all(np.isfinite(x), axis=(-1, -2))


def _triangle(x: Any) -> Any:
    diagonal = np.diagonal(x, axis1=-2, axis2=-1)
    return np.all(np.triu(x, k=1) == 0, axis=(-1, -2)) & np.all(diagonal > 0, axis=-1)


def _simplex(x: Any) -> Any:
    return np.all(x >= 0, axis=-1) & (np.abs(np.sum(x, axis=-1) - 1) < 1e-5)


def _one_hot(x: Any) -> Any:
    return np.all((x == 0) | (x == 1), axis=-1) & (np.sum(x, axis=-1) == 1)


real = Constraint("real", lambda x: ~np.isnan(x))
positive = Constraint("positive", lambda x: x > 0)
nonnegative = Constraint("at least 0", lambda x: x >= 0)
unit_interval = Constraint("from 0 to 1", lambda x: (x >= 0) & (x <= 1))
boolean = Constraint("0 or 1", lambda x: (x == 0) | (x == 1))
nonnegative_integer = Constraint("a whole number from 0 up", lambda x: (x >= 0) & _whole(x))
real_vector = Constraint("a vector of real numbers", lambda x: np.all(~np.isnan(x), axis=-1), 1)
simplex = Constraint("probabilities with a sum of 1", _simplex, 1)
one_hot = Constraint("one 1 among zeros", _one_hot, 1)
positive_definite = Constraint("a symmetric positive definite matrix", _definite, 2)
lower_cholesky = Constraint("a lower triangle with a positive diagonal", _triangle, 2)


def interval(low: Tensor, high: Tensor) -> Constraint:
    """Numbers between the values of two tensors."""
    least, most = low.detach().numpy(), high.detach().numpy()
    return Constraint("inside of its interval", lambda x: (x >= least) & (x <= most))


def integer_interval(low: float, high: Any) -> Constraint:
    """Whole numbers from low to high, which may be a tensor."""
    most = high.detach().numpy() if isinstance(high, Tensor) else high
    return Constraint("a whole number in its range", lambda x: (x >= low) & (x <= most) & _whole(x))


def at_least(low: Tensor) -> Constraint:
    least = low.detach().numpy()
    return Constraint("at least its lower bound", lambda x: x >= least)
