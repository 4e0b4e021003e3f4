"""Names that PyTorch programs use around their models."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft.torch as torch


def near(found: Any, wanted: Any) -> None:
    np.testing.assert_allclose(np.asarray(found), np.asarray(wanted), rtol=1e-5, atol=1e-6)


def test_windows_are_periodic() -> None:
    steps = np.arange(8)
    near(torch.hann_window(8), 0.5 - 0.5 * np.cos(2 * np.pi * steps / 8))
    near(torch.hann_window(8, False), np.hanning(8))
    near(torch.hamming_window(8, periodic=False), np.hamming(8))
    near(torch.blackman_window(8, False), np.blackman(8))
    near(torch.bartlett_window(8, False), np.bartlett(8))
    near(torch.kaiser_window(8, False, 6.0), np.kaiser(8, 6.0))
    assert isinstance(torch.hann_window(4), torch.Tensor)


def test_functions() -> None:
    x = torch.tensor([-1.0, 0.5, 2.0])
    near(torch.clamp_min(x, 0), [0, 0.5, 2])
    near(x.clamp_max(1), [-1, 0.5, 1])
    assert torch.promote_types(torch.int32, torch.float16) is torch.float16
    assert torch.is_nonzero(torch.tensor([2]))
    assert not torch.tensor(0.0).is_nonzero()
    near(torch.cond(x.sum() > 0, lambda x: x * 2, lambda x: x, (x,)), [-2, 1, 4])
    near(x.to(memory_format=torch.channels_last), x)
    a = np.array([[4.0, 1.0], [1.0, 3.0]])
    factor = torch.linalg.cholesky(torch.tensor(a))
    near(torch.cholesky_inverse(factor), np.linalg.inv(a))
    near(torch.cholesky_inverse(factor.mT, upper=True), np.linalg.inv(a))
    near(torch.cholesky_solve(torch.eye(2, dtype=torch.float64), factor), np.linalg.inv(a))


@pytest.mark.parametrize(("shape", "wrap"), [((3, 3), False), ((7, 3), True), ((7, 3), False)])
def test_the_diagonal_is_filled(shape: tuple[int, int], wrap: bool) -> None:
    wanted = np.zeros(shape)
    np.fill_diagonal(wanted, 5, wrap=wrap)
    near(torch.zeros(*shape).fill_diagonal_(5, wrap), wanted)


def test_functional_autograd() -> None:
    x, v = torch.tensor([1.0, 2.0]), torch.tensor([1.0, -1.0])
    functional = torch.autograd.functional
    near(functional.jacobian(lambda x: x**2, x), np.diag([2.0, 4.0]))
    near(functional.jacobian(lambda x, y: x * y, (x, v))[1], np.diag([1.0, 2.0]))
    near(functional.hessian(lambda x: (x**3).sum(), x), np.diag([6.0, 12.0]))
    near(functional.hvp(lambda x: (x**3).sum(), x, v)[1], [6, -12])
    near(functional.vjp(lambda x: x**2, x, v)[1], [2, -4])
    near(functional.jvp(lambda x: x**2, x, v)[1], [2, -4])


def test_gradients_are_checked() -> None:
    x = torch.tensor([0.5, 1.5], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: torch.sin(x) * x, (x,))
    assert torch.autograd.gradgradcheck(lambda x: torch.sin(x) * x, (x,))

    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * x

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g

    assert not torch.autograd.gradcheck(Wrong.apply, (x,), raise_exception=False)


def test_tensors_are_compared() -> None:
    one = {"a": torch.ones(2), "b": [torch.zeros(1)]}
    torch.testing.assert_close(one, {"a": torch.ones(2) + 1e-7, "b": [torch.zeros(1)]})
    for other in (torch.ones(2) * 1.1, torch.ones(3), torch.ones(2, dtype=torch.float64)):
        with pytest.raises(AssertionError):
            torch.testing.assert_close(torch.ones(2), other)


def test_a_fork_of_the_generator() -> None:
    torch.manual_seed(1)
    wanted = torch.rand(3)
    torch.random.manual_seed(1)
    with torch.random.fork_rng():
        torch.rand(5)
    near(torch.rand(3), wanted)
