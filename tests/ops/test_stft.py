"""Short-time Fourier transforms: there and back, compiled, and what they refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft


def energy(x: weft.Tensor) -> weft.Tensor:
    window = weft.hann_window(16)
    spectra = weft.stft(x, 16, window=window)
    again = weft.istft(spectra, 16, window=window, length=50)
    return weft.sum(weft.square(weft.abs(spectra))) + weft.sum(again * x)


def test_there_and_back_with_gradients() -> None:
    x = weft.asarray(np.random.default_rng(0).normal(size=(2, 50)))
    window = weft.hann_window(16, dtype=weft.float64)
    again = weft.istft(weft.stft(x, 16, 5, window=window), 16, 5, window=window, length=48)
    np.testing.assert_allclose(again.numpy(), x.numpy()[:, :48], atol=1e-12)
    short = x.astype(weft.float32)
    slope = weft.grad(energy)
    found = weft.compile(slope, backend="native")(short).numpy()
    np.testing.assert_allclose(found, slope(short).numpy(), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda x: weft.stft(x[:4], 16), "cannot be continued"),
        (lambda x: weft.stft(x, 16, 0), "must be positive"),
        (lambda x: weft.stft(x, 16, win_length=20), "win_length from 1 to n_fft"),
        (lambda x: weft.stft(x, 16, window=weft.ones(3)), "the window must have 16"),
        (lambda x: weft.stft(x, 16, pad_mode="odd"), "pad_mode is one of"),
        (lambda x: weft.stft(x + 0j, 16, onesided=True), "one-sided"),
        (lambda x: weft.istft(weft.stft(x, 16), 12), "frequencies"),
        (
            lambda x: weft.istft(
                weft.stft(x, 16), 16, window=weft.hann_window(16), center=False, hop_length=16
            ),
            "not in any piece",
        ),
    ],
)
def test_errors(call: Any, complaint: str) -> None:
    with pytest.raises(weft.errors.WeftError, match=complaint):
        call(weft.arange(50.0))
