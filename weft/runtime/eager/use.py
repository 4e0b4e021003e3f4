"""Fills the slot of `bind` for calls on large arrays; what makes kernels is loaded by the first."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from weft.autodiff.tape import record_large
from weft.base import config
from weft.core.large import large

__all__ = ["use_kernels"]


def use_kernels() -> None:
    for slot in ("add", "composite", "gradients", "kernel", "update"):
        setattr(large, slot, _loaded_first(slot))
    large.tape = record_large
    large.start = config.large_from()


def _loaded_first(slot: str) -> Callable[..., Any]:
    def call(*args: Any) -> Any:
        importlib.import_module("weft.runtime.eager.composites").fill()
        return getattr(large, slot)(*args)

    return call
