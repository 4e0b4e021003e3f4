"""`torch.utils.data`: Weft's loader, whose batches are tensors of `weft.torch`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import weft.data as core_data
from weft.base.dtypes import float64
from weft.data import *  # noqa: F403
from weft.torch.tensor import labelled

_names = [name for name, value in vars(core_data).items() if hasattr(value, "__name__")]
__all__ = ["default_collate", *[name for name in _names if name[0].isupper() or "split" in name]]


def default_collate(samples: Any) -> Any:  # type: ignore[no-redef]
    """One batch of many samples."""
    return labelled(core_data.collate(samples, float64))


class DataLoader(core_data.DataLoader):  # type: ignore[no-redef]
    """`weft.data.DataLoader`."""

    def __init__(self, dataset: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(dataset, *args, **kwargs)
        batches = self.batch_size is not None or self.batch_sampler is not None
        if self.collate_fn is None and batches and not hasattr(dataset, "batch"):
            self.collate_fn = default_collate

    def __iter__(self) -> Iterator[Any]:
        return map(labelled, super().__iter__())
