"""`torch.fft`: Weft's functions of that namespace."""

# ruff: noqa: F403 - it only exports

from __future__ import annotations

from typing import Any

from weft.ops import fft as core
from weft.ops.fft import *
from weft.torch.tensor import labelled


def fftfreq(*args: Any, **kwargs: Any) -> Any:  # type: ignore[no-redef]
    """The frequencies that `fft` of n samples, a distance d apart, has values for."""
    return labelled(core.fftfreq(*args, **kwargs))


def rfftfreq(*args: Any, **kwargs: Any) -> Any:  # type: ignore[no-redef]
    """The frequencies that `rfft` of n samples, a distance d apart, has values for."""
    return labelled(core.rfftfreq(*args, **kwargs))
