"""How Weft's tests of PyTorch's samples (`op_db_calls`) call ops, and which are not covered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import weft.torch as torch


def _method(name: str) -> Callable[..., Any]:
    def call(x: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(x, name)(*args, **kwargs)

    return call


def _in_place(name: str) -> Callable[..., Any]:
    """A method that gives its tensor a new value, on a tensor of its own."""

    def call(x: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(x.clone(), name)(*args, **kwargs)

    return call


def _property(name: str) -> Callable[..., Any]:
    return lambda x: getattr(x, name)


def _polygamma(x: Any, n: int) -> Any:
    return torch.polygamma(n, x)


_METHODS = (
    *("item", "contiguous", "sum_to_size", "expand", "expand_as", "reshape_as", "view", "view_as"),
    *("bfloat16", "bool", "byte", "char", "double", "float", "half", "int", "long", "short"),
    *("cdouble", "cfloat", "chalf", "new_zeros", "new_ones", "new_empty", "new_full", "unfold"),
    *("repeat", "to", "__getitem__", "fill"),
)
#: Ops whose samples are not calls of a function of the same name.
ADAPTED: dict[str, Callable[..., Any]] = {
    **{name: _method(name) for name in _METHODS},
    **{name: _in_place(name + "_") for name in ("cauchy", "exponential", "geometric", "uniform")},
    "log_normal": _in_place("log_normal_"),
    "normal.in_place": _in_place("normal_"),
    "zero_": _in_place("zero_"),
    "fill": _in_place("fill_"),
    **{name: _property(name) for name in ("T", "H", "mT", "mH")},
    **{f"polygamma.polygamma_n_{n}": _polygamma for n in range(5)},
    "special.polygamma.special_polygamma_n_0": lambda x, n: torch.special.polygamma(n, x),
    "einsum": lambda tensors, equation: torch.einsum(equation, tensors),
    "where": lambda x, condition, other: torch.where(condition, x, other),
    "normal.number_mean": lambda std, mean, *size, **options: torch.normal(
        mean, std, *size, **options
    ),
    "nn.functional.embedding": lambda weight, index, **options: torch.nn.functional.embedding(
        index, weight, **options
    ),
    "nn.functional.embedding_bag": lambda w, index, **options: torch.nn.functional.embedding_bag(
        index, w, **options
    ),
    "linalg.lstsq.grad_oriented": lambda a, b, driver: torch.linalg.lstsq(a, b, driver=driver)[:2],
    "linalg.pinv.singular": lambda a, b: torch.linalg.pinv(a @ b.mT),
}
#: Ops that are not covered, by reason.
NOT_COVERED: dict[str, tuple[str, ...]] = {
    "internal to PyTorch: programs do not call it": (
        *("__rdiv__", "_batch_norm_with_update", "_chunk_cat", "_native_batch_norm_legit"),
        *("_segment_reduce.lengths", "_segment_reduce.offsets", "_softmax_backward_data"),
        *("_unsafe_masked_index", "_unsafe_masked_index_put_accumulate"),
        *("_upsample_bilinear2d_aa", "alias_copy", "as_strided_copy", "diagonal_copy"),
        *("expand_copy", "grid_sampler_2d", "grid_sampler_3d", "hash_tensor"),
        *("max_pool2d_with_indices_backward", "narrow_copy", "native_batch_norm"),
        *("native_dropout_backward", "native_group_norm", "native_layer_norm"),
        *("nonzero_static", "permute_copy", "slice", "split_with_sizes_copy"),
        *("squeeze_copy", "t_copy", "torch._scaled_mm", "torch._scaled_mm_v2"),
        *("torch.ops.aten._efficient_attention_forward",),
        *("torch.ops.aten._flash_attention_forward",),
        *("torch.ops.aten._safe_softmax.default", "transpose_copy", "unbind_copy"),
        *("unfold_copy", "unsafe_chunk", "unsafe_split", "unsqueeze_copy", "view_copy"),
    ),
    "strides and storage: a tensor is a value and has none": (
        *("as_strided", "as_strided.partial_views", "as_strided_scatter", "empty_permuted"),
        *("empty_strided", "new_empty_strided", "resize_", "resize_as_"),
    ),
    "sparse layouts are to come": (*("sparse.mm.reduce", "sparse.sampled_addmm", "to_sparse"),),
    "CUDA source": (
        *("jiterator_2inputs_2outputs", "jiterator_4inputs_with_extra_args"),
        *("jiterator_binary", "jiterator_binary_return_by_ref", "jiterator_unary"),
    ),
    "a prototype in PyTorch": (
        *("masked.amax", "masked.amin", "masked.argmax", "masked.argmin", "masked.cumprod"),
        *("masked.cumsum", "masked.log_softmax", "masked.logaddexp", "masked.logsumexp"),
        *("masked.mean", "masked.median", "masked.norm", "masked.normalize", "masked.prod"),
        *("masked.softmax", "masked.softmin", "masked.std", "masked.sum", "masked.var"),
    ),
    "special functions that nobody asked for yet": (
        *("special.airy_ai", "special.bessel_j0", "special.bessel_j1", "special.bessel_y0"),
        *("special.bessel_y1", "special.modified_bessel_k0", "special.modified_bessel_k1"),
        *("special.scaled_modified_bessel_k0", "special.scaled_modified_bessel_k1"),
    ),
    "factorizations that are not there yet": (
        *("cholesky_inverse", "cholesky_solve", "geqrf", "linalg.cholesky_ex"),
        *("linalg.inv_ex", "linalg.ldl_factor", "linalg.ldl_factor_ex", "linalg.ldl_solve"),
        *("linalg.lu_factor_ex", "linalg.solve_ex", "linalg.vander", "lu", "lu_solve"),
        *("lu_unpack", "ormqr", "pca_lowrank", "svd_lowrank", "triangular_solve"),
    ),
    "no sample that runs on a CPU, is small and can be stored": (
        *("bfloat16", "broadcast_shapes", "chalf"),
        *("nn.functional.batch_norm.without_cudnn", "nn.functional.ctc_loss"),
        *("nn.functional.linear_cross_entropy.chunked",),
        *("nn.functional.linear_cross_entropy.chunked_none",),
        *("nn.functional.triplet_margin_with_distance_loss", "slice_scatter", "to"),
    ),
    "not there yet": (
        *("constant_pad_nd", "fft.hfft2", "fft.hfftn", "fft.ihfft2", "fft.ihfftn", "frexp"),
        *("gradient", "histogramdd", "nn.functional.linear_cross_entropy"),
    ),
    "options of PyTorch's linear algebra that are not there yet (driver, pivot, hermitian, atol)": (
        *("histogram", "linalg.lstsq", "linalg.lstsq.grad_oriented", "linalg.lu"),
        *("linalg.lu_factor", "linalg.lu_solve", "linalg.matrix_rank"),
        *("linalg.matrix_rank.hermitian", "linalg.pinv.hermitian", "scalar_tensor"),
    ),
    "a result that mathematics leaves open: signs of vectors, which of equal elements": (
        *("kthvalue", "linalg.eigh"),
    ),
    "repeated positions: PyTorch's gradient is also that of values that were overwritten": (
        *("nn.functional.max_unpool1d", "nn.functional.max_unpool2d"),
        *("nn.functional.max_unpool3d",),
    ),
    "its sample draws a random dropout": (*("nn.functional.multi_head_attention_forward",),),
    "integers are refused, or give floats": (
        *("nn.functional.avg_pool1d", "nn.functional.avg_pool3d", "nn.functional.hardtanh"),
        *("nn.functional.linear", "nn.functional.relu6"),
    ),
    "0-d or empty tensors where axes are needed: refused": (
        *("gather", "nn.functional.avg_pool2d", "nn.functional.batch_norm"),
        *("nn.functional.cosine_similarity", "nn.functional.multi_margin_loss"),
        *("nn.functional.multilabel_margin_loss", "nn.functional.normalize"),
        *("nn.functional.pad.replicate_negative",),
    ),
    "complex numbers are refused": (*("istft", "nn.functional.silu.complex"),),
    "a step function: it has no derivative": (*("nextafter",),),
}
#: Ops that are compared eagerly only, by reason.
#: Ops that are not compiled: their samples have tensors of degrees, which Python reads.
EAGER_ONLY = dict.fromkeys(
    (
        *("special.chebyshev_polynomial_t", "special.chebyshev_polynomial_u"),
        *("special.chebyshev_polynomial_v", "special.chebyshev_polynomial_w"),
        *("special.hermite_polynomial_h", "special.hermite_polynomial_he"),
        *("special.laguerre_polynomial_l", "special.legendre_polynomial_p"),
        *("special.shifted_chebyshev_polynomial_t", "special.shifted_chebyshev_polynomial_u"),
        *("special.shifted_chebyshev_polynomial_v", "special.shifted_chebyshev_polynomial_w"),
    ),
    "Python reads the degrees",
)
