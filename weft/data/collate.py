"""Samples put together to batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from weft.base.dtypes import DType
from weft.base.errors import DTypeError
from weft.core.tensor import Tensor
from weft.ops.creation import asarray
from weft.ops.shape import stack


def collate(samples: Sequence[Any], floats: DType | None = None) -> Any:
    """One batch of many samples: tensors are stacked, numbers become a tensor.

    Tuples, lists and dicts are put together part by part; strings and other things stay a list.
    Python floats become tensors of the dtype `floats`, by default the default dtype.

    >>> weft.data.collate([{"x": weft.asarray([1.0, 2.0]), "y": 0}, {"x": weft.zeros(2), "y": 1}])
    {'x': tensor([[1., 2.],
           [0., 0.]]), 'y': tensor([0, 1])}
    """
    first = samples[0]
    if isinstance(first, Tensor):
        return stack(list(samples))
    if isinstance(first, (np.ndarray, np.generic)):
        return asarray(np.stack(samples))
    if isinstance(first, (bool, int, float, complex)):
        return asarray(list(samples), dtype=floats if isinstance(first, float) else None)
    if isinstance(first, Mapping):
        return {key: collate([sample[key] for sample in samples], floats) for key in first}
    if isinstance(first, (tuple, list)):
        lengths = {len(sample) for sample in samples}
        if len(lengths) > 1:
            raise DTypeError(
                f"samples of one batch have {sorted(lengths)} parts",
                op="collate",
                hint="bring them to one length, or give the loader a collate_fn of your own",
            )
        parts = [collate(part, floats) for part in zip(*samples, strict=True)]
        if isinstance(first, list):
            return parts
        return type(first)(*parts) if hasattr(first, "_fields") else tuple(parts)
    return list(samples)


def default_convert(sample: Any) -> Any:
    """One sample with its NumPy arrays, and numbers of NumPy, as tensors."""
    if isinstance(sample, (np.ndarray, np.generic)):
        return asarray(sample) if np.asarray(sample).dtype.kind in "biufc" else sample
    if isinstance(sample, Mapping):
        return {key: default_convert(part) for key, part in sample.items()}
    if isinstance(sample, tuple) and hasattr(sample, "_fields"):
        return type(sample)(*(default_convert(part) for part in sample))
    if isinstance(sample, (tuple, list)):
        return type(sample)(default_convert(part) for part in sample)
    return sample


default_collate = collate
