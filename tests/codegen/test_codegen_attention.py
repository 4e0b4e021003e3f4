"""Kernels of attention, forward and backward, against NumPy in longer precision."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from emitted import OTHER_CACHES
from product_kernels import WIDTHS, Built, lying, narrower

from weft.base import dtypes
from weft.base.dtypes import DTYPES, NARROW_FLOATS, dtype_of_numpy
from weft.codegen.attention import Attention, Backward, emit_backward, emit_forward
from weft.codegen.machine import Machine, host
from weft.codegen.matmul import Operand, Product, plain_store
from weft.codegen.text import Module

Array = np.ndarray[Any, Any]

#: Of narrow floats what it takes to round once: gradients are, the result is that of float32.
TOLERANCE = {"float32": 4e-6, "float64": 1e-14, "float16": 2.0**-11, "bfloat16": 2.0**-8}
NARROW = ("float16", "bfloat16")


def operand(x: Array, base: Array | None = None) -> Operand:
    steps = lying(x)
    offset = 0 if base is None else (x.ctypes.data - base.ctypes.data) // x.itemsize
    return Operand(steps[:-2], *steps[-2:], offset)


@dataclasses.dataclass
class Case:
    """One attention: arrays, and arrays that they are views of where they are not their own."""

    q: Array
    k: Array
    v: Array
    mask: Array | None = None
    causal: bool = False
    blank: bool = False
    scale: float | None = None
    bases: tuple[Array, Array, Array] | None = None

    @property
    def factor(self) -> float:
        return 1 / math.sqrt(self.q.shape[-1]) if self.scale is None else self.scale

    @property
    def spec(self) -> Attention:
        q, k, v = self.q, self.k, self.v
        bases = self.bases or (q, k, v)
        spec = Attention(
            q.shape[-2],
            k.shape[-2],
            q.shape[-1],
            v.shape[-1],
            dtype_of_numpy(q.dtype),
            *(operand(x, base) for x, base in zip((q, k, v), bases, strict=True)),
            batch=q.shape[:-2],
            scale=self.factor,
            causal=self.causal,
            blank=self.blank,
        )
        if self.mask is None:
            return spec
        whole = np.broadcast_to(self.mask, (*q.shape[:-1], k.shape[-2]))
        return dataclasses.replace(
            spec, mask=operand(whole), mask_dtype=dtype_of_numpy(self.mask.dtype)
        )

    def weights(self) -> tuple[Array, Array]:
        """softmax(scores) and the logarithm of its denominators."""
        wide = np.longdouble
        scores = self.q.astype(wide) @ self.k.mT.astype(wide) * wide(self.factor)
        if self.causal:
            rows, columns = (np.arange(size) for size in scores.shape[-2:])
            scores = np.where(rows[:, None] >= columns, scores, -np.inf)
        if self.mask is not None:
            if self.mask.dtype == np.bool:
                scores = np.where(self.mask, scores, -np.inf)
            else:
                scores = scores + self.mask.astype(wide)
        with np.errstate(all="ignore"):
            top = scores.max(-1, keepdims=True)
            top = np.where(top == -np.inf, 0, top)
            powers = np.exp(scores - top)
            total = powers.sum(-1, keepdims=True)
            weights, lse = powers / total, (top + np.log(total))[..., 0]
        if self.blank:
            nowhere = total == 0
            weights, lse = np.where(nowhere, 0, weights), np.where(nowhere[..., 0], np.inf, lse)
        return weights, lse

    def inputs(self) -> list[Array]:
        return [
            *(self.bases or (self.q, self.k, self.v)),
            self.q if self.mask is None else self.mask,
        ]


def check(case: Case, target: Machine | None = None) -> None:
    """Forward and backward, the same bits for any cut."""
    spec, dtype = case.spec, case.q.dtype
    outs = [(*case.q.shape[:-1], case.v.shape[-1]), case.q.shape, case.k.shape, case.v.shape]
    grad = np.random.default_rng(9).standard_normal(outs[0]).astype(dtype)
    made = dtypes.float32 if spec.dtype in NARROW_FLOATS else spec.dtype  # of the result
    plain = [
        plain_store(Product.dense(*shape[-2:], 1, kind, shape[:-2]), place)
        for shape, place, kind in zip(outs, (4, 7, 8, 9), (made, *[spec.dtype] * 3), strict=True)
    ]
    mask = None if case.mask is None else 3
    dense = operand(grad)
    built = Built(target)
    built.add(
        lambda module, name: emit_forward(module, name, spec, 0, 1, 2, plain[0], mask=mask, lse=5)
    )
    built.add(
        lambda module, name: emit_backward(
            module,
            name,
            spec,
            0,
            1,
            2,
            Backward(4, dense, 5, dense, 6),
            (plain[1], plain[2], plain[3]),
            mask=mask,
            scratch=10,
        )
    )
    no_result = [np.full(shape, 7, made.numpy) for shape in (outs[0], outs[0][:-1])]
    nothing = [np.full(shape, 7, dtype) for shape in outs[1:]]
    result, lse = built.run(0, case.inputs(), no_result)
    given = [*case.inputs(), result, grad, lse]
    gradients = built.run(1, given, nothing)
    again = built.run(0, case.inputs(), no_result, 3)
    assert again[0].tobytes() == result.tobytes()
    assert again[1].tobytes() == lse.tobytes()
    for one, other in zip(built.run(1, given, nothing, 3), gradients, strict=True):
        assert one.tobytes() == other.tobytes()

    wide = np.longdouble
    q, k, v, g = (x.astype(wide) for x in (case.q, case.k, case.v, grad))
    p, wanted_lse = case.weights()
    # Scores are rounded before exp is taken of them: the larger they are, the more that tells.
    largest = np.abs(q @ k.mT).max() * abs(case.factor)
    tolerance = TOLERANCE[made.name] * max(1.0, float(largest) / 16)
    once = TOLERANCE[str(dtype)] if made is not spec.dtype else 0.0  # to round a gradient
    with np.errstate(all="ignore"):
        dp = g @ v.mT
        ds = p * (dp - (p * dp).sum(-1, keepdims=True)) * wide(case.factor)
        pairs = {
            "result": (result, p @ v),
            "lse": (lse, wanted_lse),
            "dq": (gradients[0], ds @ k),
            "dk": (gradients[1], ds.mT @ q),
            "dv": (gradients[2], p.mT @ g),
        }
    for name, (found, wanted) in pairs.items():
        assert np.isfinite(found[np.isfinite(wanted)]).all()
        finite = np.abs(wanted[np.isfinite(wanted)]).max(initial=1.0)
        np.testing.assert_allclose(
            found.astype(wide),
            wanted,
            rtol=0,
            atol=(tolerance + once * name.startswith("d")) * float(finite),
            err_msg=name,
        )


def arrays(
    batch: tuple[int, ...], queries: int, keys: int, features: int, values: int, dtype: str
) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng([queries, keys, features, values])
    shapes = ((queries, features), (keys, features), (keys, values))
    number = DTYPES[dtype].numpy
    q, k, v = (rng.standard_normal((*batch, *shape)).astype(number) for shape in shapes)
    return q, k, v


SIZES = [  # batch, queries, keys, features, values
    ((), 1, 1, 1, 1),
    ((2, 3), 5, 7, 4, 3),
    ((3,), 128, 128, 32, 32),
    ((2,), 17, 33, 8, 100),
    ((1,), 130, 600, 64, 64),  # more than one block of keys
    ((2,), 20, 1100, 40, 72),
    ((1,), 300, 300, 16, 48),  # more than one chunk of queries
    ((1,), 40, 10, 128, 128),
    ((1,), 3000, 20, 8, 8),  # far more queries than keys
    ((1,), 40, 70, 300, 200),
]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("sizes", SIZES)
def test_sizes(sizes: tuple[Any, ...], causal: bool) -> None:
    check(Case(*arrays(*sizes, "float32"), causal=causal))


@pytest.mark.parametrize("sizes", SIZES[1::2])
def test_float64(sizes: tuple[Any, ...]) -> None:
    check(Case(*arrays(*sizes, "float64")))
    check(Case(*arrays(*sizes, "float64"), causal=True))


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("dtype", NARROW)
def test_narrow_floats(dtype: str, sizes: tuple[Any, ...]) -> None:
    check(Case(*arrays(*sizes, dtype), causal=dtype == "float16"))


@pytest.mark.parametrize("width", WIDTHS[1:])
@pytest.mark.parametrize("dtype", ["float32", "float64", *NARROW])
def test_narrower_vectors(dtype: str, width: int) -> None:
    check(Case(*arrays((2,), 19, 300, 20, 24, dtype), causal=True), narrower(width))


@pytest.mark.parametrize("machine", OTHER_CACHES)
def test_other_caches(machine: Machine) -> None:
    check(Case(*arrays((2,), 130, 300, 64, 72, "float32"), causal=True), machine)


# --- masks --------------------------------------------------------------------------------------

MASKS = [(20, 70), (1, 70), (2, 1, 20, 70), (3, 1, 70), (20, 1)]


@pytest.mark.parametrize("shape", MASKS)
@pytest.mark.parametrize(
    ("dtype", "kind"),
    [
        *[("float32", kind) for kind in ("bool", "float32")],
        *[("bfloat16", kind) for kind in ("bool", "bfloat16", "float32")],
        *[("float16", kind) for kind in ("bool", "float16")],
    ],
)
def test_masks(dtype: str, kind: str, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(3)
    mask: Array = rng.random(shape) > 0.4
    if kind != "bool":
        mask = rng.standard_normal(shape).astype(DTYPES[kind].numpy)
    check(Case(*arrays((2, 3), 20, 70, 16, 16, dtype), mask=mask, blank=True))


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("kind", ["bool", "number"])
def test_queries_that_look_nowhere_get_nothing(kind: str, dtype: str) -> None:
    mask = np.ones((40, 700), bool)
    mask[3] = mask[39] = False
    mask[5, :650] = False  # nowhere in the first block of keys
    if kind == "number":
        mask = np.where(mask, 0.5, -np.inf).astype(dtype)
    given = arrays((2,), 40, 700, 16, 16, dtype)
    check(Case(*given, mask=mask, blank=True))


def test_without_blank_they_get_nan() -> None:
    mask = np.ones((9, 40), bool)
    mask[3] = False
    case = Case(*arrays((2,), 9, 40, 16, 16, "float32"), mask=mask)
    built = Built()
    out = plain_store(Product.dense(9, 16, 1, dtypes.float32, (2,)), 4)
    built.add(lambda module, name: emit_forward(module, name, case.spec, 0, 1, 2, out, mask=3))
    (found,) = built.run(0, case.inputs(), [np.zeros((2, 9, 16), "f4")])
    assert np.isnan(found[:, 3]).all()
    assert np.isfinite(np.delete(found, 3, axis=1)).all()


def test_nan_and_infinity_stay_in_their_row() -> None:
    q, k, v = arrays((1,), 9, 40, 16, 16, "float32")
    q[0, 2, 3], q[0, 4, 0] = np.nan, np.inf
    case = Case(q, k, v)
    built = Built()
    out = plain_store(Product.dense(9, 16, 1, dtypes.float32, (1,)), 4)
    built.add(lambda module, name: emit_forward(module, name, case.spec, 0, 1, 2, out))
    (found,) = built.run(0, case.inputs(), [np.zeros((1, 9, 16), "f4")])
    assert np.isnan(found[0, [2, 4]]).all()
    assert np.isfinite(np.delete(found, [2, 4], axis=1)).all()


def test_large_scores_do_not_overflow() -> None:
    q, k, v = arrays((2,), 33, 600, 16, 16, "float32")
    check(Case(q * 3, k * 3, v, scale=1.0))


# --- where operands lie -------------------------------------------------------------------------


def test_heads_are_read_in_place() -> None:
    """One array of (batch, tokens, 3, heads, features), as one product gives it."""
    whole = np.random.default_rng(5).standard_normal((2, 50, 3, 4, 16)).astype("f4")
    q, k, v = (whole[:, :, i].transpose(0, 2, 1, 3) for i in range(3))
    check(Case(q, k, v, causal=True, bases=(whole, whole, whole)))


def test_keys_that_heads_share() -> None:
    q, k, v = arrays((2, 4), 30, 40, 8, 8, "float32")
    k, v = (np.broadcast_to(x[:, :1], x.shape) for x in (k, v))
    check(Case(q, k, v))


def test_what_has_no_kernel() -> None:
    q, k, v = arrays((2,), 5, 6, 4, 4, "float32")
    spec = Case(q, k, v).spec
    store = plain_store(Product.dense(5, 4, 1, dtypes.float32, (2,)), 4)
    turned = dataclasses.replace(spec.q, row=1, column=5)
    for other in (
        dataclasses.replace(spec, q=turned),
        dataclasses.replace(spec, dtype=DTYPES["int32"]),
        dataclasses.replace(spec, keys=0),
        dataclasses.replace(spec, mask=turned, mask_dtype=dtypes.bool),
    ):
        assert emit_forward(Module(host()), "k", other, 0, 1, 2, store) is None
    empty = dataclasses.replace(spec, queries=0)
    assert emit_forward(Module(host()), "k", empty, 0, 1, 2, store) == []


def test_backward_of_many_keys_needs_scratch() -> None:
    q, k, v = arrays((1,), 5, 900, 64, 64, "float32")
    spec = Case(q, k, v).spec
    lies = Operand((5 * 64,), 64, 1)
    module = Module(host())
    store = plain_store(Product.dense(5, 64, 1, dtypes.float32, (1,)), 4)
    given = Backward(3, lies, 4, lies, 5)
    assert emit_backward(module, "k", spec, 0, 1, 2, given, (store, store, store)) is None
    assert "define" not in module.text()  # nothing half done is left behind
