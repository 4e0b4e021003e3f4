"""The order in which einsum multiplies its operands, two at a time.

The best order of few operands is found by trying all; of many, the cheapest pair comes first. The
cost of a pair is the number of products, plus a little for the size of what it leaves behind.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache

__all__ = ["contraction_order", "left_over"]

Term = frozenset[object]

#: Up to this number of operands, all orders are tried.
MOST = 6
#: The cost of writing an element and reading it again, in products.
_MOVED = 4


def left_over(first: Term, second: Term, others: Sequence[Term], result: Term) -> Term:
    """The labels of a product of two operands that are still needed."""
    needed = result.union(*others)
    return (first | second) & needed


def _count(labels: Term, sizes: Mapping[object, int]) -> int:
    return math.prod(sizes[label] for label in labels)


def contraction_order(
    terms: Sequence[Term], result: Term, sizes: Mapping[object, int]
) -> list[tuple[int, int]]:
    """Pairs of positions: each pair leaves the list, and its product goes to the end."""
    if len(terms) <= 2:
        return [(0, 1)] if len(terms) == 2 else []
    if len(terms) <= MOST:
        return list(_best(tuple(terms), result, tuple(sizes.items()))[1])
    return _greedy(list(terms), result, sizes)


def _pair(terms: Sequence[Term], i: int, j: int, result: Term) -> tuple[Term, list[Term]]:
    others = [term for k, term in enumerate(terms) if k not in (i, j)]
    return left_over(terms[i], terms[j], others, result), others


@lru_cache(maxsize=4096)
def _best(
    terms: tuple[Term, ...], result: Term, sizes: tuple[tuple[object, int], ...]
) -> tuple[int, tuple[tuple[int, int], ...]]:
    """The least cost of all orders, and the order."""
    if len(terms) == 1:
        return 0, ()
    table = dict(sizes)
    found: tuple[int, tuple[tuple[int, int], ...]] | None = None
    for j in range(1, len(terms)):
        for i in range(j):
            left, others = _pair(terms, i, j, result)
            cost = _count(terms[i] | terms[j], table) + _MOVED * _count(left, table)
            if found is not None and cost >= found[0]:
                continue
            rest, order = _best((*others, left), result, sizes)
            if found is None or cost + rest < found[0]:
                found = cost + rest, ((i, j), *order)
    assert found is not None
    return found


def _greedy(terms: list[Term], result: Term, sizes: Mapping[object, int]) -> list[tuple[int, int]]:
    """The pair next that makes what is kept grow least, and of these the cheapest."""
    order = []
    while len(terms) > 1:
        best = None
        for j in range(1, len(terms)):
            for i in range(j):
                left, others = _pair(terms, i, j, result)
                before = _count(terms[i], sizes) + _count(terms[j], sizes)
                rank = (_count(left, sizes) - before, _count(terms[i] | terms[j], sizes))
                if best is None or rank < best[0]:
                    best = rank, (i, j), [*others, left]
        assert best is not None
        order.append(best[1])
        terms = best[2]
    return order
