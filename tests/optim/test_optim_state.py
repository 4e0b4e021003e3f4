"""The state of an optimizer as a dict: saved, loaded, and the same as PyTorch's."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import peer
import pytest
from optim_cases import ALL, CASES, STEPS, closure_for, snapshot, start, train
from peer import figures

import weft
import weft.optim


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
