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
    "normal.number_mean": lambda std, mean, **options: torch.normal(mean, std, **options),
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
        *("_batch_norm_with_update", "_chunk_cat", "_native_batch_norm_legit"),
        *("_segment_reduce.lengths", "_segment_reduce.offsets", "_softmax_backward_data"),
        *("_unsafe_masked_index", "_unsafe_masked_index_put_accumulate", "_upsample_bilinear2d_aa"),
        *("max_pool2d_with_indices_backward", "native_batch_norm", "native_dropout_backward"),
        *("native_group_norm", "native_layer_norm", "slice", "hash_tensor", "unsafe_chunk"),
        *("unsafe_split", "addmm.decomposed", "bmm.triton_optimized", "grid_sampler_2d"),
        *("grid_sampler_3d", "torch._scaled_mm", "torch._scaled_mm_v2", "nonzero_static"),
        *("torch.ops.aten._efficient_attention_forward", "softmax.with_dtype._aten"),
        *("torch.ops.aten._flash_attention_forward", "torch.ops.aten._safe_softmax.default"),
        *("alias_copy", "as_strided_copy", "diagonal_copy", "expand_copy", "permute_copy"),
        *("split_with_sizes_copy", "squeeze_copy", "t_copy", "transpose_copy", "unbind_copy"),
        *("unfold_copy", "unsqueeze_copy", "view_copy", "narrow_copy"),
    ),
    "PyTorch has no sample of it that runs on a CPU and can be stored": (),
    "strides and storage: a tensor is a value and has none": (
        *("as_strided", "as_strided.partial_views", "as_strided_scatter", "empty_permuted"),
        *("empty_strided", "new_empty_strided", "resize_", "resize_as_"),
    ),
    "sparse layouts are to come": ("sparse.mm.reduce", "sparse.sampled_addmm", "to_sparse"),
    "CUDA source": (
        *("jiterator_2inputs_2outputs", "jiterator_4inputs_with_extra_args", "jiterator_binary"),
        *("jiterator_binary_return_by_ref", "jiterator_unary"),
    ),
}
#: Ops that are compared eagerly only, by reason.
EAGER_ONLY: dict[str, str] = {}
