"""Root finding, fixed points and series: loops to a tolerance."""

from __future__ import annotations

import math

import numpy as np

import weft
from programs.table import Program, f64, i64


def newton_sqrt(a):
    """Heron's square root, to a relative tolerance."""
    x = a if a > 1 else weft.ones_like(a)
    while weft.abs(x * x - a) > 1e-9 * a:
        x = 0.5 * (x + a / x)
    return x


def newton_kepler(mean, eccentricity):
    """Kepler's equation by Newton's method; gives up after 50 steps."""
    x = mean
    for step in range(50):  # noqa: B007
        f = x - eccentricity * weft.sin(x) - mean
        if abs(f) < 1e-10:
            break
        x = x - f / (1 - eccentricity * weft.cos(x))
    else:
        step = 50
    return x, step


def kepler_reference(mean, eccentricity):
    x = mean
    for step in range(50):
        f = x - eccentricity * math.sin(x) - mean
        if abs(f) < 1e-10:
            return x, step
        x = x - f / (1 - eccentricity * math.cos(x))
    return x, 50


def bisection(c, low, high):
    """A root of x³ - x - c between low and high, to a coarse tolerance."""

    def f(x):
        return x**3 - x - c

    f_low = f(low)
    while high - low > 1e-2:
        middle = (low + high) / 2
        value = f(middle)
        if value == 0:
            return middle
        if (value > 0) == (f_low > 0):
            low, f_low = middle, value
        else:
            high = middle
    return (low + high) / 2


def bisection_reference(c, low, high):
    f_low = low**3 - low - c
    while high - low > 1e-2:
        middle = (low + high) / 2
        value = middle**3 - middle - c
        if value == 0:
            return middle
        if (value > 0) == (f_low > 0):
            low, f_low = middle, value
        else:
            high = middle
    return (low + high) / 2


def implicit_root(c):
    """Bisection without a tape, then one Newton step that carries the gradient."""
    with weft.no_grad():
        low, high = weft.ones_like(c), 2 * weft.ones_like(c)
        while (high - low) > 1e-12:
            middle = 0.5 * (low + high)
            if middle**3 - middle < c:
                low = middle
            else:
                high = middle
    x = low.detach()
    return x - (x**3 - x - c) / (3 * x**2 - 1)


def secant(a, x0, x1):
    """The a-th root of ten by the secant method; returns as soon as it is near."""
    f0 = x0**a - 10
    steps = 0
    while True:
        f1 = x1**a - 10
        steps += 1
        if weft.abs(f1) < 1e-8:
            return x1, steps
        if steps >= 9:
            return x1, -1
        x0, x1, f0 = x1, x1 - f1 * (x1 - x0) / (f1 - f0), f1


def cosine_fixed_point(k):
    """x = cos(k x), iterated until it stands still."""
    x = weft.zeros_like(k)
    change = math.inf
    count = 0
    while change > 1e-10 and count < 200:
        new = weft.cos(k * x)
        change = weft.abs(new - x)
        x = new
        count += 1
    return x


def fixed_point_reference(k):
    x = 0.0
    for _ in range(200):
        x, old = math.cos(k * x), x
        if abs(x - old) <= 1e-10:
            break
    return x


def aitken(k):
    """The same, sped up by Aitken's formula where the denominator allows."""
    x = weft.zeros_like(k)
    while True:
        one = weft.cos(k * x)
        two = weft.cos(k * one)
        bend = two - 2 * one + x
        if weft.abs(bend) < 1e-9:
            break
        x = x - (one - x) ** 2 / bend
    return two


def continued_fraction(x):
    """tan(x) by Lentz's continued fraction."""
    tiny = 1e-30
    f = weft.full_like(x, tiny)
    c, d = f, weft.zeros_like(x)
    n = 0
    delta = weft.full_like(x, 2.0)
    while weft.abs(delta - 1) > 1e-12:
        top = x if n == 0 else -(x * x)
        bottom = 2.0 * n + 1.0
        d = bottom + top * d
        d = tiny if d == 0 else d
        c = bottom + top / c
        if c == 0:
            c = weft.full_like(x, tiny)
        d = 1 / d
        delta = c * d
        f = f * delta
        n += 1
    return f


def exp_series(x):
    """e to the x by its series, with halving of large arguments first."""
    halvings = 0
    while weft.abs(x) > 0.5:
        x = x / 2
        halvings += 1
    term = weft.ones_like(x)
    total = term
    k = 1
    while weft.abs(term) > 1e-17:
        term = term * x / k
        total += term
        k += 1
    for _ in range(halvings):
        total = total * total
    return total


def horner(coefficients, x):
    """A polynomial and its derivative by Horner's rule, over the rows of a tensor."""
    value = weft.zeros_like(x)
    slope = weft.zeros_like(x)
    for c in coefficients:
        slope = slope * x + value
        value = value * x + c
    return value, slope


def golden_section(a):
    """The minimum of (x - a)⁴ + x² on [-2, 2]."""
    ratio = (math.sqrt(5) - 1) / 2
    low, high = f64(-2.0), f64(2.0)

    def f(x):
        return (x - a) ** 4 + x * x

    left, right = high - ratio * (high - low), low + ratio * (high - low)
    f_left, f_right = f(left), f(right)
    while high - low > 1e-3:
        if f_left < f_right:
            high, right, f_right = right, left, f_left
            left = high - ratio * (high - low)
            f_left = f(left)
        else:
            low, left, f_left = left, right, f_right
            right = low + ratio * (high - low)
            f_right = f(right)
    return f((low + high) / 2)


def agm(a, b):
    """The arithmetic-geometric mean."""
    while abs(a - b) > 1e-12 * a:
        a, b = (a + b) / 2, weft.sqrt(a * b)
    return a


def agm_reference(a, b):
    while abs(a - b) > 1e-12 * a:
        a, b = (a + b) / 2, math.sqrt(a * b)
    return a


def lambert_w(x):
    """The Lambert W function by Halley's method, from a start that depends on the side."""
    if x > 1:
        w = weft.log(x)
    elif x > -0.25:
        w = x
    else:
        w = weft.full_like(x, -0.5)
    while True:
        e = weft.exp(w)
        f = w * e - x
        if weft.abs(f) <= 1e-12 * (1 + weft.abs(x)):
            return w
        w = w - f / (e * (w + 1) - (w + 2) * f / (2 * w + 2))


def romberg(a, b, levels=5):
    """The integral of exp(-x²) from a to b, by rows of a triangle kept in Python lists."""
    rows = [[(weft.exp(-a * a) + weft.exp(-b * b)) * (b - a) / 2]]
    for level in range(1, levels):
        h = (b - a) / 2**level
        middle = 0.0
        for k in range(1, 2**level, 2):
            middle = middle + weft.exp(-((a + k * h) ** 2))
        row = [rows[-1][0] / 2 + h * middle]
        for j in range(1, level + 1):
            row.append(row[j - 1] + (row[j - 1] - rows[-1][j - 1]) / (4**j - 1))
        if abs(row[-1] - rows[-1][-1]) < 1e-9:
            return row[-1]
        rows.append(row)
    return rows[-1][-1]


def vector_newton(p):
    """Two equations in two unknowns, by Newton's method with a solver."""
    x = weft.ones(2, dtype=p.dtype)
    for _ in range(20):
        f = weft.stack([x[0] ** 2 + x[1] ** 2 - p[0], x[0] * x[1] - p[1]])
        if (weft.abs(f) < 1e-10).all():
            break
        jacobian = weft.stack([weft.stack([2 * x[0], 2 * x[1]]), weft.stack([x[1], x[0] + 1e-3])])
        x = x - weft.linalg.solve(jacobian, f)
    return x


def digits_of_sqrt(n, places):
    """Decimal digits of a square root, in integers: the largest r with r² <= n·100^places."""
    for _ in range(places):
        n = n * 100
    r = n
    while (better := (r + n // weft.maximum(r, i64(1))) // 2) < r:
        r = better
    return r


PROGRAMS = [
    Program(
        "newton sqrt",
        newton_sqrt,
        [(f64(2.0),), (f64(0.09),), (f64(1.0),), (f64(150.0),)],
        second_order=True,
        kinks=(2,),
        reference=math.sqrt,
    ),
    Program(
        "newton kepler",
        newton_kepler,
        [
            (f64(0.5), f64(0.3)),
            (f64(3.0), f64(0.9)),
            (f64(0.0), f64(0.5)),
            (f64(weft.nan), f64(0.5)),
        ],
        second_order=True,
        kinks=(2, 3),
        reference=kepler_reference,
    ),
    Program(
        "bisection",
        bisection,
        [
            (f64(1.0), f64(1.0), f64(2.0)),
            (f64(0.0), f64(0.5), f64(1.5)),
            (f64(-0.2), f64(-1.0), f64(0.9)),
        ],
        kinks=(1,),
        reference=bisection_reference,
    ),
    Program(
        "implicit root",
        implicit_root,
        [(f64(1.0),), (f64(3.0),)],
        reference=lambda c: max(np.roots([1, 0, -1, -c]).real),
    ),
    Program(
        "secant",
        secant,
        [
            (f64(2.0), f64(1.0), f64(4.0)),
            (f64(3.0), f64(2.0), f64(2.5)),
            (f64(2.0), f64(150.0), f64(201.0)),
        ],
        reference=None,
    ),
    Program(
        "cosine fixed point",
        cosine_fixed_point,
        [(f64(0.7),), (f64(0.0),), (f64(1.5),)],
        second_order=True,
        reference=fixed_point_reference,
    ),
    Program(
        "aitken", aitken, [(f64(0.7),), (f64(0.0),), (f64(0.9),)], reference=fixed_point_reference
    ),
    Program(
        "continued fraction",
        continued_fraction,
        [(f64(0.5),), (f64(1.2),), (f64(-1e-30),)],
        kinks=(2,),
        reference=math.tan,
    ),
    Program(
        "exp series",
        exp_series,
        [(f64(0.2),), (f64(-3.0),), (f64(5.0),), (f64(0.0),)],
        second_order=True,
        kinks=(3,),
        reference=math.exp,
    ),
    Program(
        "horner",
        horner,
        [(f64([1.0, -2.0, 3.0]), f64(0.5)), (f64([2.0]), f64(3.0))],
        second_order=True,
        reference=lambda c, x: (np.polyval(c, x), np.polyval(np.polyder(c), x)),
    ),
    Program("golden section", golden_section, [(f64(1.0),), (f64(-1.5),)]),
    Program(
        "arithmetic-geometric mean",
        agm,
        [(f64(1.0), f64(2.0)), (f64(3.0), f64(3.0))],
        second_order=True,
        kinks=(1,),
        reference=agm_reference,
    ),
    Program(
        "lambert w",
        lambert_w,
        [(f64(5.0),), (f64(0.3),), (f64(-0.3),), (f64(-0.1),)],
        second_order=True,
    ),
    Program(
        "romberg",
        romberg,
        [(f64(0.0), f64(1.0)), (f64(-2.0), f64(2.0)), (f64(0.0), f64(1e-4), 3)],
        reference=lambda a, b, levels=5: (math.erf(b) - math.erf(a)) * math.sqrt(math.pi) / 2,
        rtol=1e-3,
    ),
    Program("vector newton", vector_newton, [(f64([5.0, 2.0]),), (f64([2.5, 0.1]),)]),
    Program(
        "digits of sqrt",
        digits_of_sqrt,
        [(i64(2), 3), (i64(10), 0), (i64(0), 2), (i64(1), 1)],
        gradients=False,
        reference=lambda n, places: math.isqrt(int(n) * 100**places),
    ),
]
