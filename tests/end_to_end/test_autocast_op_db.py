"""The dtypes of results under autocast, op by op: as in PyTorch on the CPU, or for a reason."""

from __future__ import annotations

import json

import pytest
from autocast_calls import DTYPES, calls_of, dtypes_of_results
from op_db_calls import FOLDER, function_of
from op_db_rows import NOT_COVERED

import weft.torch as torch

STORED: dict[str, list[list[list[str] | None]]] = json.loads((FOLDER / "autocast.json").read_text())
_REASONS = {name for names in NOT_COVERED.values() for name in names}
NAMES = [name for name in STORED if name not in _REASONS]

#: Ops that PyTorch takes to float32 on GPUs, and not on CPUs; and what is made of them. Here they
#: are float32 on all devices.
AS_ON_GPUS = frozenset(
    {
        *(
            "__rpow__",
            "acos",
            "asin",
            "cosh",
            "cumprod",
            "cumsum",
            "dist",
            "erfinv",
            "exp",
            "expm1",
        ),
        *("log", "log10", "log1p", "log2", "log_softmax", "logsumexp", "norm", "norm.fro"),
        *("norm.inf", "pow", "reciprocal", "renorm", "rsqrt", "sinh", "softmax", "sum", "tan"),
        *("cumulative_trapezoid", "exp2", "logaddexp", "logaddexp2", "logcumsumexp", "logit"),
        *("linalg.matrix_norm", "linalg.norm", "linalg.norm.subgradients_at_zero"),
        *("linalg.vector_norm", "nansum", "trapezoid", "trapz"),
        *("nn.functional.gaussian_nll_loss", "nn.functional.group_norm"),
        *("nn.functional.layer_norm", "nn.functional.local_response_norm"),
        *("nn.functional.multilabel_soft_margin_loss", "nn.functional.pairwise_distance"),
        *("nn.functional.pdist", "nn.functional.rms_norm", "nn.functional.softmin"),
        "nn.functional.softplus",
    }
)
#: Linear algebra and statistics, whose products would lose most of their digits: float32 here.
AS_A_WHOLE = frozenset({"corrcoef", "cov", "linalg.det", "linalg.matrix_power", "linalg.pinv"})
#: Products that PyTorch casts down on GPUs, and not on CPUs (tensordot: for some arguments).
PRODUCTS = frozenset({"addmv", "addr", "mv", "tensordot"})
#: A power or a sum is part of it for some arguments only.
SOMETIMES = frozenset({"ldexp", "sum_to_size"})
#: Ops without bfloat16 kernels in PyTorch, which its list for CPUs takes to float32. They only move
#: elements, or take means of them.
NO_KERNELS = frozenset(
    {
        *("nn.functional.adaptive_avg_pool3d", "nn.functional.adaptive_max_pool3d"),
        *("nn.functional.fractional_max_pool2d", "nn.functional.fractional_max_pool3d"),
        *("nn.functional.grid_sample", "nn.functional.max_unpool1d.grad"),
        *("nn.functional.max_unpool2d.grad", "nn.functional.max_unpool3d.grad"),
        *("nn.functional.pad.reflect", "nn.functional.pad.replicate"),
    }
)


def wanted(name: str, dtype: str, theirs: list[str]) -> list[str]:
    """The dtypes to expect here, where PyTorch has `theirs`."""
    if dtype == "bfloat16" and name in AS_ON_GPUS:
        return [d.replace("bfloat16", "float32") for d in theirs]
    if name in AS_A_WHOLE:
        return [d.replace("bfloat16", "float32") for d in theirs]
    if dtype == "float32" and name in PRODUCTS:
        return [d.replace("float32", "bfloat16") for d in theirs]
    if dtype == "bfloat16" and name in NO_KERNELS:
        return [d.replace("float32", "bfloat16") for d in theirs]
    return theirs


@pytest.mark.parametrize("name", NAMES)
def test_dtypes(name: str) -> None:
    function = function_of(name)
    assert function is not None
    compared = 0
    for call, stored in zip(calls_of(name), STORED[name], strict=True):
        for dtype, theirs in zip(DTYPES, stored, strict=True):
            mine = dtypes_of_results(torch, function, call, dtype)
            if theirs is not None:
                compared += 1
                if name not in SOMETIMES:
                    assert mine == wanted(name, dtype, theirs), f"{dtype}: PyTorch has {theirs}"
    assert compared or not any(any(pair) for pair in STORED[name])


def test_there_are_many() -> None:
    differing = AS_ON_GPUS | AS_A_WHOLE | PRODUCTS | NO_KERNELS
    assert len(NAMES) >= 480
    assert differing <= set(NAMES)
    assert len(differing) < 80
