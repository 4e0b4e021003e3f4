"""Complex numbers: made of real ones, in products, functions and Fourier transforms, behind every
view, and real again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuzzing.graph_ops import Step

if TYPE_CHECKING:
    from fuzzing.graphs import GraphWriter, Shape

#: By the dtype of the parts.
COMPLEX = {"float32": "complex64", "float64": "complex128"}
PARTS = {whole: part for part, whole in COMPLEX.items()}


def complex_tensor(w: GraphWriter, shape: Shape, dtype: str) -> str:
    """A complex expression of a shape; views ask for it as for any other."""
    known = w.pool.get((shape, dtype), [])
    if known and w.chance(0.3):
        found: str = w.pick(known)
        return found
    if w.left > 0 and w.chance(0.4):
        return w.view(shape, dtype)
    if w.left <= 0 or w.chance(0.3):
        return made_of_parts(w, shape, dtype)
    w.left -= 1
    return w.bound(_op(w, shape, dtype), shape, dtype)


def made_of_parts(w: GraphWriter, shape: Shape, dtype: str) -> str:
    part = PARTS[dtype]
    if w.chance(0.3) or len(w.arguments) >= 9:
        return f"{w.tensor(shape, part)}.astype(weft.{dtype})"
    one, two = w.tensor(shape, part), w.tensor(shape, part)
    made: str = w.pick(
        [
            f"weft.complex({one}, {two})",
            f"({one} + 1j * {two})",
            f"weft.polar(weft.abs({one}) + 0.5, {two})",
        ]
    )
    return made


def _op(w: GraphWriter, shape: Shape, dtype: str) -> str:
    one = w.tensor(shape, dtype)
    options = [
        f"weft.conj({one})",
        f"(({0.5 + 0.25j}) * {one})",
        f"weft.exp(0.2 * {one} / (1 + weft.abs({one})))",
        f"weft.where({w.condition(shape)}, {one}, {w.tensor(shape, PARTS[dtype])})",
        f"weft.cumulative_sum({one}, axis=-1)" if shape else f"-{one}",
        f"weft.flip({one}, axis=0)" if shape else f"({one} ** 2)",
    ]
    if shape and 0 not in shape:
        options.append(f"(weft.fft.{w.pick(['fft', 'ifft'])}({one}) / {shape[-1]})")
        options.append(f"weft.concat([{one}[..., :1], {one}[..., 1:]], axis=-1)")
    if len(shape) >= 2:
        size = max(1, w.some_size())
        if w.fits((*shape[:-1], size)) and w.fits((size, shape[-1])):
            left = w.tensor((*shape[:-1], size), dtype)
            options.append(f"({left} @ {w.tensor((size, shape[-1]), dtype)} / {size})")
    if w.chance(0.5):
        two = w.tensor(shape, dtype)
        options = [f"({one} * {two})", f"({one} + {two})", f"({one} - {two})"]
        options.append(f"({one} / (1 + weft.abs({two})))")
    made: str = w.pick(options)
    return made


def _real(w: GraphWriter, shape: Shape, dtype: str) -> str | None:
    if dtype not in COMPLEX:
        return None
    z = complex_tensor(w, shape, COMPLEX[dtype])
    made: str = w.pick(
        [
            f"weft.real({z})",
            f"weft.imag({z})",
            f"({z} * weft.conj({z})).real",
            f"weft.abs({z} + {3 + 1j})",
            f"weft.view_as_real({z}).sum(axis=-1)",
        ]
    )
    return made


def _reduced(w: GraphWriter, shape: Shape, dtype: str) -> str | None:
    size = max(1, w.some_size())
    if dtype not in COMPLEX or not w.fits(shape, size):
        return None
    z = complex_tensor(w, (*shape, size), COMPLEX[dtype])
    return f"weft.{w.pick(['real', 'imag'])}({z}.{w.pick(['sum', 'mean'])}(axis=-1))"


def _spectrum(w: GraphWriter, shape: Shape, dtype: str) -> str | None:
    """Through the frequencies and back."""
    if dtype not in COMPLEX or not shape or shape[-1] < 2:
        return None
    x = w.tensor(shape, dtype)
    scale = w.pick(["0.5", f"weft.arange({shape[-1] // 2 + 1}, dtype=weft.{dtype})"])
    return f"weft.fft.irfft(weft.fft.rfft({x}) * {scale}, n={shape[-1]})"


COMPLEX_FAMILY: dict[str, list[Step]] = {"complex": [_real, _real, _reduced, _spectrum]}
