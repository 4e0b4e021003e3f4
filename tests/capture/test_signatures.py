"""What a recorded path takes, reads, writes and gives, as data that can be written down."""

from __future__ import annotations

import collections
import dataclasses
import json
from typing import Any, NamedTuple

import numpy as np
import pytest

import weft
from weft import Tensor, nn
from weft.base.pytree import tree_flatten
from weft.ir.signature import SAME, Constant, Given, Made, NewLeaf, Place, Signature, Write
from weft.ir.signature_data import signature_data, signature_of_data


def written_and_read(signature: Signature) -> Signature:
    return signature_of_data(json.loads(json.dumps(signature_data(signature))))


@dataclasses.dataclass
class Losses:
    total: Any
    parts: list[Any]


class Pair(NamedTuple):
    first: Any
    second: Any


class Holder:
    def __init__(self) -> None:
        self.scale = weft.full((2,), 2.0)


def test_a_training_step() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    optimizer = weft.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    @weft.compile
    def step(batch: Any, *, weights: Tensor) -> Any:
        optimizer.zero_grad()
        loss = (model(batch["x"][0]) * weights).sum()
        loss.backward()
        optimizer.step()
        return Losses(loss, [3, batch["x"][0]])

    for _ in range(3):
        step({"x": [weft.ones((4, 2))]}, weights=weft.ones(3))
    signature = step.signatures()[-1]
    places = {place.name: place for place in signature.places}
    assert places['batch["x"][0]'].path == (("arg", 0), ("item", "x"), ("item", 0))
    assert places["weights"].path == (("kwarg", "weights"),)
    assert str(places["model.0.weight"].type) == "f32[3,2]"
    assert not places["model.0.weight"].is_argument
    assert 'optimizer.state[model.0.weight]["momentum_buffer"]' in places
    writes = {signature.places[write.place].name: write for write in signature.writes}
    for name, _ in model.named_parameters():
        write = writes[f"model.{name}"]
        assert isinstance(write.value, int)
        assert isinstance(write.grad, int)
        assert signature.outputs[write.value] == places[f"model.{name}"].type
    assert writes["model.1.running_mean"].grad == SAME
    x = [place.name for place in signature.places].index('batch["x"][0]')
    assert signature.leaves == (Made(0), Constant(3), Given(x))
    assert signature.tracked == (0,)
    assert written_and_read(signature) == signature
    text = str(signature)
    assert 'takes batch["x"][0]: f32[4,2]\n' in text
    assert "state model.0.weight: f32[3,2] (value and gradient written)\n" in text
    assert 'gives Losses(total=f32[], parts=[3, batch["x"][0]])' in text


def test_arguments_that_are_objects_and_models() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(2, 2)])

        def forward(self, x: Tensor, *others: Tensor, holder: Any) -> Any:
            return self.layers[0](x) + others[1] * holder.scale

    compiled = weft.compile(Model())
    for _ in range(2):
        compiled(weft.ones(2), weft.ones(2), weft.ones(2), holder=Holder())
    [signature] = compiled.signatures()
    assert [place.name for place in signature.places] == [
        *("x", "self.layers.0.weight", "self.layers.0.bias", "others[1]", "holder.scale"),
    ]
    assert signature.places[-1].path == (("kwarg", "holder"), ("attr", "scale"))
    assert signature.places[-2].path == (("arg", 2),)
    assert written_and_read(signature) == signature

    @weft.compile
    def update(model: Any, optimizer: Any) -> None:
        for p in model.parameters():
            p.grad = p * 1.0
        optimizer.step()

    model = nn.Linear(2, 1, bias=False)
    optimizer = weft.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)
    for _ in range(3):
        update(model, optimizer)
    signature = update.signatures()[-1]
    [moment] = [place for place in signature.places if "momentum_buffer" in place.name]
    assert moment.name == 'optimizer.state[model.weight]["momentum_buffer"]'
    assert moment.path[-2][0] == "key"
    assert written_and_read(signature) == signature


def test_every_path_has_a_signature_and_numbers_are_leaves() -> None:
    @weft.trace
    def f(x: Tensor, k: int) -> Any:
        y = x * k
        return Pair(y, float(x.sum())) if x.sum() > 0 else {"negative": -x}

    f(weft.ones(2), 3)
    f(-weft.ones(2), 3)
    first, second = sorted(f.signatures(), key=lambda found: len(found.leaves), reverse=True)
    assert len(f.paths()) == 2
    for signature, graph in zip(f.signatures(), f.paths(), strict=True):
        assert [signature.places[i].type for i in signature.inputs] == [
            value.type for value in graph.inputs
        ]
        assert [*signature.outputs] == [value.type for value in graph.outputs]
        assert written_and_read(signature) == signature
    assert first.result.kind is Pair
    assert second.leaves == (Made(0),)


LEAVES = (Made(0), Made(1, True), Given(2), *map(Constant, (None, -0.0, float("nan"), 1, True)))
TREES = {
    "a leaf": 0,
    "nothing": None,
    "lists": [0, (1, [2]), ()],
    "dicts": {"a": 0, 3: 1, (1, "b"): {None: 2, 2.5: 3}},
    "ordered": collections.OrderedDict(a=0, b=1),
    "a default": collections.defaultdict(list, a=0),
    "a queue": collections.deque([0, 1], 5),
    "a dataclass": Losses(0, [1, 2]),
    "a named tuple": Pair(0, {"x": 1}),
}


@pytest.mark.parametrize("name", TREES)
def test_trees_and_leaves_are_read_as_they_were_written(name: str) -> None:
    leaves, tree = tree_flatten(TREES[name])
    kinds = [weft.spec(()), weft.spec((2, "B"), weft.bfloat16)]
    signature = Signature(
        name="f",
        places=(
            Place("x", (("arg", 0), ("item", (1, "a")), ("attr", "b")), kinds[1]),
            Place("model.weight"),
            Place("y", (("kwarg", "y"), ("key", (("arg", 0),)))),
        ),
        inputs=(0,),
        outputs=tuple(kinds),
        tracked=(1,),
        result=tree,
        leaves=LEAVES[: len(leaves)],
        writes=(Write(1, 0, True, 1), Write(2, None, False, "none"), Write(0, 1, False, Given(2))),
        new_leaves=(NewLeaf(1, nn.Parameter, True, 0), NewLeaf(0, Tensor, False, Given(1))),
        effects=("x.count = …",),
    )
    again = written_and_read(signature)
    assert again == signature
    assert str(again) == str(signature)
    assert dataclasses.replace(again, leaves=(Constant(0.0),)) != again


def test_what_has_no_text_is_refused_by_name() -> None:
    def of(result: Any, *leaves: Any) -> Signature:
        return Signature("f", (), (), (), (), tree_flatten(result)[1], leaves)

    class Local(NamedTuple):
        x: Any

    made: list[tuple[Signature, str]] = [
        (of(0, Constant(np.float32)), "float32"),
        (of(0, Constant(len)), "len"),
        (of(collections.defaultdict(lambda: 1, a=0), Constant(1)), "defaultdict"),
        (of(Local(0), Constant(1)), "Local"),
        (of({object(): 0}, Constant(1)), "object"),
    ]
    for signature, word in made:
        with pytest.raises(weft.errors.GraphError, match=f"the signature of f holds .*{word}"):
            signature_data(signature)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("inputs", [3]),
        ("leaves", []),
        ("leaves", [{"output": 7, "number": False}]),
        ("outputs", ["f32[2"]),
        ("outputs", ["token"]),
        ("result", {"kind": "os:system", "children": []}),
        ("result", {"kind": "subprocess:Popen", "children": []}),
        ("result", {"kind": "nowhere:Thing", "children": []}),
        ("writes", [{"place": 0}]),
        ("places", 3),
    ],
)
def test_data_that_is_no_signature(name: str, value: Any) -> None:
    leaf = tree_flatten(0)[1]
    kind = weft.spec((2,))
    signature = Signature(
        "f", (Place("x", (("arg", 0),), kind),), (0,), (kind,), (), leaf, (Made(0),)
    )
    data = signature_data(signature)
    assert signature_of_data(data) == signature
    with pytest.raises(weft.errors.GraphError):
        signature_of_data({**data, name: value})
