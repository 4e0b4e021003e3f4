"""Integer algorithms: number theory, sorting by writes, searching, small machines."""

# ruff: noqa: SIM108 - both ways to write a choice are meant

from __future__ import annotations

import math

import numpy as np

import weft
from programs.table import Program, i64


def collatz(n):
    """Steps to 1, and the highest number on the way."""
    steps, peak = 0, n
    while n != 1:
        if n % 2 == 0:
            n = n // 2
        else:
            n = 3 * n + 1
        peak = weft.maximum(peak, n)
        steps += 1
    return steps, peak


def collatz_reference(n):
    n, steps, peak = int(n), 0, int(n)
    while n != 1:
        n, steps = n // 2 if n % 2 == 0 else 3 * n + 1, steps + 1
        peak = max(peak, n)
    return steps, peak


def gcd(a, b):
    while b:
        a, b = b, a % b
    return a


def extended_euclid(a, b):
    """g, x, y with a x + b y = g."""
    x0, x1, y0, y1 = 1, 0, 0, 1
    while b != 0:
        q = a // b
        a, b = b, a - q * b
        x0, x1 = x1, x0 - q * x1
        y0, y1 = y1, y0 - q * y1
    return a, x0, y0


def extended_reference(a, b):
    if b == 0:
        return a, 1, 0
    g, x, y = extended_reference(b, a % b)
    return g, y, x - a // b * y


def sieve(n):
    """Flags of the primes below n, a Python number."""
    prime = weft.ones(n, dtype=weft.bool)
    prime[0] = False
    prime[1] = False
    i = 2
    while i * i < n:
        if prime[i]:
            for multiple in range(i * i, n, i):
                prime[multiple] = False
        i += 1
    return prime


def is_prime(n):
    """Trial division with early returns."""
    if n < 2:
        return False
    if n % 2 == 0:
        return n == 2
    d = weft.asarray(3)
    while d * d <= n:
        if n % d == 0:
            return False
        d += 2
    return True


def modular_power(base, exponent, modulus):
    result = weft.ones_like(base)
    base = base % modulus
    while exponent > 0:
        if exponent & 1:
            result = result * base % modulus
        exponent >>= 1
        base = base * base % modulus
    return result


def digit_sum_root(n):
    """Sum the digits until one digit is left."""
    rounds = 0
    while n >= 10:
        total = weft.zeros_like(n)
        while n > 0:
            total += n % 10
            n //= 10
        n = total
        rounds += 1
    return n, rounds


def bit_length(n):
    count = 0
    while n > 0:
        n = n >> 1
        count += 1
    return count


def fibonacci(n):
    """The n-th Fibonacci number, with n a tensor as the bound of a range."""
    a, b = weft.asarray(0), weft.asarray(1)
    for _ in range(n):
        a, b = b, a + b
    return a


def fibonacci_reference(n):
    a, b = 0, 1
    for _ in range(int(n)):
        a, b = b, a + b
    return a


def palindrome(x):
    """Compare from both ends, stop at the first difference."""
    i, j = 0, x.shape[0] - 1
    while i < j:
        if x[i] != x[j]:
            break
        i += 1
        j -= 1
    else:
        return True
    return False


def perfect_numbers(limit):
    """How many numbers up to a tensor are the sum of their divisors: nested loops, continue."""
    found = 0
    n = weft.asarray(1)
    while n < limit:
        n = n + 1
        if n % 2 == 1:
            continue
        total, d = weft.asarray(1), weft.asarray(2)
        while d * d <= n:
            if n % d != 0:
                d = d + 1
                continue
            total = total + d
            if d * d != n:
                total = total + n // d
            if total > n:
                break
            d = d + 1
        if total == n:
            found += 1
    return found


PROGRAMS = [
    Program(
        "collatz",
        collatz,
        [(i64(6),), (i64(1),), (i64(27),), (i64(8),)],
        gradients=False,
        reference=collatz_reference,
    ),
    Program(
        "gcd",
        gcd,
        [(i64(48), i64(18)), (i64(7), i64(0)), (i64(17), i64(5)), (12, 18)],
        gradients=False,
        reference=lambda a, b: math.gcd(int(a), int(b)),
    ),
    Program(
        "extended euclid",
        extended_euclid,
        [(i64(240), i64(46)), (i64(3), i64(0))],
        gradients=False,
        reference=extended_reference,
    ),
    Program(
        "sieve",
        sieve,
        [(10,), (30,), (3,)],
        gradients=False,
        reference=lambda n: np.array([k > 1 and all(k % d for d in range(2, k)) for k in range(n)]),
    ),
    Program(
        "is prime",
        is_prime,
        [(i64(k),) for k in (0, 2, 9, 13, 14, 49)],
        gradients=False,
        reference=lambda n: bool(n > 1 and all(n % d for d in range(2, int(n)))),
    ),
    Program(
        "modular power",
        modular_power,
        [(i64(3), i64(13), i64(7)), (i64(5), i64(0), i64(11)), (i64(2), i64(8), i64(1000))],
        gradients=False,
        reference=lambda b, e, m: pow(int(b), int(e), int(m)),
    ),
    Program("digit sums", digit_sum_root, [(i64(9875),), (i64(7),), (i64(10),)], gradients=False),
    Program(
        "bit length",
        bit_length,
        [(i64(0),), (i64(1),), (i64(1000),)],
        gradients=False,
        reference=lambda n: int(n).bit_length(),
    ),
    Program(
        "fibonacci",
        fibonacci,
        [(i64(0),), (i64(1),), (i64(12),), (7,)],
        gradients=False,
        reference=fibonacci_reference,
    ),
    Program(
        "palindrome",
        palindrome,
        [(i64([1, 2, 1]),), (i64([1, 2]),), (i64([1, 2, 2, 1]),), (i64([1, 2, 3, 1]),)],
        gradients=False,
        reference=lambda x: bool((x == x[::-1]).all()),
    ),
    Program(
        "perfect numbers",
        perfect_numbers,
        [(i64(30),), (i64(1),), (i64(6),)],
        gradients=False,
        reference=lambda n: sum(
            k == sum(d for d in range(1, k) if k % d == 0) and k % 2 == 0
            for k in range(2, int(n) + 1)
        ),
    ),
]
