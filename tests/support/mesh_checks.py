"""What programs over a mesh must do on any number of ranks: checks that each rank makes.

Run as a script, it makes all of them on the ranks that MPI started.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from weft import distributed, nn, optim
from weft.base.world import own_copy

CHECKS: dict[str, Callable[[], None]] = {}


def check(function: Callable[[], None]) -> Callable[[], None]:
    CHECKS[function.__name__] = function
    return function


def raises(words: str, call: Callable[[], Any]) -> None:
    """The call raises an error of ours with these words, on this rank."""
    with pytest.raises(weft.errors.WeftError, match=re.escape(words)):
        call()


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function as machine code: each call compiles for itself, so ranks that are threads do not
    share what they record."""
    return weft.compile(function, backend="native")


@check
def messages_of_a_call_that_fails_are_forgotten() -> None:
    """Sums are on their way when an index turns out to be wrong, on all ranks."""

    @compiled
    def f(x: weft.Tensor, i: weft.Tensor) -> weft.Tensor:
        summed = distributed.all_reduce(x)
        return summed + (weft.take(x @ x, i, axis=0) @ x)

    rank, ranks = distributed.rank(), distributed.world_size()
    x = weft.ones((64, 64)) * (1 + rank)
    wanted = ranks * (ranks + 1) / 2 + 64 * 64 * (1 + rank) ** 3
    for _ in range(2):
        for _ in range(3):
            found = f(x, weft.tensor([3])).numpy()
            np.testing.assert_array_equal(found, np.full((64, 64), wanted, np.float32))
        for _ in range(3):
            raises("index 64 is out of bounds", lambda: f(x, weft.tensor([64])))


def model(kind: str) -> Any:
    weft.manual_seed(1)
    if kind == "cnn":
        layers = [nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten()]
        return nn.Sequential(*layers, nn.Linear(64, 4))
    if kind == "softmax":
        return nn.Sequential(nn.Linear(6, 8), nn.Softmax(0), nn.Linear(8, 4))
    return nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.Tanh(), nn.Linear(8, 4))


def trained(kind: str, sizes: list[int], uneven: str, reduction: str = "mean") -> Any:
    """Losses and parameters after steps with batches of these sizes; and the compiled step."""
    learner = model(kind)
    optimizer = optim.Adam(learner.parameters(), lr=0.01, eps=1e-3)

    backend: Any = "native" if kind == "mlp" else "interpret"  # which compiles nothing

    @weft.compile(backend=backend)
    def step(x: weft.Tensor, y: weft.Tensor) -> weft.Tensor:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(learner(x), y, reduction=reduction)
        loss.backward()
        optimizer.step()
        return loss

    losses = []
    for number, size in enumerate(sizes):
        rng = np.random.default_rng(number)
        shape = (size, 2, 4, 4) if kind == "cnn" else (size, 6)
        x = weft.asarray(rng.normal(size=shape).astype(np.float32))
        y = weft.asarray(rng.integers(0, 4, size))
        if uneven:
            x = distributed.split(x, "data", uneven=uneven)
            y = distributed.split(y, "data", uneven=uneven)
        losses.append(float(step(x, y)))
    return losses, [p.detach().numpy() for p in learner.parameters()], step


def agrees(kind: str, sizes: list[int], uneven: str, reduction: str = "mean") -> Any:
    wanted = trained(kind, sizes, "", reduction)
    with distributed.Mesh({"data": distributed.world_size()}):
        found = trained(kind, sizes, uneven, reduction)
    np.testing.assert_allclose(found[0], wanted[0], rtol=1e-4)
    for one, two in zip(found[1], wanted[1], strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-3, atol=1e-5)
    return found[2]


@check
def sizes_that_ranks_do_not_divide() -> None:
    """Means, statistics, softmax and losses do not count what parts are filled up with."""
    agrees("mlp", [7, 7, 5, 8], "pad")
    agrees("cnn", [7, 5, 1, 8], "pad")
    agrees("softmax", [5, 3, 7], "pad", "sum")


@check
def batches_of_many_sizes_in_one_recording() -> None:
    """Sizes that the ranks divide are symbolic from the second one on."""
    n = distributed.world_size()
    for kind in ("mlp", "cnn", "softmax"):
        step = agrees(kind, [4 * n, 2 * n, 3 * n, 5 * n, n, 6 * n], "refuse")
        fixed, symbolic = [each.program.split for each in own_copy(step, None).programs]
        sent = [each.name for each in fixed.report.inserted if each.nbytes]
        assert sent == [each.name for each in symbolic.report.inserted if each.nbytes]
        symbolic.laid_out.verify()
        symbolic.local.verify()


@check
def sequences_of_many_lengths_in_one_recording() -> None:
    """Lengths that are cut, and such that are not; and one that the ranks do not divide."""
    weft.manual_seed(1)
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)

    def loss(x: weft.Tensor) -> weft.Tensor:
        return (layer(x) ** 2).mean()

    n = distributed.world_size()
    with distributed.Mesh({"data": n}):
        for entries in (("data",), (None, "data")):
            f = weft.compile(loss, backend="interpret")
            for size, length in ((n, 2 * n), (n, 4 * n), (2 * n, 3 * n), (n, n), (n, 6 * n)):
                x = weft.asarray(np.random.default_rng(length).normal(size=(size, length, 8)))
                x = x.astype(weft.float32)
                found = f(distributed.split(x, *entries))
                np.testing.assert_allclose(found.item(), loss(x).item(), rtol=1e-5)
            assert len(own_copy(f, None).programs) <= 3
            x = weft.ones((n + 1, n + 1, 8))
            found = f(distributed.split(x, *entries, uneven="pad"))
            np.testing.assert_allclose(found.item(), loss(x).item(), rtol=1e-5)


@check
def reductions_of_filled_up_parts() -> None:
    rng = np.random.default_rng(0)
    calls: dict[str, Callable[[Any], Any]] = {
        "sum": lambda x: x.sum(),
        "sum of an axis": lambda x: x.sum(axis=1),
        "mean": lambda x: x.mean(axis=0),
        "prod": lambda x: x.prod(axis=0),
        "max": lambda x: x.max(axis=0),
        "min": lambda x: (-x).min(),
        "var": lambda x: x.var(axis=0),
        "any": lambda x: (x > 1).any(axis=0),
        "all": lambda x: (x < 1.5).all(axis=0),
        "argmax": lambda x: x.argmax(axis=0),
        "cumulative_sum": lambda x: weft.cumulative_sum(x, axis=0),
        "softmax": lambda x: weft.softmax(x, axis=0),
        "logsumexp": lambda x: weft.logsumexp(x, axis=0),
        "product": lambda x: x.mT @ x,
        "other product": lambda x: x @ x.mT,
        "infinite": lambda x: (1 / (x - x[-1:])).max(),
        "log": lambda x: weft.log(weft.abs(x)).sum(),
        "reshape": lambda x: x.reshape(-1).sum() + x.reshape(-1)[-1],
        "flip": lambda x: weft.flip(x, axis=0),
        "sort": lambda x: weft.sort(x, axis=0),
        "concat": lambda x: weft.concat([x, x], axis=0),
        "exp": lambda x: weft.exp(x),
        "rows": lambda x: x[1:],
        "norm": lambda x: weft.linalg.vector_norm(x),
        "square sum": lambda x: (x * x).sum(axis=0),
        "einsum": lambda x: weft.einsum("ij,ik->jk", x, x),
        "embedding": lambda x: nn.functional.embedding(
            (x > 0).astype(weft.int64).argmax(axis=1), x
        ),
        "std of few": lambda x: x.std(axis=0, correction=1),
        "scan": lambda x: weft.scan(lambda c, r: (c + r, c.sum()), weft.zeros(4, dtype=x.dtype), x),
    }
    with distributed.Mesh({"data": distributed.world_size()}):
        given = weft.asarray(rng.normal(size=(5, 4)))
        x = distributed.split(given, "data", uneven="pad")
        for name, call in calls.items():
            found, wanted = weft.compile(call, backend="interpret")(x), call(given)
            found = found if isinstance(found, tuple) else (found,)
            wanted = wanted if isinstance(wanted, tuple) else (wanted,)
            for one, two in zip(found, wanted, strict=True):
                assert one.shape == two.shape, name
                whole = distributed.full(one).numpy()
                np.testing.assert_allclose(whole, two.numpy(), rtol=1e-9, err_msg=name)


@check
def ops_called_one_by_one() -> None:
    """The same program as in a compiled function: values, gradients, writes."""
    n = distributed.world_size()
    given = weft.asarray(np.random.default_rng(0).normal(size=(2 * n, 4)))
    w = weft.asarray(np.random.default_rng(1).normal(size=(4, 3)))

    def program(x: Any, w: Any) -> list[Any]:
        x = x.detach().requires_grad_(True)
        w = w.detach().requires_grad_(True)
        y = weft.tanh(x @ w + 1) * x[:, :1]
        z = weft.softmax(y, axis=0) - y.mean(axis=0)
        values, indices = weft.max(x, axis=1), x.argmax(axis=0)
        loss = (z**2).sum() + values.sum()
        loss.backward()
        (again,) = weft.autograd.grad((x**3).sum(), x, create_graph=True)
        (second,) = weft.autograd.grad(again.sum(), x)
        changed = x.detach() * 1
        changed[0] = 7.0
        changed += 1
        found = [y, z, indices, loss, x.grad, w.grad, second, changed, x[1:, 0], x.mT, x > 0]
        more = [weft.concat([x, x]), weft.where(x > 0, x, 0.0), x.reshape(-1), x.sum(axis=0)]
        return [
            *found,
            *more,
            weft.einsum("ij,kj->ik", x, x),
            -x,
            2 / x,
            abs(x),
            x.to(weft.float32),
        ]

    wanted = [y.detach().numpy() for y in program(given, w)]
    with distributed.Mesh({"data": n}):
        for entries in (("data",), (None, None)):
            x = distributed.split(given, *entries)
            for found, other in zip(program(x, w), wanted, strict=True):
                np.testing.assert_allclose(found.detach().numpy(), other, rtol=1e-10, atol=1e-12)
        x = distributed.split(given, "data")
        rank = distributed.rank()
        assert str(given.numpy()[2 * rank : 2 * rank + 2].shape) == str(distributed.local(x).shape)
        assert f"<part of float64[{2 * n}{{data}},4]>" in repr(x)
        assert bool((x == x).all())
        assert len(x) == 2 * n
        assert float(x.sum()) == float(np.float64(x.sum().item()))
        uneven = distributed.split(given[1:], "data", uneven="pad")
        np.testing.assert_allclose(uneven.mean().item(), given[1:].mean().item(), rtol=1e-12)
        np.testing.assert_array_equal((uneven + 1).numpy(), given[1:].numpy() + 1)


@check
def training_op_by_op() -> None:
    def steps(lay_out: Any, x: Any, y: Any) -> list[Any]:
        weft.manual_seed(2)
        learner = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3))
        learner.append(nn.Linear(8, 4))
        lay_out(learner)
        optimizer = optim.Adam(learner.parameters(), lr=0.02, eps=1e-3)
        for _ in range(4):
            optimizer.zero_grad()
            nn.functional.cross_entropy(learner(x), y).backward()
            optimizer.step()
        return [p.detach().numpy() for p in learner.parameters()]

    n = distributed.world_size()
    rng = np.random.default_rng(5)
    x = weft.asarray(rng.normal(size=(2 * n, 6)).astype(np.float32))
    y = weft.asarray(rng.integers(0, 4, 2 * n))
    wanted = steps(lambda m: m, x, y)
    with distributed.Mesh({"data": n}):
        for way in (lambda m: m, distributed.fully_sharded):
            cut = distributed.split(x, "data"), distributed.split(y, "data")
            for one, two in zip(steps(way, *cut), wanted, strict=True):
                np.testing.assert_allclose(one, two, rtol=1e-3, atol=1e-5)


@check
def attention_in_a_ring() -> None:
    """Compiled and op by op, along one or two mesh axes, causal or not; no rank has all scores."""
    n = distributed.world_size()
    attention = nn.functional.scaled_dot_product_attention
    rng = np.random.default_rng(3)
    q, k, v, g = (weft.asarray(rng.normal(size=(2, 3, 4 * n, 5))) for _ in range(4))

    def gradients(call: Any, causal: bool, *given: Any) -> Any:
        given = tuple(x.detach().requires_grad_(True) for x in given)
        out = call(*given, is_causal=causal)
        (out * g).sum().backward()
        return [out.detach(), *[x.grad for x in given]]

    meshes: list[tuple[dict[str, int], Any]] = [({"s": n}, (None, None, "s"))]
    if n == 4:
        meshes.append(({"b": 2, "s": 2}, ("b", None, "s")))
        meshes.append(({"a": 2, "s": 2}, (None, None, ("a", "s"))))
    for causal in (False, True):
        wanted = [x.numpy() for x in gradients(attention, causal, q, k, v)]
        for axes, entries in meshes:
            with distributed.Mesh(axes):
                given = [distributed.split(x, *entries) for x in (q, k, v)]

                def ours(*x: Any, causal: bool = causal) -> Any:
                    return gradients(distributed.ring_attention, causal, *x)

                backend: Any = "native" if causal and axes is meshes[0][0] else "interpret"
                f = weft.compile(ours, backend=backend)
                for call in (f, f, ours):
                    for found, other in zip(call(*given), wanted, strict=True):
                        whole = distributed.full(found).numpy()
                        np.testing.assert_allclose(whole, other, rtol=1e-9, atol=1e-12)
                local = own_copy(f, None).programs[-1].program.split.local
                names = {node.op.name for node in local.nodes}
                assert "send" in names
                assert "all_gather" not in names
                parts = 2 if len(axes) > 1 and entries[0] else n
                shapes = [value.type.shape for value in local.values()]
                assert (max(s[-1] for s in shapes if len(s) == 4)) <= max(5, 4 * n // parts)


@check
def draws_of_parts_alone() -> None:
    """Each rank draws the numbers of its part: bits of one process, also where a part begins within
    a block."""
    n = distributed.world_size()
    calls: dict[str, Callable[..., Any]] = {
        "uniform": lambda x: weft.rand_like(x),
        "normal": lambda x: weft.randn_like(x),
        "integers": lambda x: weft.randint(0, 9, x.shape),
        "bernoulli": lambda x: weft.bernoulli(weft.full(x.shape, 0.3)),
        "chances": lambda x: weft.bernoulli(weft.sigmoid(x)),
        "dropout": lambda x: nn.functional.dropout(x, 0.5),
    }
    for columns in (4, 3):
        given = weft.asarray(np.random.default_rng(0).normal(size=(n * 3, columns)))
        for dtype in (weft.float32, weft.float64):
            whole = given.astype(dtype)
            for name, draw in calls.items():

                def call(x: Any, draw: Any = draw) -> Any:
                    return draw(x) * x

                weft.manual_seed(4)
                wanted = [call(whole).numpy() for _ in range(2)]
                blocks = weft.get_rng_state()
                with distributed.Mesh({"data": n}):
                    weft.manual_seed(4)
                    f = weft.compile(call, backend="interpret")
                    x = distributed.split(whole, "data")
                    for other in wanted:
                        np.testing.assert_array_equal(f(x).numpy(), other, err_msg=name)
                    assert str(weft.get_rng_state()) == str(blocks)
                local = own_copy(f, None).programs[-1].program.split.local
                drawn = [node.out.tensor_type for node in local.nodes if node.op.random]
                if columns == 4 or name not in ("chances", "bernoulli"):
                    assert drawn, name
                    assert all(kind.size <= 3 * columns + 4 for kind in drawn), name


@check
def bad_input_is_an_error_on_every_rank() -> None:
    n, rank = distributed.world_size(), distributed.rank()
    x = distributed.split(weft.ones((2 * n, 3)), "ranks")
    one, two = distributed.Mesh({"a": n}), distributed.Mesh({"b": n})
    on_a = distributed.split(weft.ones(n), "a", mesh=one)
    on_b = distributed.split(weft.ones(n), "b", mesh=two)
    rows: list[tuple[str, Callable[[], Any]]] = [
        (f"but there are {n}", lambda: distributed.Mesh({"data": n + 1})),
        *[
            ("a mesh is made of names", lambda axes=axes: distributed.Mesh(axes))
            for axes in ({}, [n], {"a": "x"}, {"a": n + 0.5})
        ],
        ("at least one rank along each axis", lambda: distributed.Mesh({"a": 0})),
        ("has no axis 'model'", lambda: distributed.split(x, "model")),
        ("names no axis", lambda: distributed.split(weft.ones(4), 0)),
        ("uneven is 'fill'", lambda: distributed.split(weft.ones(4), "ranks", uneven="fill")),
        ("ranks do not divide", lambda: distributed.split(weft.ones(2 * n + 1), "ranks")),
        ("ranks do not divide", lambda: distributed.shard(weft.ones(2 * n + 1), "ranks")),
        ("over two meshes", lambda: on_a + on_b),
        ("over two meshes", lambda: weft.compile(lambda a, b: a + b)(on_a, on_b)),
        ("out of range", lambda: x[2 * n]),
        ("the inner sizes differ", lambda: x @ weft.ones((4, 3))),
        ("the same on all ranks", lambda: x + weft.ones((2 * n, 3)) * rank),
        ("parts of ranks differ", lambda: distributed.from_local(weft.ones(2 + rank), "ranks")),
    ]
    for words, call in rows:
        raises(words, call)
    assert x.sum().item() == 6 * n  # and all go on together


if __name__ == "__main__":
    for chosen in sys.argv[1:] or CHECKS:
        CHECKS[chosen]()
    if distributed.rank() == 0:
        sys.stdout.write(f"{len(CHECKS)} checks\n")
