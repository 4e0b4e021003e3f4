"""Tensors of `weft.torch`: their class in results, compiled code, transforms and modules."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
from op_db_calls import Arguments, function_of, stored_calls, tensors_of
from op_db_rows import NOT_COVERED

import weft
import weft.torch as torch
import weft.torch.nn as nn
from weft.torch import names

WITHOUT = {name for names_ in NOT_COVERED.values() for name in names_}


def is_ours(*tensors: Any) -> bool:
    return all(isinstance(x, torch.Tensor) for x in tensors)


def test_results_are_of_the_class_of_operands() -> None:
    x, plain = torch.tensor([1.0, 2.0]), weft.tensor([3.0, 4.0])
    parameter = weft.nn.Parameter(plain)
    assert is_ours(x + 1, 1 - x, x[0], x.sum(), torch.sin(x), x.clone(), x.detach(), -x)
    assert is_ours(x + plain, plain + x, plain @ x, parameter * x, x * parameter)
    assert is_ours(weft.concat([plain, x]), weft.where(plain > 3, plain, x))
    assert is_ours(*weft.linalg.svd(torch.eye(2)))
    for out in (plain + 1, plain @ plain, weft.sin(plain), parameter * 2):
        assert type(out) is weft.Tensor


@pytest.mark.parametrize("backend", ["interpret", "native"])
def test_compiled_code_means_the_same(backend: str) -> None:
    def f(x: Any, y: Any) -> Any:
        value, index = x.max(1)
        return value * y.std(), index, x.repeat(1, 2), x.size(0)

    compiled = torch.compile(f, backend=backend)
    for rows in (2, 2, 3, 4):
        x = torch.arange(rows * 3.0).view(rows, 3)
        y = torch.tensor([1.0, 2.0, 4.0])
        found, wanted = compiled(x, y), f(x, y)
        assert is_ours(*found[:3])
        assert found[3] == rows
        for one, other in zip(found[:3], wanted[:3], strict=True):
            np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-6)


def test_a_recording_of_a_plain_tensor_is_not_used_for_ours() -> None:
    @weft.compile(backend="native")
    def f(x: Any) -> Any:
        return x.std()

    values = [1.0, 2.0, 4.0]
    for _ in range(2):
        assert f(weft.tensor(values)).item() == pytest.approx(np.std(values))
        assert f(torch.tensor(values)).item() == pytest.approx(np.std(values, ddof=1))


@pytest.mark.parametrize("backend", ["interpret", "native"])
def test_a_training_step_compiles(backend: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))
    twin = copy.deepcopy(model)
    x, y = torch.randn(16, 3), torch.randint(0, 2, (16,))

    def trained(model: Any, make: Any) -> list[float]:
        optimizer = torch.optim.Adam(model.parameters(), lr=0.05)

        def step(x: Any, y: Any) -> Any:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss.detach()

        made = make(step)
        return [made(x, y).item() for _ in range(5)]

    eager = trained(model, lambda step: step)
    compiled = trained(twin, lambda step: torch.compile(step, backend=backend))
    np.testing.assert_allclose(compiled, eager, rtol=1e-4)
    assert eager[-1] < eager[0]


def test_transforms_hand_out_our_tensors() -> None:
    seen = []

    def f(x: Any) -> Any:
        seen.append(is_ours(x))
        return x.max(0).values ** 2

    x = torch.tensor([[1.0, 3.0], [5.0, 2.0]])
    mapped = torch.vmap(f)(x)
    gradient = torch.func.grad(f)(x[0])
    jacobian = torch.func.jacrev(f)(x[0])
    value, tangent = torch.func.jvp(f, (x[0],), (torch.ones(2),))
    assert is_ours(mapped, gradient, jacobian, value, tangent)
    assert all(seen)
    assert mapped.tolist() == [9.0, 25.0]
    assert gradient.tolist() == jacobian.tolist() == [0.0, 6.0]
    assert tangent.item() == 6.0


def test_gradients_are_our_tensors() -> None:
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    (x * x).sum().backward()
    assert is_ours(x.grad)
    assert x.grad.max(0).indices.item() == 2
    (again,) = torch.autograd.grad((x**3).sum(), x)
    assert is_ours(again)
    x.grad = None
    assert x.grad is None


@pytest.mark.filterwarnings("ignore:.*a hook or a backward of a Function writes")
@pytest.mark.parametrize("backend", [None, "interpret", "native"])
def test_a_function_of_ones_own_gets_our_tensors(backend: str | None) -> None:
    seen = []

    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (x,) = ctx.saved_tensors
            seen.extend([is_ours(x), is_ours(g)])
            return g * 3 * x**2

    def f(x: Any) -> Any:
        return Cube.apply(x).sum()

    run = f if backend is None else torch.compile(f, backend=backend)
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    run(x).backward()
    assert seen
    assert all(seen)
    assert x.grad.tolist() == [3.0, 12.0]


def test_modules_have_our_parameters_and_buffers() -> None:
    norm = nn.BatchNorm1d(3)
    attention = nn.MultiheadAttention(4, 2)
    members = [*norm.parameters(), *norm.buffers(), *attention.parameters()]
    assert is_ours(*members)
    assert isinstance(attention.out_proj, nn.Linear)  # made by Weft's own code
    assert not isinstance(norm, nn.Linear)
    assert isinstance(attention, nn.Module)
    assert isinstance(norm, weft.nn.Module)
    assert is_ours(*norm.state_dict().values())


def test_a_module_of_ones_own() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(2))
            self.register_buffer("shift", torch.zeros(2))
            self.layers = nn.ModuleList([nn.Linear(2, 2) for _ in range(2)])

        def forward(self, x: Any) -> Any:
            for layer in self.layers:
                x = layer(x)
            return x * self.scale + self.shift

    net = Net()
    assert [name for name, _ in net.named_parameters()][:2] == ["scale", "layers.0.weight"]
    assert is_ours(net(torch.ones(3, 2)), *net.parameters())
    twin = copy.deepcopy(net)
    assert type(twin) is Net
    assert is_ours(*twin.parameters())


def test_pickle_and_copy_keep_the_class() -> None:
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    for other in (copy.copy(x), copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert is_ours(other)
        assert other.requires_grad
        assert other.tolist() == [1.0, 2.0]
    linear = pickle.loads(pickle.dumps(nn.Linear(2, 3)))
    assert isinstance(linear, nn.Linear)


def test_batches_are_our_tensors() -> None:
    data = torch.utils.data.TensorDataset(torch.arange(6.0).view(3, 2), torch.arange(3))
    for x, y in torch.utils.data.DataLoader(data, batch_size=2):
        assert is_ours(x, y)
    plain = torch.utils.data.TensorDataset(weft.arange(4))
    assert all(is_ours(x) for (x,) in torch.utils.data.DataLoader(plain, batch_size=2))
    assert type(plain.tensors[0]) is weft.Tensor
    for (x,) in torch.utils.data.DataLoader(plain, batch_size=None):
        assert x.ndim == 0
    assert type(plain.tensors[0]) is weft.Tensor


def test_what_does_not_exist_here_says_so() -> None:
    assert torch.cuda.device_count() == 0
    with pytest.raises(NotImplementedError, match=r"torch\.compile"):
        torch.jit.script(lambda x: x)
    with pytest.raises(weft.errors.DeviceError, match=r"needs CuPy|no usable GPU"):
        torch.ones(2).cuda()
    with pytest.raises(weft.errors.DeviceError, match=r"needs CuPy|no usable GPU"):
        nn.Linear(2, 2).cuda()


@pytest.mark.parametrize("backend", [None, "interpret", "native"])
def test_distributions_hand_out_our_tensors(backend: str | None) -> None:
    from_numbers = torch.distributions.Normal(0.0, 1.0)
    assert is_ours(from_numbers.sample((3,)), from_numbers.mean, from_numbers.entropy())

    def f(logits: Any, action: Any) -> Any:
        policy = torch.distributions.Categorical(logits=logits)
        other = torch.distributions.Categorical(logits=logits * 2)
        kl = torch.distributions.kl_divergence(policy, other)
        return policy.log_prob(action), policy.entropy(), policy.sample(), kl

    run = f if backend is None else torch.compile(f, backend=backend)
    logits = torch.tensor([[1.0, 2.0, 0.5]], requires_grad=True)
    log_prob, entropy, action, kl = run(logits, torch.tensor([1]))
    assert is_ours(log_prob, entropy, action, kl)
    assert log_prob.item() == pytest.approx(nn.functional.log_softmax(logits, -1)[0, 1].item())
    assert action.dtype == torch.int64
    (-log_prob + entropy).sum().backward()
    assert is_ours(logits.grad)


def test_the_table_of_names_is_filled() -> None:
    waiting = {"autocast", "cholesky_solve", "frexp", "index_reduce", "unravel_index"}
    assert set(names.MISSING) <= waiting
    assert len(names.__all__) > 250
    assert all(getattr(torch, name) is not None for name in names.__all__)


def test_samples_of_all_ops_give_tensors_of_this_namespace() -> None:
    """PyTorch's own samples: `F.pad(x, (1, 1)).max(1)` is a pair, as it is for x."""
    lost = set()
    for name, calls in stored_calls().items():
        function = function_of(name)
        for call in [] if name in WITHOUT or function is None else calls:
            found = Arguments([], [])
            args = [found.value(x) for x in call["args"]]
            out = function(*args, **{key: found.value(x) for key, x in call["kwargs"].items()})
            if not all(isinstance(x, torch.Tensor) for x in tensors_of(out)):
                lost.add(name)
    assert not lost


def test_functional_call_and_stacked_modules() -> None:
    models = [nn.Linear(3, 2) for _ in range(4)]
    params, buffers = torch.func.stack_module_state(models)
    assert params["weight"].shape == (4, 2, 3)
    assert params["weight"].requires_grad
    assert not buffers
    x = torch.randn(5, 3)

    def call(params: Any, x: Any) -> Any:
        return torch.func.functional_call(models[0], (params, buffers), (x,))

    found = torch.vmap(call, in_dims=(0, None))(params, x)
    assert is_ours(found)
    for out, model in zip(found, models, strict=True):
        np.testing.assert_allclose(out.detach().numpy(), model(x).detach().numpy(), rtol=1e-5)
    one = torch.func.functional_call(models[0], dict(models[1].named_parameters()), x)
    assert torch.allclose(one, models[1](x))


@pytest.mark.parametrize(("dynamic", "recordings"), [(None, 2), (True, 1), (False, 3)])
def test_compile_dynamic(dynamic: bool | None, recordings: int) -> None:
    compiled = torch.compile(lambda x: x * 2, dynamic=dynamic)
    for size in (2, 3, 5):
        assert compiled(torch.ones(size)).sum() == 2 * size
    assert len(compiled.recordings) == recordings


FORMS: dict[str, Any] = {
    "grad of a dict": lambda: torch.func.grad(lambda p, x: (p["w"] * x).std()),
    "grad of an argument": lambda: torch.func.grad(lambda p, x: (p["w"] * x).std(), argnums=1),
    "vmap of grad": lambda: torch.vmap(
        torch.func.grad(lambda p, x: (p["w"] * x).std()), in_dims=(None, 0)
    ),
    "jacrev": lambda: torch.func.jacrev(lambda p, x: p["w"] * x),
    "hessian": lambda: torch.func.hessian(lambda p, x: (p["w"] ** 3 * x).sum()),
    "grad_and_value": lambda: torch.func.grad_and_value(lambda p, x: (p["w"] * x).std()),
}


@pytest.mark.parametrize("name", FORMS)
def test_transforms_of_structures_compile(name: str) -> None:
    """As one graph: a warning that it runs as plain Python is an error here."""
    made = FORMS[name]()
    compiled = torch.compile(made, backend="interpret")
    for scale in (1.0, 1.0, 2.0):
        params = {"w": torch.tensor([1.0, 2.0, 4.0]) * scale}
        x = torch.tensor([[1.0, 0.5, 2.0], [3.0, 1.0, 1.0]])
        for one, other in zip(
            tensors_of(compiled(params, x)), tensors_of(made(params, x)), strict=True
        ):
            assert is_ours(one, other)
            np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-5)
    assert len(compiled.recordings) == 1


def test_gradients_of_core_functions_are_of_the_class_of_the_arguments() -> None:
    x = torch.tensor([1.0, 2.0])
    f = lambda x: (x * x).sum()  # noqa: E731
    value, pull = weft.vjp(torch.sin, x)
    assert is_ours(weft.grad(f)(x), *weft.value_and_grad(f)(x), weft.hessian(f)(x))
    assert is_ours(value, *pull(x), *weft.jvp(torch.sin, (x,), (x,)), weft.jacfwd(torch.sin)(x))
    assert is_ours(weft.grad(lambda x: weft.zeros(()))(x), weft.linearize(torch.sin, x)[1](x))
    y = x.clone().requires_grad_()
    assert is_ours(*weft.autograd.grad(f(y), [y]))
    assert type(weft.grad(f)(weft.ones(2))) is weft.Tensor


def test_arguments_that_only_pytorch_has() -> None:
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    y = (x * x).sum()
    (g,) = torch.autograd.grad(y, x, None, True, False, True, None)
    (h,) = torch.autograd.grad(outputs=y, inputs=x, retain_graph=True, only_inputs=True)
    assert g.tolist() == h.tolist() == [2.0, 4.0]
    with pytest.raises(ValueError, match="backward"):
        torch.autograd.grad(y, x, only_inputs=False)
    assert [len(part) for part in x.split(split_size=1, dim=0)] == [1, 1]
    assert torch.fft.fftn(torch.ones(2, 2), (2, 2), (0, 1), "ortho").shape == (2, 2)


def test_python_floats_are_float64_in_batches() -> None:
    samples = [{"a": 1.0, "b": [1, 2.0]}, {"a": 3.0, "b": [4, 5.0]}]
    for batch in (
        torch.utils.data.default_collate(samples),
        next(iter(torch.utils.data.DataLoader(samples, batch_size=2))),
    ):
        assert (batch["a"].dtype, batch["b"][1].dtype) == (torch.float64, torch.float64)
        assert batch["b"][0].dtype is torch.int64
        assert is_ours(batch["a"], *batch["b"])
    plain = weft.data.collate(samples)
    assert plain["a"].dtype is weft.float32


def test_the_class_of_tensors_makes_some_in_compiled_code() -> None:
    def f(x: Any) -> Any:
        return torch.cat([x, torch.Tensor([1e10]).expand(1), torch.Tensor(2).fill_(3.0)])

    compiled = torch.compile(f, backend="interpret")
    for value in (1.0, 2.0):
        x = torch.full((2,), value)
        assert compiled(x).tolist() == f(x).tolist()
    assert len(compiled.recordings) == 1
    assert torch.Tensor(2, 3).shape == (2, 3)
    assert torch.Tensor().shape == (0,)
