"""Libraries of exported programs, by `program.build` and on the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import libraries
import numpy as np
import pytest
from library_programs import floats

import weft
import weft.nn.functional as F
from weft import cli, nn


@libraries.needs_cc
def test_a_training_step_becomes_a_library(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Linear(20, 33), nn.Tanh(), nn.Linear(33, 7))
    optimizer = weft.optim.Adam(net.parameters(), lr=1e-2)

    def train_step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        return loss

    x, y = floats(16, 20), np.arange(16) % 7
    program = weft.export(train_step, weft.spec(("B", 20)), weft.spec(("B",), "int64"))
    first = [program(weft.tensor(x), weft.tensor(y)).item() for _ in range(2)]
    program.save(tmp_path / "model.weft")
    library = str(tmp_path / "libmodel.so")
    words = ["build", str(tmp_path / "model.weft"), "-o", library, "--target", "native"]
    assert cli.main(words) == 1  # B is not known
    assert cli.main([*words, "-s", "B=16"]) == 0
    module = libraries.loaded(tmp_path / "model.py")
    model = module.Model()
    assert set(module.STATE) == set(program.state)
    for _ in range(3):
        wanted = program(weft.tensor(x), weft.tensor(y)).item()
        np.testing.assert_allclose(model.train_step(x, y), wanted, rtol=1e-5)
    assert wanted < min(first)
    for name, tensor in program.state.items():
        np.testing.assert_allclose(
            model.get_state(name), tensor.detach().numpy(), rtol=1e-4, atol=1e-6
        )


@libraries.needs_cc
def test_results_that_are_state_and_gradients_that_are_kept(tmp_path: Path) -> None:
    model = nn.Linear(4, 3)
    held = weft.tensor([1.0, 2.0])

    def accumulate(x: Any) -> Any:
        model(x).sum().backward()
        held.add_(1)
        return held, x * 2, model.weight.grad

    x = floats(5, 4)
    model(weft.tensor(x)).sum().backward()
    program = weft.export(accumulate, weft.spec((5, 4)))
    built = program.build(tmp_path / "liba.so", target="native")
    made = libraries.loaded(tmp_path / "a.py").Model()
    assert built.function == "a_accumulate"
    for _ in range(3):
        wanted = program(weft.tensor(x))
        found = made.accumulate(x)
        assert len(found) == len(wanted)
        for a, b in zip(found, wanted, strict=True):
            np.testing.assert_allclose(a, b.detach().numpy(), rtol=1e-5)


def test_wrong_sizes_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def halves(x: Any) -> Any:
        return x[:2] if x.shape[0] > 10 else x

    program = weft.export(lambda x: halves(x) * 2, weft.spec(("B", 2)))
    place = tmp_path / "libm.so"
    with pytest.raises(weft.errors.GraphError, match="not known: B"):
        program.build(place)
    with pytest.raises(weft.errors.ShapeError, match="at least 1"):
        program.build(place, sizes={"B": 0})
    with pytest.raises(weft.errors.ShapeError, match="for the names B"):
        program.build(place, sizes={"B": 3, "C": 4})
    with pytest.raises(weft.errors.ShapeError, match="right only for sizes"):
        program.build(place, sizes={"B": 30})
    program.save(tmp_path / "m.weft")
    words = ["build", str(tmp_path / "m.weft"), "-o", str(place)]
    with pytest.raises(SystemExit):
        cli.main([*words, "-s", "B"])
    assert cli.main([*words, "-s", "B=3", "--target", "z80"]) == 1
    assert "there is no target" in capsys.readouterr().err
    assert cli.main(["build", str(tmp_path / "none.weft"), "-o", str(place)]) == 1
    assert not place.exists()
