"""Rows of an embedding by number, and the sums, means or maxima of bags of them."""

from __future__ import annotations

from typing import Any

from weft.base import dtypes
from weft.base.errors import DTypeError, RangeError, ShapeError
from weft.core.autocast import autocasts
from weft.core.bind import bind
from weft.core.grad_mode import no_grad
from weft.core.operands import as_tensor, assign, cast
from weft.core.tensor import Tensor, type_of
from weft.nn.functional.checks import below
from weft.ops import embedding as cards
from weft.ops.creation import arange, ones
from weft.ops.elementwise import abs, maximum
from weft.ops.index import take
from weft.ops.reduce import max as largest
from weft.ops.reduce import sum
from weft.ops.search import searchsorted
from weft.ops.select import where
from weft.ops.shape import reshape

__all__ = ["embedding", "embedding_bag"]


def embedding(
    input: Any,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """The rows of the weight that the input names; the row `padding_idx` gets no gradient.

    max_norm              rows that are named and longer are first scaled down to it, in the weight
    scale_grad_by_freq    the gradient of a row is divided by the number of times it is named
    """
    _refuse_sparse(sparse, "embedding")
    padding_idx = _row_number(padding_idx, weight, "embedding")
    indices = as_tensor(input, "embedding", like=weight)
    if max_norm is not None:
        _limit(weight, indices, max_norm, norm_type)
    out: Tensor = bind(cards.embedding, weight, indices, padding_idx=padding_idx)
    return _by_frequency(out, indices, weight) if scale_grad_by_freq else out


def _refuse_sparse(sparse: bool, op: str) -> None:
    if sparse:
        raise DTypeError(
            "sparse gradients are not supported",
            op=op,
            hint="leave out sparse=True",
        )


def _row_number(padding_idx: int | None, weight: Tensor, op: str) -> int | None:
    if padding_idx is None:
        return None
    rows = weight.shape[0]
    if not -rows <= padding_idx < rows:
        raise RangeError(f"padding_idx {padding_idx} is no row of {rows}", op=op)
    return padding_idx % rows


def _counts(indices: Tensor, rows: int, dtype: Any) -> Tensor:
    """How often each row is named."""
    each = ones((*indices.shape, 1), dtype=dtype, device=indices.device)
    return reshape(bind(cards.row_sums, each, indices, rows=rows, padding_idx=None), (rows,))


def _limit(weight: Tensor, indices: Tensor, max_norm: float, norm_type: float) -> None:
    """Scale down the rows that are named and longer than `max_norm`, in the weight itself."""
    with no_grad():
        # An index that is no row is an error before anything is written.
        bind(cards.embedding, weight, indices, padding_idx=None)
        values = weight.detach()
        norms = sum(abs(values) ** norm_type, axis=1) ** (1.0 / norm_type)
        named = _counts(indices, weight.shape[0], weight.dtype) > 0
        long = named & (norms > max_norm)
        factor = where(long, max_norm / (norms + 1e-7), 1.0)
        assign(weight, values * factor[:, None], "embedding")


def _by_frequency(out: Tensor, indices: Tensor, weight: Tensor) -> Tensor:
    counts = _counts(indices, weight.shape[0], weight.dtype)
    share = 1 / take(counts, reshape(indices, (-1,))).reshape((*indices.shape, 1))
    fixed = out.detach()
    return fixed + (out - fixed) * share  # the value of out, and a share of its gradient


@autocasts("")
def embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    """The sum, mean or maximum of the rows of each bag.

    input     (bags, size): bags of one size; or one long vector, and `offsets` where bags begin
    mode      "sum", "mean" or "max"; an empty bag gives zeros
    per_sample_weights   a factor for each row of the input, with mode "sum"
    padding_idx          a row that counts for nothing

    >>> table = weft.asarray([[1.0, 1.0], [2.0, 2.0], [4.0, 0.0]])
    >>> bags = weft.nn.functional.embedding_bag
    >>> bags(weft.asarray([0, 1, 2]), table, weft.asarray([0, 1]), mode="sum")
    tensor([[1., 1.],
            [6., 2.]])
    """
    _check_bags(input, weight, offsets, mode, per_sample_weights)
    padding_idx = _row_number(padding_idx, weight, "embedding_bag")
    rows = embedding(input, weight, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse)
    kept = None if padding_idx is None else (input != padding_idx)[..., None]
    if per_sample_weights is not None:
        rows = rows * per_sample_weights[..., None]
    if input.ndim == 2:
        return _even_bags(rows, kept, mode)
    assert offsets is not None  # it was checked
    bags = offsets.shape[0] - include_last_offset
    begin = offsets[:bags]
    numbers = arange(input.shape[0], dtype=offsets.dtype, device=input.device)
    owner = cast(searchsorted(begin, numbers, side="right") - 1, dtypes.int64)
    owner = _checked(owner, begin, bags)
    if mode == "max":
        own = owner[None, :] == arange(bags, device=input.device)[:, None]  # (bags, rows)
        mine = own[..., None] if kept is None else own[..., None] & kept
        return _largest(rows[None], mine)
    real = rows if kept is None else where(kept, rows, 0.0)
    sums: Tensor = bind(cards.row_sums, real, owner, rows=bags, padding_idx=None)
    if mode == "sum":
        return sums
    each = ones(rows.shape[:1], dtype=rows.dtype, device=rows.device)[:, None]
    each = each if kept is None else where(kept, each, 0.0)
    return sums / maximum(bind(cards.row_sums, each, owner, rows=bags, padding_idx=None), 1)


def _checked(owner: Tensor, begin: Tensor, bags: int) -> Tensor:
    """The bag of each number. The first bag begins at 0: else a number belongs to none."""
    if not owner.shape[0]:
        return owner
    falls = sum(cast(begin[1:] < begin[:-1], owner.dtype))
    message = "offsets must begin with 0, and not fall"
    return below(owner + falls * bags, bags, message, "embedding_bag")


def _even_bags(rows: Tensor, kept: Tensor | None, mode: str) -> Tensor:
    bags, size = rows.shape[:2]
    if kept is None:
        kept = ones((bags, size, 1), dtype=dtypes.bool, device=rows.device)
    if mode == "max":
        return _largest(rows, kept)
    sums = sum(where(kept, rows, 0.0), axis=1)
    return sums if mode == "sum" else sums / maximum(sum(cast(kept, rows.dtype), axis=1), 1)


def _largest(rows: Tensor, kept: Tensor) -> Tensor:
    """The maxima over axis 1 of what is kept; zeros where that is nothing."""
    if rows.shape[1] == 0:
        return sum(where(kept, rows, 0.0), axis=1)
    found = largest(where(kept, rows, -float("inf")), axis=1)
    some = sum(cast(kept, dtypes.int64), axis=1) > 0
    return where(some, found, 0.0)


def _check_bags(
    input: Tensor, weight: Tensor, offsets: Tensor | None, mode: str, factors: Tensor | None
) -> None:
    op, operands = "embedding_bag", [type_of(input), type_of(weight)]
    if mode not in ("sum", "mean", "max"):
        raise RangeError(f"mode is 'sum', 'mean' or 'max', not {mode!r}", op=op)
    if (input.ndim, offsets is None) not in ((1, False), (2, True)):
        raise ShapeError(
            f"an input of {input.ndim} axes {'without' if offsets is None else 'with'} offsets",
            op=op,
            operands=operands,
            hint="give (bags, size) without offsets, or a vector with offsets",
        )
    if offsets is not None and (offsets.ndim != 1 or offsets.dtype.kind not in ("int", "uint")):
        raise ShapeError("offsets are a vector of integers", op=op, operands=[type_of(offsets)])
    if factors is not None:
        if mode != "sum":
            raise RangeError(f"per_sample_weights need mode 'sum', not {mode!r}", op=op)
        if factors.shape != input.shape:
            raise ShapeError(
                f"per_sample_weights have shape {factors.shape}, the input {input.shape}",
                op=op,
                operands=[*operands, type_of(factors)],
            )
