"""PyTorch's own samples of its ops, as `tools/store_op_db.py` stored them, run on Weft."""

from __future__ import annotations

import functools
import json
import lzma
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from op_db_rows import ADAPTED

import weft
import weft.torch as torch

FOLDER = Path(__file__).parent / "op_db"
TOLERANCE = {"float64": 1e-8, "complex128": 1e-8, "float32": 2e-4, "complex64": 2e-4}
TOLERANCE |= {"float16": 5e-3}


@functools.cache
def stored_calls() -> dict[str, list[dict[str, Any]]]:
    """The stored calls of each op, by its name and variant."""
    found: dict[str, Any] = json.loads(lzma.decompress((FOLDER / "calls.json.xz").read_bytes()))
    return found


@functools.cache
def _bytes() -> bytes:
    return lzma.decompress((FOLDER / "arrays.xz").read_bytes())


def array_of(entry: list[Any]) -> np.ndarray[Any, Any]:
    dtype, shape, start = entry
    count = int(np.prod(shape, dtype=np.int64))
    return np.frombuffer(_bytes(), dtype, count, start).reshape(shape)


def function_of(name: str) -> Callable[..., Any] | None:
    """What a program that names a PyTorch op gets from `weft.torch`; None if there is none."""
    if name in ADAPTED:
        return ADAPTED[name]
    found: Any = torch
    for part in _without_variant(name).split("."):
        found = getattr(found, part, None)
        if found is None:
            break
    if not callable(found) and "." not in name:
        found = getattr(torch.Tensor, name, None)
    return found if callable(found) else None


def _without_variant(name: str) -> str:
    """ "div.floor_rounding" -> "div"; "linalg.svd" as it is."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        found: Any = torch
        for part in parts[:length]:
            found = getattr(found, part, None)
        if callable(found):
            return ".".join(parts[:length])
    return parts[0]


# --- arguments ------------------------------------------------------------------------------------


@dataclass
class Arguments:
    """Stored arguments as values; the tensors among them, and those that want a gradient."""

    tensors: list[Any]
    leaves: list[Any]

    def value(self, data: Any) -> Any:
        if isinstance(data, list):
            return [self.value(part) for part in data]
        if not isinstance(data, dict):
            return data
        ((kind, held), *more) = data.items()
        if kind == "tensor":
            tensor = torch.tensor(array_of(held).copy())
            if more[0][1]:
                tensor.requires_grad_()
                self.leaves.append(tensor)
            self.tensors.append(tensor)
            return tensor
        return _PLAIN[kind](self, held)


_PLAIN: dict[str, Callable[[Arguments, Any], Any]] = {
    "tuple": lambda found, held: tuple(found.value(part) for part in held),
    "slice": lambda found, held: slice(*[found.value(part) for part in held]),
    "float": lambda _, held: float(held),
    "complex": lambda _, held: complex(*held),
    "ellipsis": lambda *_: Ellipsis,
    "dtype": lambda _, held: getattr(torch, held),
    "device": lambda *_: "cpu",
}


def tensors_of(value: Any) -> Iterator[Any]:
    if isinstance(value, weft.Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for part in value:
            yield from tensors_of(part)


def cotangent(like: Any) -> Any:
    """As in `tools/store_op_db.py`."""
    count = int(np.prod(like.shape, dtype=np.int64))
    numbers = np.cos(1.0 + np.arange(count)).reshape(like.shape)
    return torch.tensor(numbers).to(like.dtype)


# --- one call -------------------------------------------------------------------------------------


def run(name: str, call: dict[str, Any], compiled: str = "") -> None:
    """Make a stored call, eagerly or compiled for a backend, and compare with PyTorch."""
    function = function_of(name)
    assert function is not None, f"weft.torch has no {name}"
    found = Arguments([], [])
    args = [found.value(x) for x in call["args"]]
    kwargs = {key: found.value(x) for key, x in call["kwargs"].items()}

    def work() -> Any:
        return function(*args, **kwargs)

    result = weft.compile(work, backend=compiled, fallback="python")() if compiled else work()
    if "value" in call:
        wanted = Arguments([], []).value(call["value"])
        if isinstance(wanted, float):
            np.testing.assert_allclose(result, wanted, rtol=1e-8)
        else:
            assert result == wanted
        return
    results = list(tensors_of(result))
    wanted = [array_of(entry) for entry in call["results"]]
    assert len(results) == len(wanted), f"{len(results)} results, not {len(wanted)}"
    for mine, theirs in zip(results, wanted, strict=True):
        _compare(mine, theirs, random=call["random"])
    if "grads" in call:
        _compare_gradients(call, found.leaves, results)


def _compare_gradients(call: dict[str, Any], leaves: list[Any], results: list[Any]) -> None:
    if all(entry is None or not array_of(entry).any() for entry in call["grads"]):
        return  # zeros, where Weft may say that there is no gradient
    used = [x for x, wants in zip(results, call["differentiable"], strict=True) if wants]
    assert all(x.requires_grad for x in used), "a result has no gradient"
    total = sum(weft.real((x * cotangent(x)).sum()) for x in used)
    grads = weft.autograd.grad(total, leaves, allow_unused=True)
    for mine, entry in zip(grads, call["grads"], strict=True):
        theirs = None if entry is None else array_of(entry)
        if mine is None or theirs is None:  # no gradient, or one of zeros
            given = theirs if mine is None else mine.numpy()
            assert given is None or not given.any(), "a gradient is missing"
        else:
            _compare(mine, theirs, what="gradient")


def _compare(mine: Any, theirs: Any, random: bool = False, what: str = "result") -> None:
    array = mine.detach().numpy()
    assert str(array.dtype) == str(theirs.dtype), f"{what}: {array.dtype}, not {theirs.dtype}"
    assert array.shape == theirs.shape, f"{what}: shape {array.shape}, not {theirs.shape}"
    if random:
        return
    near = TOLERANCE.get(str(theirs.dtype), 0)
    scale = np.abs(theirs[np.isfinite(theirs)]).max(initial=0) if near else 0
    np.testing.assert_allclose(
        array, theirs, rtol=near, atol=near * max(1.0, scale), err_msg=what, equal_nan=True
    )
