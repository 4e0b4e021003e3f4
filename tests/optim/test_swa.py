"""Averages of weights beside PyTorch's: SWA, EMA, batch norms, and the schedule."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from nn_samples.table import filled, values
from optim_cases import array
from peer import figures

import weft
import weft.optim
from weft.optim.swa_utils import AveragedModel


def model_of(library: Any, make: Any) -> Any:
    nn = library.nn
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)).double()
    state = {
        k: make(filled(k, tuple(v.shape))) if "num_batches" not in k else v
        for k, v in model.state_dict().items()
    }
    model.load_state_dict(state)
    return model


AVERAGES: dict[str, Any] = {
    "mean": lambda u: {},
    "ema": lambda u: {"multi_avg_fn": u.get_ema_multi_avg_fn(0.9)},
    "ema of each": lambda u: {"avg_fn": u.get_ema_avg_fn(0.8)},
    "swa": lambda u: {"multi_avg_fn": u.get_swa_multi_avg_fn()},
    "buffers": lambda u: {"use_buffers": True},
}


@pytest.mark.parametrize("case", AVERAGES)
def test_averaged_models(case: str) -> None:
    def work(library: Any, make: Any) -> dict[str, Any]:
        utils = library.optim.swa_utils
        model = model_of(library, make)
        mean = utils.AveragedModel(model, **AVERAGES[case](utils))
        optimizer = library.optim.SGD(model.parameters(), lr=0.1)
        x = make(values(6, 3))
        for _ in range(4):
            optimizer.zero_grad()
            (model(x) ** 2).sum().backward()
            optimizer.step()
            mean.update_parameters(model)
        before = {f"before.{k}": v.numpy().copy() for k, v in mean.state_dict().items()}
        utils.update_bn([x[:3], (x[3:], None)], mean)
        mean.eval()
        return before | {f"after.{k}": v for k, v in mean.state_dict().items()} | {"y": mean(x)}

    want = figures(f"swa_{case.replace(' ', '_')}", lambda torch: work(torch, torch.tensor))
    got = work(weft, weft.asarray)
    assert got.keys() == want.keys()
    for key, value in got.items():
        if case == "buffers" and key == "before.module.1.num_batches_tracked":
            continue  # a count is copied, not averaged
        # PyTorch's share 1 / (n + 1) is float32.
        np.testing.assert_allclose(array(value), want[key], rtol=1e-6, atol=1e-8, err_msg=key)


def test_ema() -> None:
    model = weft.nn.Linear(2, 1)
    ema = weft.optim.EMA(model, decay=0.5)
    first = model.weight.detach().numpy().copy()
    with weft.no_grad():
        model.weight += 4
    ema.update()
    np.testing.assert_allclose(ema.module.weight.detach().numpy(), first + 2, rtol=1e-6)
    assert "_source" not in str(ema.state_dict().keys())
    assert [name for name, _ in ema.named_parameters()] == ["module.weight", "module.bias"]
    with pytest.raises(ValueError, match="from 0 to 1"):
        weft.optim.EMA(model, decay=1.5)


def test_an_ema_in_a_compiled_step() -> None:
    def trained(compiled: bool) -> Any:
        weft.manual_seed(0)
        model = weft.nn.Linear(3, 2)
        ema = weft.optim.EMA(model, decay=0.8)
        optimizer = weft.optim.SGD(model.parameters(), lr=0.1)

        def step(x: Any) -> Any:
            optimizer.zero_grad()
            loss = (model(x) ** 2).sum()
            loss.backward()
            optimizer.step()
            ema.update()
            return loss

        program: Any = weft.compile(step, backend="native") if compiled else step
        for _ in range(5):
            program(weft.asarray(values(4, 3)).float())
        return ema.module.weight.detach().numpy(), int(ema.n_averaged)

    (want, count), (found, also) = trained(False), trained(True)
    assert count == also == 6
    np.testing.assert_allclose(found, want, rtol=1e-6)


@pytest.mark.parametrize("options", [{}, {"anneal_epochs": 4, "anneal_strategy": "linear"}])
def test_swalr(options: dict[str, Any]) -> None:
    def work(library: Any) -> dict[str, Any]:
        x, y = (library.tensor([1.0], requires_grad=True) for _ in range(2))
        optimizer = library.optim.SGD([{"params": [x]}, {"params": [y], "lr": 0.3}], lr=1.0)
        schedule = library.optim.swa_utils.SWALR(optimizer, [0.05, 0.5], **options)
        rates = []
        for _ in range(15):
            optimizer.step()
            schedule.step()
            rates.append(schedule.get_last_lr())
        return {"rates": np.array(rates)}

    want = figures(f"swalr_{len(options)}", work)
    np.testing.assert_allclose(work(weft)["rates"], want["rates"], rtol=1e-12)


def test_a_copy_averages_for_itself() -> None:
    model = weft.nn.Linear(2, 1)
    mean = AveragedModel(model)
    twin = copy.deepcopy(mean)
    mean.update_parameters(model)
    assert (int(mean.n_averaged), int(twin.n_averaged)) == (1, 0)
