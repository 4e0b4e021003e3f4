"""Calls of public functions on samples, with tensors for arrays, and a check of their types."""

from __future__ import annotations

from typing import Any

import numpy as np

import weft
from weft.core.bind import Recorder, bind
from weft.core.tensor import type_of


def tensors(value: Any, layout: str = "plain") -> Any:
    """NumPy arrays in nested arguments as tensors, laid out in memory in one of several ways."""
    if isinstance(value, (list, tuple)):
        return type(value)(tensors(part, layout) for part in value)
    if isinstance(value, dict):
        return {key: tensors(part, layout) for key, part in value.items()}
    if not isinstance(value, np.ndarray):
        return value
    if layout == "negative strides":
        backwards = tuple(slice(None, None, -1) for _ in value.shape)
        return weft.asarray(value[backwards].copy())[backwards]
    if layout == "transposed":
        return weft.permute_dims(weft.asarray(value.T.copy()), tuple(reversed(range(value.ndim))))
    if layout == "every second":
        wide = np.repeat(value[..., None], 2, axis=-1)
        return weft.asarray(wide)[..., 0]
    return weft.asarray(value)


def function(name: str) -> Any:
    found: Any = weft
    for part in name.split("."):
        found = getattr(found, part)
    return found


class TypeChecker(Recorder):
    """Compares each op call's type rule with the types that came out, and counts the ops."""

    def __init__(self) -> None:
        self.seen: set[str] = set()

    def call(self, op: Any, inputs: Any, attrs: Any) -> Any:
        inferred = op.infer(*[type_of(t) for t in inputs], **attrs)
        out = bind(op, *inputs, **attrs)
        results = out if isinstance(out, tuple) else (out,)
        promised = inferred if isinstance(inferred, tuple) else (inferred,)
        for want, got in zip(promised, map(type_of, results), strict=True):
            if "DATA_SHAPE" in str(op.traits):
                want = want.like(shape=got.shape)
            assert want == got, f"{op.name}: the type rule says {want}, the kernel {got}"
        cost = op.estimate(tuple(map(type_of, inputs)), promised, **attrs)
        assert cost.flops >= 0
        assert cost.bytes >= 0
        self.seen.add(op.name)
        return out


def flat(value: Any) -> list[weft.Tensor]:
    if isinstance(value, weft.Tensor):
        return [value]
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, (list, tuple)):
        return []
    return [t for part in value for t in flat(part)]
