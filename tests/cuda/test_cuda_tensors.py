"""Tensors on the device "cuda": on a GPU, or on CuPy's stand-in over NumPy."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
from cuda_device import REAL, cuda

import weft
import weft.torch as torch
from weft import nn
from weft.errors import DeviceError

__all__ = ["cuda"]
pytestmark = pytest.mark.usefixtures("cuda")


def tensor(*values: float, **options: Any) -> weft.Tensor:
    return weft.tensor(list(values), device="cuda", **options)


def test_there_and_back() -> None:
    x = weft.asarray(np.arange(6, dtype=np.float32).reshape(2, 3))
    y = x.to("cuda")
    assert str(y.device) == "cuda"
    assert (y.dtype, y.shape) == (x.dtype, x.shape)
    np.testing.assert_array_equal(y.cpu().numpy(), x.numpy())
    assert x.cuda().device == y.device == y.cuda().device
    assert y.to("cuda", weft.float16).dtype is weft.float16
    assert y.to(x).device == x.device
    assert repr(y[0]) == "tensor([0., 1., 2.], device='cuda')"
    assert (y[1, 2].item(), bool(y[0, 1]), int(y[1, 0])) == (5.0, True, 3)
    assert y.tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]


@pytest.mark.parametrize("name", ["bool", "uint8", "int64", "float16", "bfloat16", "complex64"])
def test_dtypes(name: str) -> None:
    x = weft.asarray([0.0, 1.0, 3.0]).astype(name)
    y = x.cuda()
    assert y.dtype is x.dtype
    np.testing.assert_array_equal(y.numpy(), x.numpy())
    assert weft.concat([y, y]).tolist() == [*x.tolist(), *x.tolist()]


def test_creation() -> None:
    made = [
        *(weft.zeros((2,), device="cuda"), weft.ones((2,), device="cuda")),
        *(weft.full((2,), 3, device="cuda"), weft.eye(2, device="cuda")),
        *(weft.arange(3, device="cuda"), weft.linspace(0, 1, 3, device="cuda")),
        *(weft.rand((2,), device="cuda"), weft.asarray([1, 2], device="cuda")),
        weft.from_numpy(np.ones(2)).to("cuda"),
    ]
    made += [weft.zeros_like(x) for x in made] + [weft.full_like(made[0], 2.5)]
    assert {str(x.device) for x in made} == {"cuda"}


def test_values_are_not_aliases() -> None:
    x = tensor(1.0, 2.0, 3.0, 4.0)
    y, part = x.clone(), x[1:3]
    x[0] = 9.0
    x += 1
    part[0] = -1.0
    assert (x.tolist(), y.tolist(), part.tolist()) == (
        [10.0, 3.0, 4.0, 5.0],
        [1.0, 2.0, 3.0, 4.0],
        [-1.0, 3.0],
    )
    x[weft.asarray([0, 2], device="cuda")] = tensor(7.0, 8.0)
    x[x > 4.5] = 0.0
    assert x.tolist() == [0.0, 3.0, 0.0, 0.0]


def test_last_write_counts() -> None:
    x = weft.zeros(3, device="cuda")
    x[weft.asarray([1, 1, 2, 1], device="cuda")] = tensor(1.0, 2.0, 3.0, 4.0)
    assert x.tolist() == [0.0, 4.0, 3.0]


def test_index_out_of_range() -> None:
    x, far = tensor(1.0, 2.0), weft.asarray([0, 2], device="cuda")
    for wrong in (
        lambda: x[far],
        lambda: weft.take(x, far),
        lambda: weft.take_along_axis(x, far),
        lambda: x.clone().__setitem__(far, 1.0),
        lambda: nn.functional.embedding(far, weft.ones((2, 3), device="cuda")),
    ):
        with pytest.raises(IndexError, match="2"):
            wrong()
    assert weft.take(x, far - 2).tolist() == [1.0, 1.0]


def test_numbers_of_the_cpu_join() -> None:
    x = tensor(1.0, 2.0)
    scale = weft.tensor(3.0, requires_grad=True)
    y = x * scale + weft.tensor(1.0) - 0.5
    y.sum().backward()
    assert (y.tolist(), str(y.device)) == ([3.5, 6.5], "cuda")
    assert (scale.grad.item(), str(scale.grad.device)) == (3.0, "cpu")  # type: ignore[union-attr]
    assert weft.where(x > weft.tensor(1.5), x, weft.tensor(0.0)).tolist() == [0.0, 2.0]
    compiled = weft.compile(lambda a, b: a * b)
    assert compiled(x, weft.tensor(2.0)).tolist() == [2.0, 4.0]


def test_other_mixtures_are_errors() -> None:
    x = tensor(1.0, 2.0)
    for wrong in (
        lambda: x + weft.ones(2),
        lambda: weft.ones((1,)) * x,
        lambda: weft.matmul(weft.ones((2, 2)), x),
        lambda: weft.concat([x, weft.ones(2)]),
        lambda: weft.compile(lambda a, b: a + b)(x, weft.ones(2)),
    ):
        with pytest.raises(weft.errors.WeftError, match="different devices"):
            wrong()


def test_training_is_that_of_the_cpu() -> None:
    def losses(device: str, compiled: bool) -> list[float]:
        weft.manual_seed(0)
        model = nn.Sequential(
            *(nn.Linear(5, 8), nn.LayerNorm(8), nn.GELU(), nn.Dropout(0.2), nn.Linear(8, 3))
        ).to(device)
        optimizer = weft.optim.AdamW(model.parameters(), lr=0.05)
        x = weft.rand((16, 5)).to(device)
        target = weft.randint(0, 3, (16,)).to(device)

        def step() -> weft.Tensor:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), target)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            return loss

        run = weft.compile(step) if compiled else step
        found = [run() for _ in range(6)]
        assert {str(loss.device) for loss in found} == {device}
        assert {str(p.device) for p in model.parameters()} == {device}
        return [loss.item() for loss in found]

    want = losses("cpu", False)
    assert want[-1] < want[0]
    for compiled in (False, True):
        np.testing.assert_allclose(losses("cuda", compiled), want, rtol=2e-5)


@pytest.mark.parametrize("optimizer", ["SGD", "Adam", "RMSprop", "Adagrad", "NAdam", "Lion"])
def test_optimizers(optimizer: str) -> None:
    if not hasattr(weft.optim, optimizer):
        pytest.skip("there is none of this name")

    def run(device: str) -> list[float]:
        p = nn.Parameter(weft.asarray([1.0, -2.0, 3.0], device=device))
        chosen = getattr(weft.optim, optimizer)([p], lr=0.1)
        for _ in range(3):
            chosen.zero_grad()
            (p * p * p).sum().backward()
            chosen.step()
        assert str(p.device) == device
        found: list[float] = p.tolist()
        return found

    np.testing.assert_allclose(run("cuda"), run("cpu"), rtol=1e-5)


@pytest.mark.parametrize(
    "layer",
    [
        lambda: nn.Conv2d(3, 4, 3, padding=1),
        lambda: nn.BatchNorm2d(3),
        lambda: nn.GroupNorm(3, 3),
        lambda: nn.MaxPool2d(2),
        lambda: nn.AvgPool2d(2),
        lambda: nn.ConvTranspose2d(3, 2, 2, stride=2),
        lambda: nn.Upsample(scale_factor=2),
    ],
)
def test_layers_on_images(layer: Any) -> None:
    weft.manual_seed(1)
    here = layer()
    there = copy.deepcopy(here).to("cuda")
    x = weft.randn((2, 3, 6, 6))
    found = []
    for module, device in ((here, "cpu"), (there, "cuda")):
        given = x.to(device)
        given.requires_grad = True
        out = module(given)
        (out * out).sum().backward()
        grads = [given.grad, *(p.grad for p in module.parameters())]
        found.append([out, *grads])
    for a, b in zip(*found, strict=True):
        assert str(b.device) == "cuda"
        np.testing.assert_allclose(b.numpy(), a.numpy(), rtol=2e-4, atol=2e-4)


def test_recurrent_and_attention() -> None:
    for make in (
        lambda: nn.LSTM(4, 5, batch_first=True),
        lambda: nn.GRU(4, 5, batch_first=True),
        lambda: nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True),
    ):
        weft.manual_seed(2)
        here = make()
        there = copy.deepcopy(here).to("cuda")
        x = weft.randn((2, 3, 4))
        a, b = here(x), there(x.cuda())
        a, b = (out[0] if isinstance(out, tuple) else out for out in (a, b))
        np.testing.assert_allclose(b.numpy(), a.detach().numpy(), rtol=1e-4, atol=1e-4)


def test_control_flow_compiled() -> None:
    def halved(x: weft.Tensor) -> weft.Tensor:
        while x.sum() > 1:
            x = x / 2 if x.max() > 1 else x * 0.75
        return x

    x = tensor(3.0, 5.0)
    np.testing.assert_allclose(weft.compile(halved)(x).numpy(), halved(x).numpy())

    def loss(x: weft.Tensor) -> weft.Tensor:
        return (halved(x * 2) ** 2).sum()

    a = weft.grad(loss)(x)
    b = weft.compile(weft.grad(loss))(x)
    np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-6)
    assert str(b.device) == "cuda"


def test_explain_says_how_it_runs() -> None:
    double = weft.compile(lambda x: x * 2 + 1)
    assert double(tensor(1.0)).tolist() == [3.0]
    said = str(weft.explain(double))
    assert "op by op: it was asked for" in said
    native = weft.compile(lambda x: x * 2 + 1, backend="native")
    assert native(tensor(1.0)).tolist() == [3.0]
    said = str(weft.explain(native))
    assert "1 kernels and 0 products on cuda, launched as one CUDA graph" in said
    assert "code for the GPU" in said


def test_transforms() -> None:
    x = tensor(0.5, 1.5)
    assert weft.check_grads(lambda x: weft.tanh(x * x).sum(), (x.astype(weft.float64),)) is None
    rows = weft.vmap(lambda row: (row * row).sum())(weft.ones((3, 2), device="cuda"))
    assert (rows.tolist(), str(rows.device)) == ([2.0, 2.0, 2.0], "cuda")
    _, dy = weft.jvp(lambda x: x * x, (x,), (weft.ones_like(x),))
    assert dy.tolist() == [1.0, 3.0]


def test_pickle_and_copies() -> None:
    x = tensor(1.0, 2.0, requires_grad=True)
    for other in (copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert (other.tolist(), str(other.device), other.requires_grad) == (
            [1.0, 2.0],
            "cuda",
            True,
        )


def test_state_dicts_cross_devices() -> None:
    here, there = nn.Linear(2, 3), nn.Linear(2, 3).cuda()
    here.load_state_dict(there.state_dict())
    assert str(here.weight.device) == "cpu"
    np.testing.assert_array_equal(here.weight.detach().numpy(), there.weight.detach().numpy())
    there.cpu()
    assert str(there.bias.device) == "cpu"  # type: ignore[union-attr]


def test_names_of_pytorch() -> None:
    x = torch.ones(2, 3, device="cuda")
    assert x.is_cuda
    assert not x.cpu().is_cuda
    assert torch.cuda.is_available()
    assert torch.cuda.current_device() == 0
    model = torch.nn.Linear(3, 2).cuda()
    assert model(x).shape == (2, 2)


def test_what_weft_cuda_says() -> None:
    assert weft.cuda.is_available()
    assert weft.cuda.device_count() >= 1
    weft.cuda.synchronize()
    assert weft.cuda.memory_allocated() >= 0
    weft.cuda.empty_cache()
    assert "expm" in weft.cuda.host_ops()
    with pytest.raises(DeviceError, match="there is no GPU 99"):
        weft.cuda.synchronize(99)
    with pytest.raises(DeviceError, match="there is no device 'cuda:99'"):
        weft.ones(2).to("cuda:99")


@pytest.mark.skipif(weft.cuda.device_count() == 1, reason="there is only one GPU")
def test_several_gpus() -> None:
    x = weft.ones((2,), device="cuda:1")
    assert str((x * 2 + 1).device) == "cuda:1"
    with weft.cuda.device(1) as chosen:
        assert str(chosen) == "cuda:1"
        assert str(weft.zeros((1,), device="cuda").device) == "cuda:1"
    assert str(weft.zeros((1,), device="cuda").device) == "cuda"
    with pytest.raises(DeviceError, match="different devices"):
        x + weft.ones((2,), device="cuda")
    assert str(x.to("cuda").device) == "cuda"


@pytest.mark.skipif(not REAL, reason="there is no GPU")
def test_memory_is_counted() -> None:
    weft.cuda.reset_peak_memory_stats()
    before = weft.cuda.memory_allocated()
    x = weft.zeros((1 << 20,), device="cuda")
    assert weft.cuda.memory_allocated() - before >= 4 << 20
    y = x + 1
    del y
    assert weft.cuda.max_memory_allocated() - before >= 8 << 20
    assert weft.cuda.mem_get_info()[0] > 0


@pytest.mark.skipif(not REAL, reason="there is no GPU")
def test_streams_and_events() -> None:
    first, last = weft.cuda.Event(enable_timing=True), weft.cuda.Event(enable_timing=True)
    with weft.cuda.stream(weft.cuda.Stream()):
        first.record()
        x = weft.ones((64,), device="cuda") * 3
        last.record()
    last.synchronize()
    assert first.elapsed_time(last) >= 0
    assert x.sum().item() == 192


@pytest.mark.skipif(not REAL, reason="there is no GPU")
def test_dlpack_with_cupy_and_torch() -> None:
    import cupy

    x = weft.arange(4, dtype=weft.float32, device="cuda")
    theirs = cupy.from_dlpack(x)
    theirs += 1
    assert x.tolist() == [0.0, 1.0, 2.0, 3.0]
    back = weft.from_dlpack(theirs)
    theirs += 1
    assert (back.tolist(), str(back.device)) == ([1.0, 2.0, 3.0, 4.0], "cuda")
    assert weft.asarray(theirs).tolist() == [2.0, 3.0, 4.0, 5.0]
    real_torch = pytest.importorskip("torch")
    for dtype in (real_torch.float32, real_torch.bfloat16, real_torch.int64):
        given = real_torch.arange(3, device="cuda").to(dtype)
        mine = weft.from_dlpack(given)
        assert mine.tolist() == [0, 1, 2]
        assert real_torch.equal(real_torch.from_dlpack(mine * 2), given * 2)
