"""Lazy modules, buffers as attributes, compiled modules, submodules by path."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from nn_samples.table import filled, values
from peer import figures

import weft
from weft import nn

LAZY: dict[str, tuple[tuple[Any, ...], dict[str, Any], tuple[int, ...]]] = {
    "LazyLinear": ((2,), {"bias": False}, (5, 3)),
    "LazyConv1d": ((4, 3), {"padding": 1}, (2, 3, 5)),
    "LazyConv2d": ((4, 3), {"groups": 2}, (2, 4, 5, 5)),
    "LazyConv3d": ((4, 2), {}, (1, 3, 3, 3, 3)),
    "LazyConvTranspose1d": ((4, 3), {}, (2, 3, 5)),
    "LazyConvTranspose2d": ((4, 3), {"stride": 2}, (2, 3, 4, 4)),
    "LazyConvTranspose3d": ((4, 2), {}, (1, 3, 2, 2, 2)),
    "LazyBatchNorm1d": ((), {}, (4, 3)),
    "LazyBatchNorm2d": ((), {"affine": False}, (2, 3, 4, 4)),
    "LazyBatchNorm3d": ((), {}, (2, 3, 2, 2, 2)),
    "LazyInstanceNorm1d": ((), {}, (2, 3, 5)),
    "LazyInstanceNorm2d": ((), {"affine": True, "track_running_stats": True}, (2, 3, 4, 4)),
    "LazyInstanceNorm3d": ((), {}, (2, 3, 2, 2, 2)),
}


@pytest.mark.parametrize("name", LAZY)
@pytest.mark.filterwarnings("ignore:Lazy modules are a new feature")
def test_lazy_modules(name: str) -> None:
    args, kwargs, shape = LAZY[name]

    def work(library: Any, make: Any) -> dict[str, Any]:
        module = getattr(library.nn, name)(*args, **kwargs).double()
        before = list(module.state_dict())
        learned = list(module.parameters())
        optimizer = library.optim.SGD(learned, lr=0.1) if learned else None
        x = make(values(*shape))
        module(x)
        state = module.state_dict()
        module.load_state_dict(
            {k: make(filled(k, tuple(v.shape))) if v.ndim else v for k, v in state.items()}
        )
        out = (module(x) ** 2).sum()
        if optimizer is not None:
            out.backward()
            optimizer.step()  # the parameters are those it was given
        found = {"before": before, "class": type(module).__name__, "y": module(x)}
        return found | {f"after.{k}": v for k, v in module.state_dict().items()}

    want = figures(f"nn_{name}", lambda torch: work(torch, torch.tensor))
    got = work(weft, weft.asarray)
    assert got.keys() == want.keys()
    for key, value in got.items():
        mine = np.asarray(value.detach().numpy() if hasattr(value, "detach") else value)
        if mine.dtype.kind in "fc":
            np.testing.assert_allclose(mine, want[key], rtol=1e-9, atol=1e-11, err_msg=key)
        else:
            np.testing.assert_array_equal(mine, want[key], err_msg=key)


def test_a_lazy_module_before_its_first_input() -> None:
    layer = nn.LazyLinear(2)
    assert isinstance(layer, nn.Linear)
    assert isinstance(layer.weight, nn.UninitializedParameter)
    assert layer.has_uninitialized_params()
    with pytest.raises(ValueError, match="call the lazy module once"):
        nn.init.normal_(layer.weight)
    with pytest.raises(weft.errors.CaptureError, match="before you compile it"):
        weft.compile(layer)(weft.ones(3))
    twin = copy.deepcopy(layer)
    twin(weft.ones(3))
    assert type(layer) is nn.LazyLinear
    trained = nn.Linear(5, 2)
    layer.load_state_dict(trained.state_dict())
    x = weft.ones(5)
    np.testing.assert_array_equal(layer(x).detach().numpy(), trained(x).detach().numpy())
    assert type(layer) is nn.Linear
    assert layer.in_features == 5


def test_buffers_are_assigned() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.kept = nn.Buffer(weft.ones(2))
            self.passing = nn.Buffer([1.0, 2.0], persistent=False)

    model = Model().double()
    assert list(model.state_dict()) == ["kept"]
    assert [name for name, _ in model.named_buffers()] == ["kept", "passing"]
    assert not list(model.parameters())
    assert model.kept.dtype is weft.float64
    assert not isinstance(model.kept, nn.Parameter)
    assert type(model.kept * 2) is weft.Tensor
    assert list(copy.deepcopy(model).state_dict()) == ["kept"]


def test_compiled_modules() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    x = weft.asarray(values(5, 3)).float()
    want = model(x).detach().numpy()
    names = list(model.state_dict())
    assert model.compile(backend="native") is model
    np.testing.assert_allclose(model(x).detach().numpy(), want, rtol=1e-6, atol=1e-7)
    assert list(model.state_dict()) == names
    model(x).sum().backward()
    assert all(p.grad is not None for p in model.parameters())
    twin = copy.deepcopy(model)
    with weft.no_grad():
        for p in model.parameters():
            p *= 0
    np.testing.assert_allclose(twin(x).detach().numpy(), want, rtol=1e-6, atol=1e-7)
    assert not model(x).any()


def test_submodules_by_path() -> None:
    model = nn.Sequential(nn.Sequential(nn.Linear(2, 2)))
    other = nn.Linear(2, 3)
    model.set_submodule("0.0", other)
    assert model[0][0] is other
    with pytest.raises(AttributeError, match="no submodule 'x'"):
        model.set_submodule("0.x", other)


def test_rrelu_draws_slopes() -> None:
    weft.manual_seed(0)
    x = weft.tensor(-np.ones((100, 100)), requires_grad=True)
    out = nn.RReLU(0.2, 0.6)(x)
    slopes = -out.detach().numpy()
    assert 0.2 <= slopes.min() < 0.21 < 0.59 < slopes.max() < 0.6
    out.sum().backward()
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), slopes)
    with pytest.raises(ValueError, match="above upper"):
        nn.functional.rrelu(x, 0.5, 0.2)


def test_integers_are_padded() -> None:
    x = weft.asarray([[1, 2]])
    assert nn.ConstantPad1d(1, 5.0)(x).tolist() == [[5, 1, 2, 5]]
    assert nn.ZeroPad1d((1, 0))(x).tolist() == [[0, 1, 2]]
    assert nn.ReflectionPad1d(1)(x).dtype is weft.int64
    rows = [x[0], x[0, :1]]
    assert nn.utils.rnn.pad_sequence(rows, True).tolist() == [[1, 2], [1, 0]]


@pytest.mark.parametrize("offsets", [[1, 3], [0, 3, 1]])
def test_offsets_of_bags(offsets: list[int]) -> None:
    bag = nn.EmbeddingBag(5, 2)
    with pytest.raises(ValueError, match="must begin with 0, and not fall"):
        bag(weft.asarray([1, 2, 3, 4]), weft.asarray(offsets))
    with pytest.raises(Exception, match="row"):
        weft.compile(bag, backend="native")(weft.asarray([1, 2, 3, 4]), weft.asarray(offsets))


def test_classes_of_the_adaptive_softmax() -> None:
    layer = nn.AdaptiveLogSoftmaxWithLoss(6, 9, [2, 5], 2.0).double()
    x = weft.asarray(values(4, 6))
    whole = layer.log_prob(x).detach().numpy()
    np.testing.assert_allclose(np.exp(whole).sum(1), 1)
    assert layer.predict(x).tolist() == whole.argmax(1).tolist()
    for wrong in (9, -1):
        with pytest.raises(ValueError, match="none of 9 classes"):
            layer(x, weft.asarray([0, 1, wrong, 2]))


def test_refusals() -> None:
    x = weft.ones((1, 4, 6, 6))
    f = nn.functional
    for action, message in (
        (lambda: f.interpolate(x, 3, mode="cubic"), "no mode 'cubic'"),
        (lambda: f.interpolate(x, 3, mode="linear"), "does not take an input of 4 axes"),
        (lambda: f.interpolate(x), "either size or scale_factor"),
        (lambda: f.interpolate(x, 3, align_corners=True), "no meaning for mode 'nearest'"),
        (lambda: f.interpolate(x, 3, antialias=True), "antialias takes"),
        (lambda: f.interpolate(x, 0), "cannot become"),
        (lambda: f.pixel_shuffle(x, 3), "does not fall into 9 parts"),
        (lambda: f.unfold(x, 7), "do not fit"),
        (lambda: f.fold(weft.ones((1, 4, 3)), 3, 2), "not made of 4 taps and 4 blocks"),
        (lambda: f.grid_sample(x, weft.ones((2, 3, 3, 2))), "cannot be sampled"),
        (lambda: f.affine_grid(weft.ones((1, 2, 2)), (1, 1, 2, 2)), "is no map"),
        (lambda: f.max_unpool1d(x[0, :, 0], weft.full((4, 6), 12), 2), "none of 12 elements"),
        (lambda: nn.ReflectionPad2d(6)(x), "needs a longer axis"),
        (lambda: nn.ZeroPad2d((1, 2, 3)), "one number or 4"),
        (lambda: f.embedding(weft.asarray([0]), weft.ones((2, 2)), sparse=True), "sparse"),
        (lambda: f.embedding_bag(weft.asarray([0]), weft.ones((2, 2))), "without offsets"),
        (lambda: f.multi_margin_loss(x[0, 0], weft.asarray([0] * 6), p=3), "p is 1 or 2"),
    ):
        with pytest.raises((ValueError, TypeError), match=message):
            action()


@pytest.mark.parametrize(
    "name", ["relu", "elu", "selu", "celu", "leaky_relu", "hardtanh", "rrelu", "threshold"]
)
def test_activations_in_place(name: str) -> None:
    x = weft.asarray(values(3, 4))
    args = (0.1, 7.0) if name == "threshold" else ()
    want = getattr(nn.functional, name)(x, *args).numpy()
    assert getattr(nn.functional, f"{name}_")(x, *args) is x
    np.testing.assert_array_equal(x.numpy(), want)
