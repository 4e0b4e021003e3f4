"""The cards that serve nn.functional: kernels, evaluation rules, types and derivatives agree."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from nn_samples.table import Array, indices, values
from op_calls import TypeChecker

import weft
import weft.nn.functional as F
from weft.base.dtypes import float_info
from weft.core.bind import bind, recording
from weft.ops import embedding, entropy, neural, recurrent

LOGITS, CLASSES = values(5, 4, low=-3, high=3), indices(5, below=4)
SOME = np.where(np.arange(5) % 2 == 0, -100, CLASSES)
IMAGE, MASK = values(2, 3, 4, 2, seed=1), indices(2, 4, 2, below=3)
CHANCES = values(3, 4, low=0.1, high=0.9)

#: (card, operands, attributes)
CALLS: list[tuple[Any, tuple[Array, ...], dict[str, Any]]] = [
    (neural.linear, (values(5, 3), values(2, 3), values(2)), {}),
    (neural.linear, (values(2, 5, 3), values(2, 3), values(2)), {}),
    (neural.linear, (values(3), values(2, 3), values(2)), {}),
    (neural.linear, (values(0, 3), values(2, 3), values(2)), {}),
    (neural.softplus, (values(3, 5, low=-30, high=30),), {}),
    (neural.standardize, (values(5, 4),), {"axis": (1,), "eps": 1e-5}),
    (neural.standardize, (values(3, 4, 5),), {"axis": (0, 2), "eps": 0.1}),
    (neural.standardize, (values(0, 4),), {"axis": (0,), "eps": 0.1}),
    *(
        (entropy.nll, operands, {"axis": axis, "ignore_index": ignored})
        for operands, axis in (((LOGITS, CLASSES), 1), ((IMAGE, MASK), 1))
        for ignored in (-100, 1)
    ),
    (entropy.nll, (LOGITS[0], CLASSES[:1].reshape(())), {"axis": 0, "ignore_index": -100}),
    *(
        (
            entropy.cross_entropy,
            operands,
            {"axis": 1, "ignore_index": ignored, "reduction": reduction},
        )
        for operands in ((LOGITS, CLASSES), (LOGITS, SOME), (IMAGE, MASK))
        for ignored in (-100, 1)
        for reduction in ("none", "sum", "mean")
        if not (operands[1] is SOME and ignored == 1)
    ),
    (entropy.binary_cross_entropy, (CHANCES, values(3, 4, low=0, high=1)), {}),
    (embedding.embedding, (values(6, 3), indices(2, 4, below=6)), {"padding_idx": None}),
    (embedding.embedding, (values(6, 3), indices(2, 4, below=6)), {"padding_idx": 2}),
    (embedding.row_sums, (values(2, 4, 3), indices(2, 4, below=6)), {"rows": 6, "padding_idx": 2}),
    (embedding.row_sums, (values(0, 3), indices(0, below=6)), {"rows": 6, "padding_idx": None}),
    (
        embedding.row_sums,
        (values(3, 40), np.array([0, 5, 200], np.uint8)),  # 200 * 40 is more than a uint8 holds
        {"rows": 201, "padding_idx": None},
    ),
    (embedding.row_sums, (values(3, 0), indices(3, below=6)), {"rows": 6, "padding_idx": None}),
    (recurrent.lstm_gates, (values(2, 12, seed=1), values(2, 3)), {}),
    (recurrent.gru_gates, (values(2, 9, seed=1), values(2, 9, seed=2), values(2, 3)), {}),
]
IDS = [f"{op.name}-{i}" for i, (op, _, _) in enumerate(CALLS)]
calls = pytest.mark.parametrize(("op", "operands", "attrs"), CALLS, ids=IDS)


def parts(out: Any) -> list[Any]:
    return list(out) if isinstance(out, tuple) else [out]


@calls
def test_rules_agree(op: Any, operands: tuple[Array, ...], attrs: dict[str, Any]) -> None:
    """The kernel, the evaluation rule on arrays, and the same rule on tensors: its composition."""
    inputs = [weft.asarray(x) for x in operands]
    with recording(TypeChecker()):
        out = parts(bind(op, *inputs, **attrs))
    by_rule = parts(op.eval(np, *operands, **attrs))
    composed = parts(op.eval(weft, *inputs, **attrs))
    for mine, rule, weft_rule in zip(out, by_rule, composed, strict=True):
        np.testing.assert_allclose(mine.numpy(), rule, rtol=1e-12, atol=1e-13)
        np.testing.assert_allclose(mine.numpy(), weft_rule.numpy(), rtol=1e-12, atol=1e-13)


@calls
def test_derivatives(op: Any, operands: tuple[Array, ...], attrs: dict[str, Any]) -> None:
    weft.check_grads(
        lambda *inputs: bind(op, *inputs, **attrs), [weft.asarray(x) for x in operands]
    )


@calls
@pytest.mark.parametrize("dtype", [weft.float32, weft.float16, weft.bfloat16], ids=str)
def test_narrow_floats(
    op: Any, operands: tuple[Array, ...], attrs: dict[str, Any], dtype: weft.DType
) -> None:
    wide = [weft.asarray(x) for x in operands]
    narrow = [x.astype(dtype) if x.dtype.kind == "float" else x for x in wide]
    for x in (*wide, *narrow):
        if x.dtype.kind == "float":
            x.requires_grad = True
    want, got = (parts(bind(op, *inputs, **attrs)) for inputs in (wide, narrow))
    bound = 40 * float_info(dtype).eps
    for mine, exact in zip(got, want, strict=True):
        assert mine.dtype is dtype
        close = mine.detach().numpy().astype(np.float64)
        np.testing.assert_allclose(close, exact.detach().numpy(), rtol=bound, atol=bound)
    sum(y.sum() for y in got).backward()
    sum(y.sum() for y in want).backward()
    for mine, exact in zip(narrow, wide, strict=True):
        if mine.dtype.kind == "float":
            assert mine.grad.dtype is dtype
            close = mine.grad.numpy().astype(np.float64)
            np.testing.assert_allclose(close, exact.grad.numpy(), rtol=bound, atol=bound)


@pytest.mark.parametrize("target", [4, -1, -101, 2**40])
@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint8])
def test_a_target_that_is_no_class_is_an_error(target: int, dtype: Any) -> None:
    if not np.iinfo(dtype).min <= target <= np.iinfo(dtype).max:
        pytest.skip("the dtype does not hold it")
    logits = weft.asarray(LOGITS)
    targets = weft.asarray(np.array([0, 1, target, 3, 2]).astype(dtype))
    for loss in (F.cross_entropy, F.nll_loss):
        with pytest.raises(weft.errors.IndexError, match=f"the target {target} is none of the 4"):
            loss(logits, targets)


def test_an_index_that_is_no_row_is_an_error() -> None:
    for wrong in (6, -1):
        with pytest.raises(weft.errors.IndexError, match=f"no row {wrong} in a weight of 6 rows"):
            F.embedding(weft.asarray([0, wrong]), weft.ones((6, 2)))
