"""Recursion: over trees, on numbers, by halves."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

import weft
from programs.table import Program, f64, wild


def sum_tree(tree, weight):
    """Recursion over nested tuples: the depth is known to Python, the branch is not."""
    if isinstance(tree, tuple):
        left, right = (sum_tree(part, weight) for part in tree)
        joined = left * weight + right
        return weft.tanh(joined) if joined > 0 else joined
    return tree


def expression(tree, x):
    """Evaluate nested tuples of operators."""
    match tree:
        case float() | int():
            return tree
        case "x":
            return x
        case ("+", left, right):
            return expression(left, x) + expression(right, x)
        case ("*", left, right):
            return expression(left, x) * expression(right, x)
        case ("max", left, right):
            a, b = expression(left, x), expression(right, x)
            return a if a > b else b
    raise ValueError(tree)


def fast_power(x, n):
    """Recursion on a Python integer."""
    if n == 0:
        return weft.ones_like(x)
    half = fast_power(x, n // 2)
    return half * half * x if n % 2 else half * half


def merge_sort(x):
    """Recursion by halves; the merge goes by tensor comparisons."""
    n = x.shape[0]
    if n <= 1:
        return x
    left, right = merge_sort(x[: n // 2]), merge_sort(x[n // 2 :])
    merged = weft.zeros_like(x)
    i = j = 0
    for k in range(n):
        if j >= right.shape[0] or (i < left.shape[0] and left[i] <= right[j]):
            merged[k] = left[i]
            i += 1
        else:
            merged[k] = right[j]
            j += 1
    return merged


def fft_by_hand(re, im):
    """Cooley and Tukey, recursively, on real and imaginary parts."""
    n = re.shape[0]
    if n == 1:
        return re, im
    even_re, even_im = fft_by_hand(re[::2], im[::2])
    odd_re, odd_im = fft_by_hand(re[1::2], im[1::2])
    angle = -2 * weft.pi * weft.arange(n // 2, dtype=re.dtype) / n
    c, s = weft.cos(angle), weft.sin(angle)
    t_re, t_im = c * odd_re - s * odd_im, s * odd_re + c * odd_im
    return (
        weft.concat([even_re + t_re, even_re - t_re]),
        weft.concat([even_im + t_im, even_im - t_im]),
    )


def fft_reference(re, im):
    out = np.fft.fft(re + 1j * im)
    return out.real, out.imag


def adaptive_simpson(a, b, tol=1e-3):
    """Recursion whose depth the data decides."""

    def f(x):
        return weft.exp(-x * x) * weft.sin(5 * x)

    def rule(low, high):
        return (high - low) / 6 * (f(low) + 4 * f((low + high) / 2) + f(high))

    def integrate(low, high, whole):
        middle = (low + high) / 2
        left, right = rule(low, middle), rule(middle, high)
        if weft.abs(left + right - whole) < tol:
            return left + right
        return integrate(low, middle, left) + integrate(middle, high, right)

    return integrate(a, b, rule(a, b))


class Node(NamedTuple):
    value: weft.Tensor
    children: tuple = ()


def tree_of_nodes(scale, shape=((), ((), ()))):
    """A tree built by one function and folded by another."""

    def build(shape, depth):
        return Node(scale / (depth + 1), tuple(build(part, depth + 1) for part in shape))

    def fold(node):
        best = node.value
        for child in node.children:
            got = fold(child)
            best = got + best if got * 2 > best else best - got
        return best

    return fold(build(shape, 0))


TREE = ((f64(0.5), f64(-1.0)), (f64(2.0), (f64(0.1), f64(-0.3))))
FORMULA = ("+", ("*", "x", "x"), ("max", ("*", 3.0, "x"), 1.5))

PROGRAMS = [
    Program(
        "tree recursion",
        sum_tree,
        [(TREE, f64(0.7)), (TREE, f64(-0.7)), (f64(1.0), f64(1.0))],
        second_order=True,
    ),
    Program(
        "expression trees",
        expression,
        [(FORMULA, f64(2.0)), (FORMULA, f64(0.1)), (("*", "x", 2.0), f64(3.0)), (("?",), f64(1.0))],
        raises={3: ValueError},
        second_order=True,
    ),
    Program(
        "fast power",
        fast_power,
        [(wild(2), 0), (wild(2), 5), (wild(2), 8)],
        second_order=True,
        reference=lambda x, n: x**n,
    ),
    Program(
        "merge sort",
        merge_sort,
        [(f64([3.0, 1.0, 2.0]),), (f64([1.0]),), (f64([1.0, 2.0, 0.0, 5.0]),)],
        reference=np.sort,
    ),
    Program(
        "fft by hand",
        fft_by_hand,
        [(wild(4), wild(4, seed=1)), (wild(1), wild(1))],
        second_order=True,
        reference=fft_reference,
    ),
    Program(
        "adaptive simpson",
        adaptive_simpson,
        [(f64(0.0), f64(0.3)), (f64(-1.0), f64(2.0))],
        supports=frozenset({"trace"}),
        why="the depth of the recursion depends on the data",
    ),
    Program(
        "tree of nodes", tree_of_nodes, [(f64(2.0),), (f64(-1.0), ((), (), ((),))), (f64(3.0), ())]
    ),
]
