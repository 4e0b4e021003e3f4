"""Random functions: shapes, dtypes, generators, errors. Two more files test the numbers."""

from __future__ import annotations

import copy
import math
import pickle
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_reference import FLOATS, NORMALS, doubles, generator, same

import weft
from weft.base.dtypes import DType
from weft.core.bind import Recorder, bind, recording
from weft.core.tensor import type_of
from weft.ir.op import Trait
from weft.ops import draws, philox

Draw = Callable[..., weft.Tensor]

# --- shapes, chunks, types ----------------------------------------------------------------------

#: Every function as a function of shape and generator.
FUNCTIONS: dict[str, Draw] = {
    "rand": lambda shape, g: weft.rand(shape, generator=g),
    "rand f64": lambda shape, g: weft.rand(shape, dtype=weft.float64, generator=g),
    "randn": lambda shape, g: weft.randn(shape, generator=g),
    "randn f64": lambda shape, g: weft.randn(shape, dtype=weft.float64, generator=g),
    "randn c64": lambda shape, g: weft.randn(shape, dtype=weft.complex64, generator=g),
    "randint": lambda shape, g: weft.randint(-9, 10, shape, generator=g),
    "uniform": lambda shape, g: weft.uniform(2, 5, shape, generator=g),
    "normal": lambda shape, g: weft.normal(2, 5, shape, generator=g),
    "bernoulli": lambda shape, g: weft.bernoulli(0.3, shape, generator=g),
    "bits": lambda shape, g: draws.draw(draws.random_bits, shape, weft.uint32, None, g),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@given(
    shape=st.lists(st.integers(0, 6), max_size=4).map(tuple), seed=st.integers(-(2**63), 2**64 - 1)
)
def test_shape_does_not_matter(name: str, shape: tuple[int, ...], seed: int) -> None:
    drawn = FUNCTIONS[name](shape, generator(seed))
    flat = FUNCTIONS[name]((math.prod(shape),), generator(seed))
    assert drawn.shape == shape
    assert drawn.numpy().reshape(-1).tolist() == flat.tolist()
    longer = FUNCTIONS[name]((math.prod(shape) + 50,), generator(seed))
    assert longer.tolist()[: flat.size] == flat.tolist()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_chunks_do_not_matter(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = FUNCTIONS[name]((10_001,), generator(5))
    for chunk in (1, 100, 2**20):
        monkeypatch.setattr(philox, "CHUNK", chunk)
        size = 10_001 if chunk > 1 else 101
        assert FUNCTIONS[name]((size,), generator(5)).tolist() == whole.tolist()[:size]


def test_draws_continue_where_the_last_one_ended() -> None:
    g = generator(3)
    parts = [weft.rand(8, generator=g), weft.rand(5, generator=g), weft.rand(4, generator=g)]
    assert g.state.tolist() == [3, 2 + 2 + 1]  # blocks of four, the last of each draw cut off
    whole = weft.rand(20, generator=generator(3)).tolist()
    assert [p.tolist() for p in parts] == [whole[:8], whole[8:13], whole[16:]]


def test_empty_draws_use_nothing() -> None:
    g = generator(3)
    for function in FUNCTIONS.values():
        assert function((2, 0, 3), g).shape == (2, 0, 3)
    assert weft.permutation(0, generator=g).shape == (0,)
    assert g.state.tolist() == [3, 0]


def test_ways_to_say_a_shape() -> None:
    for drawn in (weft.rand(2, 3), weft.rand((2, 3)), weft.rand([2, 3]), weft.rand(np.int64(2), 3)):
        assert drawn.shape == (2, 3)
    assert weft.randn().shape == weft.rand(()).shape == weft.normal().shape == ()
    assert weft.randint(3).shape == weft.uniform().shape == weft.bernoulli(0.5).shape == ()
    assert weft.randint(3, shape=4).shape == (4,)


@pytest.mark.parametrize("dtype", FLOATS)
def test_uniform_dtypes(dtype: DType) -> None:
    drawn = weft.rand(20_000, dtype=dtype, generator=generator(1))
    assert drawn.dtype is dtype
    assert doubles(drawn).min() >= 0
    assert doubles(drawn).max() < 1
    assert weft.rand_like(drawn).type == drawn.type
    assert weft.rand_like(drawn, dtype=weft.float64).dtype is weft.float64
    scaled = doubles(weft.uniform(-3, 7.5, (20_000,), dtype=dtype, generator=generator(1)))
    assert scaled.min() >= -3
    assert scaled.max() < 7.5


@pytest.mark.parametrize("dtype", NORMALS)
def test_normal_dtypes(dtype: DType) -> None:
    drawn = weft.randn(3, 4, dtype=dtype)
    assert drawn.dtype is dtype
    assert weft.randn_like(drawn).type == drawn.type
    assert weft.normal(1, 2, (3, 4), dtype=dtype).type == drawn.type


def test_default_dtype() -> None:
    assert weft.rand(2).dtype is weft.randn(2).dtype is weft.bernoulli(1).dtype is weft.float32
    assert weft.randint(5).dtype is weft.permutation(5).dtype is weft.int64
    weft.set_default_dtype(weft.float64)
    try:
        assert weft.rand(2).dtype is weft.normal(1, 2).dtype is weft.float64
    finally:
        weft.set_default_dtype(weft.float32)


def test_uniform_never_reaches_its_end() -> None:
    drawn = weft.uniform(1e6, 1e6 + 0.25, (1000,), generator=generator())
    assert set(drawn.tolist()) == {1e6, 1e6 + 0.0625, 1e6 + 0.125, 1e6 + 0.1875}
    assert weft.uniform(2.5, 2.5, (3,)).tolist() == [2.5] * 3
    small = weft.uniform(0, 1e-45, (50,), generator=generator())
    assert small.tolist() == [0.0] * 50


def test_normal_with_tensors() -> None:
    mean, std = weft.asarray([[0.0], [100.0]]), weft.asarray([1.0, 0.0, 10.0])
    drawn = weft.normal(mean, std, generator=generator(2))
    plain = weft.randn(2, 3, generator=generator(2))
    assert same(drawn, plain * std + mean)
    assert weft.normal(mean, 1).shape == (2, 1)
    assert weft.normal(mean, std, (4, 2, 3)).shape == (4, 2, 3)
    assert weft.normal(weft.asarray([1, 2]), 1).dtype is weft.float32
    assert weft.normal(mean, weft.asarray(1.0, dtype=weft.float64)).dtype is weft.float64
    assert weft.normal(mean, std, dtype=weft.bfloat16).dtype is weft.bfloat16
    exact = weft.normal(0.1, 0, (2,), dtype=weft.float64)
    assert exact.tolist() == [0.1, 0.1]
    assert weft.normal(1j, 0.0).item() == 1j


def test_bernoulli_forms() -> None:
    p = weft.asarray([0.0, 1.0], dtype=weft.float64)
    assert weft.bernoulli(p).type == p.type
    assert weft.bernoulli(p, (3, 2)).tolist() == [[0.0, 1.0]] * 3
    assert weft.bernoulli(1, (4,), dtype=weft.bool).tolist() == [True] * 4
    assert weft.bernoulli(p, dtype=weft.int8).tolist() == [0, 1]
    assert weft.bernoulli(weft.asarray([0.5], dtype=weft.bfloat16)).dtype is weft.bfloat16


def test_permutation_forms() -> None:
    assert sorted(weft.permutation(10).tolist()) == list(range(10))
    x = weft.reshape(weft.arange(12), (3, 4))
    order = weft.permutation(4, generator=generator(8)).tolist()
    assert weft.permutation(x, 1, generator=generator(8)).tolist() == x.numpy()[:, order].tolist()
    assert same(weft.permutation(x, axis=-1, generator=generator(8)), x[:, order])
    assert sorted(weft.permutation(x).tolist()) == x.tolist()


class Types(Recorder):
    """Holds each op's type rule against what comes out."""

    def call(self, op: Any, inputs: Any, attrs: Any) -> Any:
        out = bind(op, *inputs, **attrs)
        inferred = op.infer(*map(type_of, inputs), **attrs)
        assert type_of(out) == inferred
        assert (
            op.estimate(tuple(map(type_of, inputs)), (inferred,), **attrs).bytes > 0
            or Trait.VIEW in op.traits
        )
        return out


@pytest.mark.parametrize("name", FUNCTIONS)
def test_type_rules(name: str) -> None:
    with recording(Types()):
        for shape in ((), (3,), (2, 0), (2, 3)):
            FUNCTIONS[name](shape, generator())
        weft.permutation(3)


def test_draws_are_pure_functions_of_the_state() -> None:
    state = generator(9).state
    attrs = {"shape": (5,), "dtype": weft.float32}
    first = bind(draws.random_uniform, state, **attrs)
    assert same(first, bind(draws.random_uniform, state, **attrs))
    assert same(first, weft.rand(5, generator=generator(9)))


# --- generators ---------------------------------------------------------------------------------


def test_two_draws_differ() -> None:
    assert weft.rand(4).tolist() != weft.rand(4).tolist()
    assert weft.Generator().initial_seed() != weft.Generator().initial_seed()


def test_manual_seed() -> None:
    assert weft.manual_seed(7) is weft.manual_seed(7)
    first = weft.randn(5)
    weft.manual_seed(7)
    assert same(weft.randn(5), first)
    assert same(weft.randn(5, generator=generator(7)), first)


def test_state_is_saved_and_restored() -> None:
    weft.manual_seed(1)
    weft.rand(100)
    saved = weft.get_rng_state()
    first = weft.rand(10)
    weft.set_rng_state(saved)
    assert same(weft.rand(10), first)
    assert saved.tolist() == [1, 25]
    g = generator(5)
    kept = g.state
    kept[1] = 99  # one's own copy
    assert g.state.tolist() == [5, 0]
    g.state = kept
    kept[1] = 100
    assert g.state.tolist() == [5, 99]
    g.state = np.array([1, 2], dtype=np.uint64)
    assert g.state.tolist() == [1, 2]


def test_seeds() -> None:
    assert generator(-1).initial_seed() == generator(2**64 - 1).initial_seed() == 2**64 - 1
    assert weft.Generator(np.int64(3)).initial_seed() == 3
    g = generator(4)
    chosen = g.seed()
    assert g.initial_seed() == chosen
    assert same(weft.rand(3, generator=g), weft.rand(3, generator=generator(chosen)))
    for seed in (2**64, -(2**63) - 1):
        with pytest.raises(ValueError, match="does not fit into 64 bits"):
            weft.manual_seed(seed)
    for wrong in (1.5, "a", None):
        with pytest.raises(TypeError, match="a seed is an int"):
            weft.manual_seed(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "copied",
    [weft.Generator.clone, copy.copy, copy.deepcopy, lambda g: pickle.loads(pickle.dumps(g))],
)
def test_copies_go_their_own_way(copied: Callable[[weft.Generator], weft.Generator]) -> None:
    g = generator(2)
    weft.rand(9, generator=g)
    other = copied(g)
    assert repr(other) == repr(g) == "<weft.Generator seed=2, 3 blocks used>"
    first = weft.rand(9, generator=g)
    assert same(weft.rand(9, generator=other), first)
    assert other.state.tolist() == g.state.tolist() == [2, 6]


def test_threads_never_draw_the_same() -> None:
    g = generator(3)
    drawn: list[tuple[float, ...]] = []

    def work() -> None:
        mine = [tuple(weft.rand(4, generator=g).tolist()) for _ in range(200)]
        drawn.extend(mine)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    whole = weft.rand(1600, 4, generator=generator(3)).tolist()
    assert sorted(drawn) == sorted(map(tuple, whole))


def test_results_can_be_written() -> None:
    g = generator(0)
    x = weft.rand(2, 3, generator=g)
    x[0, 0] = 5.0
    assert same(weft.rand(2, 3, generator=generator(0))[1], x[1])


# --- errors -------------------------------------------------------------------------------------


@pytest.mark.parametrize("function", [weft.rand, weft.randn])
def test_errors_of_shapes(function: Draw) -> None:
    with pytest.raises(weft.errors.ShapeError, match="negative size"):
        function(2, -1)
    with pytest.raises(weft.errors.DTypeError, match="is not a shape"):
        function("ab")
    with pytest.raises(weft.errors.DTypeError, match="is not a shape"):
        function(2.5)
    for shape in ((2**40, 2**40), (2**55,)):
        with pytest.raises(weft.errors.MemoryError, match="more than there is"):
            function(shape)


@pytest.mark.parametrize("function", [weft.rand, weft.randn, weft.uniform, weft.normal])
@pytest.mark.parametrize("dtype", [weft.int32, weft.uint8, weft.bool])
def test_errors_of_dtypes(function: Draw, dtype: DType) -> None:
    with pytest.raises(weft.errors.DTypeError, match=f"{dtype.name} is not among") as caught:
        function(dtype=dtype)
    assert "randint" in str(caught.value)


WRONG: list[tuple[Callable[[], Any], type, str]] = [
    (lambda: weft.rand(2, dtype=weft.complex64), TypeError, "complex64 is not among"),
    (lambda: weft.rand_like(weft.arange(3)), TypeError, "int64 is not among"),
    (lambda: weft.randn_like([1.0]), TypeError, "a tensor or a number is needed"),  # type: ignore[arg-type]
    (lambda: weft.rand(2, generator=5), TypeError, "must be a weft.Generator"),
    (lambda: weft.randint(3, 3), ValueError, "no integer from 3 up and below 3"),
    (lambda: weft.randint(0), ValueError, "no integer from 0 up and below 0"),
    (lambda: weft.randint(0, 300, dtype=weft.uint8), ValueError, "uint8 does not hold all of 0"),
    (lambda: weft.randint(-1, 3, dtype=weft.uint8), ValueError, "uint8 does not hold all of -1"),
    (lambda: weft.randint(10, 12.5), TypeError, "the bounds must be ints"),  # type: ignore[arg-type]
    (lambda: weft.randint(0.5, 2), TypeError, "the bounds must be ints"),  # type: ignore[arg-type]
    (lambda: weft.randint(3, dtype=weft.float32), TypeError, "is not an integer dtype"),
    (lambda: weft.randint(3, shape=(-1,)), ValueError, "negative size"),
    (lambda: weft.uniform(2, 1), ValueError, "no range from 2.0 to 1.0"),
    (lambda: weft.uniform(0, math.inf), ValueError, "no range"),
    (lambda: weft.uniform(math.nan, 1), ValueError, "no range"),
    (lambda: weft.uniform(-3e38, 3e38), ValueError, "no range"),
    (lambda: weft.uniform(6e4, 7e4, dtype=weft.float16), ValueError, "no range"),
    (lambda: weft.uniform(weft.zeros(2), 1), TypeError, "must be real numbers"),  # type: ignore[arg-type]
    (lambda: weft.normal(0, -1), ValueError, "std must be a number from 0 up"),
    (lambda: weft.normal(0, math.nan), ValueError, "std must be a number from 0 up"),
    (lambda: weft.normal(0, 1j), ValueError, "std must be a number from 0 up"),  # type: ignore[arg-type]
    (lambda: weft.normal(1j, dtype=weft.float32), TypeError, "complex mean"),
    (lambda: weft.normal(weft.zeros(2), weft.ones(3)), ValueError, "normal: .* do not broadcast"),
    (lambda: weft.normal(weft.zeros((2, 3)), 1, (3,)), ValueError, "does not broadcast to"),
    (lambda: weft.bernoulli(1.5), ValueError, "p is 1.5"),
    (lambda: weft.bernoulli(math.nan), ValueError, "p is nan"),
    (lambda: weft.bernoulli(1j), ValueError, "p is 1j"),  # type: ignore[arg-type]
    (lambda: weft.bernoulli(weft.asarray([0.5, -0.1])), ValueError, "is not a probability"),
    (lambda: weft.bernoulli(weft.asarray([0.5, math.nan])), ValueError, "is not a probability"),
    (lambda: weft.bernoulli(weft.asarray([0, 1])), TypeError, "int64 is not among"),
    (lambda: weft.bernoulli(weft.asarray([0.5, 0.5]), (3,)), ValueError, "does not broadcast"),
    (lambda: weft.permutation(-1), ValueError, "negative size"),
    (lambda: weft.permutation(weft.asarray(3.0)), ValueError, "axis 0 is out of range"),
    (lambda: weft.permutation(weft.zeros((2, 3)), 2), ValueError, "axis 2 is out of range"),
    (lambda: weft.permutation(2.5), ValueError, "axis 0 is out of range"),
    (lambda: weft.set_rng_state(weft.zeros(2)), ValueError, "state of a generator is u64"),
]


@pytest.mark.parametrize(("call", "error", "message"), WRONG)
def test_errors(call: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        call()
    assert isinstance(caught.value, weft.errors.WeftError)
    assert "test_random.py" in str(caught.value)


def test_randint_of_one_bound_and_a_shape() -> None:
    weft.manual_seed(3)
    one = weft.randint(10, (2, 3))
    weft.manual_seed(3)
    assert (one == weft.randint(0, 10, (2, 3))).all()
    assert weft.compile(lambda: weft.randint(10, [2, 3]))().shape == (2, 3)
