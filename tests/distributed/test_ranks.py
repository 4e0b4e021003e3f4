"""Programs on several ranks: training beside one rank, meshes, other sizes, errors."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

import weft
from weft import distributed, nn, optim
from weft.base.world import here
from weft.errors import AxisError, DistributedError, DTypeError, RangeError, ShapeError


def on_ranks(count: int, function: Any, *args: Any) -> Any:
    return distributed.run_virtual(count, function, *args, timeout=20)


# --- training ------------------------------------------------------------------------------------

X = np.random.default_rng(0).normal(size=(10, 8, 5)).astype(np.float32)
Y = np.random.default_rng(1).normal(size=(10, 8, 2)).astype(np.float32)


def trained(make_step: Any, ranks: int) -> tuple[Any, list[Any]]:
    """Ten steps on this rank's part of each batch: the step, and all parameters."""
    model = nn.Sequential(nn.Linear(5, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Linear(16, 2))
    rng = np.random.default_rng(2 if distributed.rank() == 0 else 3)  # others get those of rank 0
    for parameter in model.parameters():
        parameter.data = weft.asarray(rng.normal(size=parameter.shape).astype(np.float32) / 4)
    model[1].eval()  # statistics of a part of the batch would be others
    if ranks > 1:
        distributed.data_parallel(model)
    optimizer = optim.Adam(model.parameters(), lr=0.01)

    def step(x: weft.Tensor, y: weft.Tensor) -> weft.Tensor:
        optimizer.zero_grad()
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss

    done = make_step(step)
    part = slice(distributed.rank() * 8 // ranks, (distributed.rank() + 1) * 8 // ranks)
    for x, y in zip(X, Y, strict=True):
        done(weft.asarray(x[part]), weft.asarray(y[part]))
    return done, [parameter.detach().numpy() for parameter in model.parameters()]


@pytest.mark.parametrize("mode", [lambda f: f, weft.compile], ids=["eager", "compiled"])
def test_data_parallel_training_equals_that_of_one_rank(mode: Any) -> None:
    _, alone = trained(lambda f: f, 1)
    for _, together in on_ranks(2, trained, mode, 2):
        for mine, theirs in zip(together, alone, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-6)


def test_gradients_of_a_compiled_step_are_one_message() -> None:
    def sums(_: Any = None) -> list[str]:
        step, _ = trained(weft.compile, 2)
        graph = here.world.copies[step].graph("optimized")  # type: ignore[index]
        return [node.op.name for node in graph.nodes if node.op.collective]

    assert on_ranks(2, sums) == [["sum_joined"], ["sum_joined"]]


# --- tensor parallel -----------------------------------------------------------------------------


def test_copied_and_added_are_each_others_derivative() -> None:
    """A product cut by columns and then by rows, as in large models: values and two derivatives."""
    rng = np.random.default_rng(4)
    x, a, b = (rng.normal(size=shape) for shape in ((3, 4), (4, 6), (6, 2)))

    def plain(x: Any, a: Any, b: Any) -> Any:
        return ((weft.tanh(x @ a) @ b) ** 2).sum()

    def cut() -> Any:
        part = slice(3 * distributed.rank(), 3 * distributed.rank() + 3)

        def loss(x: Any) -> Any:
            hidden = weft.tanh(distributed.copied(x) @ weft.asarray(a[:, part]))
            return (distributed.added(hidden @ weft.asarray(b[part])) ** 2).sum()

        first = weft.grad(loss)
        second = weft.grad(lambda x: (first(x) ** 2).sum())
        given = weft.asarray(x)
        return [f(given).numpy() for f in (loss, first, second, weft.compile(second))]

    def whole(v: Any) -> Any:
        return plain(v, weft.asarray(a), weft.asarray(b))

    first = weft.grad(whole)
    second = weft.grad(lambda v: (first(v) ** 2).sum())
    wanted = [f(weft.asarray(x)).numpy() for f in (whole, first, second, second)]
    for found in on_ranks(2, cut):
        for mine, theirs in zip(found, wanted, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-9)


# --- in graphs -----------------------------------------------------------------------------------


def test_one_recording_for_all_sizes() -> None:
    def sizes() -> Any:
        @weft.compile(dynamic=True)
        def both(x: Any) -> Any:
            parts = distributed.all_to_all(x, split_axis=1)
            joined = distributed.all_gather(distributed.reduce_scatter(parts, axis=0))
            largest = distributed.all_reduce(x, op="max")
            ends = distributed.send(distributed.broadcast(x), [(0, 1)])
            return joined * 2, largest + ends, distributed.added(distributed.copied(x))

        found = []
        for rows in (2, 4, 6, 1, 0):
            x = weft.ones((rows, 4)) * (1 + distributed.rank())
            parts, middle, total = both(x)
            assert parts.shape == (2 * rows, 2)
            assert middle.shape == total.shape == (rows, 4)
            assert weft.all(total == 3.0)
            assert weft.all(middle == 2.0 + distributed.rank())
            assert parts.tolist() == [[4.0, 4.0]] * rows + [[8.0, 8.0]] * rows
            found.append(len(here.world.copies[both].recordings))  # type: ignore[index]
        return found

    assert on_ranks(2, sizes)[0][-1] <= 2


def test_in_loops_and_branches() -> None:
    def grown() -> float:
        @weft.compile
        def until(x: Any) -> Any:
            while distributed.all_reduce(x.sum()) < 100:  # the same answer on all ranks
                x = x + distributed.all_reduce(x, op="mean")
            return x

        return float(until(weft.ones(2) * (1 + distributed.rank())).sum())

    x = np.ones((2, 2)) * [[1], [2]]
    while x.sum() < 100:
        x = x + x.mean(0)
    assert on_ranks(2, grown) == list(x.sum(1))


def test_equal_calls_stay_where_they_are() -> None:
    """A sum over ranks of a constant is no constant, and is not moved out of a branch."""

    def sums() -> tuple[float, list[str]]:
        @weft.compile
        def f(x: Any) -> Any:
            y = distributed.all_reduce(weft.ones(3))
            return x * y if x.sum() > 0 else x + y

        found = float(f(weft.ones(3)).sum())
        graph = here.world.copies[f].graph("optimized")  # type: ignore[index]
        return found, [node.op.name for node in graph.nodes if node.op.collective]

    assert on_ranks(2, sums) == [(6.0, ["all_reduce"])] * 2


def test_a_function_is_recorded_for_each_rank_and_mesh() -> None:
    @weft.compile
    def shared(x: Any) -> Any:
        return distributed.all_reduce(x, "r") * (1 + distributed.rank())

    def called() -> list[float]:
        found = []
        for axes in ({"r": 4}, {"q": 2, "r": 2}, {"r": 2, "q": 2}, {"r": 4}):
            with distributed.Mesh(axes):
                found += [shared(weft.tensor(1.0 + distributed.rank())).item() for _ in range(2)]
        return found

    for rank, found in enumerate(on_ranks(4, called)):
        near, far = [3, 3, 7, 7][rank], [4, 6, 4, 6][rank]
        assert found == [(1 + rank) * total for total in (10, 10, near, near, far, far, 10, 10)]


# --- errors --------------------------------------------------------------------------------------

ERRORS = {
    "no such axis": (lambda x: distributed.all_reduce(x, "z"), DistributedError, "no axis 'z'"),
    "bad op": (lambda x: distributed.all_reduce(x, op="avg"), RangeError, "op is 'avg'"),
    "bad root": (lambda x: distributed.broadcast(x, root=2), RangeError, "root is 2"),
    "bad pair": (lambda x: distributed.send(x, [(0, 7)]), RangeError, "a rank is 7"),
    "sends twice": (lambda x: distributed.send(x, [(0, 1), (0, 0)]), DistributedError, "twice"),
    "uneven": (lambda x: distributed.reduce_scatter(x), ShapeError, "axis 0 has size 3, which 2"),
    "bad axis": (lambda x: distributed.all_gather(x, axis=1), AxisError, "axis 1"),
    "bools": (lambda x: distributed.all_reduce(x > 0), DTypeError, "all_reduce"),
}


@pytest.mark.parametrize("case", ERRORS)
def test_errors_on_every_rank(case: str) -> None:
    call, kind, words = ERRORS[case]

    def tried() -> Any:
        caught = []
        for function in (call, weft.compile(call)):
            with pytest.raises(kind, match=words) as info:
                function(weft.ones(3))
            caught.append(str(info.value))
        return distributed.all_reduce(weft.ones(1)).item(), caught  # the ranks go on

    for total, _ in on_ranks(2, tried):
        assert total == 2


def test_other_calls_or_types_are_noticed() -> None:
    def different() -> Any:
        if distributed.rank() == 1:
            return distributed.all_gather(weft.ones(3))
        return distributed.all_reduce(weft.ones(3))

    def other_shapes() -> Any:
        return distributed.all_reduce(weft.ones(3 + distributed.rank()))

    for function in (different, other_shapes):
        with pytest.raises(DistributedError, match="different collectives"):
            on_ranks(2, function)


@pytest.mark.parametrize("backend", ["native", "interpret", "dataflow"])
def test_other_graphs_are_noticed_at_the_first_step(backend: str) -> None:
    """The branches that no rank takes differ: only their graphs tell."""

    def run() -> Any:
        kind = "max" if distributed.rank() == 2 else "min"

        @weft.compile(backend=backend)
        def f(x: Any) -> Any:
            if x.sum() > 0:
                return distributed.all_reduce(x)
            return distributed.all_reduce(x, op=kind)

        f(weft.ones(3))

    with pytest.raises(DistributedError) as info:
        on_ranks(3, run)
    assert "collective 2 of the graph" in str(info.value)
    assert "in if 1: all_reduce_extreme[kind='min'] of f32[3]  on rank 0" in str(info.value)
    assert "in if 1: all_reduce_extreme[kind='max'] of f32[3]  on rank 2" in str(info.value)


def test_an_error_on_one_rank_stops_all() -> None:
    def one() -> Any:
        if distributed.rank() == 2:
            raise KeyError("lost")
        return distributed.all_reduce(weft.ones(3))

    with pytest.raises(KeyError, match="lost") as info:
        on_ranks(3, one)
    assert "(on rank 2 of 3)" in info.value.__notes__


def test_a_rank_that_does_not_come() -> None:
    def one() -> Any:
        return time.sleep(1) if distributed.rank() == 0 else distributed.barrier()

    with pytest.raises(DistributedError, match=r"rank 1 waited 0.2 s"):
        distributed.run_virtual(2, one, timeout=0.2)


def test_meshes() -> None:
    with pytest.raises(DistributedError, match=r"data=2, model=2 has 4 ranks, but there is 1"):
        distributed.Mesh({"data": 2, "model": 2})
    with pytest.raises(DistributedError, match="at least one rank"):
        distributed.Mesh({"data": 0})
    mesh = distributed.Mesh({"data": 1})
    assert (mesh.size, mesh.group_size("data"), mesh.place()) == (1, 1, 0)
    assert distributed.all_reduce(weft.ones(2), mesh=mesh).tolist() == [1.0, 1.0]

    def places() -> Any:
        mesh = distributed.Mesh({"data": 2, "model": 3})
        return mesh.place("data"), mesh.place("model"), mesh.place()

    assert on_ranks(6, places) == [(r // 3, r % 3, r) for r in range(6)]


def test_a_graph_for_other_ranks_is_refused() -> None:
    def graph() -> str:
        return weft.make_graph(distributed.all_reduce, weft.spec(3)).text()

    text = on_ranks(2, graph)[0]
    with pytest.raises(DistributedError, match="2 ranks, but there is 1"):
        weft.parse_graph(text)(weft.ones(3))


def test_a_rank_that_ends_early_ends_those_that_wait_for_it() -> None:
    def rank() -> None:
        if distributed.rank() == 0:
            distributed.all_reduce(weft.ones(2))

    with pytest.raises(weft.errors.DistributedError, match="rank 1 has ended its program"):
        distributed.run_virtual(2, rank)
