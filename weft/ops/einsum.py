"""Sums of products of tensors, in Einstein's notation. Pairs of operands become matrix products."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.base.asked_sizes import same_size
from weft.base.dim_algebra import Dim
from weft.base.errors import DTypeError, ShapeError
from weft.base.shapes import size_of
from weft.core.autocast import autocasts
from weft.core.operands import common
from weft.core.public import public
from weft.core.tensor import Tensor, type_of
from weft.ops.einsum_plan import contraction_order, left_over
from weft.ops.einsum_terms import Labels, numbered, read_sublists, read_terms
from weft.ops.elementwise import multiply
from weft.ops.linalg_matrix import diagonal
from weft.ops.matmul import matmul
from weft.ops.reduce import sum
from weft.ops.shape import moveaxis, permute_dims, reshape, squeeze

__all__ = ["einsum"]

#: What an unknown size counts as in the choice of an order.
_UNKNOWN = 32


@public()
@autocasts("lower")
def einsum(*operands: Any, optimize: Any = True) -> Tensor:
    """Products of elements, summed over the labels that the result does not have.

    The first argument names the axes of each operand: einsum("ij,jk->ik", x, y) is x @ y. A label
    that an operand has twice is its diagonal, "..." stands for axes that broadcast, and without
    "->" the result has the labels that occur once. Labels may also be numbers:
    einsum(x, [0, 1], y, [1, 2], [0, 2]). Products of several operands are taken in the cheapest
    order; `optimize=False` goes from left to right.

    >>> x = weft.asarray([[1.0, 2.0], [3.0, 4.0]])
    >>> weft.einsum("ij,ij->i", x, x)
    tensor([ 5., 25.])
    >>> weft.einsum("ii", x)
    tensor(5.)
    """
    if not operands:
        raise ShapeError("there are no operands", op="einsum")
    subscripts, given = operands[0], list(operands[1:])
    if isinstance(subscripts, str):
        if len(given) == 1 and isinstance(given[0], (list, tuple)):
            given = list(given[0])
        tensors = _tensors(given)
        inputs, result = read_terms(subscripts, tuple(x.ndim for x in tensors))
    else:
        given, terms = read_sublists(operands)
        tensors = _tensors(given)
        last = terms.pop() if len(terms) > len(tensors) else None
        inputs, result = numbered(terms, last, [x.ndim for x in tensors])
    sizes = _sizes(inputs, tensors)
    each = [_Factor(x, labels).alone() for x, labels in zip(tensors, inputs, strict=True)]
    return _contracted(each, result, sizes, bool(optimize)).turned(result)


def _tensors(given: Sequence[Any]) -> list[Tensor]:
    if not given:
        raise ShapeError("there are no operands", op="einsum")
    tensors = common(given, "einsum")
    if tensors[0].dtype.kind == "bool":
        raise DTypeError(
            "bools cannot be summed", op="einsum", hint="cast them with astype(weft.int64)"
        )
    return tensors


def _sizes(inputs: Sequence[Labels], tensors: Sequence[Tensor]) -> dict[Any, Any]:
    """The size of each label; axes of size 1 broadcast."""
    sizes: dict[Any, Any] = {}
    for labels, x in zip(inputs, tensors, strict=True):
        for label, size in zip(labels, x.shape, strict=True):
            known = sizes.setdefault(label, size)
            if same_size(known, size):
                continue
            if known == 1:
                sizes[label] = size
            elif size not in (1, known):
                raise ShapeError(
                    f"label {label!r} has sizes {known} and {size}",
                    op="einsum",
                    operands=[type_of(t) for t in tensors],
                )
    return sizes


class _Factor:
    """A tensor and the labels of its axes."""

    def __init__(self, x: Tensor, labels: Labels) -> None:
        self.x, self.labels = x, labels

    def alone(self) -> _Factor:
        """Each label once: those that occur several times become a diagonal."""
        x, labels = self.x, list(self.labels)
        if len(set(labels)) == len(labels):
            return self
        for label in sorted(set(labels), key=str):
            while labels.count(label) > 1:
                i = labels.index(label)
                j = labels.index(label, i + 1)
                if x.shape[i] != x.shape[j]:  # one of them is 1, and broadcasts
                    drop = i if x.shape[i] == 1 else j
                    x = squeeze(x, drop)
                    del labels[drop]
                    continue
                x = diagonal(moveaxis(x, (i, j), (-2, -1)))
                del labels[j], labels[i]
                labels.append(label)
        return _Factor(x, tuple(labels))

    def without_ones(self, sizes: dict[Any, Any]) -> _Factor:
        """Without the axes of size 1 that broadcast."""
        ones = [
            i
            for i, (label, size) in enumerate(zip(self.labels, self.x.shape, strict=True))
            if _is_one(size) and not _is_one(sizes[label])
        ]
        if not ones:
            return self
        labels = tuple(label for i, label in enumerate(self.labels) if i not in ones)
        return _Factor(squeeze(self.x, tuple(ones)), labels)

    def summed(self, keep: set[Any]) -> _Factor:
        """Without labels that nobody else has."""
        axes = tuple(i for i, label in enumerate(self.labels) if label not in keep)
        if not axes:
            return self
        labels = tuple(label for label in self.labels if label in keep)
        return _Factor(sum(self.x, axis=axes, dtype=self.x.dtype), labels)

    def turned(self, labels: Sequence[Any]) -> Tensor:
        """The tensor with its axes in the order of labels."""
        order = tuple(self.labels.index(label) for label in labels)
        return self.x if order == tuple(range(len(order))) else permute_dims(self.x, order)


def _is_one(size: Any) -> bool:
    return not isinstance(size, Dim) and size == 1


def _contracted(
    factors: list[_Factor], result: Labels, sizes: dict[Any, Any], optimize: bool
) -> _Factor:
    factors = [factor.without_ones(sizes) for factor in factors]
    wanted = frozenset(result)
    count = len(factors)
    if optimize and count > 2:
        numbers = {k: _UNKNOWN if isinstance(n, Dim) else int(n) for k, n in sizes.items()}
        terms = [frozenset(factor.labels) for factor in factors]
        order = contraction_order(terms, wanted, numbers)
    else:
        order = [(0, 1), *((0, n) for n in range(count - 2, 0, -1))][: count - 1]
    for i, j in order:
        first, second = factors[i], factors[j]
        others = [factor for k, factor in enumerate(factors) if k not in (i, j)]
        kept = left_over(
            frozenset(first.labels),
            frozenset(second.labels),
            [frozenset(other.labels) for other in others],
            wanted,
        )
        factors = [*others, _product(first, second, kept)]
    (last,) = factors
    return last.summed(set(result))


def _product(first: _Factor, second: _Factor, kept: frozenset[Any]) -> _Factor:
    """Two factors multiplied, and summed over all labels but `kept`."""
    first = first.summed(set(kept) | set(second.labels))
    second = second.summed(set(kept) | set(first.labels))
    if first.labels == second.labels and not kept:  # a dot product
        flat = (size_of(first.x.shape),)
        return _Factor(matmul(reshape(first.x, flat), reshape(second.x, flat)), ())
    shared = [label for label in first.labels if label in second.labels]
    inner = [label for label in shared if label not in kept]
    batch = [label for label in shared if label in kept]
    rows = [label for label in first.labels if label not in shared]
    columns = [label for label in second.labels if label not in shared]
    shapes = {**_shapes(first), **_shapes(second)}
    if not inner:  # nothing to sum over: element by element
        left = reshape(
            first.turned([*batch, *rows]),
            (*(shapes[k] for k in (*batch, *rows)), *(1,) * len(columns)),
        )
        right = reshape(
            second.turned([*batch, *columns]),
            (*(shapes[k] for k in batch), *(1,) * len(rows), *(shapes[k] for k in columns)),
        )
        return _Factor(multiply(left, right), (*batch, *rows, *columns))
    b, m, n, k = (tuple(shapes[x] for x in part) for part in (batch, rows, columns, inner))
    left = reshape(first.turned([*batch, *rows, *inner]), (*b, size_of(m), size_of(k)))
    right = reshape(second.turned([*batch, *inner, *columns]), (*b, size_of(k), size_of(n)))
    out = reshape(matmul(left, right), (*b, *m, *n))
    return _Factor(out, (*batch, *rows, *columns))


def _shapes(factor: _Factor) -> dict[Any, Any]:
    return dict(zip(factor.labels, factor.x.shape, strict=True))
