"""Updates by kernels, BLAS and NumPy: what the cards say, for any shape, order and dtype."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from optim_cases import CASES, OWN, PLAIN, Options

import weft
import weft.optim
from weft.core.bind import Recorder, bind, recording
from weft.core.tensor import type_of
from weft.ir.op import OPS, Op
from weft.ops import update_rules
from weft.optim import blas


class Watcher(Recorder):
    """A recorder that lets each op run, and checks its type rule.

    Of an update it also runs the evaluation rule on tensors, as a capture of the step would: the
    rule is made of ops.
    """

    def __init__(self) -> None:
        self.seen: list[str] = []

    def call(self, op: Op, inputs: tuple[Any, ...], attrs: dict[str, Any]) -> Any:
        self.seen.append(op.name)
        out = bind(op, *inputs, **attrs)
        types = op.infer(*(type_of(x) for x in inputs), **attrs)
        results = flat(out)
        assert tuple(map(type_of, results)) == flat(types)
        if op.name.endswith("_update"):
            assert callable(op.eval)
            composed = op.eval(weft, *inputs, **attrs)
            for a, b in zip(results, flat(composed), strict=True):
                assert type_of(a) == type_of(b)
                np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-5, atol=1e-6)
        return out


def flat(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


RULES = {name: cases for name, cases in (CASES | OWN).items() if name not in PLAIN}
FIRST_ORDER = [(name, case) for name, cases in RULES.items() for case in cases]


def one_parameter(shape: tuple[int, ...], dtype: Any, seed: int = 0) -> tuple[Any, list[Any]]:
    rng = np.random.default_rng(seed)
    p = weft.asarray(rng.standard_normal(shape)).astype(dtype)
    p.requires_grad = True
    return p, [weft.asarray(rng.standard_normal(shape)).astype(dtype) for _ in range(3)]


def three_steps(name: str, options: Options, p: Any, gradients: list[Any]) -> list[Any]:
    optimizer = getattr(weft.optim, name)([p], **options)
    for gradient in gradients:
        p.grad = gradient
        optimizer.step()
    return [p, *optimizer.state[p].values()]


@pytest.mark.parametrize(("name", "case"), FIRST_ORDER, ids=[f"{n}-{c}" for n, c in FIRST_ORDER])
@pytest.mark.parametrize("dtype", [weft.float32, weft.float64], ids=str)
def test_kernels_give_what_the_cards_say(name: str, case: str, dtype: Any) -> None:
    shape = (70, 1000)  # larger than a chunk, and no multiple of it
    assert 70_000 > update_rules.CHUNK > blas.SMALLEST
    options = RULES[name][case]
    found = three_steps(name, options, *one_parameter(shape, dtype))
    watcher = Watcher()
    with recording(watcher):
        want = three_steps(name, options, *one_parameter(shape, dtype))
    assert [op for op in watcher.seen if op.endswith("_update")]
    tolerance = 200 * float(weft.finfo(dtype).eps)
    for a, b in zip(found, want, strict=True):
        assert a.dtype is b.dtype
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=tolerance, atol=tolerance)


def test_all_rules_are_reached() -> None:
    watcher = Watcher()
    with recording(watcher):
        for name, case in FIRST_ORDER:
            three_steps(name, RULES[name][case], *one_parameter((2, 3), weft.float32))
    assert {name for name in OPS if name.endswith("_update")} == {
        name for name in watcher.seen if name.endswith("_update")
    }


@pytest.mark.parametrize("shape", [(300, 200), (3, 2), (), (0,), (1,)], ids=str)
@pytest.mark.parametrize("name", RULES)
def test_any_shape_and_order_in_memory(name: str, shape: tuple[int, ...]) -> None:
    options = {"lr": 0.1}
    p, gradients = one_parameter(shape, weft.float64)
    want = three_steps(name, options, p, gradients)
    p, gradients = one_parameter(shape, weft.float64)
    turned = [weft.asarray(np.asfortranarray(g.numpy())) for g in gradients]
    q = weft.asarray(np.asfortranarray(p.numpy()))
    q.requires_grad = True
    for a, b in zip(three_steps(name, options, q, turned), want, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("dtype", [weft.float16, weft.bfloat16], ids=str)
@pytest.mark.parametrize("name", RULES)
def test_narrow_floats(name: str, dtype: Any) -> None:
    found = three_steps(name, {"lr": 0.1}, *one_parameter((3, 4), dtype))
    want = three_steps(name, {"lr": 0.1}, *one_parameter((3, 4), weft.float64))
    assert found[0].dtype is dtype
    np.testing.assert_allclose(
        found[0].astype(weft.float64).numpy(), want[0].numpy(), rtol=0.1, atol=0.1
    )


def test_sgd_of_complex_numbers() -> None:
    z = weft.tensor([1 + 2j, 3j], requires_grad=True)
    optimizer = weft.optim.SGD([z], lr=0.5, momentum=0.5)
    z.grad = weft.tensor([1j, 2 + 0j])
    optimizer.step()
    optimizer.step()
    np.testing.assert_allclose(z.numpy(), [1 + 0.75j, -2.5 + 3j])
    with pytest.raises(weft.errors.DTypeError, match=r"adam_update.*real floating"):
        weft.optim.Adam([z]).step()


@pytest.mark.parametrize("name", RULES)
def test_a_step_writes_only_to_its_own(name: str) -> None:
    p, gradients = one_parameter((5, 4), weft.float32)
    before, first = p.detach().clone(), p.numpy().copy()
    three_steps(name, {"lr": 0.1}, p, gradients)
    assert (before.numpy() == first).all()
    assert not (p.numpy() == first).any()


@pytest.mark.parametrize("name", RULES)
def test_memory_is_reused(name: str) -> None:
    p, gradients = one_parameter((5, 4), weft.float32)
    optimizer = getattr(weft.optim, name)([p], lr=0.1)
    places = set()
    for gradient in gradients:
        p.grad = gradient
        optimizer.step()
        tensors = [p, *(v for v in optimizer.state[p].values() if v.ndim)]
        places |= {tensor.numpy().ctypes.data for tensor in tensors}
    assert len(places) == len(tensors)


def test_nan_reaches_the_parameter_whatever_the_rate() -> None:
    p = weft.tensor(np.ones(50_000, np.float32), requires_grad=True)
    p.grad = weft.full_like(p, weft.nan)
    weft.optim.SGD([p], lr=0.0).step()
    assert weft.all(weft.isnan(p.detach()))


def test_blas_and_numpy_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    options = CASES["SGD"]["nesterov_all"]
    found = three_steps("SGD", options, *one_parameter((300, 100), weft.float64))
    monkeypatch.setattr(blas, "_axpy", {})
    monkeypatch.setattr(blas, "_scal", {})
    want = three_steps("SGD", options, *one_parameter((300, 100), weft.float64))
    for a, b in zip(found, want, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-13, atol=1e-14)
