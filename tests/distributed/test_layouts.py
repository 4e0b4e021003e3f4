"""Programs for one machine, laid out over a mesh: types, splits, training, errors."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import pytest
import sharded_training

import weft
from weft import distributed, nn
from weft.ir.cuts import Cuts
from weft.passes.layouts.program import rank_program
from weft.passes.layouts.split import split

MESH = (("data", 2), ("model", 2))


@functools.cache
def alone(name: str) -> Any:
    return sharded_training.train(name)


@pytest.mark.parametrize(("name", "way"), sharded_training.rows())
def test_training_equals_that_of_one_process(name: str, way: str) -> None:
    ranks = math.prod(sharded_training.WAYS[way][0].values())
    programs = distributed.run_virtual(ranks, sharded_training.check, name, way, alone(name))
    found = programs[0].split
    found.laid_out.verify()
    found.local.verify()
    assert all(p.split.local.equals(found.local) for p in programs)


def parsed(text: str) -> weft.Graph:
    return weft.parse_graph(text)


MLP = """graph @f(%x: f32[8{data},4], %w1: f32[4,16{model}], %w2: f32[16{model},4]) {
  %0: f32[8,16] = matmul %x, %w1
  %1: f32[8,16] = relu %0
  %2: f32[8,4] = matmul %1, %w2
  return %2
}"""


def test_layouts_of_all_values() -> None:
    made = rank_program(parsed(MLP), MESH)
    assert str(made.laid_out).splitlines()[-6:] == [
        "  %0: f32[8{data},16{model}] = matmul %x, %w1",
        "  %1: f32[8{data},16{model}] = relu %0",
        "  %2: f32[8{data},4]{+model} = matmul %1, %w2",
        "  %3: f32[8{data},4] = layout[mesh=(('data', 2), ('model', 2)), "
        "axes=(('data',), ()), terms=()] %2",
        "  return %3",
        "}",
    ]
    assert weft.parse_graph(str(made.laid_out)).equals(made.laid_out)
    assert split(made.laid_out, MESH).equals(made.local)


def test_the_program_of_one_rank() -> None:
    made = rank_program(parsed(MLP), MESH)
    assert str(made.local).splitlines()[-5:] == [
        "  %1: f32[4,8] = relu %0",
        "  %2: f32[4,4] = matmul %1, %w2",
        "  %3: f32[4,4] = all_reduce[mesh=(('data', 2), ('model', 2)), over=('model',)] %2",
        "  return %3",
        "}",
    ]
    assert str(made.report) == (
        "1 message, 64 bytes sent by each rank\n"
        "  all_reduce over model: f32[8{data},4]{+model} -> f32[8{data},4], 64 bytes, "
        "for the result"
    )


#: (graph, the collectives of the rank's program)
INSERTED = {
    "terms that are to be cut are scattered": (
        "graph @f(%x: f32[8,16{model}], %w: f32[16{model},4]) {\n"
        "  %0: f32[8,4] = matmul %x, %w\n"
        "  %1: f32[8,4] = layout[mesh=(('data', 2), ('model', 2)), axes=(('model',), ()), "
        "terms=()] %0\n  return %1\n}",
        ["reduce_scatter"],
    ),
    "another axis": (
        "graph @f(%x: f32[8{data},4]) {\n  %0: f32[8,4] = cumulative_sum[axis=0] %x\n"
        "  return %0\n}",
        ["all_gather"],
    ),
    "from one axis to another": (
        "graph @f(%x: f32[8{data},400]) {\n"
        "  %0: f32[8,400] = layout[mesh=(('data', 2), ('model', 2)), axes=((), ('data',)), "
        "terms=()] %x\n  return %0\n}",
        ["all_to_all"],
    ),
    "of two mesh axes on one axis the first": (
        "graph @f(%x: f32[8{data,model},4]) {\n"
        "  %0: f32[8,4] = layout[mesh=(('data', 2), ('model', 2)), axes=(('model',), ()), "
        "terms=()] %x\n  return %0\n}",
        ["all_gather", "own_part"],
    ),
    "the largest over ranks": (
        "graph @f(%x: f32[800{data},400]) {\n"
        "  %0: f32[400] = max[axis=(0,), keepdims=False] %x\n  return %0\n}",
        ["all_reduce_extreme"],
    ),
    "what is not needed": (
        "graph @f(%x: f32[8{data},4]) {\n  %0: f32[8,4] = exp %x\n"
        "  %1: f32[4,8] = permute_dims[axes=(1, 0)] %0\n  return %1\n}",
        [],
    ),
    "rows of a table that each rank has": (
        "graph @f(%w: f32[1000{model},64], %i: i64[4]) {\n"
        "  %0: f32[4,64] = embedding[padding_idx=None] %w, %i\n  return %0\n}",
        ["own_part", "all_reduce"],
    ),
    "rows of the gradient of a table": (
        "graph @f(%p: f32[1000{data,model},64], %lr: f32[], %g: f32[4,64], %i: i64[4]) {\n"
        "  %0: f32[1000,64] = row_sums[rows=1000, padding_idx=None] %g, %i\n"
        "  %1: f32[1000,64] = sgd_update[weight_decay=0, maximize=False] %p, %0, %lr\n"
        "  return %1\n}",
        ["own_part"],
    ),
    "losses of classes that each rank has": (
        "graph @f(%x: f32[8,1000{model}], %y: i64[8]) {\n"
        "  %0: f32[8] = nll[axis=1, ignore_index=-100] %x, %y\n  return %0\n}",
        ["own_part", "all_reduce"],
    ),
    "merged axes": (
        "graph @f(%x: f32[5,8{data},4]) {\n  %0: f32[40,4] = reshape[shape=(40, 4)] %x\n"
        "  %1: f32[4,40] = permute_dims[axes=(1, 0)] %0\n  %2: f32[4,4] = matmul %1, %0\n"
        "  return %2\n}",
        ["all_reduce"],
    ),
}


@pytest.mark.parametrize("what", INSERTED)
def test_collectives_that_are_inserted(what: str) -> None:
    text, wanted = INSERTED[what]
    made = rank_program(parsed(text), MESH)
    assert [node.op.name for node in made.local.nodes if node.op.collective] == wanted


def test_indices_out_of_range_are_errors_on_parts() -> None:
    @weft.compile
    def f(w: weft.Tensor, i: weft.Tensor) -> weft.Tensor:
        return nn.functional.embedding(i, w)

    def rank(i: int) -> Any:
        w = distributed.split(weft.ones((1000, 64)), "ranks")
        return f(w, weft.asarray([0, i, 999])).shape

    assert distributed.run_virtual(2, rank, 500) == [(3, 64)] * 2
    for i in (1000, -1):
        with pytest.raises(weft.errors.WeftError, match="no row"):
            distributed.run_virtual(2, rank, i)


def test_sections_are_loaded_from_the_whole() -> None:
    whole = nn.GRU(4, 6)

    def rank() -> Any:
        model = distributed.tensor_parallel(nn.Sequential(nn.GRU(4, 6)), "ranks", {"0": "gates"})
        model[0].load_state_dict(whole.state_dict())
        return [distributed.full(p).numpy() for p in model.parameters()]

    for found in distributed.run_virtual(2, rank):
        for one, two in zip(found, whole.parameters(), strict=True):
            np.testing.assert_array_equal(one, two.numpy())


def carried(x: weft.Tensor, w: weft.Tensor) -> weft.Tensor:
    def body(h: weft.Tensor, _: weft.Tensor) -> tuple[weft.Tensor, weft.Tensor]:
        h = weft.tanh(h @ w)
        return h, h.sum(axis=0)

    h, sums = weft.scan(body, x, weft.arange(100))
    return h.sum() + sums.sum()


def test_loops_keep_layouts() -> None:
    x, w = weft.spec((8, 4)), weft.spec((4, 4))
    graph = weft.make_graph(carried, x, w)
    graph.inputs[0].type = x.cut(Cuts((("data",), ())))
    made = rank_program(graph, MESH)
    (loop,) = [node for node in made.local.nodes if node.op.loop]
    assert not [node for node in loop.graphs[0].nodes if node.op.collective]
    assert [str(v.type) for v in loop.outputs] == ["f32[4,4]", "f32[100,4]"]


def summed_up(x: weft.Tensor) -> weft.Tensor:
    def body(c: tuple[weft.Tensor, weft.Tensor], row: weft.Tensor) -> tuple[Any, weft.Tensor]:
        total, h = c
        h = weft.tanh(h + row)
        return (total + h.mT @ row, h), h.sum(axis=1)

    (total, _), sums = weft.scan(body, (weft.zeros((4, 4)), weft.zeros((8, 4))), x)
    return total.sum() + sums.sum()


def test_what_loops_carry_gets_the_layout_of_what_they_compute() -> None:
    """Sums over the batch are added up once, behind the loop."""
    graph = weft.make_graph(summed_up, weft.spec((100, 8, 4)))
    graph.inputs[0].type = graph.inputs[0].type.cut(Cuts(((), ("data",), ())))
    made = rank_program(graph, MESH)
    (loop,) = [node for node in made.laid_out.nodes if node.op.loop]
    assert [str(v.type) for v in loop.outputs] == [
        "f32[4,4]{+data}",
        "f32[8{data},4]",
        "f32[100,8{data}]",
    ]
    (local,) = [node for node in made.local.nodes if node.op.loop]
    assert not [node for node in local.graphs[0].nodes if node.op.collective]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: distributed.split(weft.ones(5), "ranks"), "size 5, which 2 ranks do not divide"),
        (lambda: distributed.split(weft.ones(4), "rows"), "has no axis 'rows'"),
        (lambda: distributed.split(weft.ones(4), None, "ranks"), "2 entries for a tensor of 1"),
        (
            lambda: distributed.layout(weft.ones((4, 4)), "ranks", "ranks"),
            "cuts two axes of one tensor",
        ),
        (
            lambda: distributed.tensor_parallel(nn.Linear(4, 4), "ranks", {"no": "rows"}),
            "no module is named 'no'",
        ),
        (
            lambda: distributed.tensor_parallel(
                nn.Sequential(nn.Linear(4, 4)), "ranks", {"0": "heads"}
            ),
            "the rule 'heads' is for MultiheadAttention",
        ),
    ],
)
def test_bad_layouts(call: Any, message: str) -> None:
    with pytest.raises(weft.errors.WeftError, match=message):
        distributed.run_virtual(2, call)


def test_inputs_that_differ_between_ranks_are_refused() -> None:
    @weft.compile
    def f(x: weft.Tensor, y: weft.Tensor) -> weft.Tensor:
        return (x * y).sum()

    def rank() -> None:
        f(distributed.split(weft.ones(4), "ranks"), weft.ones(4) * distributed.rank())

    with pytest.raises(weft.errors.DistributedError, match=r"%y .* is not the same on all"):
        distributed.run_virtual(2, rank)


def test_collectives_are_refused_in_programs_with_layouts() -> None:
    @weft.compile
    def f(x: weft.Tensor) -> weft.Tensor:
        return distributed.all_reduce(x)

    def rank() -> None:
        f(distributed.split(weft.ones(4), "ranks"))

    with pytest.raises(weft.errors.DistributedError, match="the compiler inserts collectives"):
        distributed.run_virtual(2, rank)


def test_results_that_are_cut_stay_cut() -> None:
    @weft.compile
    def double(x: weft.Tensor) -> weft.Tensor:
        return x * 2

    def rank() -> tuple[Any, Any]:
        y = double(distributed.split(weft.arange(4), "ranks"))
        return distributed.local(y).tolist(), distributed.full(y).tolist()

    assert distributed.run_virtual(2, rank) == [([0, 2], [0, 2, 4, 6]), ([4, 6], [0, 2, 4, 6])]


def test_gradients_of_a_layout() -> None:
    def f(x: weft.Tensor) -> weft.Tensor:
        return (distributed.layout(x, "ranks") ** 2).sum()

    def rank() -> Any:
        return distributed.full(weft.compile(weft.grad(f))(weft.tensor([1.0, 2.0]))).numpy()

    for found in distributed.run_virtual(2, rank):
        np.testing.assert_array_equal(found, [2.0, 4.0])
    with distributed.Mesh({"ranks": 1}):
        weft.check_grads(f, (weft.tensor([1.0, 2.0], dtype=weft.float64),))
        np.testing.assert_array_equal(
            weft.vmap(lambda x: distributed.layout(x, "ranks"))(weft.ones((2, 3))).numpy(),
            np.ones((2, 3)),
        )


def test_parts_are_written_in_place_where_nobody_else_holds_them() -> None:
    def rank() -> None:
        p = nn.Parameter(weft.ones(4))
        distributed.shard(p, "ranks")

        @weft.compile(backend="native")
        def double() -> None:
            with weft.no_grad():
                p.mul_(2.0)

        for _ in range(2):  # what the recording held goes
            double()
        places = []
        for _ in range(2):
            double()
            places.append(id(p._data.local))
        assert len(set(places)) == 1
        kept, held = p.detach(), distributed.local(p)
        for _ in range(2):
            double()
        assert distributed.full(kept).tolist() == [16.0] * 4
        assert held.tolist() == [16.0] * 2
        assert distributed.full(p).tolist() == [64.0] * 4
        assert id(p._data.local) != places[0]

    distributed.run_virtual(2, rank)


def test_backward_outside_of_the_compiled_function() -> None:
    def gradients(laid_out: bool) -> Any:
        weft.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
        x = weft.asarray(np.arange(16, dtype=np.float32).reshape(4, 4))
        if laid_out:
            distributed.fully_sharded(model, "ranks")
            x = distributed.split(x, "ranks")

        @weft.compile(backend="native")
        def forward(x: weft.Tensor) -> weft.Tensor:
            return (model(x) ** 2).mean()

        for _ in range(2):
            model.zero_grad()
            forward(x).backward()
        return [distributed.full(p.grad).numpy() for p in model.parameters()]

    for found in distributed.run_virtual(2, gradients, True):
        for one, two in zip(found, gradients(False), strict=True):
            np.testing.assert_allclose(one, two, rtol=1e-5)


def test_backward_of_a_layout_outside_of_the_compiled_function() -> None:
    @weft.compile(backend="native")
    def forward(x: weft.Tensor) -> weft.Tensor:
        return distributed.layout(weft.exp(x), "ranks") * 2

    def rank() -> Any:
        x = weft.tensor([0.0, 1.0], requires_grad=True)
        y = forward(x)
        y.backward(weft.ones(2))
        return distributed.full(x.grad).numpy()

    for found in distributed.run_virtual(2, rank):
        np.testing.assert_allclose(found, 2 * np.exp([0.0, 1.0]), rtol=1e-6)


def test_the_report_says_what_was_inserted() -> None:
    def rank() -> str:
        model = nn.Linear(4, 4)
        distributed.shard(model.weight, None, "ranks")

        @weft.compile
        def loss(x: weft.Tensor) -> weft.Tensor:
            return (model(x) ** 2).mean()

        return str(loss.explain(weft.ones((64, 4))))

    report = distributed.run_virtual(2, rank)[0]
    assert "1 message, 32 B sent by each rank" in report
    assert "all_gather  ranks  f32[4{ranks},4]  f32[4,4]  32 B  for matmul" in report


def _while(x: Any) -> Any:
    i = weft.tensor(0)
    while x.sum() < 100:
        x = x * 1.5
        i = i + 1
    return x, i


def _for(x: Any) -> Any:
    for k in range(weft.tensor(3)):
        x = x + k
    return x


def _branch(x: Any) -> Any:
    y = x * 2 if x.sum() > 0 else x - 1
    return y.sum() * x


def _rows(x: Any) -> Any:
    total = weft.tensor(0.0)
    for row in x:
        total = total + row * row if row > 3 else total
    return total


def _scan(x: Any) -> Any:
    return weft.scan(lambda c, t: (c + t * x, c.sum()), x, weft.arange(4.0))


@pytest.mark.parametrize("learns", [False, True])
@pytest.mark.parametrize("flow", [_while, _for, _branch, _rows, _scan])
def test_control_flow_that_begins_with_parts(flow: Any, learns: bool) -> None:
    """Arguments that lie over ranks are carried, captured and gone through."""

    def call(x: Any) -> Any:
        found = flow(x)
        found = found if isinstance(found, tuple) else (found,)
        if not learns:
            return found
        loss = sum((y.astype(weft.float32) ** 2).sum() for y in found)
        return weft.autograd.grad(loss, x)

    def rank(sign: int) -> list[Any]:
        with distributed.Mesh({"data": 2}):
            x = distributed.split(weft.arange(8.0) * sign, "data").requires_grad_(learns)
            return [distributed.full(y).detach().numpy() for y in weft.compile(call)(x)]

    for sign in (1, -1) if flow is _branch else (1,):
        x = (weft.arange(8.0) * sign).requires_grad_(learns)
        wanted = [y.detach().numpy() for y in call(x)]
        for found in distributed.run_virtual(2, rank, sign):
            for one, other in zip(found, wanted, strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-5)
