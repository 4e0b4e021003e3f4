"""Every op on every dtype and shape, against NumPy, from the tables in `support/samples`."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from op_calls import TypeChecker, flat, function, tensors
from samples import ROWS
from samples.table import Row, Sample

import weft
from weft.base.dtypes import NARROW_FLOATS, DType, as_dtype, float_info
from weft.core.bind import recording
from weft.core.public import PUBLIC
from weft.ir.op import OPS, Trait
from weft.ops.special_polynomials import __all__ as POLYNOMIALS

CASES = [
    pytest.param(row, dtype, id=f"{row.name}-{dtype.name}")
    for row in ROWS
    for dtype in row.dtypes()
]


def arrays(result: Any) -> list[np.ndarray[Any, Any]]:
    parts = result if isinstance(result, (tuple, list)) else [result]
    return [p.numpy() if isinstance(p, weft.Tensor) else np.asarray(p) for p in parts]


def widened(value: Any) -> Any:
    """Narrow floats as float32: what the reference computes in."""
    if isinstance(value, (list, tuple)):
        return type(value)(widened(part) for part in value)
    if isinstance(value, np.ndarray) and value.dtype in {d.numpy for d in NARROW_FLOATS}:
        return value.astype(np.float32)
    return value


def expected(row: Row, sample: Sample) -> list[np.ndarray[Any, Any]]:
    assert row.reference is not None
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        kwargs = {key: widened(value) for key, value in sample.kwargs.items()}
        result = row.reference(*widened(sample.args), **kwargs)
    return [
        np.asarray(part) for part in (result if isinstance(result, (tuple, list)) else [result])
    ]


def compare(row: Row, sample: Sample, got: list[np.ndarray[Any, Any]]) -> None:
    if row.check is not None:
        with np.errstate(all="ignore"):
            row.check(got, *sample.args, **sample.kwargs)
    if row.reference is None:
        return
    for mine, theirs in zip(got, expected(row, sample), strict=True):
        assert mine.shape == theirs.shape, sample
        if mine.dtype.kind not in "biu":
            eps = row.rtol * float_info(as_dtype(mine.dtype)).eps
            wide = np.complex128 if mine.dtype.kind == "c" else np.float64
            with np.errstate(all="ignore"):
                rounded = theirs.astype(mine.dtype).astype(wide)
            np.testing.assert_allclose(
                mine.astype(wide), rounded, rtol=eps, atol=eps, err_msg=str(sample)
            )
        else:
            np.testing.assert_array_equal(mine, theirs, err_msg=str(sample))


@pytest.mark.parametrize(("row", "dtype"), CASES)
def test_values(row: Row, dtype: DType) -> None:
    for sample in row.samples(dtype):
        got = arrays(function(row.name)(*tensors(sample.args), **tensors(sample.kwargs)))
        compare(row, sample, got)


@pytest.mark.parametrize("layout", ["negative strides", "transposed", "every second"])
@pytest.mark.parametrize(("row", "dtype"), CASES)
def test_layouts(row: Row, dtype: DType, layout: str) -> None:
    """How the elements lie in memory makes no difference."""
    for sample in row.samples(dtype):
        got = arrays(
            function(row.name)(*tensors(sample.args, layout), **tensors(sample.kwargs, layout))
        )
        compare(row, sample, got)


@pytest.mark.parametrize(("row", "dtype"), CASES)
def test_type_rule_matches_and_inputs_stay(row: Row, dtype: DType) -> None:
    for sample in row.samples(dtype):
        args, kwargs = tensors(sample.args), tensors(sample.kwargs)
        before = [a.numpy(copy=True) for a in flat((args, kwargs))]
        with recording(TypeChecker()):
            result = function(row.name)(*args, **kwargs)
        for out in flat(result):
            if out.size and out.dtype.kind != "bool":
                out[...] = 1  # no write shows in another tensor
        for a, old in zip(flat((args, kwargs)), before, strict=True):
            np.testing.assert_array_equal(widened(a.numpy()), widened(old))


def test_every_public_function_has_a_row() -> None:
    own = {name for name, entry in PUBLIC.items() if not entry.alias}
    missing = own - {row.name for row in ROWS} - TESTED_ELSEWHERE
    assert not missing, f"no row of samples for {sorted(missing)}"


def test_every_op_is_reached_by_a_row() -> None:
    checker = TypeChecker()
    with recording(checker):
        for row in ROWS:
            for dtype in row.dtypes():
                for sample in row.samples(dtype):
                    function(row.name)(*tensors(sample.args), **tensors(sample.kwargs))
    ours = [op for op in OPS.values() if op.infer.__module__.startswith("weft.")]
    asked = {op.name for op in ours if not op.collective}  # those: tests/distributed
    missing = asked - checker.seen - OPS_TESTED_ELSEWHERE
    assert not missing, f"no row of samples reaches the ops {sorted(missing)}"


#: Functions whose results are not a function of tensors alone have test files of their own.
TESTED_ELSEWHERE = {
    # tests/ops/test_special_polynomials.py
    *(f"special.{name}" for name in POLYNOMIALS),
    *("asarray", "tensor", "from_dlpack"),  # test_tensor.py
    *("can_cast", "finfo", "iinfo", "isdtype", "result_type"),  # test_promotion.py
    *weft.ops.random.__all__,  # test_random*.py
    *("poisson", "randperm", "multinomial"),  # test_random_more.py, test_multinomial.py
    *(f"random.{name}" for name in weft.random.__all__),
    "stop_gradient",  # test_autograd.py
    *("numel", "is_tensor", "is_floating_point", "is_complex", "from_numpy"),  # test_names.py
    *("scalar_tensor", "logspace", "tril_indices", "triu_indices", "combinations"),
    *("broadcast_shapes", "unravel_index"),  # test_names.py
}
OPS_TESTED_ELSEWHERE = {
    "layout",  # tests/distributed/test_layouts.py
    *("gather", "setitem"),  # test_indexing.py
    "to_device",  # test_registration.py
    "log_gamma_slope",  # test_random_more.py
    "dim_size",  # test_symbolic_calls.py
    "scatter_add",  # test_derivatives_index.py
    *("conv", "conv_bias", "conv_input", "conv_weight"),  # test_conv.py
    *("max_pool", "max_pool_indices", "max_pool_input", "max_pool_pick"),  # test_pool.py
    *("sum_pool", "sum_pool_input"),  # test_pool.py
    *("binary_cross_entropy", "cross_entropy", "embedding", "nll"),  # test_nn_cards.py
    *("gru_gates", "linear", "lstm_gates", "row_sums", "softplus", "standardize"),
    *(name for name in OPS if name.endswith("_update")),  # test_optim*.py
    *(name for name in OPS if name.startswith("random_")),  # test_random*.py
    "choice_weights",  # test_multinomial.py
    *(name for name, op in OPS.items() if op.nested),  # test_control*.py
    *(name for name in OPS if name.startswith(("stack_", "list_"))),  # test_source.py
    *(name for name, op in OPS.items() if Trait.EFFECT in op.traits),  # test_source.py
    *("token", "stop_gradient", "assume_shape"),  # test_source.py, test_make_graph.py
    *("fence", "named"),  # test_checkpoint.py
    "sent",  # test_split.py
    "with_gradient_of",  # test_grad_modes_control.py
    *("choose", "only_where"),  # test_dead_iterations.py
    "fits_int64",  # test_loop_counters.py
    "python_defined",  # test_numbers.py
    *("constant", "function_1"),  # test_make_graph.py
}
