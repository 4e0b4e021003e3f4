"""nn.utils beside PyTorch's: packed sequences, parametrizations, norms of weights, fusion."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
from nn_samples.table import filled, flat, values
from peer import figures

import weft
from weft import nn
from weft.nn.utils import parametrize

LENGTHS = [5, 2, 3]


def fill(module: Any, make: Any) -> Any:
    state = module.state_dict()
    module.load_state_dict({k: make(filled(k, tuple(v.shape))) for k, v in state.items()})
    return module


def agree(name: str, work: Any) -> None:
    want = figures(name, lambda torch: work(torch, torch.tensor))
    got = work(weft, weft.asarray)
    assert list(got) == list(want)
    for key, value in got.items():
        mine = np.asarray(value.detach().numpy() if hasattr(value, "detach") else value)
        if mine.dtype.kind in "fc":
            np.testing.assert_allclose(mine, want[key], rtol=1e-9, atol=1e-11, err_msg=key)
        else:
            np.testing.assert_array_equal(mine, want[key], err_msg=key)


# --- sequences ---------------------------------------------------------------------------------


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("lengths", [[5, 3, 3], LENGTHS])
def test_packing(batch_first: bool, lengths: list[int]) -> None:
    shape = (3, 5, 2) if batch_first else (5, 3, 2)

    def work(library: Any, make: Any) -> dict[str, Any]:
        rnn = library.nn.utils.rnn
        x = make(values(*shape))
        x.requires_grad = True
        packed = rnn.pack_padded_sequence(
            x, make(np.array(lengths)), batch_first, enforce_sorted=lengths[1] == 3
        )
        padded, back = rnn.pad_packed_sequence(packed, batch_first, -7.0, total_length=6)
        (padded * make(values(*padded.shape, seed=1))).sum().backward()
        found = {"data": packed.data, "sizes": packed.batch_sizes, "back": back, "out": padded}
        found["grad"] = x.grad
        if packed.sorted_indices is not None:
            found["order"], found["inverse"] = packed.sorted_indices, packed.unsorted_indices
        return found

    agree(f"nn_packing_{batch_first}_{lengths[1]}", work)


def test_lists_of_sequences() -> None:
    def work(library: Any, make: Any) -> dict[str, Any]:
        rnn = library.nn.utils.rnn
        rows = [make(values(n, 2, seed=n)) for n in LENGTHS]
        found = {
            "padded": rnn.pad_sequence(rows, padding_value=1.5),
            "left": rnn.pad_sequence(rows, batch_first=True, padding_side="left"),
            "packed": rnn.pack_sequence(rows, enforce_sorted=False).data,
        }
        again = rnn.unpad_sequence(found["padded"] + 0, make(np.array(LENGTHS)))
        whole = rnn.unpack_sequence(rnn.pack_sequence(rows, enforce_sorted=False))
        return found | {f"row{i}": row for i, row in enumerate([*again, *whole])}

    agree("nn_sequences", work)


@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
@pytest.mark.parametrize("options", [{}, {"bidirectional": True, "batch_first": True}], ids=str)
def test_recurrent_layers_take_packed_sequences(kind: str, options: dict[str, Any]) -> None:
    shape = (3, 5, 2) if options else (5, 3, 2)

    def work(library: Any, make: Any) -> dict[str, Any]:
        rnn = library.nn.utils.rnn
        module = fill(getattr(library.nn, kind)(2, 4, num_layers=2, **options).double(), make)
        x = make(values(*shape))
        x.requires_grad = True
        packed = rnn.pack_padded_sequence(x, LENGTHS, bool(options), enforce_sorted=False)
        out, states = module(packed)
        found = [out.data, *flat(states)]
        sum((y * make(values(*y.shape, seed=i))).sum() for i, y in enumerate(found)).backward()
        grads = {f"{name}.grad": p.grad for name, p in module.named_parameters()}
        results = {f"out{i}": y for i, y in enumerate(found)}
        return results | grads | {"x.grad": x.grad, "sizes": out.batch_sizes}

    agree(f"nn_packed_{kind}_{len(options)}", work)


def test_packed_sequences_in_compiled_code() -> None:
    module = nn.LSTM(2, 4)
    x = weft.asarray(values(5, 3, 2)).float()
    rnn = nn.utils.rnn

    def run(x: weft.Tensor) -> Any:
        packed = rnn.pack_padded_sequence(x, LENGTHS, enforce_sorted=False)
        out, (h, _) = module(packed)
        return rnn.pad_packed_sequence(out)[0], h

    for mine, want in zip(weft.compile(run, backend="native")(x), run(x), strict=True):
        np.testing.assert_allclose(mine.detach().numpy(), want.detach().numpy(), atol=1e-6)

    def whole(packed: rnn.PackedSequence) -> rnn.PackedSequence:
        return module(packed)[0]

    packed = rnn.pack_padded_sequence(x, LENGTHS, enforce_sorted=False)
    mine = weft.compile(whole, backend="native")(packed)
    np.testing.assert_allclose(
        mine.data.detach().numpy(), whole(packed).data.detach().numpy(), atol=1e-6
    )


# --- parametrizations --------------------------------------------------------------------------


def symmetric_of(library: Any) -> Any:
    class Symmetric(library.nn.Module):  # type: ignore[name-defined,misc]
        def forward(self, x: Any) -> Any:
            return (x + x.mT) / 2

        def right_inverse(self, x: Any) -> Any:
            return x

    class Scaled(library.nn.Module):  # type: ignore[name-defined,misc]
        def __init__(self) -> None:
            super().__init__()
            self.by = library.nn.Parameter(library.ones(1))

        def forward(self, x: Any) -> Any:
            return x * self.by

        def right_inverse(self, x: Any) -> Any:
            return x / self.by

    return Symmetric, Scaled


MADE: dict[str, Any] = {
    "symmetric": lambda n, library: n.utils.parametrize.register_parametrization(
        n.Linear(3, 3), "weight", symmetric_of(library)[0]()
    ),
    "two": lambda n, library: n.utils.parametrize.register_parametrization(
        n.utils.parametrize.register_parametrization(
            n.Linear(3, 3), "weight", symmetric_of(library)[0]()
        ),
        "weight",
        symmetric_of(library)[1](),
    ),
    "weight_norm": lambda n, library: n.utils.parametrizations.weight_norm(n.Linear(3, 3)),
    "weight_norm_dim": lambda n, library: n.utils.parametrizations.weight_norm(
        n.Linear(3, 3), dim=1
    ),
    "weight_norm_all": lambda n, library: n.utils.parametrizations.weight_norm(
        n.Linear(3, 3), dim=None
    ),
    "spectral_norm": lambda n, library: n.utils.parametrizations.spectral_norm(
        n.Linear(3, 3), n_power_iterations=3
    ),
    "old_spectral_norm": lambda n, library: n.utils.spectral_norm(n.Linear(3, 3)),
    "old_weight_norm": lambda n, library: n.utils.weight_norm(n.Linear(3, 3)),
    "bias": lambda n, library: n.utils.parametrize.register_parametrization(
        n.Linear(3, 3), "bias", symmetric_of(library)[1]()
    ),
}


@pytest.mark.parametrize("case", MADE)
@pytest.mark.filterwarnings("ignore")  # PyTorch says that its older names are old
def test_parametrized_layers(case: str) -> None:
    def work(library: Any, make: Any) -> dict[str, Any]:
        module = fill(MADE[case](library.nn, library).double(), make)
        names = list(module.state_dict())
        optimizer = library.optim.SGD(module.parameters(), lr=0.1)
        found: dict[str, Any] = {"names": names}
        x = make(values(4, 3))
        for step in range(3):
            optimizer.zero_grad()
            y = module(x)
            (y * y).sum().backward()
            optimizer.step()
            found[f"y{step}"] = y
        found |= {f"{name}.grad": p.grad for name, p in module.named_parameters()}
        module.eval()
        found["eval"] = module(x)
        return found | {f"after.{k}": v for k, v in module.state_dict().items()}

    agree(f"nn_parametrized_{case}", work)


@pytest.mark.parametrize("case", MADE)
def test_parametrized_layers_in_compiled_steps(case: str) -> None:
    def trained(compiled: bool) -> Any:
        module = fill(MADE[case](nn, weft).double(), weft.asarray)
        optimizer = weft.optim.SGD(module.parameters(), lr=0.1)

        def step(x: weft.Tensor) -> weft.Tensor:
            optimizer.zero_grad()
            loss = (module(x) ** 2).sum()
            loss.backward()
            optimizer.step()
            return loss

        program: Any = weft.compile(step, backend="native") if compiled else step
        for _ in range(4):
            program(weft.asarray(values(4, 3)))
        return module.state_dict()

    want = trained(False)
    for key, mine in trained(True).items():
        np.testing.assert_allclose(mine.numpy(), want[key].numpy(), rtol=1e-9, err_msg=key)


def test_parametrizations_come_and_go() -> None:
    layer = nn.Linear(3, 3)
    before = layer.weight.detach().numpy().copy()
    kind = symmetric_of(weft)[0]
    parametrize.register_parametrization(layer, "weight", kind())
    assert parametrize.is_parametrized(layer, "weight")
    assert not parametrize.is_parametrized(layer, "bias")
    assert isinstance(layer, nn.Linear)
    assert parametrize.type_before_parametrizations(layer) is nn.Linear
    twin = copy.deepcopy(layer)
    with weft.no_grad():
        layer.weight = weft.eye(3)  # by right_inverse
    np.testing.assert_array_equal(layer.weight.detach().numpy(), np.eye(3))
    np.testing.assert_allclose(twin.weight.detach().numpy(), (before + before.T) / 2)
    with pytest.raises(TypeError, match="save its state_dict"):
        pickle.dumps(layer)
    with parametrize.cached():
        assert layer.weight is layer.weight
    assert layer.weight is not layer.weight
    parametrize.remove_parametrizations(layer, "weight")
    assert type(layer) is nn.Linear
    assert isinstance(layer.weight, nn.Parameter)
    assert list(layer.state_dict()) == ["bias", "weight"]
    np.testing.assert_array_equal(layer.weight.detach().numpy(), np.eye(3))
    parametrize.remove_parametrizations(twin, "weight", leave_parametrized=False)
    np.testing.assert_array_equal(twin.weight.detach().numpy(), before)
    with pytest.raises(AttributeError, match="no parameter or buffer 'w'"):
        parametrize.register_parametrization(layer, "w", kind())
    with pytest.raises(ValueError, match="makes"):
        parametrize.register_parametrization(layer, "bias", nn.Unflatten(0, (1, 3)))
    with pytest.raises(ValueError, match="no parametrization"):
        parametrize.remove_parametrizations(layer, "weight")


def test_norms_are_removed() -> None:
    for name in ("weight_norm", "spectral_norm"):
        layer = getattr(nn.utils, name)(nn.Conv2d(2, 3, 2)).eval()
        x = weft.asarray(values(1, 2, 4, 4)).float()
        want = layer(x).detach().numpy()
        getattr(nn.utils, f"remove_{name}")(layer)
        assert sorted(layer.state_dict()) == ["bias", "weight"]
        np.testing.assert_allclose(layer(x).detach().numpy(), want, atol=1e-6)
        with pytest.raises(ValueError, match="has none"):
            getattr(nn.utils, f"remove_{name}")(layer)


def test_spectral_norm_is_1() -> None:
    layer = nn.utils.parametrizations.spectral_norm(nn.Linear(20, 30))
    assert abs(np.linalg.svd(layer.weight.detach().numpy())[1][0] - 1) < 0.05
    turned = nn.utils.parametrizations.spectral_norm(nn.ConvTranspose2d(2, 3, 2))
    assert turned.parametrizations.weight[0]._u.shape == (3,)


# --- fusion, first values, calls without state -------------------------------------------------


@pytest.mark.parametrize(
    ("layer", "norm", "shape"),
    [
        (lambda: nn.Conv2d(3, 4, 2, bias=False), nn.BatchNorm2d, (2, 3, 5, 5)),
        (lambda: nn.ConvTranspose1d(3, 4, 2), nn.BatchNorm1d, (2, 3, 5)),
        (lambda: nn.Linear(3, 4), nn.BatchNorm1d, (2, 3)),
    ],
)
def test_fusion(layer: Any, norm: Any, shape: tuple[int, ...]) -> None:
    first, second = layer().double(), norm(4).double()
    fill_state = {k: v for k, v in second.state_dict().items() if v.dtype.kind == "float"}
    second.load_state_dict(
        {k: weft.asarray(filled(k, tuple(v.shape))) for k, v in fill_state.items()}, strict=False
    )
    with pytest.raises(ValueError, match="eval mode"):
        nn.utils.fuse_conv_bn_eval(first, second)
    first.eval()
    second.eval()
    fuse = nn.utils.fuse_linear_bn_eval if len(shape) == 2 else nn.utils.fuse_conv_bn_eval
    x = weft.asarray(values(*shape))
    want = second(first(x)).detach().numpy()
    np.testing.assert_allclose(fuse(first, second)(x).detach().numpy(), want, rtol=1e-12)


def test_skip_init_draws_nothing() -> None:
    weft.manual_seed(0)
    want = weft.rand(3).tolist()
    weft.manual_seed(0)
    layer = nn.utils.skip_init(nn.Linear, 5, 6)
    assert weft.rand(3).tolist() == want
    assert layer.weight.shape == (6, 5)


def test_stateless() -> None:
    layer = nn.Linear(2, 1)
    params = {"weight": weft.ones((1, 2)), "bias": weft.zeros(1)}
    call = nn.utils.stateless.functional_call
    assert call(layer, params, weft.ones(2)).item() == 2
    assert call(layer, params, (), {"input": weft.ones(2)}).item() == 2


def test_errors() -> None:
    rnn = nn.utils.rnn
    x = weft.ones((5, 3, 2))
    with pytest.raises(ValueError, match="enforce_sorted=False"):
        rnn.pack_padded_sequence(x, LENGTHS)
    with pytest.raises(ValueError, match="not in 1 … 5"):
        rnn.pack_padded_sequence(x, [6, 1, 1])
    with pytest.raises(ValueError, match="2 lengths for a batch of 3"):
        rnn.pack_padded_sequence(x, [5, 1])
    with pytest.raises(ValueError, match="no sequences"):
        rnn.pad_sequence([])
    with pytest.raises(ValueError, match="total_length 1"):
        rnn.pad_packed_sequence(rnn.pack_padded_sequence(x, [5, 5, 5]), total_length=1)
