"""Optimizers beside PyTorch's: ten steps on the same weights, parameters and state after each."""

from __future__ import annotations

import functools
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import peer
import pytest
from peer import figures

import weft
import weft.optim
from weft.core.bind import Recorder, bind, recording
from weft.core.tensor import type_of
from weft.ir.op import OPS, Op
from weft.optim import OptimizerError, apply, blas

STEPS = 10
Options = dict[str, Any]

#: What is compared, by optimizer: a name and the options of each case.
CASES: dict[str, dict[str, Options]] = {
    "SGD": {
        "plain": {"lr": 0.1},
        "defaults": {},
        "weight_decay": {"lr": 0.1, "weight_decay": 0.3},
        "maximize": {"lr": 0.01, "maximize": True, "weight_decay": 0.1},
        "momentum": {"lr": 0.05, "momentum": 0.9},
        "dampening": {"lr": 0.1, "momentum": 0.8, "dampening": 0.4},
        "momentum_decay": {"lr": 0.05, "momentum": 0.9, "dampening": 0.1, "weight_decay": 0.2},
        "nesterov": {"lr": 0.05, "momentum": 0.9, "nesterov": True},
        "nesterov_all": {
            **{"lr": 0.01, "momentum": 0.7, "nesterov": True, "weight_decay": 0.1},
            "maximize": True,
        },
    },
    "Adam": {
        "defaults": {},
        "betas": {"lr": 0.1, "betas": (0.5, 0.9), "eps": 1e-3},
        "weight_decay": {"lr": 0.1, "weight_decay": 0.2},
        "amsgrad": {"lr": 0.1, "amsgrad": True, "betas": (0.5, 0.6)},
        "amsgrad_decay": {"lr": 0.1, "amsgrad": True, "weight_decay": 0.1},
        "maximize": {"lr": 0.05, "maximize": True},
    },
    "AdamW": {
        "defaults": {},
        "weight_decay": {"lr": 0.1, "weight_decay": 0.3},
        "amsgrad": {"lr": 0.1, "amsgrad": True, "betas": (0.5, 0.6)},
        "maximize": {"lr": 0.05, "maximize": True},
    },
    "RMSprop": {
        "defaults": {},
        "alpha": {"lr": 0.05, "alpha": 0.5, "eps": 1e-3},
        "weight_decay": {"lr": 0.05, "weight_decay": 0.2},
        "centered": {"lr": 0.05, "centered": True},
        "momentum": {"lr": 0.02, "momentum": 0.9},
        "all": {"lr": 0.02, "momentum": 0.9, "centered": True, "weight_decay": 0.1},
        "maximize": {"lr": 0.02, "maximize": True},
    },
    "Adagrad": {
        "defaults": {},
        "lr_decay": {"lr": 0.2, "lr_decay": 0.1},
        "start": {"lr": 0.2, "initial_accumulator_value": 0.3, "eps": 1e-3},
        "weight_decay": {"lr": 0.2, "weight_decay": 0.2},
        "maximize": {"lr": 0.05, "maximize": True},
    },
    "Adadelta": {
        "defaults": {},
        "rho": {"lr": 0.5, "rho": 0.6, "eps": 1e-3},
        "weight_decay": {"weight_decay": 0.2},
        "maximize": {"maximize": True},
    },
    "LBFGS": {
        "defaults": {},
        "short": {"lr": 0.3, "max_iter": 2},
        "history": {"lr": 0.5, "max_iter": 3, "history_size": 2},
        "evaluations": {"max_iter": 10, "max_eval": 4},
        "strong_wolfe": {"max_iter": 2, "line_search_fn": "strong_wolfe"},
        "strong_wolfe_history": {
            **{"max_iter": 3, "history_size": 2, "line_search_fn": "strong_wolfe"},
        },
        "strong_wolfe_far": {"lr": 20.0, "max_iter": 2, "line_search_fn": "strong_wolfe"},
        "tolerance": {"max_iter": 20, "tolerance_grad": 0.05, "tolerance_change": 1e-3},
    },
}
ALL = [(name, case) for name, cases in CASES.items() for case in cases]

RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((6, 3)), RNG.standard_normal((6, 2))
WEIGHTS = [RNG.standard_normal((3, 2)), RNG.standard_normal(2), np.ones(2)]  # the last is unused


def start(library: Any) -> list[Any]:
    """The weights, as parameters of Weft or PyTorch."""
    dtype = library.float64
    return [library.tensor(w, dtype=dtype, requires_grad=True) for w in WEIGHTS]


def loss_of(library: Any, params: list[Any]) -> Any:
    x, y = (library.tensor(a, dtype=library.float64) for a in (X, Y))
    error = library.tanh(x @ params[0] + params[1]) - y
    return (error * error).sum()


def closure_for(library: Any, params: list[Any], optimizer: Any) -> Callable[[], Any]:
    def closure() -> Any:
        optimizer.zero_grad()
        loss = loss_of(library, params)
        loss.backward()
        return loss.detach()

    return closure


def array(value: Any) -> Any:
    return np.asarray(value.detach().numpy() if hasattr(value, "detach") else value)


#: State that is the same thing in other clothes, or not kept: PyTorch's scratch list.
NOT_COMPARED = {"al", "ro", "H_diag", "t", "prev_loss", "old_dirs", "old_stps"}


def snapshot(params: list[Any], optimizer: Any) -> Any:
    """All parameters and all of their state, as one row of numbers."""
    parts = [array(p) for p in params]
    for p in params[:-1]:  # PyTorch's Adagrad has state for the unused one, too
        state = optimizer.state.get(p, {})
        kept = {k: v for k, v in state.items() if v is not None and k not in NOT_COMPARED}
        parts += [array(kept[key]) for key in sorted(kept)]
    return np.concatenate([np.ravel(part).astype(np.float64) for part in parts])


def train(library: Any, name: str, options: Options, steps: int = STEPS) -> Any:
    """One row for each step, and the losses."""
    params = start(library)
    optimizer = getattr(library.optim, name)(params, **options)
    closure = closure_for(library, params, optimizer)
    rows, losses = [], []
    for _ in range(steps):
        losses.append(float(optimizer.step(closure)))
        rows.append(snapshot(params, optimizer))
    return np.stack(rows), np.array(losses)


@functools.cache
def wanted(name: str) -> dict[str, Any]:
    def work(torch: Any) -> dict[str, Any]:
        found = {}
        for case, options in CASES[name].items():
            found[case], found[f"{case}.loss"] = train(torch, name, options)
        return found

    return figures(f"optim_{name.lower()}", work)


@pytest.mark.parametrize(("name", "case"), ALL, ids=[f"{n}-{c}" for n, c in ALL])
def test_ten_steps_are_pytorch_s(name: str, case: str) -> None:
    rows, losses = train(weft, name, CASES[name][case])
    rtol = 1e-7 if name == "LBFGS" else 1e-11  # a quotient of differences magnifies rounding
    np.testing.assert_allclose(losses, wanted(name)[f"{case}.loss"], rtol=rtol, atol=1e-13)
    assert rows.shape == wanted(name)[case].shape  # the same state is kept
    np.testing.assert_allclose(rows, wanted(name)[case], rtol=rtol, atol=1e-12)


def test_a_loss_that_falls() -> None:
    for name, cases in CASES.items():
        _, losses = train(weft, name, {**cases["defaults"], "lr": 0.05})
        assert losses[-1] < losses[0], name


# --- how a rule reaches the tensors ------------------------------------------------------------


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


FIRST_ORDER = [(name, case) for name, case in ALL if name != "LBFGS"]


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
    assert 70_000 > apply.CHUNK > blas.SMALLEST
    options = CASES[name][case]
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
            three_steps(name, CASES[name][case], *one_parameter((2, 3), weft.float32))
    assert {name for name in OPS if name.endswith("_update")} == {
        name for name in watcher.seen if name.endswith("_update")
    }


@pytest.mark.parametrize("shape", [(300, 200), (3, 2), (), (0,), (1,)], ids=str)
@pytest.mark.parametrize("name", [name for name in CASES if name != "LBFGS"])
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
@pytest.mark.parametrize("name", [name for name in CASES if name != "LBFGS"])
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


@pytest.mark.parametrize("name", [name for name in CASES if name != "LBFGS"])
def test_a_step_writes_only_to_its_own(name: str) -> None:
    p, gradients = one_parameter((5, 4), weft.float32)
    before, first = p.detach().clone(), p.numpy().copy()
    three_steps(name, {"lr": 0.1}, p, gradients)
    assert (before.numpy() == first).all()
    assert not (p.numpy() == first).any()


@pytest.mark.parametrize("name", [name for name in CASES if name != "LBFGS"])
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


# --- parameters, groups, gradients -------------------------------------------------------------


def test_groups_have_options_of_their_own() -> None:
    def work(library: Any) -> dict[str, Any]:
        params = start(library)
        optimizer = library.optim.SGD(
            [{"params": params[0]}, {"params": params[1:2], "lr": 0.5, "momentum": 0.5}], lr=0.01
        )
        for step in range(STEPS):
            if step == 5:
                optimizer.add_param_group({"params": params[2:], "weight_decay": 0.1})
            optimizer.zero_grad()
            (loss_of(library, params) + (params[2] ** 2).sum()).backward()
            optimizer.step()
        return {str(i): p.detach().numpy() for i, p in enumerate(params)}

    want = figures("optim_groups", work)
    for key, value in work(weft).items():
        np.testing.assert_allclose(value, want[key], rtol=1e-12)


def test_parameters_without_a_gradient_stay() -> None:
    for name, cases in CASES.items():
        params = start(weft)
        optimizer = getattr(weft.optim, name)(params, **cases["defaults"])
        optimizer.step(closure_for(weft, params, optimizer))
        assert params[2].grad is None
        assert params[2].tolist() == [1, 1]
        assert params[2] not in optimizer.state


def test_zero_grad() -> None:
    x = weft.tensor([1.0, 2.0], requires_grad=True)
    optimizer = weft.optim.SGD([x], lr=0.1)
    (x * x).sum().backward()
    optimizer.zero_grad(set_to_none=False)
    assert x.grad is not None
    assert x.grad.tolist() == [0, 0]
    optimizer.zero_grad()
    assert x.grad is None
    optimizer.step()
    assert x.tolist() == [1, 2]


def test_closure_runs_with_gradients_on() -> None:
    x = weft.tensor([1.0, 2.0], requires_grad=True)
    optimizer = weft.optim.SGD([x], lr=0.25)

    def closure() -> Any:
        loss = (x * x).sum()
        loss.backward()
        return loss

    with weft.no_grad():
        assert float(optimizer.step(closure)) == 5
    assert x.tolist() == [0.5, 1]


def test_a_learning_rate_that_is_a_tensor() -> None:
    rate = weft.tensor(0.1, dtype=weft.float64)
    for name in CASES:
        rows, _ = train(weft, name, {"lr": 0.1})
        same, _ = train(weft, name, {"lr": rate})
        np.testing.assert_allclose(rows, same, rtol=1e-14)


def test_names_of_parameters_are_kept() -> None:
    x, y = (weft.tensor([1.0], requires_grad=True) for _ in range(2))
    optimizer = weft.optim.SGD([("x", x), ("y", y)], lr=0.1)
    assert optimizer.param_groups[0]["params"] == [x, y]
    assert optimizer.state_dict()["param_groups"][0]["param_names"] == ["x", "y"]


def test_an_optimizer_of_your_own() -> None:
    class SignDescent(weft.optim.Optimizer):
        def __init__(self, params: Any, lr: float) -> None:
            super().__init__(params, {"lr": lr})

        def update(self, p: Any, grad: Any, state: dict[str, Any], group: dict[str, Any]) -> None:
            state["steps"] = state.get("steps", 0) + 1
            p -= group["lr"] * weft.sign(grad)

    x = weft.tensor([1.0, -2.0], requires_grad=True)
    optimizer = SignDescent([x], lr=0.5)
    (x * x).sum().backward()
    optimizer.step()
    assert x.tolist() == [0.5, -1.5]
    assert optimizer.state[x] == {"steps": 1}
    with pytest.raises(NotImplementedError, match="no update rule"):
        weft.optim.Optimizer([x], {}).step()


# --- the state as a dict -----------------------------------------------------------------------


@pytest.mark.parametrize(("name", "case"), ALL, ids=[f"{n}-{c}" for n, c in ALL])
def test_saved_in_the_middle_and_loaded(name: str, case: str) -> None:
    options = CASES[name][case]
    rows, _ = train(weft, name, options)
    params = start(weft)
    first = getattr(weft.optim, name)(params, **options)
    for _ in range(STEPS // 2):
        first.step(closure_for(weft, params, first))
    saved = pickle.loads(pickle.dumps(first.state_dict()))
    copies = [weft.tensor(p.numpy(), requires_grad=True) for p in params]
    first.step(closure_for(weft, params, first))  # what was saved does not change
    second = getattr(weft.optim, name)(copies)  # options come with the state
    second.load_state_dict(saved)
    for _ in range(STEPS // 2):
        second.step(closure_for(weft, copies, second))
    assert (snapshot(copies, second) == rows[-1]).all()


@pytest.mark.skipif(peer.torch is None, reason="needs torch")
@pytest.mark.parametrize("name", list(CASES))
def test_a_state_dict_of_pytorch_loads(name: str) -> None:
    # Many iterations of L-BFGS magnify a last bit to the sixth digit.
    options = {"lr": 0.05} | ({"max_iter": 2} if name == "LBFGS" else {})
    rows, _ = train(weft, name, options)
    theirs = start(peer.torch)
    optimizer = getattr(peer.torch.optim, name)(theirs, **options)
    for _ in range(STEPS // 2):
        optimizer.step(closure_for(peer.torch, theirs, optimizer))
    params = [weft.tensor(p.detach().numpy(), requires_grad=True) for p in theirs]
    ours = getattr(weft.optim, name)(params)
    ours.load_state_dict(optimizer.state_dict())
    for _ in range(STEPS // 2):
        ours.step(closure_for(weft, params, ours))
    np.testing.assert_allclose(snapshot(params, ours), rows[-1], rtol=1e-7, atol=1e-9)


def test_the_structure_is_pytorch_s() -> None:
    def keys(library: Any) -> dict[str, Any]:
        params = start(library)
        found = {}
        for name in CASES:
            optimizer = getattr(library.optim, name)(params)
            optimizer.step(closure_for(library, params, optimizer))
            saved = optimizer.state_dict()
            state = {str(i): sorted(v) for i, v in saved["state"].items()}
            options = {k for k in saved["param_groups"][0] if k not in THEIRS_ONLY}
            found[f"{name}.state"] = np.array([f"{i} {k}" for i in state for k in state[i]])
            found[f"{name}.group"] = np.array(sorted(options))
            found[f"{name}.params"] = np.array(saved["param_groups"][0]["params"])
        return found

    want = figures("optim_structure", keys)
    for key, value in keys(weft).items():
        theirs = [e for e in want[key].tolist() if e != "0 al" and not str(e).startswith("2 ")]
        assert value.tolist() == theirs, key


THEIRS_ONLY = {"foreach", "fused", "capturable", "differentiable", "decoupled_weight_decay"}


# --- errors ------------------------------------------------------------------------------------


def leaf() -> Any:
    return weft.tensor([1.0, 2.0], requires_grad=True)


ERRORS: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "empty": (lambda: weft.optim.SGD([]), OptimizerError, "no parameters"),
    "one tensor": (lambda: weft.optim.SGD(leaf()), TypeError, r"write \[x\]"),
    "no tensor": (lambda: weft.optim.SGD([leaf(), 3]), TypeError, "number 1 is int 3"),
    "twice": (lambda: weft.optim.SGD([leaf()] * 2), ValueError, "parameter 1 .* given twice"),
    "in two groups": (
        lambda: (lambda x: weft.optim.SGD([{"params": [x]}, {"params": [x]}]))(leaf()),
        OptimizerError,
        "given twice",
    ),
    "no leaf": (lambda: weft.optim.SGD([leaf() * 2]), ValueError, "result of an op"),
    "set": (lambda: weft.optim.SGD([{"params": {leaf()}}]), TypeError, "order of a set"),
    "no params": (lambda: weft.optim.SGD([{"lr": 1}]), TypeError, "the key 'params'"),
    "half named": (
        lambda: weft.optim.SGD([("x", leaf()), leaf()]),
        OptimizerError,
        "some have none",
    ),
    "lr": (lambda: weft.optim.SGD([leaf()], lr=-1), ValueError, "lr must not be negative"),
    "lr of a group": (
        lambda: weft.optim.SGD([{"params": [leaf()], "lr": -1}]),
        ValueError,
        "lr must not be negative",
    ),
    "nesterov": (lambda: weft.optim.SGD([leaf()], nesterov=True), ValueError, "nesterov needs"),
    "betas": (lambda: weft.optim.Adam([leaf()], betas=(0.9, 1.0)), ValueError, "betas are"),
    "eps": (lambda: weft.optim.Adam([leaf()], eps=-1), ValueError, "eps must not"),
    "rho": (lambda: weft.optim.Adadelta([leaf()], rho=2), ValueError, "rho must not exceed 1"),
    "alpha": (lambda: weft.optim.RMSprop([leaf()], alpha=-1), ValueError, "alpha must not"),
    "accumulator": (
        lambda: weft.optim.Adagrad([leaf()], initial_accumulator_value=-1),
        ValueError,
        "initial_accumulator_value must not",
    ),
    "no closure": (lambda: weft.optim.LBFGS([leaf()]).step(), OptimizerError, "closure"),
    "two groups": (
        lambda: weft.optim.LBFGS([{"params": [leaf()]}, {"params": [leaf()]}]),
        OptimizerError,
        "one group",
    ),
    "line search": (
        lambda: weft.optim.LBFGS([leaf()], line_search_fn="weak"),
        OptimizerError,
        "no line search 'weak'",
    ),
    "no state dict": (
        lambda: weft.optim.SGD([leaf()]).load_state_dict({"weight": 1}),
        OptimizerError,
        "'state' and 'param_groups'",
    ),
    "groups differ": (
        lambda: weft.optim.SGD([leaf()]).load_state_dict({"state": {}, "param_groups": []}),
        OptimizerError,
        "0 parameter groups, the optimizer 1",
    ),
    "params differ": (
        lambda: weft.optim.SGD([leaf()]).load_state_dict(
            {"state": {}, "param_groups": [{"params": [0, 1]}]}
        ),
        OptimizerError,
        "has 2 parameters, the optimizer's 1",
    ),
    "unknown state": (
        lambda: weft.optim.SGD([leaf()]).load_state_dict(
            {"state": {7: {}}, "param_groups": [{"params": [0]}]}
        ),
        OptimizerError,
        "parameter 7",
    ),
    "state of another shape": (
        lambda: weft.optim.Adam([leaf()]).load_state_dict(
            {"state": {0: {"exp_avg": weft.ones((2, 1))}}, "param_groups": [{"params": [0]}]}
        ),
        OptimizerError,
        r"exp_avg has shape \(2, 1\)",
    ),
}


@pytest.mark.parametrize("case", ERRORS)
def test_errors(case: str) -> None:
    action, kind, message = ERRORS[case]
    with pytest.raises(kind, match=message):
        action()


def test_a_gradient_of_another_type_is_named() -> None:
    x = leaf()
    x._grad = weft.ones(3)  # past the check of x.grad = …
    with pytest.raises(weft.errors.ShapeError, match=r"g has shape \(3,\)"):
        weft.optim.SGD([x]).step()
    x._grad = weft.ones(2, dtype=weft.float64)
    with pytest.raises(weft.errors.DTypeError, match="different dtypes"):
        weft.optim.Adam([x]).step()


def test_repr() -> None:
    shown = repr(weft.optim.SGD([leaf()], lr=0.1, momentum=0.9))
    assert shown.startswith("SGD (\nParameter Group 0: 1 tensors, 2 numbers\n    dampening: 0\n")


# --- clipping ----------------------------------------------------------------------------------


@pytest.mark.parametrize("norm_type", [1, 2, 3.5, np.inf, -np.inf, 0.5], ids=str)
@pytest.mark.parametrize("max_norm", [0.5, 100.0])
def test_clip_grad_norm(norm_type: float, max_norm: float) -> None:
    def work(library: Any) -> dict[str, Any]:
        params = start(library)
        loss_of(library, params).backward()
        clip = weft.optim if library is weft else library.nn.utils
        total = clip.clip_grad_norm_(iter(params), max_norm, norm_type)
        return {"total": array(total), "0": array(params[0].grad), "1": array(params[1].grad)}

    want = figures(f"clip_norm_{norm_type}_{max_norm}", work)
    for key, value in work(weft).items():
        np.testing.assert_allclose(value, want[key], rtol=1e-12)


def test_clip_grad_norm_of_nothing_and_of_nan() -> None:
    x = leaf()
    assert float(weft.optim.clip_grad_norm_([x], 1.0)) == 0
    x.grad = weft.tensor([weft.nan, 1.0])
    assert weft.isnan(weft.optim.clip_grad_norm_(x, 1.0))
    x.grad = weft.tensor([weft.inf, 1.0])
    with pytest.raises(RuntimeError, match="norm of the gradients is inf"):
        weft.optim.clip_grad_norm_([x], 1.0, error_if_nonfinite=True)


def test_clip_grad_norm_of_several_dtypes() -> None:
    x = weft.tensor([3.0], requires_grad=True)
    y = weft.tensor([4.0], dtype=weft.float64, requires_grad=True)
    x.grad, y.grad = weft.tensor([3.0]), weft.tensor([4.0], dtype=weft.float64)
    assert float(weft.optim.clip_grad_norm_([x, y], 1.0)) == 5
    np.testing.assert_allclose(x.grad.numpy(), [0.6], rtol=1e-6)
    np.testing.assert_allclose(y.grad.numpy(), [0.8], rtol=1e-6)
    assert y.grad.dtype is weft.float64


def test_clip_grad_value() -> None:
    x = weft.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)
    x.grad = weft.tensor([-3.0, 0.25, 3.0, weft.nan])
    weft.optim.clip_grad_value_(x, 0.5)
    assert x.grad.tolist()[:3] == [-0.5, 0.25, 0.5]
    assert weft.isnan(x.grad[3])
