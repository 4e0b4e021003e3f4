"""Inputs of graphs, guards and reports are called as the user calls them."""

from __future__ import annotations

from typing import Any

import weft
from weft import nn
from weft.capture.watch.origin import input_name
from weft.nn import functional as F


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tok = nn.Embedding(5, 4)
        self.head = nn.Linear(4, 5, bias=False)

    def forward(self, idx: Any) -> Any:
        return self.head(self.tok(idx))


IDX, TARGETS = weft.asarray([0, 1, 2]), weft.asarray([1, 2, 3])


def _names(compiled: Any) -> list[str]:
    return [value.name for value in compiled.graph().inputs]


def test_a_module_names_its_parameters() -> None:
    run = weft.compile(Net())
    run(IDX)
    assert sorted(_names(run)) == ["head.weight", "idx", "tok.weight"]
    assert "idx is int64[3]" in run.guards()


def test_a_training_step_names_the_parameters_by_the_model() -> None:
    model = Net()
    opt = weft.optim.Adam(model.parameters(), lr=0.1)

    @weft.compile
    def step(idx: Any, y: Any) -> Any:
        opt.zero_grad()  # finds the parameters first, in the optimizer
        loss = F.cross_entropy(model(idx), y)
        loss.backward()
        opt.step()
        return loss

    for _ in range(3):
        step(IDX, TARGETS)
    names = _names(step)
    assert {"model.tok.weight", "model.head.weight", "idx", "y"} <= set(names)
    assert "opt.state.model.tok.weight.exp_avg" in names
    assert len(set(names)) == len(names)
    assert "params" not in " ".join(names)
    text = str(step.graph())
    assert weft.parse_graph(text).equals(step.graph())
    opt.state.clear()
    step(IDX, TARGETS)
    assert "opt.state[model.tok.weight] was" in step.recordings[1].reason.replace("global ", "")


def test_arguments_of_all_kinds() -> None:
    def f(x: Any, *rest: Any, scale: Any, **more: Any) -> Any:
        return (x["w"] * rest[1] + scale).sum() * more["last"]

    compiled = weft.compile(f)
    one = weft.ones(2)
    compiled({"w": one}, 3, one * 2, scale=one * 3, last=one * 4)
    assert sorted(_names(compiled)) == ["last", "rest.1", "scale", "x.w"]
    assert any(guard.startswith("rest[0]") for guard in compiled.guards())


def test_names_that_are_no_words() -> None:
    assert input_name('global table["a b"][3]') == "table.a.b.3"
    assert input_name('["0"]') == "x0"
    assert input_name("self") == "self"
