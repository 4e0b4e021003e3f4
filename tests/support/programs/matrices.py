"""Linear algebra by hand: iterations to convergence, pivoting, rotations."""

# ruff: noqa: SIM108 - both ways to write a choice are meant

from __future__ import annotations

import numpy as np

import weft
from programs.table import Program, f64, i64, wild


def power_iteration(a, x):
    """The largest eigenvalue, until it stands still."""
    value = weft.zeros((), dtype=a.dtype)
    while True:
        y = a @ x
        new = weft.linalg.vector_norm(y)
        x = y / new
        if weft.abs(new - value) < 1e-10 * new:
            return new, x
        value = new


def conjugate_gradient(a, b):
    """Solve a x = b for a symmetric positive a."""
    x = weft.zeros_like(b)
    r = b - a @ x
    p = r
    rs = weft.vecdot(r, r)
    k = 0
    while rs > 1e-20 and k < 2 * len(b):
        ap = a @ p
        alpha = rs / weft.vecdot(p, ap)
        x += alpha * p
        r = r - alpha * ap
        rs, old = weft.vecdot(r, r), rs
        p = r + rs / old * p
        k += 1
    return x


def gram_schmidt(vectors):
    """An orthonormal basis; vectors that depend on earlier ones become zero."""
    basis = []
    for v in vectors:
        for b in basis:
            v = v - weft.vecdot(b, v) * b
        norm = weft.sqrt(weft.vecdot(v, v))
        if norm > 1e-8:
            v = v / norm
        else:
            v = weft.zeros_like(v)
        basis.append(v)
    return weft.stack(basis)


def gram_schmidt_reference(vectors):
    basis = np.zeros_like(vectors)
    for i, v in enumerate(vectors):
        for b in basis[:i]:
            v = v - b @ v * b
        norm = np.sqrt(v @ v)
        basis[i] = v / norm if norm > 1e-8 else 0
    return basis


def jacobi_eigenvalues(a):
    """Eigenvalues of a symmetric matrix by rotations, sweep after sweep."""
    n = a.shape[0]
    a = a.clone()

    def off(m):
        return (m * m).sum() - (weft.linalg.diagonal(m) ** 2).sum()

    sweeps = 0
    while off(a) > 1e-18 and sweeps < 20:
        for p in range(n - 1):
            for q in range(p + 1, n):
                if weft.abs(a[p, q]) < 1e-12:
                    continue
                theta = (a[q, q] - a[p, p]) / (2 * a[p, q])
                t = 1 / (weft.abs(theta) + weft.sqrt(theta * theta + 1))
                if theta < 0:
                    t = -t
                c = 1 / weft.sqrt(t * t + 1)
                s = t * c
                rotation = weft.eye(n, dtype=a.dtype)
                rotation[p, p] = c
                rotation[q, q] = c
                rotation[p, q] = s
                rotation[q, p] = -s
                a = rotation.T @ a @ rotation
        sweeps += 1
    return weft.sort(weft.linalg.diagonal(a))


def qr_iteration(a):
    """Eigenvalues of a symmetric matrix by the QR algorithm."""
    for _ in range(60):
        lower = weft.tril(a, k=-1)
        if (lower * lower).sum() < 1e-10:
            break
        q, r = weft.linalg.qr(a)
        a = r @ q
    return weft.sort(weft.linalg.diagonal(a))


def expm(a):
    """The matrix exponential by scaling and squaring."""
    norm = weft.abs(a).sum(axis=1).max()
    squarings = 0
    while norm > 0.5:
        a = a / 2
        norm = norm / 2
        squarings = squarings + 1
    term = weft.eye(a.shape[0], dtype=a.dtype)
    total = term
    for k in range(1, 13):
        term = term @ a / k
        total = total + term
    while squarings > 0:
        total = total @ total
        squarings -= 1
    return total


def expm_reference(a):
    values, vectors = np.linalg.eig(a)
    return (vectors * np.exp(values) @ np.linalg.inv(vectors)).real


def gauss_solve(a, b):
    """Elimination with partial pivoting, rows swapped in place."""
    a, b = a.clone(), b.clone()
    n = b.shape[0]
    for k in range(n):
        pivot = k
        for i in range(k + 1, n):
            if weft.abs(a[i, k]) > weft.abs(a[pivot, k]):
                pivot = i
        if a[pivot, k] == 0:
            raise ZeroDivisionError("the matrix is singular")
        if pivot != k:
            a[k], a[pivot] = a[pivot], a[k]
            b[k], b[pivot] = b[pivot], b[k]
        for i in range(k + 1, n):
            factor = a[i, k] / a[k, k]
            a[i] = a[i] - factor * a[k]
            b[i] = b[i] - factor * b[k]
    x = weft.zeros_like(b)
    for k in reversed(range(n)):
        x[k] = (b[k] - weft.vecdot(a[k], x)) / a[k, k]
    return x


def cholesky_by_hand(a):
    """The lower factor, element by element; a negative pivot is an error."""
    n = len(a)
    lower = weft.zeros_like(a)
    for i in range(n):
        for j in range(i + 1):
            rest = a[i, j] - (lower[i] * lower[j]).sum()
            if i == j:
                if rest <= 0:
                    raise ValueError("not positive definite")
                lower[i, i] = weft.sqrt(rest)
            else:
                lower[i, j] = rest / lower[j, j]
    return lower


def matrix_power(a, n):
    """a to the power n by squaring, where n is a tensor."""
    result = weft.eye(len(a), dtype=a.dtype)
    while n > 0:
        if n % 2 == 1:
            result = result @ a
        a = a @ a
        n = n // 2
    return result


def sinkhorn(cost, rows, columns):
    """Optimal transport: scale until the marginals fit."""
    kernel = weft.exp(-cost / 0.5)
    u = weft.ones_like(rows)
    error = weft.asarray(1.0, dtype=cost.dtype)
    count = 0
    while error > 1e-6:
        v = columns / (kernel.T @ u)
        u = rows / (kernel @ v)
        plan = u[:, None] * kernel * v
        error = weft.abs(plan.sum(axis=0) - columns).max()
        count += 1
        if count == 8:
            break
    return (plan * cost).sum()


def pagerank(links, damping):
    """Ranks of pages; pages without links spread over all."""
    n = links.shape[0]
    out = links.sum(axis=1)
    rank = weft.full((n,), 1 / n, dtype=links.dtype)
    delta = weft.inf
    while delta > 1e-9:
        spread = weft.full((n,), 0.0, dtype=links.dtype)
        for i in range(n):
            if out[i] > 0:
                spread += rank[i] * links[i] / out[i]
            else:
                spread += rank[i] / n
        new = (1 - damping) / n + damping * spread
        delta = weft.abs(new - rank).sum()
        rank = new
    return rank


def pagerank_reference(links, damping):
    n = len(links)
    out = links.sum(axis=1, keepdims=True)
    move = np.where(out > 0, links / np.where(out > 0, out, 1), 1 / n)
    return np.linalg.solve(np.eye(n) - damping * move.T, np.full(n, (1 - damping) / n))


def gauss_seidel(a, b, *, sweeps=100, tol=1e-10):
    """Solve by relaxation, each unknown written as soon as it is known."""
    x = weft.zeros_like(b)
    for _sweep in range(sweeps):
        before = x.clone()
        for i in range(b.shape[0]):
            x[i] = x[i] + (b[i] - weft.vecdot(a[i], x)) / a[i, i]
        if weft.abs(x - before).max() < tol:
            break
    return x


def newton_schulz(a):
    """The inverse of a matrix by products alone; `converged` says whether it worked."""
    eye = weft.eye(len(a), dtype=a.dtype)
    x = a.T / (weft.abs(a).sum(axis=0).max() * weft.abs(a).sum(axis=1).max())
    steps, converged = 0, False
    while not converged and steps < 40:
        x = x @ (2 * eye - a @ x)
        converged = weft.abs(a @ x - eye).max() < 1e-9
        steps += 1
    return x, converged


def rank_by_elimination(a):
    """The rank: how many pivots there are."""
    a = a.clone()
    rows, columns = a.shape
    rank = 0
    for column in range(columns):
        best = weft.asarray(rank)
        for i in range(rank, rows):
            if weft.abs(a[i, column]) > weft.abs(a[best, column]):
                best = weft.asarray(i)
        if rank >= rows or weft.abs(a[best, column]) < 1e-9:
            continue
        row = a[best].clone()
        a[best] = a[rank]
        a[rank] = row / row[column]
        for i in range(rank + 1, rows):
            a[i] = a[i] - a[i, column] * a[rank]
        rank += 1
    return rank


SYMMETRIC = f64([[4.0, 1.0, 0.5], [1.0, 3.0, 0.2], [0.5, 0.2, 2.0]])
SPARSE = f64([[2.0, 0.0, 1.0], [0.0, 3.0, 0.0], [1.0, 0.0, 1.5]])
DIAGONAL = f64([[2.0, 0.0], [0.0, 1.0]])
LINKS = f64([[0.0, 1.0, 1.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]])

PROGRAMS = [
    Program(
        "power iteration",
        power_iteration,
        [(SYMMETRIC, f64([1.0, 0.5, 0.2])), (DIAGONAL, f64([1.0, 0.0]))],
        rtol=1e-4,
        kinks=(1,),
    ),
    Program(
        "conjugate gradient",
        conjugate_gradient,
        [
            (SYMMETRIC, f64([1.0, 2.0, 3.0])),
            (DIAGONAL, f64([0.0, 0.0])),
            (DIAGONAL, f64([1.0, 0.0])),
        ],
        smooth=False,
        reference=np.linalg.solve,
    ),
    Program(
        "gram schmidt",
        gram_schmidt,
        [(f64([[1.0, 2.0, 0.5], [0.3, -1.0, 1.0]]),), (f64([[1.0, 2.0], [0.0, 0.0], [3.0, 1.0]]),)],
        kinks=(1,),
        second_order=True,
        reference=gram_schmidt_reference,
    ),
    Program(
        "jacobi eigenvalues",
        jacobi_eigenvalues,
        [(SYMMETRIC,), (DIAGONAL,), (SPARSE,)],
        smooth=False,
        reference=np.linalg.eigvalsh,
    ),
    Program(
        "qr iteration",
        qr_iteration,
        [(SYMMETRIC,), (DIAGONAL,)],
        smooth=False,
        reference=np.linalg.eigvalsh,
    ),
    Program(
        "matrix exponential",
        expm,
        [(f64([[0.1, 0.2], [0.0, -0.1]]),), (f64([[2.0, 3.0], [1.0, -4.0]]),)],
        second_order=True,
        reference=expm_reference,
    ),
    Program(
        "gauss elimination",
        gauss_solve,
        [
            (SYMMETRIC, f64([1.0, 2.0, 3.0])),
            (f64([[0.0, 1.0], [2.0, 1.0]]), f64([1.0, 2.0])),
            (f64([[1.0, 2.0], [2.0, 4.0]]), f64([1.0, 2.0])),
        ],
        reference=np.linalg.solve,
        raises={2: ZeroDivisionError},
    ),
    Program(
        "cholesky by hand",
        cholesky_by_hand,
        [(SYMMETRIC,), (f64([[1.0, 2.0], [2.0, 1.0]]),)],
        reference=np.linalg.cholesky,
        raises={1: ValueError},
    ),
    Program(
        "matrix power",
        matrix_power,
        [(f64([[1.0, 1.0], [1.0, 0.0]]), i64(10)), (DIAGONAL, i64(0)), (DIAGONAL, i64(7))],
        second_order=True,
        reference=lambda a, n: np.linalg.matrix_power(a, int(n)),
    ),
    Program(
        "sinkhorn",
        sinkhorn,
        [
            (wild(3, 2, low=0), f64([0.2, 0.3, 0.5]), f64([0.6, 0.4])),
            (f64([[1.0]]), f64([1.0]), f64([1.0])),
            (9 * wild(3, 2, low=0), f64([0.2, 0.3, 0.5]), f64([0.6, 0.4])),
        ],
        second_order=True,
        rtol=1e-4,
    ),
    Program(
        "pagerank",
        pagerank,
        [(LINKS, f64(0.85)), (LINKS.T, f64(0.0))],
        gradients=(1,),
        reference=pagerank_reference,
        rtol=1e-5,
    ),
    Program(
        "gauss seidel",
        gauss_seidel,
        [(SYMMETRIC, f64([1.0, 2.0, 3.0])), (DIAGONAL, f64([0.0, 0.0]))],
        reference=np.linalg.solve,
        rtol=1e-5,
    ),
    Program(
        "newton schulz inverse",
        newton_schulz,
        [(SYMMETRIC,), (f64([[1.0, 1.0], [1.0, 1.0]]),)],
        smooth=False,
    ),
    Program(
        "rank by elimination",
        rank_by_elimination,
        [(SYMMETRIC,), (f64([[1.0, 2.0], [2.0, 4.0], [3.0, 6.0]]),), (f64([[0.0, 0.0]]),)],
        gradients=False,
        reference=lambda a: int(np.linalg.matrix_rank(a)),
    ),
]
