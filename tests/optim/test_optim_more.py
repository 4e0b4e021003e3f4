"""Lion, Muon, and all optimizers in compiled steps; flags that only say how to run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from optim_cases import CASES, OWN, WEIGHTS, X, Y, closure_for, loss_of, start
from peer import figures

import weft
import weft.optim

COMPILED = {name: list(cases.values())[-1] for name, cases in (CASES | OWN).items()}
COMPILED = {name: options for name, options in COMPILED.items() if name != "LBFGS"}


@pytest.mark.parametrize("name", [*COMPILED, "Muon"])
def test_compiled_steps_are_eager_steps(name: str) -> None:
    weights = WEIGHTS[:1] if name == "Muon" else WEIGHTS[:2]

    def trained(compiled: bool) -> tuple[list[Any], Any]:
        params = [weft.tensor(w, dtype=weft.float32, requires_grad=True) for w in weights]
        optimizer = getattr(weft.optim, name)(params, **COMPILED.get(name, {"lr": 0.05}))
        x, y = (weft.tensor(a, dtype=weft.float32) for a in (X, Y))

        def step(x: Any, y: Any) -> Any:
            optimizer.zero_grad()
            out = x @ params[0]
            error = weft.tanh(out + params[1] if len(params) > 1 else out) - y
            loss = (error * error).sum()
            loss.backward()
            optimizer.step()
            return loss

        program: Any = weft.compile(step, backend="native") if compiled else step
        for _ in range(6):
            program(x, y)
        return [p.detach().numpy() for p in params], program

    (want, _), (found, program) = trained(False), trained(True)
    assert len(program.recordings) <= 2  # the first step makes the state
    for a, b in zip(found, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("case", OWN["Lion"])
def test_lion(case: str) -> None:
    options = {"betas": (0.9, 0.99), "weight_decay": 0.0, "maximize": False} | OWN["Lion"][case]
    params = start(weft)
    optimizer = weft.optim.Lion(params, **OWN["Lion"][case])
    mine = [w.copy() for w in WEIGHTS[:2]]
    means = [np.zeros_like(w) for w in mine]
    (fast, slow), lr = options["betas"], options["lr"]
    for _ in range(8):
        optimizer.step(closure_for(weft, params, optimizer))
        leaves = [weft.tensor(w, requires_grad=True) for w in mine]
        loss_of(weft, leaves).backward()
        for w, m, leaf in zip(mine, means, leaves, strict=True):
            assert leaf.grad is not None
            g = leaf.grad.numpy() * (-1 if options["maximize"] else 1)
            w -= lr * (np.sign(fast * m + (1 - fast) * g) + options["weight_decay"] * w)
            m += (1 - slow) * (g - m)
    for p, w in zip(params, mine, strict=False):
        np.testing.assert_allclose(p.detach().numpy(), w, rtol=1e-10, atol=1e-12)


MUON: dict[str, dict[str, Any]] = {
    "defaults": {},
    "rate": {"lr": 0.1, "weight_decay": 0.3, "momentum": 0.5},
    "plain": {"lr": 0.1, "nesterov": False, "adjust_lr_fn": "match_rms_adamw"},
}


@pytest.mark.parametrize("case", MUON)
def test_muon(case: str) -> None:
    """PyTorch orthogonalizes in bfloat16: steps agree to about a hundredth of the rate."""
    options = MUON[case]

    def work(library: Any) -> dict[str, Any]:
        params = start(library)
        optimizer = library.optim.Muon(params[:1], **options)
        for _ in range(5):
            optimizer.step(closure_for(library, params, optimizer))
        return {"p": params[0], "buffer": optimizer.state[params[0]]["momentum_buffer"]}

    want = figures(f"optim_muon_{case}", work)
    rate = options.get("lr", 1e-3)
    for key, got in work(weft).items():
        np.testing.assert_allclose(got.detach().numpy(), want[key], rtol=0, atol=0.15 * rate)


def test_muon_s_direction_is_nearly_orthogonal() -> None:
    wide = weft.asarray(np.random.default_rng(0).standard_normal((3, 7)))
    for x in (wide, wide.mT):
        q = weft.optim.matrices.orthogonalized(x, (3.4445, -4.775, 2.0315), 8, 1e-7).numpy()
        values = np.linalg.svd(q, compute_uv=False)
        assert (values > 0.6).all()
        assert (values < 1.3).all()


def test_muon_takes_matrices_only() -> None:
    with pytest.raises(ValueError, match=r"parameter 1 .* is no matrix"):
        weft.optim.Muon(start(weft)[:2])


@pytest.mark.parametrize("name", [*COMPILED])
def test_flags(name: str) -> None:
    kind = getattr(weft.optim, name)
    kind(start(weft), lr=0.1, foreach=True, fused=False, capturable=True, differentiable=False)
    with pytest.raises(ValueError, match="steps are not differentiated"):
        kind(start(weft), differentiable=True)
    with pytest.raises(TypeError, match="no option 'rate'"):
        kind(start(weft), rate=0.1)
