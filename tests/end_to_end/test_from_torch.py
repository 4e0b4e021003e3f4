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
