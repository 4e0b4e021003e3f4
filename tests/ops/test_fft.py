"""`weft.fft`: what the tables of samples do not show."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import weft

#: dtype of x -> dtype of complex results, of real results
PRECISION = {
    weft.bool: (weft.complex64, weft.float32),
    weft.int32: (weft.complex64, weft.float32),
    weft.uint64: (weft.complex64, weft.float32),
    weft.float16: (weft.complex64, weft.float32),
    weft.bfloat16: (weft.complex64, weft.float32),
    weft.float32: (weft.complex64, weft.float32),
    weft.float64: (weft.complex128, weft.float64),
    weft.complex64: (weft.complex64, weft.float32),
    weft.complex128: (weft.complex128, weft.float64),
}


@pytest.mark.parametrize("dtype", PRECISION, ids=lambda dtype: dtype.name)
def test_dtypes_of_results(dtype: weft.DType) -> None:
    x = weft.ones(4, dtype=dtype)
    complex_dtype, real_dtype = PRECISION[dtype]
    for name in ("fft", "ifft", "fftn", "ifftn"):
        assert getattr(weft.fft, name)(x).dtype is complex_dtype
    for name in ("irfft", "hfft", "irfftn"):
        assert getattr(weft.fft, name)(x).dtype is real_dtype
    if dtype.kind != "complex":
        for name in ("rfft", "ihfft", "rfftn"):
            assert getattr(weft.fft, name)(x).dtype is complex_dtype


def test_frequencies_have_the_default_dtype() -> None:
    assert weft.fft.fftfreq(4).dtype is weft.float32
    assert weft.fft.rfftfreq(4, dtype=weft.float64).dtype is weft.float64
    assert weft.fft.fftfreq(4, d=0.5).tolist() == [0, 0.5, -1, -0.5]
    # 2049 is beyond float16's integers, the frequencies are not
    assert float(weft.fft.rfftfreq(4098, dtype=weft.float16)[-1]) == 0.5


def test_minus_one_keeps_a_size() -> None:
    x = weft.reshape(weft.arange(12, dtype=weft.float64), (3, 4))
    whole = weft.fft.rfftn(x)
    kept = weft.fft.rfftn(x, s=(-1, -1), axes=(0, 1))
    np.testing.assert_array_equal(kept.numpy(), whole.numpy())
    back = weft.fft.irfftn(whole, s=(-1, -1), axes=(0, 1))  # all elements: 2 * (3 - 1) points
    np.testing.assert_allclose(back.numpy(), x.numpy(), atol=1e-13)


def test_padding_alone_is_zero() -> None:
    nothing = weft.zeros(0, dtype=weft.complex64)
    assert weft.fft.irfft(nothing, n=3).tolist() == [0, 0, 0]
    assert weft.fft.fft(nothing, n=2).tolist() == [0, 0]


norms = st.sampled_from(["backward", "ortho", "forward"])


@given(st.integers(1, 12), st.integers(1, 3), norms, st.integers(0, 2**32))
def test_inverses(n: int, m: int, norm: Any, seed: int) -> None:
    rng = np.random.default_rng(seed)
    a = rng.standard_normal((m, n))
    x, z = weft.asarray(a), weft.asarray(a + 1j * rng.standard_normal((m, n)))
    for forward, inverse in ((weft.fft.fft, weft.fft.ifft), (weft.fft.fftn, weft.fft.ifftn)):
        np.testing.assert_allclose(
            inverse(forward(z, norm=norm), norm=norm).numpy(), z.numpy(), atol=1e-12
        )
    back = weft.fft.irfft(weft.fft.rfft(x, norm=norm), n=n, norm=norm)
    np.testing.assert_allclose(back.numpy(), a, atol=1e-12)
    back = weft.fft.hfft(weft.fft.ihfft(x, norm=norm), n=n, norm=norm)
    np.testing.assert_allclose(back.numpy(), a, atol=1e-12)
    back = weft.fft.irfftn(weft.fft.rfftn(x, norm=norm), s=(m, n), axes=(0, 1), norm=norm)
    np.testing.assert_allclose(back.numpy(), a, atol=1e-12)
    np.testing.assert_array_equal(weft.fft.ifftshift(weft.fft.fftshift(x)).numpy(), a)


@given(st.integers(1, 16))
def test_fft_is_the_sum_that_defines_it(n: int) -> None:
    rng = np.random.default_rng(n)
    z = rng.standard_normal(n) + 1j * rng.standard_normal(n)
    k = np.arange(n)
    direct = np.exp(-2j * np.pi * np.outer(k, k) / n) @ z
    np.testing.assert_allclose(weft.fft.fft(weft.asarray(z)).numpy(), direct, atol=1e-12)
    frequencies = weft.fft.fftfreq(n, dtype=weft.float64).numpy() * n
    np.testing.assert_allclose(np.exp(-2j * np.pi * np.outer(frequencies, k) / n) @ z, direct)
