"""Modules: members, modes, state, copies, text; containers."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
from nn_samples.table import values
from peer import figures

import weft
from weft import nn
from weft.core.structure import structure


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.norm = nn.BatchNorm1d(4)
        self.last = nn.Sequential(nn.ReLU(), nn.Linear(4, 2, bias=False))
        self.scale = nn.Parameter(weft.ones(1))
        self.register_buffer("steps", weft.zeros((), dtype=weft.int64))
        self.register_buffer("cache", weft.zeros(2), persistent=False)
        self.plain = weft.ones(3)

    def forward(self, x: Any) -> Any:
        return self.last(self.norm(self.first(x))) * self.scale


def names(pairs: Any) -> list[str]:
    return [name for name, _ in pairs]


# --- members -----------------------------------------------------------------------------------


def test_members_are_found_in_order() -> None:
    net = Net()
    assert names(net.named_parameters()) == [
        *("scale", "first.weight", "first.bias", "norm.weight", "norm.bias", "last.1.weight"),
    ]
    assert names(net.named_buffers()) == [
        *("steps", "cache", "norm.running_mean", "norm.running_var", "norm.num_batches_tracked"),
    ]
    assert names(net.named_children()) == ["first", "norm", "last"]
    assert names(net.named_modules()) == ["", "first", "norm", "last", "last.0", "last.1"]
    assert names(net.named_parameters(recurse=False)) == ["scale"]
    assert names(net.named_parameters("net"))[:2] == ["net.scale", "net.first.weight"]
    assert net.get_submodule("last.1") is net.last[1]
    assert net.get_parameter("last.1.weight") is net.last[1].weight
    assert net.get_buffer("norm.running_var") is net.norm.running_var
    assert "scale" in dir(net)
    for bad in ("last.2", "scale", "first.weight"):
        with pytest.raises(AttributeError, match="has no submodule"):
            net.get_submodule(bad)
    with pytest.raises(AttributeError, match="Linear has no parameter 'wieght'"):
        net.get_parameter("first.wieght")
    with pytest.raises(AttributeError, match="'Net' object has no attribute 'frist'"):
        _ = net.frist


def test_init_of_the_base_may_be_forgotten() -> None:
    class Lax(nn.Module):
        def __init__(self) -> None:
            self.weight = nn.Parameter(weft.ones(2))

    assert names(Lax().named_parameters()) == ["weight"]
    assert Lax().training


def test_attributes_are_exchanged_in_place() -> None:
    net = Net()
    new = nn.Parameter(weft.zeros(1))
    net.scale = new
    net.first = nn.Linear(3, 4, bias=False)
    assert net.scale is new
    assert names(net.named_parameters())[:3] == ["scale", "first.weight", "norm.weight"]
    net.steps = weft.ones((), dtype=weft.int64)
    assert net.get_buffer("steps") == 1
    net.scale = None
    assert "scale" not in names(net.named_parameters())
    assert net.scale is None
    net.scale = nn.Parameter(weft.ones(1))
    assert names(net.named_parameters())[0] == "scale"
    del net.first
    assert not hasattr(net, "first")
    assert names(net.named_children()) == ["norm", "last"]
    net.first = 3  # a free name again
    assert net.first == 3
    net.plain = nn.Parameter(weft.ones(2))
    assert "plain" in names(net.named_parameters())
    net.steps = nn.Parameter(weft.ones(2))  # a buffer becomes a parameter
    assert "steps" not in names(net.named_buffers())


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("scale", weft.ones(1), "Tensor cannot be the parameter 'scale' of Net"),
        ("steps", 3, "int cannot be the buffer 'steps' of Net"),
        ("first", len, "cannot be the submodule 'first' of Net"),
    ],
)
def test_a_member_stays_what_it_is(name: str, value: Any, message: str) -> None:
    net = Net()
    with pytest.raises(TypeError, match=message):
        setattr(net, name, value)


def test_names_of_members() -> None:
    net = nn.Module()
    for bad in ("a.b", "", 3):
        with pytest.raises(TypeError, match="cannot be the name"):
            net.register_buffer(bad, None)
    with pytest.raises(KeyError, match="already has an attribute 'forward'"):
        net.register_parameter("forward", None)
    net.kept = 1
    with pytest.raises(KeyError, match="kept"):
        net.register_buffer("kept", weft.ones(1))
    with pytest.raises(NotImplementedError, match="Module has no forward"):
        net(1)


def test_a_shared_parameter_is_found_once_and_saved_twice() -> None:
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    net[1].weight = net[0].weight
    assert len(list(net.parameters())) == 3
    assert len(list(net.named_parameters(remove_duplicate=False))) == 4
    assert len(net.state_dict()) == 4
    both = nn.Sequential(net[0], net[0])
    assert len(list(both.modules())) == 2
    assert len(both.state_dict()) == 4
    twin = copy.deepcopy(net)
    assert twin[0].weight is twin[1].weight
    assert twin[0].weight is not net[0].weight


# --- modes -------------------------------------------------------------------------------------


def test_modes_reach_all_modules() -> None:
    net = Net()
    assert net.eval() is net
    assert not any(module.training for module in net.modules())
    net.train()
    assert all(module.training for module in net.modules())


def test_freezing_and_zero_grad() -> None:
    net = Net()
    net(weft.asarray(values(5, 3)).float()).sum().backward()
    assert all(p.grad is not None for p in net.parameters())
    net.zero_grad(set_to_none=False)
    assert all(not p.grad.any() for p in net.parameters())
    net.zero_grad()
    assert all(p.grad is None for p in net.parameters())
    net.requires_grad_(False)
    assert not any(p.requires_grad for p in net.parameters())
    assert not net(weft.ones((5, 3))).requires_grad


def test_apply_goes_from_the_leaves_up() -> None:
    seen: list[str] = []
    net = Net()
    assert net.apply(lambda module: seen.append(type(module).__name__)) is net
    assert seen == ["Linear", "BatchNorm1d", "ReLU", "Linear", "Sequential", "Net"]


def test_the_structure_is_one_number() -> None:
    """Compiled code compares it: training must leave it alone, all else must change it."""
    net = Net()
    x = weft.ones((5, 3))

    def changes(action: Any) -> bool:
        before = structure.version
        action()
        return structure.version != before

    def step() -> None:
        net(x).sum().backward()
        net.zero_grad()
        net.train()
        with weft.no_grad():
            net.scale += 1

    assert not changes(step)
    for action in (
        net.eval,
        net.train,
        lambda: net.requires_grad_(False),
        lambda: setattr(net.first.weight, "requires_grad", True),
        lambda: setattr(net, "count", 1),
        lambda: setattr(net, "count", 2),
        lambda: delattr(net, "count"),
        lambda: setattr(net, "scale", nn.Parameter(weft.ones(1))),
        lambda: setattr(net, "extra", nn.ReLU()),
        lambda: delattr(net, "extra"),
        lambda: net.register_buffer("more", None),
        lambda: net.last.append(nn.ReLU()),
        lambda: net.register_forward_hook(print).remove(),
        net.double,
    ):
        assert changes(action)
    net.requires_grad_(False)
    assert not changes(lambda: net.requires_grad_(False))


@pytest.mark.parametrize("dtype", ["float", "double", "half", "bfloat16"])
def test_dtypes(dtype: str) -> None:
    net = Net()
    before = list(net.parameters())
    assert getattr(net, dtype)() is net
    wanted = {"float": weft.float32, "double": weft.float64, "half": weft.float16}
    wanted["bfloat16"] = weft.bfloat16
    assert all(p is q for p, q in zip(before, net.parameters(), strict=True))
    assert all(p.dtype is wanted[dtype] and p.requires_grad for p in net.parameters())
    assert net.norm.running_var.dtype is wanted[dtype]
    assert net.steps.dtype is weft.int64
    out = net(weft.asarray(values(5, 3)).astype(wanted[dtype]))
    assert out.dtype is wanted[dtype]
    out.sum().backward()
    assert all(p.grad.dtype is wanted[dtype] for p in net.parameters())
    net.to(weft.float64)
    assert all(p.grad.dtype is weft.float64 for p in net.parameters())
    net.to("cpu", weft.float32).to(device="cpu").to(weft.ones(1))
    assert net.scale.dtype is weft.float32
    with pytest.raises(TypeError, match="need a floating dtype"):
        net.to(weft.int32)


# --- state -------------------------------------------------------------------------------------


def test_state_is_a_snapshot() -> None:
    net = Net()
    state = net.state_dict()
    assert list(state) == [
        *("scale", "steps", "first.weight", "first.bias", "norm.weight", "norm.bias"),
        *("norm.running_mean", "norm.running_var", "norm.num_batches_tracked", "last.1.weight"),
    ]
    with weft.no_grad():
        net.scale += 5
    assert state["scale"] == 1
    assert not state["scale"].requires_grad
    assert net.state_dict(keep_vars=True)["scale"] is net.scale
    assert next(iter(net.state_dict(prefix="net."))) == "net.scale"


def test_loading_brings_values_over() -> None:
    source, target = Net(), Net().double()
    source(weft.asarray(values(5, 3)).float())
    scale = target.scale
    assert str(target.load_state_dict(source.state_dict())) == "<All keys matched successfully>"
    assert target.scale is scale
    assert target.scale.dtype is weft.float64
    x = weft.asarray(values(5, 3))
    source.eval()
    target.eval()
    np.testing.assert_allclose(
        source(x.float()).detach().numpy(), target(x).detach().numpy(), rtol=1e-5
    )
    assert target.norm.num_batches_tracked == 1
    target.load_state_dict({k: v.numpy() for k, v in source.state_dict().items()}, assign=True)
    assert target.scale.dtype is weft.float32


def test_a_state_that_does_not_fit_changes_nothing() -> None:
    net = Net()
    before = net.state_dict()
    state = {name: value + 1 for name, value in before.items()}
    state["first.weight"] = weft.ones((4, 5))
    state["last.1.weight"] = "no tensor"
    state["extra"] = weft.ones(1)
    del state["norm.bias"]
    with pytest.raises(nn.StateDictError) as caught:
        net.load_state_dict(state)
    text = str(caught.value)
    for part in (
        "Net.load_state_dict",
        "first.weight: the state has shape (4, 5), the module (4, 3)",
        "last.1.weight: the state has str",
        "missing: norm.bias",
        "unexpected: extra",
        "test_nn_module.py",
    ):
        assert part in text
    with pytest.raises(nn.StateDictError, match=r"first\.weight"):  # shapes must fit in any case
        net.load_state_dict(state, strict=False)
    for name, value in net.state_dict().items():
        np.testing.assert_array_equal(value.numpy(), before[name].numpy())
    del state["first.weight"], state["last.1.weight"]
    result = net.load_state_dict(state, strict=False)
    assert result.missing_keys == ["first.weight", "norm.bias", "last.1.weight"]
    assert result.unexpected_keys == ["extra"]
    assert net.scale == 2
    with pytest.raises(nn.StateDictError, match="dictionary of tensors, not list"):
        net.load_state_dict([])


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies_are_independent(duplicate: Any) -> None:
    net = Net()
    net.first.register_forward_hook(doubled)
    x = weft.asarray(values(5, 3)).float()
    net(x).sum().backward()
    twin = duplicate(net)
    assert type(twin) is Net
    assert all(isinstance(p, nn.Parameter) and p.requires_grad for p in twin.parameters())
    np.testing.assert_array_equal(net.eval()(x).detach().numpy(), twin.eval()(x).detach().numpy())
    with weft.no_grad():
        twin.scale += 1
        twin.cache[0] = 7
    assert net.scale == 1
    assert net.cache[0] == 0
    assert names(twin.named_buffers()) == names(net.named_buffers())
    assert list(twin.state_dict()) == list(net.state_dict())


def test_a_shallow_copy_has_members_of_its_own() -> None:
    net = Net()
    twin = copy.copy(net)
    assert twin.scale is net.scale
    twin.extra = nn.Linear(2, 2)
    del twin.first
    assert names(net.named_children()) == ["first", "norm", "last"]


def doubled(module: Any, args: Any, out: Any) -> Any:
    return out * 2


def test_parameter() -> None:
    p = nn.Parameter(weft.ones(2))
    assert isinstance(p, weft.Tensor)
    assert p.requires_grad
    assert p.is_leaf
    assert repr(p) == "Parameter containing:\ntensor([1., 1.], requires_grad=True)"
    assert type(p + 1) is weft.Tensor
    assert type(p.detach()) is weft.Tensor
    assert not nn.Parameter([1.0, 2.0], requires_grad=False).requires_grad
    p.decay = False  # attributes of one's own
    source = weft.ones(2)
    q = nn.Parameter(source)
    with weft.no_grad():
        q += 1
    assert source[0] == 1
    (p * p).sum().backward()
    twin = copy.deepcopy(p)
    assert type(twin) is nn.Parameter
    assert twin.grad is None  # as in PyTorch; a plain leaf keeps its own
    assert p.grad is not None
    assert type(pickle.loads(pickle.dumps(p))) is nn.Parameter


# --- text --------------------------------------------------------------------------------------


def models(library: Any) -> list[Any]:
    nn = library.nn
    return [
        nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Sequential(nn.Dropout(0.1), nn.Identity())),
        nn.ModuleDict({"a": nn.Conv2d(3, 8, 3, padding=1, bias=False), "b": nn.ReLU(inplace=True)}),
        nn.ConvTranspose1d(4, 2, 3, stride=2, output_padding=1, groups=2, dilation=2),
        nn.Sequential(nn.MaxPool2d(2), nn.AvgPool2d((2, 1)), nn.AdaptiveAvgPool2d((1, 1))),
        nn.Sequential(nn.BatchNorm2d(4), nn.LayerNorm((3, 4)), nn.GroupNorm(2, 4), nn.RMSNorm(3)),
        nn.LSTM(3, 4, num_layers=2, batch_first=True, dropout=0.5, bidirectional=True),
        nn.Sequential(nn.GRUCell(3, 4), nn.RNNCell(3, 4, bias=False, nonlinearity="relu")),
        nn.Sequential(nn.GELU(), nn.LeakyReLU(0.2), nn.Softmax(dim=1), nn.Hardtanh(), nn.ELU()),
        nn.Sequential(nn.PReLU(), nn.Softplus(), nn.Softshrink(), nn.GLU(), nn.Threshold(0.1, 2)),
        nn.Sequential(nn.Embedding(5, 3, padding_idx=0), nn.Flatten(), nn.CrossEntropyLoss()),
        nn.Bilinear(2, 3, 4),
    ]


def test_repr_is_that_of_pytorch() -> None:
    want = figures("nn_repr", lambda torch: {"texts": [repr(m) for m in models(torch)]})
    for mine, theirs in zip(models(weft), want["texts"].tolist(), strict=True):
        assert repr(mine) == theirs


# --- containers --------------------------------------------------------------------------------


def test_sequential() -> None:
    layers = [nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1)]
    net = nn.Sequential(*layers)
    assert len(net) == 3
    assert list(net) == layers
    assert net[-1] is layers[2]
    assert isinstance(net[1:], nn.Sequential)
    assert names(net[1:].named_children()) == ["1", "2"]
    net[1] = nn.Tanh()
    net.insert(1, nn.Identity())
    assert [type(m).__name__ for m in net] == ["Linear", "Identity", "Tanh", "Linear"]
    del net[1]
    assert names(net.named_children()) == ["0", "1", "2"]
    assert type(net.pop(1)) is nn.Tanh
    assert len(net + nn.Sequential(nn.ReLU())) == 3
    assert net(weft.ones((3, 2))).shape == (3, 1)
    named = nn.Sequential({"in": nn.Linear(2, 3), "out": nn.Linear(3, 1)})
    assert names(named.named_children()) == ["in", "out"]
    assert named[1] is named.out
    assert named(weft.ones((3, 2))).shape == (3, 1)
    with pytest.raises(IndexError, match="out of range for 2 modules"):
        _ = named[2]
    with pytest.raises(TypeError, match="int cannot be the submodule"):
        nn.Sequential(3)


def test_module_list() -> None:
    layers = nn.ModuleList([nn.Linear(2, 2)])
    layers.append(nn.ReLU()).extend([nn.Tanh()])
    layers += [nn.Sigmoid()]
    assert [type(m).__name__ for m in layers] == ["Linear", "ReLU", "Tanh", "Sigmoid"]
    assert isinstance(layers[:2], nn.ModuleList)
    assert type(layers.pop()) is nn.Sigmoid
    layers.insert(0, nn.Identity())
    assert names(layers.named_children()) == ["0", "1", "2", "3"]
    assert names(layers.named_parameters()) == ["1.weight", "1.bias"]
    del layers[1:3]
    assert [type(m).__name__ for m in layers] == ["Identity", "Tanh"]
    with pytest.raises(NotImplementedError, match="ModuleList has no forward"):
        layers(1)


def test_module_dict() -> None:
    layers = nn.ModuleDict({"a": nn.Linear(2, 2)})
    layers["b"] = nn.ReLU()
    layers.update([("c", nn.Tanh())])
    assert list(layers) == list(layers.keys()) == ["a", "b", "c"]
    assert "a" in layers
    assert "d" not in layers
    assert [name for name, _ in layers.items()] == ["a", "b", "c"]
    assert type(layers.pop("c")) is nn.Tanh
    layers["b"] = nn.Sigmoid()
    assert [type(m).__name__ for m in layers.values()] == ["Linear", "Sigmoid"]
    with pytest.raises(KeyError):
        _ = layers["d"]
    layers.clear()
    assert len(layers) == 0


def test_parameter_containers() -> None:
    listed = nn.ParameterList([weft.ones(2), nn.Parameter(weft.zeros(1))])
    listed.append(weft.ones(3))
    listed[0] = weft.zeros(2)
    assert all(isinstance(p, nn.Parameter) for p in listed)
    assert names(listed.named_parameters()) == ["0", "1", "2"]
    assert "(2): Parameter of f32[3]" in repr(listed)
    named = nn.ParameterDict({"a": weft.ones(2)})
    named["b"] = nn.Parameter(weft.ones(1))
    named["a"] = weft.zeros(2)
    assert names(named.named_parameters()) == ["a", "b"]
    assert "(a): Parameter of f32[2]" in repr(named)
