"""Hooks on modules: order, replacement, gradients, removal."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from nn_samples.table import values

import weft
from weft import nn


def layer() -> nn.Linear:
    made = nn.Linear(3, 2).double()
    with weft.no_grad():
        made.weight.copy_(weft.asarray(values(2, 3)))
    return made


X = values(4, 3)


def test_pre_hooks_see_and_replace_arguments() -> None:
    module = layer()
    seen: list[str] = []
    x = weft.asarray(X)
    plain = module(x)
    first = module.register_forward_pre_hook(lambda m, args: seen.append("a"))
    module.register_forward_pre_hook(lambda m, args: (args[0] * 2,))
    module.register_forward_pre_hook(lambda m, args: args[0] + 0)
    module.register_forward_pre_hook(lambda m, args: seen.append("z"), prepend=True)
    doubled = module(x)
    assert seen == ["z", "a"]
    np.testing.assert_allclose(
        (doubled - module.bias).detach().numpy(), 2 * (plain - module.bias).detach().numpy()
    )
    first.remove()
    first.remove()  # a second time changes nothing
    module(x)
    assert seen == ["z", "a", "z"]


def test_hooks_with_keywords() -> None:
    class Scaled(nn.Module):
        def forward(self, x: Any, *, by: float = 1.0) -> Any:
            return x * by

    module = Scaled()
    module.register_forward_pre_hook(
        lambda m, args, kwargs: (args, {"by": kwargs["by"] + 1}), with_kwargs=True
    )
    module.register_forward_hook(lambda m, args, kwargs, out: out + kwargs["by"], with_kwargs=True)
    assert module(weft.asarray(10.0), by=1.0) == 22


def test_forward_hooks_see_and_replace_the_result() -> None:
    module = layer()
    results: list[Any] = []
    with module.register_forward_hook(lambda m, args, out: results.append((args, out))):
        module.register_forward_hook(lambda m, args, out: (out, out))
        out = module(weft.asarray(X))
    assert out[0] is results[0][1]
    assert results[0][0][0].shape == (4, 3)
    module(weft.asarray(X))
    assert len(results) == 1


def test_without_hooks_calling_is_forward() -> None:
    module = layer()
    handles = [
        module.register_forward_hook(print),
        module.register_forward_pre_hook(print),
        module.register_full_backward_hook(print),
        module.register_full_backward_pre_hook(print),
    ]
    for handle in handles:
        assert module._module_hooks is not None
        handle.remove()
    assert module._module_hooks is None


def test_always_called_hooks() -> None:
    class Broken(nn.Module):
        def forward(self, x: Any) -> Any:
            raise RuntimeError("broken")

    module = Broken()
    seen: list[Any] = []
    module.register_forward_hook(lambda m, args, out: seen.append("usual"))
    module.register_forward_hook(lambda m, args, out: seen.append(out), always_call=True)
    with pytest.raises(RuntimeError, match="broken"):
        module(1)
    assert seen == [None]


def test_backward_hooks_see_gradients() -> None:
    module = layer()
    seen: dict[str, Any] = {}

    def before(m: Any, grad_output: Any) -> None:
        seen["before"] = grad_output

    def after(m: Any, grad_input: Any, grad_output: Any) -> None:
        seen["after"] = (grad_input, grad_output)

    module.register_full_backward_pre_hook(before)
    module.register_full_backward_hook(after)
    x = weft.tensor(X, requires_grad=True)
    other = (x * 3).sum()  # gradients by another way are none of the module's
    g = values(4, 2, seed=1)
    ((module(x) * weft.asarray(g)).sum() + other).backward()
    np.testing.assert_allclose(seen["before"][0].numpy(), g)
    np.testing.assert_allclose(seen["after"][1][0].numpy(), g)
    through = g @ module.weight.detach().numpy()
    np.testing.assert_allclose(seen["after"][0][0].numpy(), through)
    np.testing.assert_allclose(x.grad.numpy(), through + 3)
    np.testing.assert_allclose(module.weight.grad.numpy(), g.T @ X)


def test_backward_hooks_replace_gradients() -> None:
    module = layer()
    module.register_full_backward_pre_hook(lambda m, grads: (grads[0] * 2,))
    module.register_full_backward_hook(lambda m, into, outof: (into[0] * 10,))
    x = weft.tensor(X, requires_grad=True)
    module(x).sum().backward()
    np.testing.assert_allclose(
        x.grad.numpy(), 20 * np.ones((4, 2)) @ module.weight.detach().numpy()
    )
    np.testing.assert_allclose(module.bias.grad.numpy(), [8, 8])


def test_backward_hooks_where_no_input_wants_a_gradient() -> None:
    module = layer()
    seen: list[Any] = []
    module.register_full_backward_hook(lambda m, into, outof: seen.append((into, outof)))
    module(weft.asarray(X)).sum().backward()
    assert seen[0][0] == (None,)
    np.testing.assert_array_equal(seen[0][1][0].numpy(), np.ones((4, 2)))


def test_backward_hooks_of_several_inputs_and_outputs() -> None:
    class Pair(nn.Module):
        def forward(self, a: Any, n: int, b: Any) -> Any:
            return a * b, n, a + b

    module = Pair()
    seen: list[Any] = []
    module.register_full_backward_hook(lambda m, into, outof: seen.append((into, outof)))
    a, b = weft.tensor([2.0], requires_grad=True), weft.tensor([3.0], requires_grad=True)
    first, n, second = module(a, 7, b)
    assert n == 7
    (first + 10 * second).sum().backward()
    (into, outof) = seen[0]
    assert [g if g is None else g.item() for g in into] == [13, None, 12]
    assert [g if g is None else g.item() for g in outof] == [1, None, 10]
    first, _, _ = module(a, 7, b)  # only one output is used
    first.sum().backward()
    assert seen[1][1][2] is None
    module.register_full_backward_hook(lambda m, into, outof: (into[0],))
    with pytest.raises(weft.errors.GradientError, match="1 parts of grad_input, not 3"):
        sum(y.sum() for y in module(a, 7, b) if isinstance(y, weft.Tensor)).backward()


def test_backward_hooks_and_second_derivatives() -> None:
    module = nn.Tanh()
    module.register_full_backward_hook(lambda m, into, outof: (into[0] * 2,))
    x = weft.tensor([0.3], dtype=weft.float64, requires_grad=True)
    (g,) = weft.autograd.grad(module(x).sum(), x, create_graph=True)
    (second,) = weft.autograd.grad(g.sum(), x)
    t = np.tanh(0.3)
    np.testing.assert_allclose(second.numpy(), [2 * -2 * t * (1 - t * t)], rtol=1e-12)
