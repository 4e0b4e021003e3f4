"""Random numbers are, bit for bit, what the published vectors and the description say."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from random_reference import (
    FLOATS,
    INTEGERS,
    NORMALS,
    STATES,
    at,
    doubles,
    generator,
    reference_pair,
    reference_words,
)

import weft
from weft.base.dtypes import DType
from weft.ops import draws, philox

#: Random123's kat_vectors for philox4x32-10: counter, key, block.
KNOWN_ANSWERS = [
    (
        (0, 0, 0, 0),
        (0, 0),
        (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8),
    ),
    (
        (0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF),
        (0xFFFFFFFF, 0xFFFFFFFF),
        (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
    ),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


def round_keys(key: tuple[int, int]) -> list[tuple[int, int]]:
    steps = zip(*philox.KEY_STEPS, strict=True)
    return [((key[0] + a) % 2**32, (key[1] + b) % 2**32) for a, b in steps]


@pytest.mark.parametrize(("counter", "key", "block"), KNOWN_ANSWERS)
def test_known_answers(counter: Any, key: Any, block: Any) -> None:
    keys = round_keys(key)
    assert philox.philox_4x32(counter, keys, philox.CONSTANTS) == block
    arrays = tuple(np.full(3, word, dtype=np.uint64) for word in counter)
    made = philox.philox_4x32(arrays, keys, philox.CONSTANTS)
    assert [w.tolist() for w in made] == [[word] * 3 for word in block]


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("blocks", [5, 40])  # made one by one, and as arrays
@pytest.mark.parametrize("dtype", [weft.uint32, weft.uint64])
def test_bits_are_the_words_in_order(state: Any, blocks: int, dtype: DType) -> None:
    count = blocks * (128 // dtype.bits) - 1
    drawn = draws.draw(draws.random_bits, (count,), dtype, None, at(state))
    assert drawn.tolist() == reference_words(*state, blocks, dtype.bits)[:count]


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("dtype", NORMALS)
@pytest.mark.parametrize("blocks", [3, 40])
def test_normals_follow_the_description(state: Any, dtype: DType, blocks: int) -> None:
    real, parts = (dtype, 1) if dtype.kind == "float" else (weft.float32, 2)
    if dtype in (weft.float64, weft.complex128):
        real = weft.float64
    bits = 64 if real is weft.float64 else 32
    words = reference_words(*state, blocks, bits)
    expected = [
        z
        for radius, angle in zip(words[::2], words[1::2], strict=True)
        for z in reference_pair(radius, angle, bits, -2.0 / parts)
    ]
    rounded = np.array(expected) if bits == 64 else np.array(expected).astype(np.float32)
    drawn = weft.randn(len(expected) // parts, dtype=dtype, generator=at(state))
    assert drawn.numpy().tobytes() == rounded.astype(real.numpy).tobytes()


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("dtype", FLOATS)
def test_uniforms_follow_the_description(state: Any, dtype: DType) -> None:
    bits = 64 if dtype is weft.float64 else 32
    kept = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}[dtype.name]
    words = reference_words(*state, 20, bits)
    expected = [(word >> (bits - kept)) * 2.0**-kept for word in words]
    drawn = weft.rand(len(words), dtype=dtype, generator=at(state))
    assert doubles(drawn).tolist() == expected


@pytest.mark.parametrize(
    ("low", "high"),
    [
        (0, 1),
        (0, 2),
        (-3, 4),
        (0, 2**32),
        (0, 2**32 + 1),
        (-(2**63), 2**63),
        (5, 2**63),
        (-7, 2**40),
    ],
)
def test_integers_follow_the_description(low: int, high: int) -> None:
    words = reference_words(11, 0, 30, 64)
    drawn = weft.randint(low, high, (60,), generator=generator(11))
    assert drawn.tolist() == [low + (word * (high - low) >> 64) for word in words]


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_of_the_full_range(dtype: DType) -> None:
    info = weft.iinfo(dtype)
    drawn = weft.randint(info.min, info.max + 1, (4000,), dtype=dtype, generator=generator())
    words = reference_words(0, 0, 2000, 64)
    assert drawn.dtype is dtype
    assert drawn.tolist() == [info.min + (word >> (64 - dtype.bits)) for word in words]


@pytest.mark.parametrize(
    ("dtype", "bits", "kept"), [(weft.float32, 32, 32), (weft.float64, 64, 53)]
)
def test_bernoulli_compares_exactly(dtype: DType, bits: int, kept: int) -> None:
    words = reference_words(3, 0, 200, bits)
    values = [(word >> (bits - kept)) * 2.0**-kept for word in words]
    rounded = np.array(values).astype(dtype.numpy)
    for p in (rounded, np.nextafter(rounded, dtype.numpy.type(2)), rounded[::-1]):
        drawn = weft.bernoulli(weft.asarray(np.minimum(p, 1)), generator=generator(3))
        expected = [float(v < chance) for v, chance in zip(values, p.tolist(), strict=True)]
        assert drawn.tolist() == expected


def test_accuracy_of_the_functions() -> None:
    """Within 5e-16 of NumPy's, as the description says."""
    rng = np.random.default_rng(0)
    near_one, small = 1 - 2.0 ** -rng.uniform(1, 52, 1000), 2.0 ** -rng.uniform(1, 53, 1000)
    ends = [2.0**-53, 1 - 2.0**-53, 2.0**-33, 0.5, math.sqrt(0.5)]
    u = np.concatenate([rng.random(100_000), near_one, small, ends])
    exact = np.log(u.astype(np.longdouble))
    assert np.max(np.abs(philox.log(np, u) / exact - 1)) < 5e-16
    t = np.concatenate([rng.random(100_000) - 0.5, rng.random(1000) * 1e-9, [-0.5, 0.5, 2.0**-52]])
    half_pi = np.longdouble("1.57079632679489661923132169163975144")
    sine, cosine = philox.sincos(t)
    assert np.max(np.abs(sine / np.sin(t * half_pi) - 1)) < 5e-16
    assert np.max(np.abs(cosine / np.cos(t * half_pi) - 1)) < 5e-16


# --- these numbers never change -----------------------------------------------------------------

GOLDEN: dict[str, tuple[Callable[..., weft.Tensor], list[Any], str]] = {
    "rand": (
        lambda g: weft.rand(1001, generator=g),
        [0.3990464210510254, 0.8805201649665833, 0.7357127666473389, 0.6054818034172058],
        "814c55c71d674734",
    ),
    "rand float16": (
        lambda g: weft.rand(1001, dtype=weft.float16, generator=g),
        [0.39892578125, 0.88037109375, 0.7353515625, 0.60546875],
        "6d18a69925235c71",
    ),
    "rand bfloat16": (
        lambda g: weft.rand(1001, dtype=weft.bfloat16, generator=g),
        [0.3984375, 0.87890625, 0.734375, 0.60546875],
        "ef65050923a301c2",
    ),
    "rand float64": (
        lambda g: weft.rand(1001, dtype=weft.float64, generator=g),
        [0.8805201978886142, 0.6054818538799213, 0.36209111566940344, 0.037094080749417335],
        "0c7c7544ae3cd066",
    ),
    "randn": (
        lambda g: weft.randn(1001, generator=g),
        [0.04700499027967453, -1.3546754121780396, -0.7775894403457642, -0.09584151953458786],
        "6c11bf95711fd9f6",
    ),
    "randn float16": (
        lambda g: weft.randn(1001, dtype=weft.float16, generator=g),
        [0.0469970703125, -1.3544921875, -0.77783203125, -0.0958251953125],
        "8fb7caf349e3c071",
    ),
    "randn bfloat16": (
        lambda g: weft.randn(1001, dtype=weft.bfloat16, generator=g),
        [0.047119140625, -1.3515625, -0.77734375, -0.095703125],
        "d7db6e2279f373b2",
    ),
    "randn float64": (
        lambda g: weft.randn(1001, dtype=weft.float64, generator=g),
        [-0.5006761610019979, -0.06171066518128886, 1.2134359851671785, -0.7478582125432001],
        "47add11e086563c4",
    ),
    "randn complex64": (
        lambda g: weft.randn(1001, dtype=weft.complex64, generator=g),
        [
            (0.03323754668235779 - 0.9579001069068909j),
            (-0.5498387813568115 - 0.06777018308639526j),
            (-0.013593833893537521 + 0.16723206639289856j),
            (0.51458740234375 - 0.31714770197868347j),
        ],
        "e9d9154d0d43273b",
    ),
    "randn complex128": (
        lambda g: weft.randn(1001, dtype=weft.complex128, generator=g),
        [
            (-0.35403150862296034 - 0.04363602982122192j),
            (0.8580288136474908 - 0.5288156134553471j),
            (-0.6454362488032773 + 0.8512225377675019j),
            (0.2996922351231837 + 0.8884837662565662j),
        ],
        "528eb3252d311531",
    ),
    "uniform": (
        lambda g: weft.uniform(-1, 1, 1001, generator=g),
        [-0.20190715789794922, 0.7610403299331665, 0.47142553329467773, 0.21096360683441162],
        "b2571ec2b7fbe0bd",
    ),
    "normal": (
        lambda g: weft.normal(-1, 3, 1001, generator=g),
        [-0.8589850664138794, -5.064026355743408, -3.332768440246582, -1.2875245809555054],
        "2d6f044f76dee8cb",
    ),
    "randint": (
        lambda g: weft.randint(-50, 50, 1001, generator=g),
        [38, 10, -14, -47],
        "9dd1ca708300bb63",
    ),
    "randint wide": (
        lambda g: weft.randint(0, 2**63, 1001, dtype=weft.uint64, generator=g),
        [8121365371091678314, 5584584399899055654, 3339701071058724434, 342132507117009525],
        "6f6ae58af300c30c",
    ),
    "bernoulli": (
        lambda g: weft.bernoulli(0.4, 1001, generator=g),
        [1.0, 0.0, 0.0, 0.0],
        "72f5b74c0ec274f9",
    ),
    "permutation": (
        lambda g: weft.permutation(1001, generator=g),
        [585, 220, 483, 866],
        "d1875a64cd490612",
    ),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_golden(name: str) -> None:
    function, first, digest = GOLDEN[name]
    drawn = function(generator(0))
    flat = drawn.numpy().reshape(-1)
    assert flat[: len(first)].tolist() == first
    assert hashlib.sha256(flat.tobytes()).hexdigest()[:16] == digest
