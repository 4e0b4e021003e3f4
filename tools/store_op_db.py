"""Stores calls from PyTorch's own samples of its ops, with what PyTorch computes.

    python tools/store_op_db.py

Needs torch and expecttest, which the tests do not: they read tests/support/op_db. For each op of
`op_db`, a few samples of different form are kept (`calls.json.xz`), with their arrays, the results
and the gradients of the floating ones (`arrays.xz`).
"""

from __future__ import annotations

import json
import lzma
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.testing._internal.common_methods_invocations import op_db

FOLDER = Path(__file__).parents[1] / "tests" / "support" / "op_db"
#: Samples kept of each op and dtype; elements that a sample and its results may have, and that one
#: sample may have if an op has none as small.
MOST_SAMPLES, MOST_ELEMENTS, ALMOST_ALL = 3, 130, 8000
DTYPES = (torch.float64, torch.int64, torch.bool, torch.complex128)
#: Ops whose results are random, or memory that nobody has written: only types can be compared.
RANDOM = {
    *("bernoulli", "cauchy", "exponential", "geometric", "log_normal", "multinomial", "normal"),
    *("rand_like", "randint", "randint_like", "randn", "randn_like", "uniform", "empty"),
    *("empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"),
    *("nn.functional.alpha_dropout", "nn.functional.dropout", "nn.functional.dropout2d"),
    *("nn.functional.dropout3d", "nn.functional.feature_alpha_dropout", "nn.functional.rrelu"),
    *("nn.functional.fractional_max_pool2d", "nn.functional.fractional_max_pool3d"),
    *("svd_lowrank", "pca_lowrank", "resize_", "resize_as_"),
}


class Unstorable(Exception):
    """A sample has something that cannot be written down."""


class Store:
    """The arrays of all calls, and calls as plain data that names them."""

    def __init__(self) -> None:
        self.arrays: list[bytes] = []

    def array(self, value: torch.Tensor) -> list[Any]:
        """An array as dtype, shape, and where its bytes begin."""
        if value.layout != torch.strided or value.is_quantized:
            raise Unstorable
        found = value.detach().resolve_conj().resolve_neg()
        if found.dtype == torch.bfloat16:
            raise Unstorable
        array = np.ascontiguousarray(found.numpy())
        entry = [array.dtype.str, list(found.shape), sum(map(len, self.arrays))]
        self.arrays.append(array.tobytes())
        return entry

    def data(self, value: Any) -> Any:
        """A value as JSON can hold it."""
        if isinstance(value, torch.Tensor):
            return {"tensor": self.array(value), "grad": value.requires_grad}
        if value is None or isinstance(value, (bool, int, str)):
            return value
        if isinstance(value, float):
            return value if np.isfinite(value) else {"float": str(value)}
        if isinstance(value, complex):
            return {"complex": [value.real, value.imag]}
        if isinstance(value, tuple):
            return {"tuple": [self.data(part) for part in value]}
        if isinstance(value, list):
            return [self.data(part) for part in value]
        if isinstance(value, slice):
            return {"slice": [self.data(part) for part in (value.start, value.stop, value.step)]}
        if value is Ellipsis:
            return {"ellipsis": True}
        if isinstance(value, torch.dtype):
            return {"dtype": str(value).removeprefix("torch.")}
        if isinstance(value, torch.device):
            return {"device": str(value)}
        raise Unstorable


def tensors_of(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for part in value:
            yield from tensors_of(part)


def shape_of_call(value: Any) -> str:
    """What makes two samples alike: kinds of arguments, names of options, ranks."""
    if isinstance(value, torch.Tensor):
        return f"t{value.ndim}" + ("e" if value.numel() == 0 else "")
    if isinstance(value, (tuple, list)):
        return "(" + ",".join(map(shape_of_call, value)) + ")"
    if isinstance(value, dict):
        return str({k: shape_of_call(v) for k, v in value.items()})
    return repr(value) if isinstance(value, (str, bool)) or value is None else type(value).__name__


def cotangent(like: torch.Tensor) -> torch.Tensor:
    """Numbers that differ from element to element; `tests/support/op_db.py` makes the same."""
    numbers = np.cos(1.0 + np.arange(like.numel())).reshape(tuple(like.shape))
    return torch.from_numpy(numbers).to(like.dtype)


def stored(op: Any, sample: Any, dtype: torch.dtype, store: Store, elements: int) -> dict[str, Any]:
    arguments = (sample.input, *sample.args)
    given = list(tensors_of([arguments, list(sample.kwargs.values())]))
    if sum(t.numel() for t in given) > elements:
        raise Unstorable
    trial = Store()
    trial.arrays = list(store.arrays)
    call = {
        "args": [trial.data(x) for x in arguments],
        "kwargs": {k: trial.data(v) for k, v in sample.kwargs.items()},
        "dtype": str(dtype).removeprefix("torch."),
    }
    if dtype == torch.float64 and op.supports_autograd:
        leaves = [t for t in given if t.requires_grad]
    else:
        leaves = []
    result = op.op(sample.input, *sample.args, **sample.kwargs)
    found = list(tensors_of(result))
    if sum(t.numel() for t in found) > elements:
        raise Unstorable
    call["random"] = op.name in RANDOM
    if isinstance(result, (torch.Tensor, tuple, list)):
        call["results"] = [trial.array(t) for t in found]
    else:
        call["value"] = trial.data(result)
    wanted = [t for t in found if t.requires_grad and not call["random"]]
    if leaves and wanted:
        total = sum((t * cotangent(t)).sum().real for t in wanted)
        grads = torch.autograd.grad(total, leaves, allow_unused=True)
        call["grads"] = [None if g is None else trial.array(g) for g in grads]
        call["differentiable"] = [t.requires_grad for t in found]
    store.arrays = trial.arrays
    return call


def calls_of(op: Any, store: Store, elements: int) -> list[dict[str, Any]]:
    kept: list[dict[str, Any]] = []
    for dtype in DTYPES:
        if not op.supports_dtype(dtype, "cpu"):
            continue
        if dtype in (torch.bool, torch.complex128) and kept:
            continue
        seen: set[str] = set()
        most = MOST_SAMPLES if dtype == torch.float64 and elements == MOST_ELEMENTS else 1
        torch.manual_seed(0)
        np.random.seed(0)  # noqa: NPY002 (torch's samples draw from it)
        wants = dtype == torch.float64 and op.supports_autograd
        for sample in op.sample_inputs("cpu", dtype, requires_grad=wants):
            shape = shape_of_call([sample.input, sample.args, sample.kwargs])
            if shape in seen:
                continue
            try:
                kept.append(stored(op, sample, dtype, store, elements))
            except Unstorable:
                continue
            except (AssertionError, RuntimeError, TypeError) as error:
                print(f"{op.name}: {type(error).__name__} {str(error)[:90]}")
                continue
            seen.add(shape)
            if len(seen) == most:
                break
    return kept


def main() -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    store = Store()
    table: dict[str, Any] = {}
    for op in op_db:
        name = f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name
        table[name] = calls_of(op, store, MOST_ELEMENTS) or calls_of(op, store, ALMOST_ALL)
    FOLDER.mkdir(exist_ok=True)
    lines = [f"{json.dumps(name)}: {json.dumps(calls)}" for name, calls in sorted(table.items())]
    text = "{\n" + ",\n".join(lines) + "\n}\n"
    (FOLDER / "calls.json.xz").write_bytes(lzma.compress(text.encode()))
    (FOLDER / "arrays.xz").write_bytes(lzma.compress(b"".join(store.arrays)))
    empty = [name for name, calls in table.items() if not calls]
    print(f"{len(table)} ops, {sum(map(len, table.values()))} calls; none kept of: {empty}")


if __name__ == "__main__":
    main()
