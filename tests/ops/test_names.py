"""Names that NumPy and PyTorch have: aliases, small methods, methods that write, `x.at`."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from weft.base.errors import DTypeError, GradientError, LostWriteWarning, ShapeError
from weft.core.public import PUBLIC
from weft.ops import in_place

X = weft.asarray([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])


def test_an_alias_is_the_function() -> None:
    aliases = {name: entry for name, entry in PUBLIC.items() if entry.alias}
    assert len(aliases) > 40
    for name, entry in aliases.items():
        assert entry.function is PUBLIC[entry.alias].function
        assert getattr(weft, name) is entry.function
    assert weft.cat([X, X], 1).shape == (2, 6)
    assert X.lt(2).tolist() == [[True, False, False], [False] * 3]


def test_what_a_tensor_is() -> None:
    assert (weft.numel(X), X.numel(), X.nelement(), X.dim(), X.ndimension()) == (6, 6, 6, 2, 2)
    assert X.element_size() == 4
    assert X.is_floating_point()
    assert not X.is_complex()
    assert weft.is_tensor(X)
    assert not weft.is_tensor([1])
    assert X.is_contiguous()
    assert X.type_as(weft.asarray(1)).dtype is weft.int64
    assert X.cpu().device == X.device
    copy = X.contiguous()
    copy[0] = 0
    assert X[0, 0] == 1


def test_tensors_after_an_example() -> None:
    wide = X.astype(weft.float64)
    assert wide.new_zeros(2, 3).dtype is weft.float64
    assert wide.new_ones((2, 3), dtype=weft.int8).sum() == 6
    assert wide.new_full((2,), 7).tolist() == [7.0, 7.0]
    assert wide.new_empty(0).shape == (0,)
    assert wide.new_tensor([1, 2], requires_grad=True).requires_grad
    assert X.reshape_as(weft.zeros(3, 2)).shape == X.view_as(weft.zeros(3, 2)).shape == (3, 2)
    assert X[:, :1].expand_as(X).shape == (2, 3)
    assert X.where(X > 2, 0.0).tolist() == [[0, 0, 3], [4, 5, 6]]


def test_tensors_from_rules() -> None:
    array = np.arange(3.0)
    made = weft.from_numpy(array)
    array[0] = 9
    assert made.tolist() == [0, 1, 2]
    with pytest.raises(DTypeError, match="asarray"):
        weft.from_numpy([1, 2])
    assert weft.scalar_tensor(2).dtype is weft.float32
    np.testing.assert_allclose(weft.logspace(-1, 2, 4).numpy(), np.logspace(-1, 2, 4), rtol=1e-6)
    np.testing.assert_allclose(weft.logspace(0, 3, 4, 2.0).numpy(), [1, 2, 4, 8])
    for rows, columns, offset in itertools.product((0, 2, 3), (1, 4), (-1, 0, 2)):
        for mine, theirs in (
            (weft.tril_indices, np.tril_indices),
            (weft.triu_indices, np.triu_indices),
        ):
            found = mine(rows, columns, offset)
            want = theirs(rows, offset, columns)
            assert all(np.array_equal(a, b) for a, b in zip(found, want, strict=True))
    chosen = weft.combinations(weft.asarray([1, 2, 3]), 2, with_replacement=True)
    want = list(itertools.combinations_with_replacement([1, 2, 3], 2))
    assert chosen.tolist() == [list(row) for row in want]
    assert weft.combinations(weft.asarray([1.0])).shape == (0, 2)


def test_short_names_of_dtypes() -> None:
    assert (weft.half, weft.float, weft.double) == (weft.float16, weft.float32, weft.float64)
    assert (weft.short, weft.int, weft.long) == (weft.int16, weft.int32, weft.int64)
    assert (weft.cfloat, weft.cdouble) == (weft.complex64, weft.complex128)
    assert weft.zeros(2, dtype=weft.long).dtype is weft.int64
    assert weft.finfo(X).eps == np.finfo(np.float32).eps
    assert weft.iinfo(weft.asarray(1)).max == 2**63 - 1


def test_inference_mode_is_no_grad() -> None:
    leaf = weft.ones(2, requires_grad=True)
    with weft.inference_mode():
        assert not (leaf * 2).requires_grad
    with weft.no_grad(), weft.inference_mode(mode=False):
        assert (leaf * 2).requires_grad

    @weft.inference_mode()
    def double(x: Any) -> Any:
        return x * 2

    assert not double(leaf).requires_grad


# --- methods that write --------------------------------------------------------------------------

TWINS = sorted(
    name for name in vars(weft.Tensor) if name.endswith("_") and not name.startswith("_")
)
#: Arguments of methods that need some.
ARGUMENTS: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(["add", "sub", "subtract", "mul", "multiply", "div", "divide", "pow"], (2,)),
    **dict.fromkeys(["true_divide", "floor_divide", "remainder", "fmod", "copysign"], (2.0,)),
    **dict.fromkeys(["maximum", "minimum", "atan2", "arctan2", "hypot", "clamp_min"], (2.0,)),
    **dict.fromkeys(["clamp_max", "clip", "clamp", "heaviside", "nextafter"], (2.0,)),
    **dict.fromkeys(["cumsum", "cumprod", "cumulative_sum", "cumulative_prod"], (1,)),
    "xlogy": (X,),
    "lerp": (X + 1, 0.25),
    "masked_fill": (X > 2, 0.5),
    "addcmul": (X, X),
    "addcdiv": (X, X),
    "renorm": (2, 0, 1.0),
    "tril": (-1,),
    "unsqueeze": (1,),
    "transpose": (0, 1),
}


@pytest.mark.parametrize(
    "name",
    [n for n in sorted(ARGUMENTS) if f"{n}_" in TWINS] + ["exp", "relu", "neg", "t", "squeeze"],
)
def test_the_name_holds_the_new_value(name: str) -> None:
    args = ARGUMENTS.get(name, ())
    want = getattr(X, name)(*args)
    held = other = X.clone()
    kept = held.clone()
    assert getattr(held, f"{name}_")(*args) is held
    assert np.array_equal(held, want, equal_nan=True)
    assert other is held
    assert np.array_equal(kept, X)
    compiled = weft.compile(lambda x: getattr(x.clone(), f"{name}_")(*args))
    assert np.allclose(compiled(X), want, equal_nan=True)


def test_a_written_value_keeps_its_history() -> None:
    leaf = weft.asarray([1.0, 2.0], dtype=weft.float64)

    def f(x: Any) -> Any:
        y = x * 2
        y.mul_(x).add_(x, alpha=3)
        y.sigmoid_().clamp_(max=0.999)
        return y.sum()

    weft.check_grads(f, [leaf])
    assert np.allclose(weft.grad(weft.compile(f))(leaf), weft.grad(f)(leaf))
    assert np.allclose(weft.vmap(f)(weft.stack([leaf, leaf])), f(leaf))


def test_writes_that_do_not_fit_are_refused() -> None:
    whole = weft.asarray([1, 2])
    with pytest.raises(DTypeError, match="add_: the result is float"):
        whole.add_(0.5)
    with pytest.raises(ShapeError, match="add_: the result has shape"):
        whole.add_(weft.ones((3, 2), dtype=weft.int64))
    leaf = weft.ones(2, requires_grad=True)
    with pytest.raises(GradientError, match="leaf"):
        leaf.mul_(2)
    with pytest.warns(LostWriteWarning):
        X[0].mul_(2)
    assert X[0, 0] == 1


def test_draws_in_place() -> None:
    x = weft.zeros(1000)
    weft.manual_seed(0)
    assert abs(float(x.normal_(3.0, 0.5).mean()) - 3) < 0.1
    assert 2 <= float(x.uniform_(2, 3).min()) <= float(x.max()) < 3
    assert set(x.bernoulli_(0.5).tolist()) == {0.0, 1.0}
    assert set(x.random_(3).tolist()) == {0.0, 1.0, 2.0}
    assert float(weft.zeros(9, dtype=weft.int8).random_().max()) >= 0
    assert x.fill_(2).sum() == 2000
    weft.manual_seed(0)
    one = weft.normal(0.0, 1.0, (4,))
    weft.manual_seed(0)
    assert np.array_equal(weft.empty(4).normal_(), one)


def test_methods_that_write_are_typed_as_those_that_do_not() -> None:
    shown = inspect.signature(weft.Tensor.clamp_)
    assert list(shown.parameters) == ["self", "min", "max"]
    assert in_place.__doc__


# --- x.at ----------------------------------------------------------------------------------------

AT: list[tuple[str, Callable[[Any, Any], Any], Callable[[Any], Any]]] = [
    ("set", lambda x, i: x.at[i].set(5.0), lambda a: np.array([a[0], 5, 5, a[3]])),
    (
        "add",
        lambda x, i: x.at[i].add(x[:3]),
        lambda a: np.array([a[0], a[1] + a[0] + a[2], a[2] + a[1], a[3]]),
    ),
    (
        "subtract",
        lambda x, i: x.at[i].sub(1.0),
        lambda a: np.array([a[0], a[1] - 2, a[2] - 1, a[3]]),
    ),
    (
        "multiply",
        lambda x, i: x.at[i].mul(x[1:]),
        lambda a: np.array([a[0], a[1] ** 2 * a[3], a[2] ** 2, a[3]]),
    ),
    (
        "divide",
        lambda x, i: x.at[i].divide(2.0),
        lambda a: np.array([a[0], a[1] / 4, a[2] / 2, a[3]]),
    ),
    (
        "min",
        lambda x, i: x.at[i].min(2.25),
        lambda a: np.array([a[0], min(a[1], 2.25), min(a[2], 2.25), a[3]]),
    ),
    (
        "max",
        lambda x, i: x.at[i].max(2.25),
        lambda a: np.array([a[0], max(a[1], 2.25), max(a[2], 2.25), a[3]]),
    ),
    ("get", lambda x, i: x.at[i].get(), lambda a: np.array([a[1], a[2], a[1]])),
    (
        "apply",
        lambda x, i: x.at[1:3].apply(weft.sin),
        lambda a: np.array([a[0], *np.sin(a[1:3]), a[3]]),
    ),
]


@pytest.mark.parametrize(("name", "call", "want"), AT, ids=[row[0] for row in AT])
def test_at(name: str, call: Any, want: Any) -> None:
    values = np.array([1.5, 2.0, 3.0, 4.0])
    x, i = weft.asarray(values), weft.asarray([1, 2, 1])
    np.testing.assert_allclose(call(x, i).numpy(), want(values))
    assert np.array_equal(x, values)
    for backend in ("interpret", "native"):
        compiled = weft.compile(lambda x, i: call(x, i), backend=backend)
        np.testing.assert_allclose(compiled(x, i).numpy(), want(values))
    weft.check_grads(lambda x: (call(x, i) ** 2).sum(), [x])
    stacked = weft.vmap(lambda x: call(x, i))(weft.stack([x, x + 0.125]))
    np.testing.assert_allclose(stacked.numpy()[1], want(values + 0.125))
