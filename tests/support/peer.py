"""What PyTorch computes for the same work: live where it is installed, else from stored figures.

A test says how PyTorch does the work, and gets its numbers back:

    def work(torch):
        x = torch.tensor(X, requires_grad=True)
        y = torch.nn.functional.softplus(x)
        y.sum().backward()
        return {"y": y, "x.grad": x.grad}

    want = figures("softplus", work)

`WEFT_STORE_FIGURES=1 pytest` (with torch installed) writes the figures anew, to
tests/support/figures, one file per name. The numbers are small: keep them to a few kilobytes each.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

try:
    import torch
except ImportError:
    torch = None

FOLDER = Path(__file__).parent / "figures"


def figures(name: str, work: Callable[[Any], dict[str, Any]]) -> dict[str, np.ndarray[Any, Any]]:
    """The arrays that `work(torch)` returns, by name."""
    path = FOLDER / f"{name}.npz"
    if torch is None:
        with np.load(path) as stored:
            return dict(stored)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    found = {key: _numpy(value) for key, value in work(torch).items()}
    if os.environ.get("WEFT_STORE_FIGURES"):
        FOLDER.mkdir(exist_ok=True)
        np.savez_compressed(path, **found)
    return found


def _numpy(value: Any) -> np.ndarray[Any, Any]:
    if hasattr(value, "detach"):
        value = value.detach().numpy()
    return np.asarray(value)
