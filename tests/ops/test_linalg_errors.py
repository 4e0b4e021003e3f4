"""What `weft.linalg`, `weft.fft` and matrix products say when they cannot work."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

import weft
from weft.base.errors import DTypeError, LinAlgError, ShapeError, WeftError

HERE = "test_linalg_errors.py:"


def f32(*shape: int) -> weft.Tensor:
    return weft.ones(shape)


def c64(*shape: int) -> weft.Tensor:
    return weft.ones(shape, dtype=weft.complex64)


#: the call, the error, what its message names
CASES: list[tuple[Callable[[], Any], type[WeftError], list[str]]] = [
    # products
    (
        lambda: f32(2, 3) @ f32(2, 3),
        ShapeError,
        ["matmul: the inner sizes differ: 3 and 2", "f32[2,3], f32[2,3]", "x1 @ x2.mT would fit"],
    ),
    (lambda: f32(2, 3) @ f32(4), ShapeError, ["matmul", "inner sizes differ: 3 and 4", "f32[4]"]),
    (lambda: f32(4) @ f32(3, 2), ShapeError, ["matmul", "inner sizes differ: 4 and 3"]),
    (lambda: f32(4) @ f32(5), ShapeError, ["matmul", "4 and 5"]),
    (lambda: f32(2, 1, 3) @ f32(4, 2), ShapeError, ["matmul", "3 and 4", "f32[2,1,3]"]),
    (
        lambda: f32(2, 3, 3) @ f32(5, 3, 3),
        ShapeError,
        ["matmul: the stacks of matrices, (2,) and (5,), do not broadcast", "f32[5,3,3]"],
    ),
    (lambda: f32() @ f32(3), ShapeError, ["matmul: x1 is 0-d", "f32[], f32[3]", "use *"]),
    (lambda: f32(3) @ f32(), ShapeError, ["matmul: x2 is 0-d"]),
    (lambda: f32(2, 2, 2) @ f32(), ShapeError, ["matmul: x2 is 0-d"]),
    (lambda: f32(3) @ 2, DTypeError, ["matmul: the number 2 has no axes", "f32[3]", "use *"]),
    (lambda: 2.5 @ f32(3), DTypeError, ["matmul: the number 2.5 has no axes"]),
    (lambda: weft.matmul(f32(3), True), DTypeError, ["matmul: the number True"]),
    (lambda: weft.matmul(f32(2), [1.0, 2.0]), DTypeError, ["matmul", "list", "weft.asarray"]),
    (
        lambda: weft.matmul(f32(2).astype(weft.bool), f32(2).astype(weft.bool)),
        DTypeError,
        ["matmul", "bool[2]"],
    ),
    (
        lambda: weft.vecdot(f32(2, 3), f32(2, 1)),
        ShapeError,
        ["vecdot: the vectors differ in length: 3 and 1", "f32[2,3], f32[2,1]"],
    ),
    (lambda: weft.vecdot(f32(3), f32(2, 3), axis=-2), ShapeError, ["vecdot: axis -2", "f32[3]"]),
    (lambda: weft.vecdot(f32(3), f32(2, 3), axis=0), ShapeError, ["vecdot: axis 0"]),
    (lambda: weft.vecdot(f32(), f32()), ShapeError, ["vecdot: axis -1", "at least one axis"]),
    (lambda: weft.vecdot(f32(3), f32(3), axis=0.5), DTypeError, ["vecdot: axis must be an int"]),
    (
        lambda: weft.tensordot(f32(2, 3), f32(2, 3), axes=1),
        ShapeError,
        ["tensordot: axis 1 of x1 and axis 0 of x2 differ in size: 3 and 2", "f32[2,3], f32[2,3]"],
    ),
    (lambda: weft.tensordot(f32(2), f32(2)), ShapeError, ["tensordot: 2 axes cannot be summed"]),
    (lambda: weft.tensordot(f32(2), f32(2), axes=-1), ShapeError, ["tensordot: -1 axes"]),
    (
        lambda: weft.tensordot(f32(2), f32(2), axes=((0,), ())),
        ShapeError,
        ["tensordot: 1 axes of x1 cannot meet 0 axes of x2"],
    ),
    (
        lambda: weft.tensordot(f32(2, 2), f32(2, 2), axes=((0, 0), (0, 1))),
        ShapeError,
        ["tensordot: an axis is named twice", "f32[2,2]"],
    ),
    (
        lambda: weft.tensordot(f32(2), f32(2), axes=((1,), (0,))),
        ShapeError,
        ["tensordot: axis 1 is out of range", "f32[2]"],
    ),
    (lambda: weft.tensordot(f32(2), f32(2), axes=(1,)), ShapeError, ["tensordot: axes must be"]),
    (lambda: weft.tensordot(f32(2), f32(2), axes="a"), DTypeError, ["tensordot: axes must be"]),
    # matrices
    (
        lambda: weft.linalg.outer(f32(2, 2), f32(2)),
        ShapeError,
        ["outer: both operands must be vectors; they have 2 and 1 axes", "f32[2,2], f32[2]"],
    ),
    (
        lambda: weft.linalg.cross(f32(4), f32(4)),
        ShapeError,
        ["cross: vectors must have 3 elements, not 4 and 4", "f32[4], f32[4]"],
    ),
    (lambda: weft.linalg.cross(f32(3, 3), f32(1)), ShapeError, ["cross", "not 3 and 1"]),
    (lambda: weft.linalg.cross(f32(3), f32(3), axis=-2), ShapeError, ["cross: axis -2"]),
    (lambda: weft.linalg.diagonal(f32(3)), ShapeError, ["diagonal", "it has 1 axes", "f32[3]"]),
    (lambda: weft.linalg.diagonal(f32(3, 3), offset=0.5), DTypeError, ["diagonal: offset must"]),
    (lambda: weft.linalg.trace(f32()), ShapeError, ["trace", "it has 0 axes", "f32[]"]),
    # factorisations
    (
        lambda: weft.linalg.cholesky(f32(2, 3)),
        ShapeError,
        ["cholesky: x must be a square matrix, not 2 × 3", "f32[2,3]"],
    ),
    (
        lambda: weft.linalg.cholesky(-weft.eye(2)),
        LinAlgError,
        ["cholesky: Matrix is not positive definite", "f32[2,2]", "to fix: x must be symmetric"],
    ),
    (lambda: weft.linalg.cholesky(f32(3)), ShapeError, ["cholesky", "it has 1 axes"]),
    (lambda: weft.linalg.qr(f32(3)), ShapeError, ["qr: x must be a matrix", "f32[3]"]),
    (lambda: weft.linalg.qr(f32(2, 2), mode="raw"), ShapeError, ["qr: mode must be", "'raw'"]),
    (lambda: weft.linalg.svd(f32()), ShapeError, ["svd: x must be a matrix", "it has 0 axes"]),
    (
        lambda: weft.linalg.svd(f32(2, 2) * float("nan")),
        LinAlgError,
        ["svd: SVD did not converge", "f32[2,2]", "free of NaN"],
    ),
    (lambda: weft.linalg.eigh(f32(2, 3)), ShapeError, ["eigh", "not 2 × 3", "f32[2,3]"]),
    (lambda: weft.linalg.eigvalsh(f32(2, 3)), ShapeError, ["eigh", "not 2 × 3"]),
    # systems
    (
        lambda: weft.linalg.solve(f32(2, 3), f32(2)),
        ShapeError,
        ["solve: x1 must be a square matrix, not 2 × 3", "f32[2,3], f32[2]"],
    ),
    (
        lambda: weft.linalg.solve(weft.eye(3), f32(2)),
        ShapeError,
        ["solve: x1 has 3 rows and x2 has 2", "f32[3,3], f32[2]"],
    ),
    (lambda: weft.linalg.solve(weft.eye(3), f32()), ShapeError, ["solve: x2 must be a vector"]),
    (
        lambda: weft.linalg.solve(f32(2, 3, 3), f32(4, 3, 1)),
        ShapeError,
        ["solve: shapes (2,) and (4,) do not broadcast"],
    ),
    (
        lambda: weft.linalg.solve(f32(2, 2), f32(2)),
        LinAlgError,
        ["solve: Singular matrix", "f32[2,2], f32[2]", "weft.linalg.pinv"],
    ),
    (
        lambda: weft.linalg.inv(weft.zeros((3, 2, 2), dtype=weft.complex128)),
        LinAlgError,
        ["inv: Singular matrix", "c128[3,2,2]", "weft.linalg.pinv"],
    ),
    (lambda: weft.linalg.inv(f32(2, 3)), ShapeError, ["inv: x must be a square matrix"]),
    (lambda: weft.linalg.det(f32(2, 3)), ShapeError, ["det: x must be a square matrix"]),
    (lambda: weft.linalg.slogdet(f32(3)), ShapeError, ["slogdet: x must be a matrix"]),
    (lambda: weft.linalg.matrix_power(f32(2, 3), 2), ShapeError, ["matrix_power", "2 × 3"]),
    (lambda: weft.linalg.matrix_power(f32(2, 2), 0.5), DTypeError, ["matrix_power: n must be"]),
    (lambda: weft.linalg.matrix_power(f32(2, 2), -1), LinAlgError, ["inv: Singular matrix"]),
    # norms
    (lambda: weft.linalg.matrix_norm(f32(3)), ShapeError, ["matrix_norm", "it has 1 axes"]),
    (
        lambda: weft.linalg.matrix_norm(f32(3, 3), ord=3),
        ShapeError,
        ["matrix_norm: there is no matrix norm of order 3", "f32[3,3]", "'nuc'"],
    ),
    (lambda: weft.linalg.matrix_norm(f32(3, 3), ord="no"), ShapeError, ["of order 'no'"]),
    (lambda: weft.linalg.vector_norm(f32(3), axis=1), ShapeError, ["vector_norm: axis 1 is out"]),
    (
        lambda: weft.linalg.vector_norm(f32(3, 3), axis=(0, -2)),
        ShapeError,
        ["vector_norm: an axis is named twice", "f32[3,3]"],
    ),
    (
        lambda: weft.linalg.vector_norm(f32(3), ord="fro"),
        DTypeError,
        ["vector_norm: ord must be a number", "f32[3]", "matrix_norm"],
    ),
    (lambda: weft.linalg.matrix_rank(f32(3)), ShapeError, ["matrix_rank: x must be a matrix"]),
    (lambda: weft.linalg.pinv(f32(3)), ShapeError, ["pinv: x must be a matrix"]),
    # transforms
    (lambda: weft.fft.fft(c64()), ShapeError, ["fft: axis -1 is out of range", "c64[]"]),
    (lambda: weft.fft.fft(c64(3), axis=1), ShapeError, ["fft: axis 1 is out of range", "c64[3]"]),
    (lambda: weft.fft.fft(c64(3), n=0), ShapeError, ["fft", "at least 1 point, not 0", "c64[3]"]),
    (lambda: weft.fft.ifft(c64(3), n=-1), ShapeError, ["ifft", "at least 1 point, not -1"]),
    (lambda: weft.fft.fft(c64(2, 0)), ShapeError, ["fft", "at least 1 point, not 0", "c64[2,0]"]),
    (lambda: weft.fft.fft(c64(3), n=2.5), DTypeError, ["fft: n must be an int, not 2.5"]),
    (lambda: weft.fft.fft(c64(3), norm="all"), ShapeError, ["fft: norm must be", "'all'"]),
    (lambda: weft.fft.hfft(c64(3), norm="all"), ShapeError, ["hfft: norm must be"]),
    (lambda: weft.fft.ihfft(f32(3), norm="all"), ShapeError, ["ihfft: norm must be"]),
    (lambda: weft.fft.fftn(c64(3), norm="all"), ShapeError, ["fftn: norm must be"]),
    (lambda: weft.fft.rfft(c64(3)), DTypeError, ["rfft: x must be real", "c64[3]", "fft.fft"]),
    (lambda: weft.fft.rfftn(c64(3)), DTypeError, ["rfftn: x must be real", "weft.fft.fftn"]),
    (lambda: weft.fft.ihfft(c64(3)), DTypeError, ["ihfft: x must be real", "weft.fft.ifft"]),
    (lambda: weft.fft.irfft(c64(1)), ShapeError, ["irfft", "not 0", "pass n"]),
    (lambda: weft.fft.hfft(c64(1)), ShapeError, ["hfft", "not 0", "pass n"]),
    (lambda: weft.fft.irfft(c64(3), n=0), ShapeError, ["irfft", "not 0"]),
    (lambda: weft.fft.fftn(c64(3), s=(3,)), ShapeError, ["fftn: s is given without axes"]),
    (
        lambda: weft.fft.ifftn(c64(3, 3), s=(3,), axes=(0, 1)),
        ShapeError,
        ["ifftn: 1 sizes for 2 axes", "c64[3,3]"],
    ),
    (
        lambda: weft.fft.fftn(c64(3, 3), axes=(0, -2)),
        ShapeError,
        ["fftn: an axis is named twice", "c64[3,3]"],
    ),
    (lambda: weft.fft.fftn(c64(3), axes=(1,)), ShapeError, ["fftn: axis 1 is out of range"]),
    (lambda: weft.fft.rfftn(f32(3), axes=()), ShapeError, ["rfftn: at least one axis"]),
    (lambda: weft.fft.irfftn(c64()), ShapeError, ["irfftn: at least one axis", "c64[]"]),
    (lambda: weft.fft.rfftn(f32(3), s=(0,), axes=(0,)), ShapeError, ["rfftn", "not 0"]),
    (lambda: weft.fft.fftshift(f32(3), axes=1), ShapeError, ["fftshift: axis 1 is out", "f32[3]"]),
    (lambda: weft.fft.fftfreq(0), ShapeError, ["fftfreq: a window needs at least 1"]),
    (lambda: weft.fft.rfftfreq(2.5), DTypeError, ["rfftfreq: n must be an int"]),
    (lambda: weft.fft.fftfreq(3, d=0), ShapeError, ["fftfreq: the distance d"]),
    (lambda: weft.fft.fftfreq(3, dtype=weft.int32), DTypeError, ["fftfreq: dtype must be"]),
    (
        lambda: weft.fft.rfftfreq(3, dtype=weft.complex64),
        DTypeError,
        ["rfftfreq: dtype must be a real floating one, not complex64"],
    ),
]


@pytest.mark.parametrize(
    ("mistake", "kind", "named"), CASES, ids=[re.sub(r"\W+", "_", named[0]) for *_, named in CASES]
)
def test_the_message_says_what_where_and_how(
    mistake: Callable[[], Any], kind: type[WeftError], named: list[str]
) -> None:
    with pytest.raises(kind) as caught:
        mistake()
    lines = str(caught.value).splitlines()
    (where,) = (line for line in lines if line.startswith("  at "))
    lines.remove(where)  # it shows the source, in which this table says what to expect
    for part in named:
        assert part in "\n".join(lines)
    assert HERE in where


def test_errors_are_what_python_and_numpy_users_catch() -> None:
    with pytest.raises(ValueError, match="inner sizes"):
        f32(2, 3) @ f32(2, 3)
    with pytest.raises(TypeError, match="no axes"):
        f32(2, 3) @ 2
    with pytest.raises(ValueError, match="Singular"):
        weft.linalg.inv(f32(2, 2))


def test_at_leaves_other_types_to_themselves() -> None:
    class Other:
        def __rmatmul__(self, left: Any) -> str:
            return "theirs"

    assert f32(2) @ Other() == "theirs"
    with pytest.raises(TypeError, match="unsupported operand"):
        f32(2) @ "ab"
    with pytest.raises(TypeError, match="unsupported operand"):
        None @ f32(2)


def test_in_place_products_keep_the_shape() -> None:
    x = f32(2, 3)
    with pytest.raises(ShapeError, match="cannot hold"):
        x @= f32(3, 4)
    assert x.shape == (2, 3)
    with pytest.raises(DTypeError, match="cannot hold"):
        x @= weft.eye(3, dtype=weft.float64)
