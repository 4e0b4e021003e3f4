"""The dynamic graph: what is recorded, how backward runs, modes, writes, errors."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
import time
import weakref
from typing import Any

import numpy as np
import pytest
from leaves import leaf

import weft
from weft.autodiff import node
from weft.base.errors import GradientError
from weft.core.bind import set_grad

# --- the graph ---------------------------------------------------------------------------------


def test_leaves_results_and_constants() -> None:
    x, c = leaf(1.0, 2.0), weft.tensor([3.0, 4.0], dtype=weft.float64)
    assert (x.requires_grad, x.is_leaf, x.grad_fn, x.grad) == (True, True, None, None)
    assert (c.requires_grad, c.is_leaf) == (False, True)
    y = x * c
    assert y.requires_grad
    assert not y.is_leaf
    assert (c + c).requires_grad is False
    assert not (x > 1).requires_grad
    assert not x.astype(weft.int64).requires_grad
    assert repr(x) == "tensor([1., 2.], dtype=float64, requires_grad=True)"
    assert repr(y) == "tensor([3., 8.], dtype=float64, grad_fn=<MulBackward>)"


def test_grad_fn_names_and_next_functions() -> None:
    x, w, b = leaf(1.0), leaf(2.0), leaf(3.0)
    y = weft.tanh(w * x + b)
    assert y.grad_fn.name() == "TanhBackward"
    ((add, index),) = y.grad_fn.next_functions
    assert (add.name(), index) == ("AddBackward", 0)
    (mul, _), (b_node, _) = add.next_functions
    assert mul.name() == "MulBackward"
    assert b_node.name() == "AccumulateGrad"
    assert b_node.variable is b
    assert [node.variable for node, _ in mul.next_functions] == [w, x]
    y.grad_fn.metadata["note"] = 1
    assert y.grad_fn.metadata == {"note": 1}


def test_several_results_are_parts_of_one_node() -> None:
    x = weft.tensor([[2.0, 0.5], [0.5, 1.0]], dtype=weft.float64, requires_grad=True)
    values, vectors = weft.linalg.eigh(x)
    assert values.grad_fn is vectors.grad_fn
    assert values.grad_fn.name() == "EighBackward"
    assert (values.output_nr, vectors.output_nr) == (0, 1)
    values.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), np.eye(2), atol=1e-12)


def test_seed_text_examples() -> None:
    """x**2 + x**3 at 1 has the gradient 5; detach cuts the graph."""
    x = leaf(1.0)
    out = x**2 + x**3
    out.backward()
    assert x.grad.item() == 5
    y = x**2
    w = y.detach() ** 2
    assert not w.requires_grad
    assert weft.stop_gradient(y).requires_grad is False


# --- backward ----------------------------------------------------------------------------------


def test_grad_accumulates_and_keeps_its_object() -> None:
    x = leaf(3.0)
    (x * x).backward()
    first = x.grad
    (x * 2).backward()
    assert x.grad is first
    assert x.grad.item() == 8
    x.grad = None
    (x * x).backward()
    assert x.grad.item() == 6


def test_a_write_to_a_gradient_changes_no_other() -> None:
    x, y = leaf(1.0, 2.0), leaf(3.0, 4.0)
    (x + y).sum().backward()
    x.grad[0] = 100
    assert y.grad.tolist() == [1, 1]


def test_backward_with_a_gradient_and_its_errors() -> None:
    x = leaf(1.0, 2.0)
    y = x * 3
    with pytest.raises(GradientError, match="start from one number, not from 2"):
        y.backward()
    with pytest.raises(ValueError, match="shape"):
        y.backward(weft.ones(3, dtype=weft.float64))
    with pytest.raises(TypeError, match="must be a tensor"):
        y.backward([1, 2])
    y.backward(weft.tensor([1.0, 10.0], dtype=weft.float64))
    assert x.grad.tolist() == [3, 30]
    with pytest.raises(GradientError, match="no history"):
        weft.ones(1).backward()


def test_second_backward_says_what_to_do() -> None:
    x = leaf(2.0)
    y = x * x
    y.backward()
    with pytest.raises(GradientError, match="retain_graph=True") as caught:
        y.backward()
    assert "MulBackward" in str(caught.value)
    z = x * x
    z.backward(retain_graph=True)
    z.backward()
    assert x.grad.item() == 12
    w = x + 1  # keeps nothing: nothing is freed
    w.backward()
    w.backward()


def test_buffers_are_freed_as_backward_runs() -> None:
    x = leaf(*range(10))
    y = weft.exp(x)
    kept = weakref.ref(y._data)
    loss = y.sum()
    del y
    assert kept() is not None
    loss.backward()
    assert kept() is None


@pytest.mark.parametrize(
    ("act", "keeps"),
    [
        (lambda x: x + 1, False),
        (lambda x: x.sum(), False),
        (lambda x: -x, False),
        (lambda x: weft.tanh(x), False),  # the result is kept, not the input
        (lambda x: weft.sin(x), True),
        (lambda x: x * x, True),
    ],
)
def test_a_node_keeps_only_what_its_rule_uses(act: Any, keeps: bool) -> None:
    x = weft.arange(10, dtype=weft.float64).requires_grad_()
    middle = x * 2
    held = weakref.ref(middle._data)
    y = act(middle)
    del middle
    gc.collect()
    assert (held() is not None) == keeps
    assert y.requires_grad


def test_a_long_chain_does_not_overflow() -> None:
    """Neither backward nor taking the graph down recurses; speed is in benchmarks/."""
    x = leaf(1.0)
    y = x
    for _ in range(200_000):
        y = y + 1
    y.backward()
    assert x.grad.item() == 1
    del y
    gc.collect()


def test_a_node_runs_once_after_all_its_consumers() -> None:
    """2**30 paths, 30 nodes."""
    x = leaf(1.0)
    runs = []
    y = x
    for _ in range(30):
        y = y + y
        y.register_hook(lambda g: runs.append(1))
    y.backward()
    assert x.grad.item() == 2**30
    assert len(runs) == 30


def test_gradients_are_summed_in_one_order() -> None:
    rng = np.random.default_rng(0)
    data = rng.standard_normal((5, 100)).astype(np.float32)

    def once() -> bytes:
        x = weft.tensor(data, requires_grad=True)
        y = sum((x[i] * weft.sin(x[j]) for i in range(5) for j in range(5)), start=weft.zeros(100))
        y.sum().backward()
        return bytes(x.grad.numpy().tobytes())

    assert len({once() for _ in range(5)}) == 1


def test_grad_computes_only_what_is_asked_for() -> None:
    x, w = leaf(2.0), leaf(3.0)
    touched = []
    branch = weft.exp(w)
    branch.register_hook(lambda g: touched.append("w"))
    y = x * x * branch
    (gx,) = weft.autograd.grad(y, x, retain_graph=True)
    assert gx.item() == pytest.approx(4 * np.exp(3))
    assert touched == []
    assert x.grad is None
    gx, gw = weft.autograd.grad(y, [x, w])
    assert gw.item() == pytest.approx(4 * np.exp(3))
    assert touched == ["w"]


def test_grad_of_unused_inputs() -> None:
    x, unused = leaf(2.0), leaf(1.0, 2.0)
    with pytest.raises(GradientError, match="allow_unused=True"):
        weft.autograd.grad(x * x, [x, unused])
    assert weft.autograd.grad(x * x, [x, unused], allow_unused=True)[1] is None
    zeros = weft.autograd.grad(x * x, [x, unused], materialize_grads=True)[1]
    assert zeros.tolist() == [0, 0]
    with pytest.raises(GradientError, match="does not require"):
        weft.autograd.grad(x * x, weft.ones(1))


def test_grad_of_an_inner_tensor_and_several_outputs() -> None:
    x = leaf(2.0)
    y = x * x
    z = y * 3
    assert weft.autograd.grad(z, y, retain_graph=True)[0].item() == 3
    both = weft.autograd.grad([y, z], [x], retain_graph=True)
    assert both[0].item() == 16
    weighted = weft.autograd.grad(
        [y, z], [x], grad_outputs=[weft.tensor(1.0, dtype=weft.float64), weft.tensor(0.0)]
    )
    assert weighted[0].item() == 4


def test_backward_with_chosen_inputs() -> None:
    x, w = leaf(2.0), leaf(3.0)
    (x * w).backward(inputs=[x])
    assert x.grad.item() == 3
    assert w.grad is None


def test_higher_orders() -> None:
    x = leaf(1.5)
    y = weft.sin(x) * x
    orders = []
    for _ in range(4):
        (y,) = weft.autograd.grad(y, x, create_graph=True)
        orders.append(y.item())
    s, c = np.sin(1.5), np.cos(1.5)
    np.testing.assert_allclose(
        orders, [s + 1.5 * c, 2 * c - 1.5 * s, -3 * s - 1.5 * c, -4 * c + 1.5 * s]
    )


def test_create_graph_in_backward_leaves_differentiable_gradients() -> None:
    x = leaf(2.0)
    (x**3).backward(create_graph=True)
    g = x.grad
    assert g.requires_grad
    x.grad = None
    g.backward()
    assert x.grad.item() == 12


# --- modes -------------------------------------------------------------------------------------


def test_no_grad_enable_grad_and_decorators() -> None:
    x = leaf(1.0)
    with weft.no_grad():
        assert not weft.is_grad_enabled()
        assert not (x * 2).requires_grad
        with weft.enable_grad():
            assert (x * 2).requires_grad
        assert not (x * 2).requires_grad
    assert (x * 2).requires_grad

    @weft.no_grad()
    def constant(v: weft.Tensor) -> weft.Tensor:
        return v * 2

    assert not constant(x).requires_grad
    assert constant.__name__ == "constant"

    @weft.set_grad_enabled(False)
    def also_constant(v: weft.Tensor) -> weft.Tensor:
        return v * 2

    assert weft.is_grad_enabled()
    assert not also_constant(x).requires_grad

    @weft.no_grad()
    def steps(v: weft.Tensor) -> Any:
        got = yield v * 2
        yield v * got

    generator = steps(x)
    assert not next(generator).requires_grad
    assert (x * 2).requires_grad  # between the steps the mode is the caller's
    assert not generator.send(3.0).requires_grad
    assert list(generator) == []
    with weft.set_grad_enabled(False):
        assert not weft.is_grad_enabled()
    assert weft.is_grad_enabled()
    weft.set_grad_enabled(False)
    assert not weft.is_grad_enabled()
    weft.set_grad_enabled(True)
    with pytest.raises(ZeroDivisionError), weft.no_grad():
        1 / 0  # noqa: B018
    assert weft.is_grad_enabled()


def test_threads_add_to_one_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    w = weft.ones(3).requires_grad_()

    def slowly(tensor: weft.Tensor, gradient: weft.Tensor) -> None:
        time.sleep(0.01)  # the others come here, too
        set_grad(tensor, gradient)

    monkeypatch.setattr(node, "set_grad", slowly)

    def work() -> None:
        for _ in range(3):
            (w * w).sum().backward(create_graph=True)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert w.grad is not None
    assert w.grad.tolist() == [24] * 3


def test_modes_and_graphs_are_per_thread() -> None:
    seen: list[Any] = []

    def work() -> None:
        seen.append(weft.is_grad_enabled())
        x = leaf(3.0)
        for _ in range(50):
            (x * x).backward()
        seen.append(x.grad.item())

    with weft.no_grad():
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert seen.count(True) == 4
    assert seen.count(300.0) == 4


def test_requires_grad_of_leaves_only() -> None:
    x = weft.ones(2)
    assert x.requires_grad_() is x
    y = x * 2
    y.requires_grad = True  # already so
    with pytest.raises(GradientError, match="only leaves"):
        y.requires_grad = False
    x.requires_grad = False
    assert not x.requires_grad
    with pytest.raises(TypeError, match="floating"):
        weft.arange(3).requires_grad_()
    assert not y.detach().requires_grad


def test_grad_attribute_is_checked() -> None:
    x = leaf(1.0, 2.0)
    with pytest.raises(ValueError, match="cannot be"):
        x.grad = weft.ones(3, dtype=weft.float64)
    with pytest.raises(TypeError, match="tensor or None"):
        x.grad = 5


# --- writes ------------------------------------------------------------------------------------


def test_writes_are_differentiable() -> None:
    x, v = leaf(1.0, 2.0, 3.0), leaf(10.0)
    y = x * 2
    y[1] = v
    y += x
    y *= y
    y.sum().backward()
    a, b, c = 3.0, 12.0, 9.0
    assert x.grad.tolist() == [2 * a * 3, 2 * b, 2 * c * 3]
    assert v.grad.item() == 2 * b


def test_a_write_does_not_disturb_what_was_kept() -> None:
    """PyTorch refuses this; here each value is its own."""
    x = leaf(1.0, 2.0)
    y = x * 1
    z = y * y
    y[0] = 100.0
    z.sum().backward()
    assert x.grad.tolist() == [2, 4]


def test_writing_to_a_leaf_needs_no_grad() -> None:
    x = leaf(1.0, 2.0)
    for write in (lambda: x.__setitem__(0, 5.0), lambda: x.__iadd__(1), lambda: x.zero_()):
        with pytest.raises(GradientError, match=r"under weft\.no_grad\(\)"):
            write()
    assert x.tolist() == [1, 2]
    with weft.no_grad():
        x -= 0.5
        x[0] = 7.0
    assert x.tolist() == [7, 1.5]
    assert x.is_leaf
    assert x.requires_grad
    (x * x).sum().backward()
    assert x.grad.tolist() == [14, 3]


def test_masks_and_gathers_in_graphs() -> None:
    x = leaf(1.0, -2.0, 3.0)
    y = x.clone()
    y[y < 0] = 0.0
    (y[weft.asarray([0, 0, 2])] * weft.asarray([1.0, 2.0, 3.0])).sum().backward()
    assert x.grad.tolist() == [3, 0, 3]


def test_rows_read_one_by_one_add_up_in_place() -> None:
    """Slices, rows and the whole of one tensor, in any order, with a hook and twice."""
    x = weft.arange(12, dtype=weft.float64).reshape(4, 3).clone().requires_grad_()
    for _ in range(2):
        x.grad = None
        y = x * 1
        seen: list[Any] = []
        y.register_hook(lambda g, seen=seen: seen.append(g.tolist()))
        total = y[0].sum() + y.sum() + y[1:3, ::2].sum() * 10 + y[-1, 1] * 100 + y[0, 0] * 5
        total.backward()
        want = [[7, 2, 2], [11, 1, 11], [11, 1, 11], [1, 101, 1]]
        assert x.grad.tolist() == want
        assert seen == [want]
    (row,) = weft.autograd.grad(x[2].sum(), x)
    assert row.tolist() == [[0] * 3, [0] * 3, [1] * 3, [0] * 3]
    with weft.detect_anomaly():
        (x[0] * 2).sum().backward()
    z = x[1]
    z.grad_fn.register_hook(lambda ins, outs: (ins[0] * 0,))
    x.grad = None
    z.sum().backward()
    assert x.grad.tolist() == [[0] * 3] * 4


# --- as objects --------------------------------------------------------------------------------


def test_copies_and_pickles_of_leaves_and_results() -> None:
    x = leaf(1.0, 2.0)
    (x * x).sum().backward()
    again = copy.deepcopy(x)
    assert again.requires_grad
    assert again.is_leaf
    assert again.grad.tolist() == [2, 4]
    assert pickle.loads(pickle.dumps(x)).requires_grad
    y = x * 2
    assert not pickle.loads(pickle.dumps(y)).requires_grad
    assert copy.copy(y).requires_grad
    with pytest.raises(GradientError, match="only leaves"):
        copy.deepcopy(y)
    y.clone().sum().backward()
    assert x.grad.tolist() == [4, 6]


@pytest.mark.parametrize("dtype", [weft.float16, weft.bfloat16, weft.float32, weft.complex64])
def test_dtypes_of_gradients(dtype: weft.DType) -> None:
    x = weft.tensor([1.0, 2.0], dtype=dtype, requires_grad=True)
    y = (x * x * 2).sum()
    weft.abs(y).backward()
    assert x.grad.dtype is dtype
    assert x.grad.tolist() == [4, 8]


def test_mixed_dtypes_cast_back() -> None:
    x = weft.tensor([1.0, 2.0], dtype=weft.float32, requires_grad=True)
    w = weft.tensor([3.0, 4.0], dtype=weft.float64, requires_grad=True)
    n = weft.asarray([2, 3])
    (x * w * n).sum().backward()
    assert x.grad.dtype is weft.float32
    assert w.grad.dtype is weft.float64
    assert x.grad.tolist() == [6, 12]


def test_a_leaf_that_changes_its_dtype() -> None:
    """As Module.double() does: the gradient has the dtype of now."""
    layer = weft.nn.Linear(2, 1).double()
    layer(weft.ones((3, 2), dtype=weft.float64)).sum().backward()
    assert layer.weight.grad.dtype is weft.float64
    assert layer.weight.grad.tolist() == [[3, 3]]


def test_backward_from_a_complex_number_needs_a_gradient() -> None:
    z = weft.tensor(1 + 2j, requires_grad=True)
    with pytest.raises(GradientError, match="real number only"):
        (z * z).backward()
    (z * z).backward(weft.tensor(1 + 0j))
    assert z.grad.item() == pytest.approx(2 - 4j)


def test_broadcasting_is_summed_back() -> None:
    x = weft.ones((2, 1, 3), dtype=weft.float64).requires_grad_()
    y = weft.ones((4, 1), dtype=weft.float64).requires_grad_()
    z = leaf(2.0)
    (x * y + z).sum().backward()
    assert x.grad.numpy().tolist() == np.full((2, 1, 3), 4.0).tolist()
    assert y.grad.numpy().tolist() == np.full((4, 1), 6.0).tolist()
    assert z.grad.item() == 24


def test_empty_tensors() -> None:
    x = weft.zeros((0, 3)).requires_grad_()
    (x * 2).sum().backward()
    assert x.grad.shape == (0, 3)


def test_everything_works_after_an_error_in_backward() -> None:
    x = leaf(1.0)

    def fail(g: Any) -> None:
        raise KeyError("mine")

    y = x * 2
    y.register_hook(fail)
    with pytest.raises(KeyError, match="mine"):
        y.backward()
    (x * 3).backward()
    assert x.grad.item() == 3
