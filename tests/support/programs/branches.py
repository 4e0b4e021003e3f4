"""Python's conditions, construct by construct: if, expressions, boolean operators, errors."""

# ruff: noqa: SIM108 - both ways to write a choice are meant

from __future__ import annotations

import numpy as np

import weft
from programs.table import Program, f64, i64, wild


def if_else(x):
    if x.sum() > 0:
        y = x * 2
    else:
        y = -x
    return y + 1


def if_without_else(x):
    y = weft.sin(x)
    if (x > 1).any():
        y = y * x
    return y


def elif_chain(x):
    s = x.sum()
    if s > 10:
        return weft.log(x)
    elif s > 1:
        return x * x
    elif s > 0:
        return weft.exp(x)
    else:
        return -x


def nested_ifs(x, y):
    if x > 0:
        if y > 0:
            z = x * y
        else:
            z = x - y
            if z > 2:
                z = z / 2
    elif y > 0:
        z = y**2
    else:
        z = weft.exp(x + y)
    return z


def early_returns(x):
    """Like code that checks its input first."""
    if not weft.isfinite(x).all():
        return weft.zeros_like(x)
    norm = weft.sqrt((x * x).sum())
    if norm < 1e-3:
        return x
    if norm > 10:
        x = x / norm * 10
    return x * norm


def conditional_expressions(x, y):
    big = x if x > y else y
    small = y if x > y else x
    return (big - small) * (1.0 if small > 0 else 3.0) + (big if big > 1.7 else small * small)


def boolean_operators(x, y, strict):
    if x > 0 and y > 0:
        z = x * y
    elif (x < -1 or y < -1) and not strict:
        z = x - y
    elif not (x > y):
        z = x + 3 * y
    else:
        z = 2 * x
    return z


def operators_as_values(x, y):
    """`and` and `or` give one of their operands, not a bool."""
    a = x or y
    b = x and y
    return a + 10 * b


def short_circuit(x, i):
    """The right side is not evaluated where the left decides: no index error."""
    if i < x.shape[0] and x[i] > 0:
        return x[i] * 2
    if i >= x.shape[0] or x[i] == 0:
        return x.sum() * 0 - 1
    return x[i]


def chained_comparison(x, low, high):
    if low < x < high:
        y = x * x
    elif low <= x <= high:
        y = 2 * x
    else:
        y = weft.clip(x, low, high)
    return y


def membership(x, token):
    """`in` over a tensor, over a tuple of Python numbers, and `not in`."""
    y = x.sum()
    if token in (1, 2):
        y = y * 2
    if 3.0 in x:
        y = y + 100
    if 5.0 not in x:
        y = y - 1
    return y


def identity_tests(x, bias=None, scale=None):
    """None as "not given"."""
    if bias is not None:
        x = x + bias
    if scale is None:
        scale = weft.ones_like(x)
    if x.mean() > 0 and bias is None:
        scale = scale * 3
    return x * scale


def walrus(x):
    if (total := x.sum()) > 1:
        return x / total
    if (peak := weft.abs(x).max()) > 0:
        x = x / peak
    return x + total


def python_and_tensor_conditions(x, mode):
    """A mode is a Python string; its branches are never seen by the graph."""
    if mode == "double":
        x = x * 2
    elif mode == "guess":
        x = x * 2 if x.sum() > 0 else x / 2
    elif mode.startswith("no"):
        pass
    else:
        raise KeyError(mode)
    return x + len(mode)


def any_all_builtins(x):
    """Python's any, all, max, min, sum and abs on tensors."""
    parts = [x[0], x[1], x[2]]
    if any(p > 2 for p in parts):
        return max(parts) + sum(parts)
    if all(p > 0 for p in parts):
        return min(parts) - abs(x[0])
    return abs(sum(parts)) * 0.5


def match_statement(x, command):
    match command:
        case "scale", factor:
            y = x * factor
        case "shift", by if by > 0:
            y = x + by
        case "shift", _:
            y = x
        case _:
            y = x.sum() * weft.ones_like(x)
    return y if y.sum() > 0 else -y


def dtype_dispatch(x):
    """Dtypes, shapes and ranks are Python values."""
    if x.dtype == weft.int64:
        x = x.astype(weft.float64) / 2
    if x.ndim == 2:
        x = x.sum(axis=0)
    if len(x) > 2:
        x = x[:2]
    return x * 2 if x[0] > 1 else x


PAIR = [(f64([1.0, 2.0]),), (f64([-1.0, -2.0]),), (f64([3.0, -0.5]),)]
FOUR = [
    (f64(2.0), f64(1.0)),
    (f64(1.5), f64(-3.0)),
    (f64(-0.5), f64(0.7)),
    (f64(-2.0), f64(-0.1)),
    (f64(0.2), f64(-0.1)),
]

PROGRAMS = [
    Program(
        "if else",
        if_else,
        PAIR,
        second_order=True,
        reference=lambda x: (x * 2 if x.sum() > 0 else -x) + 1,
    ),
    Program("if without else", if_without_else, PAIR, second_order=True),
    Program(
        "elif chain",
        elif_chain,
        [(f64([9.0, 8.0]),), (f64([1.0, 2.0]),), (f64([0.2, 0.1]),), (f64([-1.0, 0.5]),)],
        second_order=True,
    ),
    Program("nested ifs", nested_ifs, FOUR, second_order=True),
    Program(
        "early returns",
        early_returns,
        [(f64([1.0, weft.inf]),), (f64([0.0, 1e-4]),), (f64([30.0, 1.0]),), (f64([1.0, 2.0]),)],
    ),
    Program("conditional expressions", conditional_expressions, FOUR, second_order=True),
    Program(
        "boolean operators",
        boolean_operators,
        [(*pair, flag) for pair in FOUR for flag in (True, False)],
        second_order=True,
    ),
    Program(
        "operators as values",
        operators_as_values,
        [(f64(2.0), f64(3.0)), (f64(0.0), f64(3.0)), (f64(2.0), f64(0.0))],
        smooth=False,
    ),
    Program(
        "short circuit",
        short_circuit,
        [(f64([1.0, -2.0, 0.0]), i64(k)) for k in range(5)],
        kinks=(2,),
    ),
    Program(
        "chained comparison",
        chained_comparison,
        [(f64(v), f64(0.0), f64(1.0)) for v in (0.5, 0.0, 2.0, -1.0)],
        smooth=False,
        why="on the bounds there is a kink",
    ),
    Program(
        "membership",
        membership,
        [(f64([1.0, 3.0]), 1), (f64([5.0, 3.0]), 2), (f64([0.0]), 7)],
        smooth=False,
        why="equality is no open condition",
    ),
    Program(
        "identity tests",
        identity_tests,
        [(wild(3),), (wild(3), f64(1.0)), (3 + wild(3),), (wild(3), None, wild(3, seed=1))],
        second_order=True,
    ),
    Program(
        "walrus",
        walrus,
        [(f64([1.0, 2.0]),), (f64([-1.0, -2.0]),), (f64([0.0, 0.0]),)],
        smooth=False,
        why="at 0 there is a kink",
    ),
    Program(
        "python and tensor conditions",
        python_and_tensor_conditions,
        [
            (f64([1.0]), "double"),
            (f64([1.0]), "guess"),
            (f64([-1.0]), "guess"),
            (f64([1.0]), "nothing"),
            (f64([1.0]), "else"),
        ],
        raises={4: KeyError},
    ),
    Program(
        "any and all",
        any_all_builtins,
        [(f64([1.0, 3.0, -1.0]),), (f64([1.0, 0.5, 0.2]),), (f64([-1.0, 0.5, 0.2]),)],
        reference=lambda x: (
            x.max() + x.sum()
            if (x > 2).any()
            else x.min() - abs(x[0])
            if (x > 0).all()
            else abs(x.sum()) * 0.5
        ),
    ),
    Program(
        "match",
        match_statement,
        [(f64([1.0, -3.0]), c) for c in (("scale", 2.0), ("shift", 4.0), ("shift", -1.0), "sum")],
    ),
    Program(
        "dtype dispatch",
        dtype_dispatch,
        [(i64([4, 6]),), (f64([[1.0, 2.0, 3.0], [0.5, 1.0, 0.0]]),), (f64([0.5, 2.0]),)],
        gradients=False,
        reference=lambda x: (lambda y: y * 2 if y[0] > 1 else y)(
            (np.atleast_2d(x).sum(axis=0)[:2]) / (2 if x.dtype == np.int64 else 1)
        ),
    ),
]
