"""The class of every result of `weft.torch`: eagerly, compiled, in loops, under transforms.

A tensor of another class has other meanings: `std` by n, `max(0)` without indices. Each row gives
tensors; of each, the test looks at the class and at a number that depends on it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
import weft.torch as torch
import weft.torch.nn as nn
import weft.torch.nn.functional as F
from weft.base.pytree import tree_flatten

Function = Callable[..., Any]


def told(tree: Any) -> list[Any]:
    """For each tensor: whether it is one of `weft.torch`, and its standard deviation there."""
    tensors = [x for x in tree_flatten(tree)[0] if isinstance(x, weft.Tensor)]
    classes = tuple([isinstance(x, torch.Tensor) for x in tensors])
    return [classes, [x.double().std() if x.numel() > 1 else x for x in tensors]]


# --- control flow --------------------------------------------------------------------------------


def a_loop(x: Any) -> Any:
    h, total, kept = torch.zeros(3), 0, []
    for row in x:
        h = torch.tanh(h + row)
        total = total + h.std()
        kept.append(h)
    return h, total, torch.stack(kept), kept[0]


def a_loop_over_indices(x: Any) -> Any:
    h = x[0]
    for i in range(x.size(0)):
        h = h * 0.5 + x[i].std()
    return h


def a_loop_that_starts_with_a_core_tensor(x: Any) -> Any:
    h = weft.zeros(3)
    for row in x:
        h = h + row * h.std()
    return h


def a_loop_until(x: Any) -> Any:
    while x.std() < 20:
        x = x * 2
    return x


def a_loop_with_break(x: Any) -> Any:
    h = torch.zeros(3)
    for row in x:
        h = h + row
        if h.sum() > 8:
            break
    return h


def a_branch(x: Any) -> Any:
    if x.std() > 1:
        y, z = x * 2, x.std()
    else:
        y, z = x + 1, x.sum()
    return y, z


def a_branch_in_a_loop(x: Any) -> Any:
    best = torch.full((3,), -9.0)
    for row in x:
        if row.std() > best.std():
            best = row * 1
    return best


def a_dict_in_a_loop(x: Any) -> Any:
    state = {"m": torch.zeros(3), "n": 0}
    for row in x:
        state["m"] = 0.9 * state["m"] + row.std()
        state["n"] += 1
    return state


def a_list_that_grows(x: Any) -> Any:
    kept = []
    for row in x:
        if row.sum() > 2:
            kept.append(row * 2)  # noqa: PERF401 - it is about such a list
    return torch.stack(kept)


def a_scan(x: Any) -> Any:
    return weft.scan(lambda c, row: (c + row.std(), row * c), x[0], x)


def a_scan_from_a_core_tensor(x: Any) -> Any:
    return weft.scan(lambda c, row: (c + row.std(), c * 2), weft.zeros(3), x)


CONTROL: dict[str, Function] = {
    f.__name__: f
    for f in (
        *(a_loop, a_loop_over_indices, a_loop_that_starts_with_a_core_tensor, a_loop_until),
        *(a_loop_with_break, a_branch, a_branch_in_a_loop, a_dict_in_a_loop, a_list_that_grows),
        *(a_scan, a_scan_from_a_core_tensor),
    )
}
CONTROL |= {
    "scan in reverse": lambda x: weft.scan(lambda c, r: (r, r + c), x[0], x, reverse=True),
    "scan of nothing": lambda x: weft.scan(lambda c, r: (c + r, (r, r.std())), x[0], x[:0]),
    "scan in chunks": lambda x: weft.scan(lambda c, r: (c + r, c), x[0], x, unroll=2),
    "while_loop": lambda x: weft.while_loop(lambda x: x.std() < 20, lambda x: x * 2, x),
    "fori_loop": lambda x: weft.fori_loop(0, 3, lambda i, x: x * x.std(), x),
    "map": lambda x: weft.map(lambda row: row * row.std(), x),
    "cond": lambda x: weft.cond(x.std() > 1, lambda x: x.std(), lambda x: x.sum(), x),
    "switch": lambda x: weft.switch(
        x[0, 0].long(), [lambda x: x * 2, lambda x: x + x.std(), lambda x: x], x
    ),
    "checkpoint": lambda x: torch.utils.checkpoint.checkpoint(
        lambda x: x * x.std(), x, use_reentrant=False
    ),
}
#: Each element takes its own way: for `vmap`.
EACH = ("a_branch", "a_loop_until", "while_loop", "cond", "a_scan", "a_loop", "fori_loop")

X = np.array([[1.0, 2.0, 4.0], [3.0, -1.0, 0.5], [2.0, 2.5, 8.0], [0.5, 1.0, 1.0]], np.float32)


def same(found: Any, wanted: Any) -> None:
    assert found[0] == wanted[0] == (True,) * len(wanted[0])
    for one, other in zip(found[1], wanted[1], strict=True):
        np.testing.assert_allclose(one.detach().numpy(), other.detach().numpy(), rtol=1e-5)


@pytest.mark.parametrize("backend", ["interpret", "native"])
@pytest.mark.parametrize("name", CONTROL)
def test_control_flow_keeps_the_class(name: str, backend: str) -> None:
    function = CONTROL[name]
    compiled = torch.compile(lambda x: told(function(x)), backend=backend)
    for scale in (1.0, 1.0, 1.5):
        x = torch.tensor(X * np.float32(scale))
        same(compiled(x), told(function(x)))


@pytest.mark.parametrize("name", CONTROL)
def test_control_flow_under_gradients_keeps_the_class(name: str) -> None:
    function = CONTROL[name]

    def loss(x: Any) -> Any:
        return sum(s.sum() for s in told(function(x))[1])

    def f(x: Any) -> Any:
        return told((torch.func.grad(loss)(x), x))

    compiled = torch.compile(f, backend="interpret")
    for _ in range(2):
        same(compiled(torch.tensor(X)), f(torch.tensor(X)))


@pytest.mark.parametrize("name", EACH)
def test_control_flow_of_elements_keeps_the_class(name: str) -> None:
    function = CONTROL[name]
    x = torch.tensor(np.stack([X, X * 0.25, X * 3]))
    found = torch.compile(torch.vmap(lambda x: told(function(x))[1]), backend="interpret")(x)
    for i, row in enumerate(x):
        for got, wanted in zip(found, told(function(row))[1], strict=True):
            assert isinstance(got, torch.Tensor)
            np.testing.assert_allclose(got[i].numpy(), wanted.numpy(), rtol=1e-5)


def test_recorded_graphs_see_the_class_of_their_arguments() -> None:
    graph = weft.make_graph(lambda x: x.std(), torch.tensor(X))
    found = graph(torch.tensor(X))
    assert isinstance(found, torch.Tensor)
    assert found.item() == pytest.approx(X.std(ddof=1))


# --- functions and modules -----------------------------------------------------------------------
# Samples of the functions of tensors are in `test_tensor_class`; these have no tensor to take the
# class from, keep some, or compute by control flow.

S = torch.tensor(np.arange(40.0).reshape(5, 2, 4) / 10, dtype=torch.float32)
IMAGE = torch.ones(1, 2, 4, 4)


def packed() -> Any:
    return nn.utils.rnn.pack_padded_sequence(S, [3, 5], enforce_sorted=False)


def a_hook() -> Any:
    seen: list[Any] = []
    w = torch.ones(3, requires_grad=True)
    y = w * 2
    y.register_hook(seen.append)
    w.register_hook(seen.append)
    w.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad))
    (y * y).sum().backward()
    return seen


def hooks_of_a_module() -> Any:
    seen: list[Any] = []
    layer = nn.Linear(4, 2)
    layer.register_forward_pre_hook(lambda m, given: seen.extend(given))
    layer.register_forward_hook(lambda m, given, out: seen.extend([*given, out]))
    layer.register_full_backward_hook(lambda m, after, before: seen.extend([*after, *before]))
    layer(torch.ones(3, 4, requires_grad=True)).sum().backward()
    return seen


def optimizer_state(name: str) -> Function:
    def run() -> Any:
        w = torch.ones(3, requires_grad=True)
        optimizer = getattr(torch.optim, name)([w], lr=0.1)
        (w * w).sum().backward()
        optimizer.step()
        return list(optimizer.state.values()), optimizer.state_dict()["state"], w.grad

    return run


LIBRARY: dict[str, Function] = {
    **{f.__name__: f for f in (a_hook, hooks_of_a_module)},
    **{f"state of {name}": optimizer_state(name) for name in ("Adam", "RMSprop", "Adagrad", "SGD")},
    "RNN": lambda: nn.RNN(4, 3, 2)(S),
    "LSTM": lambda: nn.LSTM(4, 3, 2)(S),
    "GRU": lambda: nn.GRU(4, 3, 2)(S),
    "bidirectional": lambda: nn.LSTM(4, 3, bidirectional=True)(S),
    "from states": lambda: nn.GRU(4, 3)(S, torch.zeros(1, 2, 3)),
    "LSTMCell": lambda: nn.LSTMCell(4, 3)(S[0]),
    "GRUCell": lambda: nn.GRUCell(4, 3)(S[0]),
    "a packed LSTM": lambda: nn.LSTM(4, 3)(packed()),
    "parts of a packed sequence": lambda: (
        packed().data,
        packed().batch_sizes,
        packed().sorted_indices,
        packed().unsorted_indices,
    ),
    "pad_packed_sequence": lambda: nn.utils.rnn.pad_packed_sequence(packed()),
    "unpack_sequence": lambda: nn.utils.rnn.unpack_sequence(packed()),
    "pad_sequence": lambda: nn.utils.rnn.pad_sequence([S[0], S[0, :1]]),
    "ctc_loss": lambda: F.ctc_loss(
        F.log_softmax(S, 2), torch.tensor([[1], [2]]), (5, 4), (1, 1), reduction="none"
    ),
    "MultiheadAttention": lambda: nn.MultiheadAttention(4, 2)(S, S, S),
    "Transformer": lambda: nn.Transformer(4, 2, 1, 1, 8)(S, S),
    "a causal mask": lambda: nn.Transformer.generate_square_subsequent_mask(3),
    "BatchNorm2d": lambda: list(nn.BatchNorm2d(4).state_dict().values()),
    "max_pool2d": lambda: F.max_pool2d(IMAGE, 2, return_indices=True),
    "max_unpool2d": lambda: F.max_unpool2d(*F.max_pool2d(IMAGE, 2, return_indices=True), 2),
    "AdaptiveLogSoftmaxWithLoss": lambda: nn.AdaptiveLogSoftmaxWithLoss(4, 6, [3])(
        S[0], torch.tensor([1, 4])
    ),
    "spectral_norm": lambda: nn.utils.spectral_norm(nn.Linear(4, 2))(S),
    "weight_norm": lambda: nn.utils.weight_norm(nn.Linear(4, 2))(S),
    "parameters_to_vector": lambda: nn.utils.parameters_to_vector(nn.Linear(2, 2).parameters()),
    "lstsq": lambda: tuple(torch.linalg.lstsq(S[:4, 0], S[:4, 0])),
    "fftfreq": lambda: (torch.fft.fftfreq(4, 0.5), torch.fft.rfftfreq(4)),
    "windows": lambda: torch.signal.windows.hann(4),
    "indices": lambda: (torch.tril_indices(3, 3), torch.triu_indices(3, 3)),
    "draws": lambda: (
        torch.rand(2),
        torch.randn(2),
        torch.randint(0, 3, (2,)),
        torch.randperm(3),
        torch.normal(0.0, 1.0, (2,)),
        torch.multinomial(torch.ones(3), 2),
    ),
    "get_rng_state": lambda: torch.get_rng_state(),
    "distributions": lambda: [
        torch.distributions.Normal(0.0, 1.0).sample((2,)),
        torch.distributions.Categorical(torch.ones(3)).sample(),
        torch.distributions.Beta(1.0, 2.0).entropy(),
        torch.distributions.MultivariateNormal(torch.zeros(2), torch.eye(2)).rsample(),
        torch.distributions.Bernoulli(0.5).sample((3,)),
    ],
}


@pytest.mark.parametrize("name", LIBRARY)
def test_functions_give_tensors_of_the_class(name: str) -> None:
    function = LIBRARY[name]
    compiled = torch.compile(function, backend="interpret")
    for run in (function, compiled, compiled):
        found = [x for x in tree_flatten(run())[0] if isinstance(x, weft.Tensor)]
        assert found
        assert all(isinstance(x, torch.Tensor) for x in found)
