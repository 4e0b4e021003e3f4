"""What the rows do not show: lengths, dropout, dtypes, empty batches, first values, errors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from nn_samples import ROWS
from nn_samples.table import Row, filled, flat, indices, tensors, values
from peer import figures

import weft
import weft.nn.functional as F
from weft import nn
from weft.nn import init

LENGTHS = [5, 2, 3]


# --- sequences of different lengths ------------------------------------------------------------


@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_lengths_are_what_packing_is(kind: str, bidirectional: bool) -> None:
    x = values(5, 3, 2, seed=1)
    options = {"num_layers": 2, "bidirectional": bidirectional}

    def fill(module: Any, make: Any) -> None:
        state = module.state_dict()
        module.load_state_dict({k: make(filled(k, tuple(v.shape))) for k, v in state.items()})

    def outcome(module: Any, out: Any, states: Any, x: Any, make: Any) -> dict[str, Any]:
        parts = [out, *flat(states)]
        sum((y * make(values(*y.shape, seed=i))).sum() for i, y in enumerate(parts)).backward()
        grads = {f"{k}.grad": p.grad for k, p in module.named_parameters()}
        return {f"out{i}": y for i, y in enumerate(parts)} | grads | {"x.grad": x.grad}

    def work(torch: Any) -> dict[str, Any]:
        module = getattr(torch.nn, kind)(2, 4, **options).double()
        fill(module, torch.tensor)
        given = torch.tensor(x, requires_grad=True)
        utils = torch.nn.utils.rnn
        packed = utils.pack_padded_sequence(given, torch.tensor(LENGTHS), enforce_sorted=False)
        out, states = module(packed)
        out, _ = utils.pad_packed_sequence(out)
        return outcome(module, out, states, given, torch.tensor)

    want = figures(f"nn_lengths_{kind}_{bidirectional}", work)
    module = getattr(nn, kind)(2, 4, **options).double()
    fill(module, weft.asarray)
    given = weft.tensor(x, requires_grad=True)
    out, states = module(given, lengths=LENGTHS)
    got = outcome(module, out, states, given, weft.asarray)
    assert got.keys() == want.keys()
    for key, value in got.items():
        np.testing.assert_allclose(
            value.detach().numpy(), want[key], rtol=1e-9, atol=1e-12, err_msg=key
        )


def test_padding_does_not_matter() -> None:
    module = nn.GRU(2, 4, batch_first=True, bidirectional=True).double()
    x = weft.asarray(values(3, 5, 2))
    noisy = weft.asarray(values(3, 5, 2))
    for i, length in enumerate(LENGTHS):
        noisy[i, length:] = weft.nan
    out, h = module(x, lengths=LENGTHS)
    same, also = module(noisy, lengths=weft.asarray(LENGTHS))
    np.testing.assert_array_equal(out.detach().numpy(), same.detach().numpy())
    np.testing.assert_array_equal(h.detach().numpy(), also.detach().numpy())
    with pytest.raises(weft.errors.ShapeError, match="lengths must be 3 integers"):
        module(x, lengths=[5, 2])


def test_dropout_between_recurrent_layers() -> None:
    module = nn.LSTM(2, 4, num_layers=2, dropout=0.9)
    x = weft.asarray(values(5, 3, 2)).float()
    weft.manual_seed(0)
    first = module(x)[0].detach().numpy()
    assert not np.array_equal(first, module(x)[0].detach().numpy())
    module.eval()
    np.testing.assert_array_equal(module(x)[0].detach().numpy(), module(x)[0].detach().numpy())


# --- dropout -----------------------------------------------------------------------------------


@pytest.mark.parametrize("p", [0.0, 0.3, 1.0])
def test_dropout(p: float) -> None:
    weft.manual_seed(1)
    module = nn.Dropout(p)
    x = weft.tensor(np.ones((200, 50)), requires_grad=True)
    out = module(x)
    dropped = (out == 0).astype(weft.float64).mean().item()
    assert abs(dropped - p) < 0.02
    kept = out.detach().numpy()[out.detach().numpy() != 0]
    np.testing.assert_allclose(kept, 1 / (1 - p) if p < 1 else 0)
    out.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), out.detach().numpy())
    module.eval()
    assert module(x) is x


@pytest.mark.parametrize(
    ("name", "shape"),
    [("Dropout1d", (20, 30, 4)), ("Dropout2d", (20, 30, 4, 2)), ("Dropout3d", (20, 30, 2, 2, 2))],
)
def test_whole_channels_are_dropped(name: str, shape: tuple[int, ...]) -> None:
    weft.manual_seed(2)
    out = getattr(nn, name)(0.4)(weft.ones(shape)).numpy().reshape(600, -1)
    assert ((out == 0).all(1) | (out != 0).all(1)).all()
    assert abs((out == 0).mean() - 0.4) < 0.06
    with pytest.raises(weft.errors.ShapeError, match="axes"):
        getattr(nn, name)()(weft.ones(3))


@pytest.mark.parametrize("name", ["AlphaDropout", "FeatureAlphaDropout"])
def test_alpha_dropout_keeps_mean_and_variance(name: str) -> None:
    weft.manual_seed(3)
    out = getattr(nn, name)(0.2)(weft.randn(300, 200)).numpy()
    assert abs(out.mean()) < 0.02
    assert abs(out.var() - 1) < 0.04


def test_seeds_repeat_dropout() -> None:
    x = weft.ones((4, 5))
    weft.manual_seed(5)
    first = F.dropout(x)
    weft.manual_seed(5)
    np.testing.assert_array_equal(first.numpy(), F.dropout(x).numpy())
    with pytest.raises(weft.errors.RangeError, match="not in 0 … 1"):
        nn.Dropout(1.5)


# --- other dtypes and empty batches ------------------------------------------------------------

MODULES = [row for row in ROWS if not row.is_function]


def run(row: Row, dtype: weft.DType, given: weft.DType) -> list[weft.Tensor]:
    """Results and gradients, computed in `dtype` from numbers that are rounded to `given`."""

    def make(x: Any) -> weft.Tensor:
        tensor = weft.asarray(x)
        return tensor.astype(given).astype(dtype) if tensor.dtype.kind == "float" else tensor

    module = getattr(nn, row.module)(*tensors(row.args, make), **tensors(row.kwargs, make))
    module.to(dtype)
    state = {k: v for k, v in module.state_dict().items() if v.dtype.kind == "float"}
    filling = {k: make(filled(k, v.shape)) for k, v in state.items()}
    module.load_state_dict(filling, strict=False)
    if row.prepare is not None:
        row.prepare(module)
    inputs = tensors(row.inputs, make)
    for x in flat(inputs):
        if x.dtype is dtype:
            x.requires_grad = True
    out = [y for y in flat(module(*inputs, **tensors(row.call, make))) if y.dtype.kind == "float"]
    if any(y.requires_grad for y in out):
        sum(y.sum() for y in out).backward()
    grads = [x.grad for x in (*flat(inputs), *module.parameters()) if x.grad is not None]
    assert all(g.dtype is dtype for g in grads)
    return [*out, *grads]


def results(row: Row, dtype: weft.DType) -> tuple[list[weft.Tensor], list[weft.Tensor]]:
    return run(row, dtype, dtype), run(row, weft.float64, dtype)


@pytest.mark.parametrize("row", MODULES, ids=lambda row: row.name)
def test_float32(row: Row) -> None:
    if row.label in ("huge", "huge_weights", "limits"):
        pytest.skip("float32 does not hold these numbers")
    for mine, exact in zip(*results(row, weft.float32), strict=True):
        assert mine.dtype is weft.float32
        np.testing.assert_allclose(
            mine.detach().numpy(), exact.detach().numpy(), rtol=2e-4, atol=2e-4
        )


@pytest.mark.parametrize("dtype", [weft.float16, weft.bfloat16], ids=str)
@pytest.mark.parametrize("row", MODULES, ids=lambda row: row.name)
def test_narrow_floats(row: Row, dtype: weft.DType) -> None:
    if row.label in ("huge", "huge_weights", "limits", "zeros"):
        pytest.skip("narrow floats do not hold these numbers")
    for mine, exact in zip(*results(row, dtype), strict=True):
        assert mine.dtype is dtype
        close = mine.detach().numpy().astype(np.float64)
        scale = 1 + np.abs(exact.detach().numpy()).max(initial=0)
        assert np.abs(close - exact.detach().numpy()).max(initial=0) < 0.12 * scale


EMPTY: list[tuple[Any, tuple[int, ...]]] = [
    (nn.Linear(3, 2), (0, 3)),
    (nn.Linear(3, 2, bias=False), (0, 4, 3)),
    (nn.Conv2d(3, 2, 3), (0, 3, 5, 5)),
    (nn.ConvTranspose2d(3, 2, 3), (0, 3, 5, 5)),
    (nn.MaxPool2d(2), (0, 3, 4, 4)),
    (nn.AvgPool2d(2), (0, 3, 4, 4)),
    (nn.AdaptiveAvgPool2d(1), (0, 3, 4, 4)),
    (nn.BatchNorm2d(3), (0, 3, 4, 4)),
    (nn.LayerNorm(3), (0, 3)),
    (nn.GroupNorm(1, 3), (0, 3, 2)),
    (nn.InstanceNorm1d(3), (0, 3, 2)),
    (nn.RMSNorm(3), (0, 3)),
    (nn.Dropout(), (0, 3)),
    (nn.GELU(), (0, 3)),
    (nn.Softmax(1), (0, 3)),
    (nn.RNN(3, 2), (4, 0, 3)),
    (nn.LSTM(3, 2), (4, 0, 3)),
    (nn.GRU(3, 2), (0, 2, 3)),  # no steps
    (nn.TransformerEncoderLayer(4, 2, 8), (3, 0, 4)),
]


@pytest.mark.parametrize(("module", "shape"), EMPTY, ids=lambda x: type(x).__name__)
def test_empty_batches(module: Any, shape: tuple[int, ...]) -> None:
    x = weft.zeros(shape)
    x.requires_grad = True
    out = module(x)
    out = out[0] if isinstance(out, tuple) else out
    assert 0 in out.shape
    if 0 not in shape[:1] or not isinstance(module, nn.GRU):  # without steps, nothing depends on x
        out.sum().backward()
        assert x.grad.shape == shape
    if isinstance(module, nn.BatchNorm2d):
        assert not module.running_mean.any()


# --- first values ------------------------------------------------------------------------------


def test_layers_start_as_those_of_pytorch_do() -> None:
    """The same distributions: equal bounds, and as many numbers on both sides of the middle."""
    weft.manual_seed(0)
    bounds = {
        nn.Linear(50, 200): 1 / math.sqrt(50),
        nn.Conv2d(8, 20, 3): 1 / math.sqrt(72),
        nn.ConvTranspose2d(8, 20, 3): 1 / math.sqrt(180),
        nn.Bilinear(10, 20, 30): 1 / math.sqrt(10),
        nn.LSTM(20, 25): 1 / 5,
        nn.GRUCell(20, 25): 1 / 5,
    }
    for module, bound in bounds.items():
        for name, parameter in module.named_parameters():
            drawn = parameter.detach().numpy()
            assert np.abs(drawn).max() <= bound, (module, name)
            if drawn.size > 500:
                assert np.abs(drawn).max() > 0.95 * bound
                assert abs(drawn.mean()) < 0.1 * bound
    vectors = nn.Embedding(100, 50, padding_idx=3).weight.detach().numpy()
    assert not vectors[3].any()
    assert abs(np.delete(vectors, 3, 0).std() - 1) < 0.05
    attention = nn.MultiheadAttention(32, 4)
    assert not attention.in_proj_bias.any()
    assert abs(attention.in_proj_weight).max() <= math.sqrt(6 / 128)


def filler(name: str, *args: Any, shape: tuple[int, ...] = (60, 50)) -> Any:
    weft.manual_seed(4)
    parameter = nn.Parameter(weft.zeros(shape))
    assert getattr(init, name)(parameter, *args) is parameter
    assert parameter.requires_grad
    assert parameter.is_leaf
    return parameter.detach().numpy()


def test_init() -> None:
    x = filler("uniform_", 2.0, 3.0)
    assert 2 <= x.min() < 2.01 < 2.99 < x.max() < 3
    x = filler("normal_", 1.0, 2.0)
    assert abs(x.mean() - 1) < 0.15
    assert abs(x.std() - 2) < 0.1
    x = filler("trunc_normal_", 0.0, 1.0, -0.5, 1.0)
    assert -0.5 <= x.min() < -0.48
    assert 0.98 < x.max() <= 1
    np.testing.assert_array_equal(filler("constant_", 2.5), 2.5)
    np.testing.assert_array_equal(filler("ones_"), 1)
    np.testing.assert_array_equal(filler("zeros_"), 0)
    np.testing.assert_array_equal(filler("eye_"), np.eye(60, 50))
    assert abs(filler("xavier_uniform_", 2.0)).max() <= 2 * math.sqrt(6 / 110)
    assert abs(filler("xavier_normal_").std() - math.sqrt(2 / 110)) < 0.005
    assert abs(filler("kaiming_uniform_", 0, "fan_out")).max() <= math.sqrt(6 / 60)
    assert abs(filler("kaiming_normal_", 0, "fan_in", "relu").std() - math.sqrt(2 / 50)) < 0.01
    for shape in ((60, 50), (20, 5, 2, 3)):
        q = filler("orthogonal_", 2.0, shape=shape).reshape(shape[0], -1)
        gram = q @ q.T if q.shape[0] < q.shape[1] else q.T @ q
        np.testing.assert_allclose(gram, 4 * np.eye(len(gram)), atol=1e-5)
    x = filler("sparse_", 0.3)
    np.testing.assert_array_equal((x == 0).sum(axis=0), 18)
    kernel = weft.asarray(filler("dirac_", shape=(3, 3, 3)))
    signal = weft.asarray(values(2, 3, 7)).float()
    np.testing.assert_allclose(F.conv1d(signal, kernel, padding=1).numpy(), signal.numpy())
    assert filler("normal_", 0.0, 1.0, shape=(2, 3)).shape == (2, 3)


@pytest.mark.parametrize("name", ["linear", "relu", "tanh", "selu", "leaky_relu", "sigmoid"])
def test_gains(name: str) -> None:
    want = figures(f"nn_gain_{name}", lambda torch: {"g": torch.nn.init.calculate_gain(name)})
    assert init.calculate_gain(name) == pytest.approx(float(want["g"]))
    with pytest.raises(weft.errors.RangeError, match="no gain is known"):
        init.calculate_gain("swoosh")


# --- errors ------------------------------------------------------------------------------------

A = weft.ones
ERRORS: list[tuple[Any, str]] = [
    (lambda: nn.Linear(3, 2)(A((5, 4))), r"the weight of shape \(2, 3\) takes 3 features"),
    (lambda: nn.Linear(3, 2, bias=False)(A((5, 4))), r"the last axis of the input has 4"),
    (lambda: nn.Linear(3, 2)(A(())), "the input has no axis"),
    (lambda: nn.Bilinear(3, 2, 4)(A((5, 3)), A((5, 3))), r"weight of shape \(4, 3, 2\)"),
    (lambda: nn.Embedding(3, 2)(A(4)), "named by integers, not by float32"),
    (lambda: nn.Conv2d(3, 2, 3)(A((1, 4, 5, 5))), "weight"),
    (lambda: nn.Conv2d(3, 2, 3)(A((5, 5))), "axes"),
    (lambda: nn.Conv2d(3, 2, 3, groups=2), "do not fall into 2 groups"),
    (lambda: nn.ConvTranspose2d(3, 2, 3)(A((1, 4, 5, 5))), "weight"),
    (lambda: nn.BatchNorm2d(3)(A((2, 3, 5))), "the input has 3 axes, not 4"),
    (lambda: nn.BatchNorm1d(3)(A((2, 4))), r"the weight has shape \(3,\)"),
    (lambda: nn.BatchNorm1d(3)(A((1, 3))), "one value for each channel has no variance"),
    (lambda: nn.BatchNorm1d(3).eval()(A((1, 4))), "are of 3 channels"),
    (lambda: nn.LayerNorm(3)(A((2, 4))), r"does not end in \(3,\)"),
    (lambda: nn.GroupNorm(2, 3), "3 channels do not fall into 2 groups"),
    (lambda: nn.RMSNorm(3)(A((2, 4))), r"does not end in \(3,\)"),
    (lambda: nn.LSTM(3, 2)(A((5, 4, 2))), r"the input has shape \(5, 4, 2\)"),
    (
        lambda: nn.LSTM(3, 2)(A((5, 4, 3)), A((1, 4, 2))),
        r"\(h, c\) of shape \(1, 4, 2\), \(1, 4, 2\)",
    ),
    (lambda: nn.GRUCell(3, 2)(A((4, 2))), r"not \(batch, 3\)"),
    (lambda: nn.RNN(3, 2, nonlinearity="gelu"), "'tanh' or 'relu'"),
    (lambda: nn.MultiheadAttention(5, 2), "5 features do not fall into 2 heads"),
    (lambda: nn.MultiheadAttention(4, 2)(*[A((3, 1, 5))] * 3), "not embed_dim=4"),
    (lambda: F.cross_entropy(A((3, 4)), A(3, dtype=weft.int64)[:2]), r"must have shape \(3,\)"),
    (lambda: F.cross_entropy(A((3, 4)), A((3, 5))), "probabilities of shape"),
    (lambda: F.cross_entropy(A((3, 4)), A((3, 4)), reduction="average"), "'mean', 'sum' or"),
    (lambda: F.cross_entropy(A((3, 4)), A(3) > 0), "must be integers, not bool"),
    (lambda: F.embedding(A(3) > 0, A((3, 2))), "not by bool"),
    (lambda: F.embedding(A(3, dtype=weft.int8), A(3)), "must have 2 axes"),
    (lambda: F.mse_loss(A(3), A((3, 1))), "input and target differ in shape"),
    (lambda: F.pad(A(3), (1,)), "1 amounts of padding"),
    (lambda: F.pad(A((2, 3)), (3, 0), mode="reflect"), "needs a longer axis"),
    (lambda: F.glu(A(3)), "has no halves"),
    (lambda: F.prelu(A((2, 3)), A(2)), "neither one slope"),
    (lambda: F.one_hot(weft.asarray([3]), 2), "none of 2 classes"),
    (lambda: init.xavier_uniform_(A(3)), "no inputs and outputs"),
]


@pytest.mark.parametrize(("call", "message"), ERRORS, ids=[m for _, m in ERRORS])
def test_errors_name_what_does_not_fit_and_the_line(call: Any, message: str) -> None:
    with pytest.raises(weft.errors.WeftError, match=message) as caught:
        call()
    assert "test_nn_layers.py" in str(caught.value)


# --- odds and ends -----------------------------------------------------------------------------


def test_inplace_gives_the_argument_the_value_too() -> None:
    for module in (nn.ReLU(inplace=True), nn.ELU(inplace=True), nn.Hardtanh(inplace=True)):
        x = weft.asarray(values(5)) * 5
        y = x.clone()
        out = module(x)
        np.testing.assert_array_equal(x.numpy(), out.numpy())
        assert not np.array_equal(x.numpy(), y.numpy())


def test_pretrained_embeddings() -> None:
    frozen = nn.Embedding.from_pretrained(weft.asarray(values(4, 2)), padding_idx=1)
    assert not frozen.weight.requires_grad
    np.testing.assert_array_equal(frozen(weft.asarray([2])).numpy(), values(4, 2)[[2]])
    assert nn.Embedding.from_pretrained(weft.ones((2, 2)), freeze=False).weight.requires_grad


def test_gumbel_softmax() -> None:
    weft.manual_seed(0)
    logits = weft.tensor(np.log([[0.2, 0.5, 0.3]] * 4000), requires_grad=True)
    hard = F.gumbel_softmax(logits, hard=True)
    np.testing.assert_array_equal(np.sort(hard.detach().numpy(), axis=1)[:, :2], 0)
    np.testing.assert_allclose(hard.detach().numpy().mean(0), [0.2, 0.5, 0.3], atol=0.03)
    (hard * weft.asarray(values(4000, 3))).sum().backward()
    assert logits.grad.any()
    np.testing.assert_allclose(F.gumbel_softmax(logits).sum(axis=1).detach().numpy(), 1)


def test_square_subsequent_mask() -> None:
    mask = nn.Transformer.generate_square_subsequent_mask(3).numpy()
    np.testing.assert_array_equal(mask, np.triu(np.full((3, 3), -np.inf), k=1))


def test_indices_of_any_integer_dtype() -> None:
    classes = indices(6, below=4)
    logits = weft.asarray(values(6, 4))
    losses = [
        F.cross_entropy(logits, weft.asarray(classes.astype(kind))).item()
        for kind in (np.int64, np.int32, np.int16, np.uint8)
    ]
    assert len(set(losses)) == 1


@pytest.mark.parametrize("backend", ["interpret", "native"])
@pytest.mark.parametrize("capture", ["trace", "source"])
def test_one_hot_is_one_recording_for_all_data(capture: str, backend: str) -> None:
    """The number of classes is given: the graph checks the indices, and Python asks for none."""

    def doubled(x: Any) -> Any:
        return F.one_hot(x, 6) * 2

    compiled = weft.compile(doubled, capture=capture, backend=backend)
    for first in range(5):
        got = compiled(weft.asarray([[first, first + 1], [3, 0]]))
        np.testing.assert_array_equal(got.numpy(), 2 * np.eye(6)[[[first, first + 1], [3, 0]]])
    assert len(compiled.recordings) == 1
    for wrong in (6, -1):
        with pytest.raises(IndexError):
            compiled(weft.asarray([[0, 1], [wrong, 2]]))
        with pytest.raises(IndexError, match="none of 6 classes"):
            F.one_hot(weft.asarray([wrong]), 6)
