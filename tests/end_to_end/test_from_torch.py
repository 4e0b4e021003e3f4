"""PyTorch programs, run with only their import lines changed (`examples/from_torch`)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from from_torch import PROGRAMS, curve, load
from peer import figures

import weft.torch as torch

#: For how many steps each program runs here; they learn more in the number they have by default.
STEPS = {"mingpt": 3, "dqn": 5, "time_series_lstm": 1, "style_loss": 4, "vit": 3, "dcgan": 2}
STEPS |= {"actor_critic": 3, "reinforce": 4, "distillation": 20, "polynomial_fit": 5}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_runs(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    losses = load(name).main(STEPS.get(name, 6))
    assert losses
    assert np.isfinite(losses).all()
    assert capsys.readouterr().out


#: The five best known, for so many steps, and how far a loss may be from PyTorch's: rounding grows
#: from step to step.
CURVES = {
    "blitz_classifier": (12, 1e-4),
    "polynomial_fit": (60, 1e-4),
    "mingpt": (8, 1e-3),
    "dqn": (40, 1e-3),
    "vae": (24, 1e-4),
}


@pytest.mark.parametrize("name", CURVES)
def test_a_curve_is_pytorchs(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    steps, tolerance = CURVES[name]

    def work(pytorch: Any) -> dict[str, Any]:
        return {"losses": np.asarray(curve(name, pytorch, steps))}

    wanted = figures(f"from_torch_{name}", work)["losses"]
    found = curve(name, torch, steps)
    np.testing.assert_allclose(found, wanted, rtol=tolerance)
    capsys.readouterr()


def test_a_step_of_a_program_compiles(capsys: pytest.CaptureFixture[str]) -> None:
    program = load("mingpt")

    def trained(make: Any) -> list[float]:
        torch.manual_seed(0)
        model = program.GPT(3, 11, n_layer=1)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

        @make
        def step(x: Any, y: Any) -> Any:
            _, loss = model(x, y)
            model.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            return loss.detach()

        return [step(*program.batch(8, 6, 3)).item() for _ in range(4)]

    eager = trained(lambda step: step)
    compiled = trained(torch.compile(backend="native"))
    np.testing.assert_allclose(compiled, eager, rtol=1e-4)
    assert eager[-1] < eager[0]
    capsys.readouterr()
