"""Complex numbers in registers: every rule on special values, beside NumPy's."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import weft
from weft.codegen.scalar.complexes import _RULES
from weft.runtime import native as room

LARGE = {"complex64": (3e38, 1e-40, 2e-45), "complex128": (1e308, 1e-310, 5e-324)}
PARTS = (0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3e-5, 1e10, np.inf, -np.inf, np.nan, 0.7071067, -0.6)
INTERNAL = {"identity", "stop_gradient"}


def one(op: Any) -> Any:
    def f(x: weft.Tensor) -> weft.Tensor:
        return op(x)

    return f


def two(op: Any) -> Any:
    def f(x: weft.Tensor, y: weft.Tensor) -> weft.Tensor:
        return op(x, y)

    return f


def special(dtype: str) -> Any:
    made = list(itertools.product((*PARTS, *LARGE[dtype]), repeat=2))
    out = np.empty(len(made), dtype)
    out.real, out.imag = np.array(made).T
    return out


def calls_of(compiled: Any) -> list[str]:
    program = compiled.programs[-1]
    return [node.op.name for node in getattr(program, "calls", [])]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("dtype", LARGE)
@pytest.mark.parametrize("name", sorted(set(_RULES) - INTERNAL))
def test_rules_are_those_of_numpy(name: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    original = room.NativeProgram.__init__

    def noted(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        made.append(self)

    monkeypatch.setattr(room.NativeProgram, "__init__", noted)
    op = getattr(weft, name)
    rng = np.random.default_rng(0)
    usual = (rng.standard_normal(99) + 1j * rng.standard_normal(99)).astype(dtype)
    eps, least = np.finfo(dtype).eps, np.finfo(dtype).smallest_subnormal
    for x in (special(dtype), usual):
        binary = name in ("add", "subtract", "multiply", "divide", "equal", "not_equal") or (
            name.startswith("logical") and name != "logical_not"
        )
        function = two(op) if binary else one(op)
        given = [x[:, None], x[None, ::7]] if binary else [x]
        tensors = [weft.asarray(np.ascontiguousarray(part)) for part in given]
        with np.errstate(all="ignore"):
            want = function(*tensors).numpy()
        got = weft.compile(function, backend="native")(*tensors).numpy()
        assert made[-1].calls == []
        if want.dtype == bool:
            np.testing.assert_array_equal(got, want)
            continue
        size = np.where(np.isfinite(want), np.abs(np.where(np.isfinite(want), want, 0)), 0)
        near = 6 * eps * np.where(np.isfinite(size), size, 0) + 4 * least
        for w, g in ((want.real, got.real), (want.imag, got.imag)):
            with np.errstate(all="ignore"):
                same = (np.isnan(w) & np.isnan(g)) | (w == g) | (np.abs(w - g) <= near)
            assert same.all(), (w[~same][:3], g[~same][:3])


@pytest.mark.parametrize("dtype", LARGE)
def test_loops_carry_complex_numbers(dtype: str) -> None:
    """Views, sums, casts, choices and `while` under vmap, with gradients."""

    def steps(c: weft.Tensor) -> weft.Tensor:
        z, k = weft.zeros((), dtype=c.dtype), weft.asarray(0)
        while (abs(z) < 2.0) & (k < 30):
            z, k = z * z + c, k + 1
        return k

    def mixed(x: weft.Tensor, s: weft.Tensor) -> weft.Tensor:
        y = weft.where(weft.real(x) > 0, x * s, weft.conj(x) / (2 + 1j))
        y = (y.T[::-1] + weft.exp(y[0])).sum(axis=0) + y.mean()
        return weft.real(y * weft.log(y + 3)).sum() + abs(y.astype("complex128")).sum()

    rng = np.random.default_rng(1)
    c = weft.asarray((rng.uniform(-2, 1, 40) + 1j * rng.uniform(-1.5, 1.5, 40)).astype(dtype))
    counted = weft.compile(lambda c: weft.vmap(steps)(c), backend="native")
    np.testing.assert_array_equal(counted(c).numpy(), [int(steps(x)) for x in c])
    x = weft.asarray((rng.standard_normal((4, 4)) + 1j * rng.standard_normal((4, 4))).astype(dtype))
    compiled = weft.compile(lambda x, s: weft.value_and_grad(mixed)(x, s), backend="native")
    near = 1e-4 if dtype == "complex64" else 1e-10
    for s in (1.5, -0.25):
        want, got = weft.value_and_grad(mixed)(x, weft.asarray(s)), compiled(x, weft.asarray(s))
        for w, g in zip(want, got, strict=True):
            np.testing.assert_allclose(g.numpy(), w.numpy(), near, near * np.abs(w.numpy()).max())
