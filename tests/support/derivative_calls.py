"""Calls of sample rows as functions of tensors alone, for derivatives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from op_calls import flat, function, tensors
from samples.derivatives import FITS, Fit
from samples.table import Row, Sample

import weft
from weft.base.dtypes import DType

FLOATS = ("float", "complex")


Call = tuple[Callable[..., list[weft.Tensor]], list[weft.Tensor]]


def rebuilt(value: Any, given: Iterator[weft.Tensor]) -> Any:
    """Nested arguments with their tensors taken from `given`, in order."""
    if isinstance(value, weft.Tensor):
        return next(given)
    if isinstance(value, dict):
        return {key: rebuilt(part, given) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(rebuilt(part, given) for part in value)
    return value


def as_function(row: Row, sample: Sample) -> Call:
    """A call of a row as a function of its tensors, and the tensors."""
    arguments = tensors(sample.args), tensors(sample.kwargs)
    fit = FITS.get(row.name, Fit())

    def call(*given: weft.Tensor) -> list[weft.Tensor]:
        args, kwargs = rebuilt(arguments, iter(fit.inputs(*given)))
        found = flat(function(row.name)(*args, **kwargs))
        return [part for part in fit.results(*found) if part.dtype.kind in FLOATS]

    return call, flat(arguments)


def is_finite(parts: list[weft.Tensor]) -> bool:
    return all(np.isfinite(part.numpy().astype(np.complex128)).all() for part in parts)


def calls(row: Row, dtype: DType) -> list[Call]:
    """The calls of a row that have floats in them, and a finite result of floats."""
    found = []
    for sample in row.samples(dtype):
        if not FITS.get(row.name, Fit()).takes(sample):
            continue
        call, given = as_function(row, sample)
        floats = [x for x in given if x.dtype.kind in FLOATS]
        if floats and is_finite(floats) and is_finite(call(*given)):
            found.append((call, given))
    return found
