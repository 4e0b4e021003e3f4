"""A backward that comes from outside of a compiled function: all that it does eagerly, in one call.

Rows of SCENES take two leaves and a way to wrap functions, and give what they saw, to be compared
with eager mode.
"""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from weft.autodiff.node import FreedError
from weft.nn import functional as F

Wrap = Callable[[Any], Any]
Scene = Callable[[Wrap, Any, Any], list[Any]]
WRAPS: dict[str, Wrap] = {
    "trace": weft.trace,
    "interpret": lambda f: weft.compile(f, backend="interpret"),
    "native": lambda f: weft.compile(f, backend="native"),
}


def chain(w: Any, v: Any) -> Any:
    z = w
    for _ in range(3):
        z = weft.tanh(z * v + w)
    return z.sum()


def several(w: Any, v: Any) -> Any:
    a = weft.exp(w * v)
    return a, (a * v).sum(), weft.argmax(a), a.detach()


def grads(*leaves: Any) -> list[Any]:
    found = [None if x.grad is None else x.grad.numpy(copy=True) for x in leaves]
    for x in leaves:
        x.grad = None
    return found


def plain(wrap: Wrap, w: Any, v: Any) -> list[Any]:
    f, seen = wrap(chain), []
    for _ in range(4):
        loss = f(w, v)
        loss.backward()
        seen += [loss.numpy(), *grads(w, v)]
    return seen


def accumulated(wrap: Wrap, w: Any, v: Any) -> list[Any]:
    f = wrap(chain)
    for _ in range(4):
        f(w, v).backward()
    held = w.grad
    f(w, v).backward()
    return [held, *grads(w, v)]


def gradients_are_tensors_of_their_own(wrap: Wrap, w: Any, v: Any) -> list[Any]:
    f, seen = wrap(lambda w, v: (w + v).sum()), []
    for _ in range(3):
        f(w, v).backward()
        w.grad += 1
        seen += grads(w, v)
    return seen


def retained(wrap: Wrap, w: Any, v: Any) -> list[Any]:
    f, seen = wrap(chain), []
    for _ in range(3):
        loss = f(w, v)
        for _ in range(2):
            loss.backward(retain_graph=True)
        loss.backward()
        with pytest.raises(FreedError, match="went through this graph before"):
            loss.backward()
        seen += grads(w, v)
    return seen


def what_keeps_nothing_is_never_freed(wrap: Wrap, w: Any, v: Any) -> list[Any]:
    loss = wrap(lambda w, v: (w - v).sum())(w, v)
    loss.backward()
    loss.backward()
    return grads(w, v)


def differentiated_twice(wrap: Wrap, w: Any, v: Any) -> list[Any]:
    f, seen = wrap(chain), []
    for _ in range(3):
        first = weft.autograd.grad(f(w, v), [w, v], create_graph=True)
        seen += [g.numpy() for g in first]
        (first[0] * first[1]).sum().backward()
        seen += grads(w, v)
    f(w, v).backward(create_graph=True)
    (w.grad * v).sum().backward(inputs=[v])
    return seen + grads(w, v)


def first_by_numbers_then_by_ops(wrap: Wrap, w: Any, v: Any) -> list[Any]:
    f = wrap(chain)
    for _ in range(2):
        loss = f(w, v)
        loss.backward(retain_graph=True)
        seen = grads(w, v)
        (first,) = weft.autograd.grad(loss, [w], create_graph=True)
        first.sum().backward()
        seen += grads(w, v)
    return seen


def leaves_change_between(wrap: Wrap, w: Any, v: Any) -> list[Any]:
    """A backward uses the values of the forward."""
    f, seen = wrap(chain), []
    for _ in range(3):
        loss = f(w, v)
        with weft.no_grad():
            w += 1
            v *= 0.5
        loss.backward(retain_graph=True)
        seen += grads(w, v)
        weft.autograd.grad(loss, [w], create_graph=True)[0].sum().backward()
        seen += grads(w, v)
    return seen


def results_change_between(wrap: Wrap, w: Any, v: Any) -> list[Any]:
    """Results that the backward reads, too, are written to."""
    f, seen = wrap(several), []
    for _ in range(3):
        a, total, _, cut = f(w, v)
        kept = a * 1
        with weft.no_grad():
            cut += 100
            cut *= 3
            a *= 7
        seen += [cut.numpy(copy=True), a.numpy(copy=True)]
        (total + kept.sum()).backward()
        seen += grads(w, v)
    return seen


def some_results(wrap: Wrap, w: Any, v: Any) -> list[Any]:
    f, seen = wrap(several), []
    for chosen in (0, 1, (0, 1), 0, 1, (0, 1)):
        found = f(w, v)
        seen += [x.numpy(copy=True) for x in found]
        seen += [x.requires_grad for x in found]
        picked = [found[i].sum() for i in (chosen if isinstance(chosen, tuple) else (chosen,))]
        weft.autograd.backward(picked)
        seen += grads(w, v)
    for _ in range(2):
        a, total, *_ = f(w, v)
        seen += [g.numpy() for g in weft.autograd.grad(total, [v, w], retain_graph=True)]
        a.sum().backward()
        with pytest.raises(FreedError):
            total.backward()
        seen += grads(w, v)
    return seen


def one_of_them(wrap: Wrap, w: Any, v: Any) -> list[Any]:
    f, seen = wrap(chain), []
    v = v.detach()
    for _ in range(3):
        f(w, v).backward()
        seen += grads(w, v)
    w.requires_grad = False
    seen.append(f(w, v).requires_grad)
    w.requires_grad = True
    with weft.no_grad():
        seen.append(f(w, v).requires_grad)
    f(w, v).backward()
    return seen + grads(w, v)


def the_same_twice(wrap: Wrap, w: Any, v: Any) -> list[Any]:
    f, seen = wrap(chain), []
    for _ in range(3):
        f(w, w).backward()
        f(v, w).backward()
        seen += grads(w, v)
    return seen


def hooked(wrap: Wrap, w: Any, v: Any) -> list[Any]:
    f, seen = wrap(chain), []
    f(w, v).backward()
    order: list[Any] = []
    first = w.register_hook(lambda g: g * 2)
    second = v.register_post_accumulate_grad_hook(lambda t: order.append(t.grad.numpy()))
    for _ in range(2):
        loss = f(w, v)
        loss.register_hook(lambda g: g * 3)
        loss.backward()
        seen += grads(w, v)
    first.remove()
    second.remove()
    loss = f(w, v)
    loss.grad_fn.register_hook(lambda inputs, outputs: tuple(g * 2 for g in inputs))
    loss.backward()
    return seen + order + grads(w, v)


def in_the_middle(wrap: Wrap, w: Any, v: Any) -> list[Any]:
    f, seen = wrap(chain), []
    for _ in range(3):
        inner = w * v
        (f(inner, v) * f(v, inner) + inner.sum()).backward()
        seen += grads(w, v)
    return seen


def from_a_given_gradient(wrap: Wrap, w: Any, v: Any) -> list[Any]:
    f, seen = wrap(lambda w, v: weft.sin(w) * v), []
    for k in range(3):
        f(w, v).backward(weft.arange(3.0, dtype=w.dtype) + k)
        seen += grads(w, v)
    for chosen in ([v], [v, w], [w, w]):
        y = f(w, v)
        seen += [g.numpy() for g in weft.autograd.grad(y, chosen, weft.ones_like(y))]
    return seen


def writes_to_what_it_saves(wrap: Wrap, w: Any, v: Any) -> list[Any]:
    """The old and the new value of a buffer are read by the backward."""
    state = {"mean": weft.zeros(3, dtype=w.dtype)}

    def function(w: Any, v: Any) -> Any:
        mean = state["mean"]
        new = 0.5 * mean + 0.5 * w.detach() + 1
        out = (weft.exp(w * mean) * new * v).sum()
        mean.copy_(new)
        return out

    f, seen = wrap(function), []
    for _ in range(4):
        loss = f(w, v)
        loss.backward()
        seen += [loss.numpy(), state["mean"].numpy(copy=True), *grads(w, v)]
    return seen


def many_sizes(wrap: Wrap, w: Any, v: Any) -> list[Any]:
    f, seen = wrap(chain), []
    for n in (3, 2, 5, 4, 7, 1):
        a, b = (weft.ones(n, dtype=w.dtype, requires_grad=True) for _ in range(2))
        f(a, b).backward()
        seen += grads(a, b)
    return seen


def a_leaf_that_is_gone(wrap: Wrap, w: Any, v: Any) -> list[Any]:
    f, seen = wrap(chain), []
    for _ in range(3):
        loss = f(weft.ones(3, dtype=w.dtype, requires_grad=True), v)
        loss.backward()
        seen += grads(w, v)
    return seen


def gradients_of_a_gradient(wrap: Wrap, w: Any, v: Any) -> list[Any]:
    f, seen = wrap(weft.grad(chain, argnums=(0, 1))), []
    for _ in range(3):
        a, b = f(w, v)
        seen += [a.numpy(), b.numpy(), a.requires_grad]
        (a * b).sum().backward()
        seen += grads(w, v)
    return seen


def under_anomaly_mode(wrap: Wrap, w: Any, v: Any) -> list[Any]:
    f, seen = wrap(lambda w, v: (weft.sqrt(w * 0) * v).sum()), []
    for _ in range(3):
        loss = f(w, v)
        with weft.autograd.detect_anomaly(), pytest.raises(weft.errors.GradientError, match="made"):
            loss.backward()
        w.grad = v.grad = None
        f(w, v).backward()
        seen += grads(w, v)
    return seen


SCENES: list[Scene] = [
    plain,
    accumulated,
    gradients_are_tensors_of_their_own,
    retained,
    what_keeps_nothing_is_never_freed,
    differentiated_twice,
    first_by_numbers_then_by_ops,
    leaves_change_between,
    results_change_between,
    some_results,
    one_of_them,
    the_same_twice,
    hooked,
    in_the_middle,
    from_a_given_gradient,
    writes_to_what_it_saves,
    many_sizes,
    a_leaf_that_is_gone,
    gradients_of_a_gradient,
    under_anomaly_mode,
]
TOLERANCES = {"float64": 1e-12, "float32": 1e-5, "bfloat16": 0.1}


def seen_by(scene: Scene, wrap: Wrap, dtype: str) -> list[Any]:
    start = weft.tensor([0.5, -1.0, 0.25], dtype=dtype), weft.tensor([1.0, 0.5, -0.75], dtype=dtype)
    return scene(wrap, *[x.requires_grad_() for x in start])


@pytest.mark.parametrize("wrap", WRAPS)
@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
@pytest.mark.parametrize("dtype", TOLERANCES)
def test_as_eagerly(scene: Scene, wrap: str, dtype: str) -> None:
    want, got = (seen_by(scene, way, dtype) for way in (lambda f: f, WRAPS[wrap]))
    assert len(got) == len(want)
    for a, b in zip(got, want, strict=True):
        if b is None or isinstance(b, (bool, int)):
            assert a is b or a == b
        else:
            close = TOLERANCES[dtype]
            a, b = (np.asarray(x).astype(np.float64) for x in (a, b))
            np.testing.assert_allclose(a, b, rtol=close, atol=close)


def entered(run: Callable[[], Any]) -> list[str]:
    """The files of the Python functions that a call runs."""
    found: list[str] = []

    def note(frame: Any, event: str, _arg: Any) -> None:
        if event == "call":
            found.append(frame.f_code.co_filename)

    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(None)
    return found


#: A function of two tensors, and how many Python functions a call and a backward may run.
CALLS: list[tuple[Any, int]] = [
    (chain, 56),
    (lambda w, v: F.softmax(w * v, dim=0), 56),
    (lambda w, v: (w + v, w * v, (w - v).sum()), 110),
    (weft.grad(chain, argnums=(0, 1)), 110),
]


@pytest.mark.parametrize("leaves", [False, True])
@pytest.mark.parametrize("size", [4, 1 << 14, 1 << 18])
@pytest.mark.parametrize(("function", "most"), CALLS)
def test_a_call_is_machine_code_with_little_around(
    function: Any, most: int, size: int, leaves: bool
) -> None:
    """Results of every size, with and without a history, and the backward of one of them."""
    f = weft.compile(function, backend="native")
    w, v = (weft.ones(size, requires_grad=leaves) for _ in range(2))
    ones = weft.ones(())

    def run() -> None:
        found = f(w, v)
        first = found[0] if isinstance(found, tuple) else found
        if leaves:
            first.backward(ones if first.ndim == 0 else w.detach())

    for _ in range(4):
        w.grad = v.grad = None
        run()
    w.grad = v.grad = None
    found = entered(run)
    assert not [name for name in found if "weft/runtime" in name]
    assert len(found) <= (most if leaves else 16)


def test_a_history_ends_with_its_result() -> None:
    """The program may use a result's tensor again: that must not keep the history until then."""
    f = weft.compile(chain, backend="native")
    w, v = (weft.ones(8, requires_grad=True) for _ in range(2))
    for _ in range(4):
        loss = f(w, v)
        seen = weakref.ref(loss.grad_fn)
        del loss
        gc.collect()
        assert seen() is None


def test_a_scan_that_is_differentiated_stays_one_loop() -> None:
    """Forward, backward outside and inside: each has loops, and no step of its own."""

    def scanned(w: Any, h: Any, xs: Any) -> Any:
        def step(carry: Any, x: Any) -> Any:
            a, b = carry
            a = weft.tanh(a * w + x)
            return (a, weft.sigmoid(b + a)), a * 2

        (a, b), ys = weft.scan(step, (h, weft.zeros(3)), xs)
        return a.sum() + b.sum() + ys.sum()

    def trained(w: Any, h: Any, xs: Any) -> Any:
        loss = scanned(w, h, xs)
        loss.backward()
        return loss

    data = [np.random.default_rng(0).standard_normal(s).astype("f") for s in ((3,), (3,), (64, 3))]
    found: dict[Any, Any] = {}
    for wrap in (None, weft.trace, weft.compile):
        for function in (scanned, trained, weft.grad(scanned, argnums=(0, 1, 2))):
            leaves = [weft.asarray(x).requires_grad_() for x in data]
            f = function if wrap is None else wrap(function)
            result = f(*leaves)
            if function is scanned:
                result.backward()
            got = [x.numpy() for x in result] if isinstance(result, tuple) else grads(*leaves)
            want = found.setdefault("grads", got)
            for a, b in zip(got, want, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
            for program in () if wrap is None else f.programs:
                for stage in ("captured", "optimized"):
                    nodes = program.graph(stage).nodes
                    assert len(nodes) < 30, (wrap, function, stage, len(nodes))
                    assert any(node.op.name == "scan" for node in nodes)
