"""Graphs split over devices: segments, transfers, placement, errors."""

from __future__ import annotations

import itertools
import random
import threading
import time
from typing import Any

import numpy as np
import pytest
import split_graphs as split
from control_graphs import graphs
from control_programs import PROGRAMS

import weft
from weft import nn
from weft.errors import DeviceError, MemoryError, RangeError
from weft.ir.graph import Graph, Node
from weft.ir.interpret import PreparedGraph
from weft.ir.op import OPS
from weft.runtime.interpreted import interpreted
from weft.runtime.split.auto import Search, best
from weft.runtime.split.choose import settled
from weft.runtime.split.options import Split
from weft.runtime.split.program import SplitProgram
from weft.runtime.split.segments import _apart, cut

CLASSIC = """graph @f(%x: f32[4]) {
  %a: f32[4] = exp %x
  %b: f32[4] = sin %a
  %c: f32[4] = add %a, %b
  %d: f32[4] = cos %c
  return %d
}"""


def reason(f: Any) -> str:
    return str(f.programs[-1].program.reason)


def split_of(f: Any) -> Graph:
    made: Graph = f.programs[-1].program.placement.split()
    return made


# --- segments ------------------------------------------------------------------------------------


def test_merging_all_nodes_of_a_device_would_make_a_cycle_here() -> None:
    graph = weft.parse_graph(CLASSIC)
    with split.engines("npu"):
        placed = weft.place(graph, {"sin": "npu"}).split()
        placed.verify()
        assert [node.op.name for node in placed.nodes] == [
            *("segment", "transfer", "segment", "transfer", "segment")
        ]
        sizes = [len(node.graphs[0].nodes) for node in split.segments(placed)]
        assert sizes == [1, 1, 2]  # exp alone: sin stands between it and add
        assert weft.parse_graph(placed.text()).equals(placed)


@pytest.mark.parametrize("seed", range(40))
def test_parts_have_no_cycles_and_cannot_be_merged_further(seed: int) -> None:
    graph = split.random_graph(seed)
    with split.engines("npu", "gpu"):
        devices = split.random_devices(graph, seed, ["cpu", "npu", "gpu"])
        parts = cut(graph, devices)
        number = {node: i for i, part in enumerate(parts) for node in part.nodes}
        assert len(number) == len(graph.nodes)
        for node in graph.nodes:  # the order of the parts is one in which they can run
            for value in node.inputs:
                assert value.node is None or number[value.node] <= number[node]
        for one, two in itertools.combinations(parts, 2):
            if one.device == two.device and (two in one.after or one in two.after):
                assert _apart(one, two)
        placed = weft.place(graph, dict(devices)).split()
        placed.verify()
        seen = [(n.inputs[0], n.attrs["target"]) for n in split.transfers(placed)]
        assert len(seen) == len(set(seen))  # no value goes to a device twice
        x, y = weft.randn(3), weft.randn(3)
        for mine, theirs in zip(placed(x, y), graph(x, y), strict=True):
            assert np.array_equal(mine.numpy(), theirs.numpy())


def test_a_transfer_stands_behind_what_makes_the_value() -> None:
    graph = weft.parse_graph("""graph @f(%x: f32[4]) {
      %a: f32[4] = exp %x
      %b: f32[4] = sin %a
      %c: f32[4] = cos %b
      %d: f32[4] = tanh %a
      %e: f32[4] = add %c, %d
      return %e
    }""")
    with split.engines("npu"):
        rules = {graph.nodes[3]: "npu", graph.nodes[1]: "npu", graph.nodes[0]: "npu"}
        placed = weft.place(graph, rules).split()
        order = [node.op.name for node in placed.nodes]
        assert order == ["transfer", "segment", "transfer", "transfer", "segment"]


# --- running -------------------------------------------------------------------------------------


def training(backend: Any) -> list[float]:
    weft.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
    optimizer = weft.optim.Adam(model.parameters(), lr=0.05)

    @weft.compile(backend=backend)
    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    rng = np.random.default_rng(0)
    found = []
    for n in (6, 6, 6, 4, 5):  # other sizes: a recording with symbolic ones
        x, y = rng.normal(size=(n, 4)).astype(np.float32), rng.integers(0, 3, n)
        found.append(step(weft.asarray(x), weft.asarray(y)).item())
    return found


RULES: list[Any] = [{}, {"products": "npu"}, {"elementwise": "npu"}, {"0": "npu", "views": "npu"}]


@pytest.mark.parametrize("rules", RULES, ids=str)
def test_training_steps_are_those_of_one_native_call(rules: Any) -> None:
    want = training("native")
    with split.engines("npu"):
        assert np.allclose(training(weft.Split(rules)), want, rtol=1e-5)


@pytest.mark.parametrize("name", list(PROGRAMS)[::5])
def test_control_flow_and_its_gradients(name: str) -> None:
    """Placed by chance, in bodies too: lists of loops stay with the executor."""
    with split.engines("npu"):
        for number, (graph, given) in enumerate(graphs(name)):
            chance = random.Random(f"{name} {number}")
            nodes = [node for part in graph.walk() for node in part.nodes]
            rules = {node: chance.choice(["cpu", "npu"]) for node in nodes}
            program = SplitProgram(graph, Split(rules, scheduler="fifo"))
            program.placement.split().verify()
            for inputs in given:
                want = interpreted(PreparedGraph(graph), list(inputs))
                for mine, theirs in zip(program(list(inputs)), want, strict=True):
                    assert np.allclose(mine.numpy(), theirs.numpy(), equal_nan=True)


def test_bodies_of_loops_run_where_they_ask_to() -> None:
    def f(x: Any) -> Any:
        n = 0
        while x.sum() < 100:
            with weft.device("npu"):
                x = weft.exp(x * 0.1) * 4
            x = x * 2
            n += 1
        return x, n

    with split.engines("npu"):
        made = weft.compile(f, backend="split")
        x, n = made(weft.ones(3))
        want, count = f(weft.ones(3))
        assert (n, np.allclose(x.numpy(), want.numpy())) == (count, True)
        (segment,) = split.segments(split_of(made), "npu")
        assert [node.op.name for node in segment.graphs[0].nodes if node.inputs] == [
            *("multiply", "exp", "multiply")
        ]


def test_sizes_that_depend_on_data_go_through_segments() -> None:
    def f(x: Any, mask: Any) -> Any:
        y = x[mask]
        with weft.device("npu"):
            z = y * 2 + 1
        return z.reshape(-1, 1).tile(1, 2), z.sum()

    with split.engines("npu"):
        made = weft.compile(f, backend="split")
        for mask in ([True, False, True], [False] * 3, [True] * 3):
            got, want = [g(weft.arange(3.0), weft.asarray(mask)) for g in (made, f)]
            assert np.array_equal(got[0].numpy(), want[0].numpy())
            assert got[1].item() == want[1].item()


def test_gradients_and_transforms_go_through_segments() -> None:
    def f(x: Any) -> Any:
        with weft.device("npu"):
            y = weft.tanh(x) * x
        return (y**2).sum()

    with split.engines("npu"):
        made = weft.compile(f, backend="split")
        x = weft.randn(5)
        assert np.allclose(weft.grad(made)(x).numpy(), weft.grad(f)(x).numpy())
        xs = weft.randn(2, 5)
        assert np.allclose(weft.vmap(made)(xs).numpy(), weft.vmap(f)(xs).numpy())
        y = weft.tensor(x.numpy(), requires_grad=True)
        made(y).backward()
        assert np.allclose(y.grad.numpy(), weft.grad(f)(x).numpy())


def test_calls_of_python_overlap_with_a_segment() -> None:
    running: list[int] = []
    most = 0
    lock = threading.Lock()

    @weft.custom_op("split_test_wait", infer=lambda x: x)
    def wait(xp: Any, x: Any) -> Any:
        nonlocal most
        with lock:
            running.append(1)
            most = max(most, len(running))
        time.sleep(0.05)
        with lock:
            running.pop()
        return x + 1

    @weft.compile(backend=weft.Split(scheduler="pool", threads=2))
    def f(x: Any, y: Any) -> Any:
        return wait(x) * 2 + wait(y)

    assert f(weft.ones(2), weft.zeros(2)).tolist() == [5.0, 5.0]
    assert most == 2


def test_the_context_says_nothing_to_eager_code_nor_around_a_call() -> None:
    with split.engines("npu"):
        made = weft.compile(lambda x: x * 2, backend="split")
        with weft.device("npu"):
            assert (weft.ones(2) * 2).device.kind == "cpu"
            assert made(weft.ones(2)).tolist() == [2.0, 2.0]
        assert not split.segments(split_of(made), "npu")


def test_what_is_sent_to_a_device_is_computed_there_until_it_comes_back() -> None:
    def f(x: Any, w: Any) -> Any:
        y = weft.tanh(x.to("npu") @ w).to("cpu")
        return (y * 2).sum()

    def loop(x: Any, w: Any) -> Any:
        x = x.to("npu")
        while x.sum() < 50:
            x = x * 2 + 1
        return x.to("cpu") + 1

    x, w = weft.ones((2, 3)), weft.ones((3, 3))
    with split.engines("npu"):
        assert x.to("npu").device.kind == "cpu"  # eagerly it stays where it is
        for function, ops in ((f, {"matmul", "tanh"}), (loop, {"while"})):
            want = function(x, w)
            for backend in ("native", "interpret", "split"):
                made = weft.compile(function, backend=backend)
                assert np.allclose(made(x, w).numpy(), want.numpy())
            (segment,) = split.segments(split_of(made), "npu")
            assert {n.op.name for n in segment.graphs[0].nodes if n.inputs} == ops
            want = weft.grad(lambda x, g=function: g(x, w).sum())(x)
            got = weft.grad(lambda x, g=made: g(x, w).sum())(x)
            assert np.allclose(got.numpy(), want.numpy())
    with pytest.raises(DeviceError, match="there is no device 'npu'"):
        x.to("npu")


def test_other_backends_compute_the_same() -> None:
    def f(x: Any) -> Any:
        with weft.device("npu"):
            return x * 3

    with split.engines("npu"):
        for backend in ("native", "interpret", "dataflow", "split"):
            assert weft.compile(f, backend=backend)(weft.ones(2)).tolist() == [3.0, 3.0]


# --- placement -----------------------------------------------------------------------------------


def test_rules_name_ops_families_modules_nodes_and_functions() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
            self.head = nn.Linear(4, 2)

        def forward(self, x: Any) -> Any:
            return weft.softmax(self.head(self.body(x)), axis=-1)

    graph = weft.make_graph(Model(), weft.spec((3, 4)))
    linear, relu, head, softmax = graph.nodes
    cases: list[tuple[Any, set[Node]]] = [
        ({"relu": "npu"}, {relu}),
        ({"products": "npu"}, {linear, head}),
        ({"body": "npu"}, {linear, relu}),
        ({"Model.head": "npu"}, {head}),
        ({softmax: "npu"}, {softmax}),
        ({lambda node: node.op.name == "softmax": "npu"}, {softmax}),
        ({"body.1": "cpu", "body": "npu"}, {linear}),  # the first that fits counts
    ]
    with split.engines("npu"):
        for rules, want in cases:
            devices = weft.place(graph, rules).devices
            assert {node for node, name in devices.items() if name == "npu"} == want


def test_auto_finds_what_a_search_of_all_placements_finds() -> None:
    fast = weft.Rates(1e11, 4e9, 5e-6, 4e9, 2e-6)
    slow = weft.Rates(2e9, 4e9, 1e-6)
    spec = weft.spec((64, 64))
    graphs = [
        weft.make_graph(lambda x, w: weft.tanh(x @ w) @ w + weft.exp(x), spec, spec),
        weft.make_graph(lambda x, w: (x + w).sum() + (x @ w @ w).sum(), spec, spec),
        weft.make_graph(lambda x, w: weft.sin(x) * w - x.sum(axis=0), spec, spec),
    ]
    cpu = weft.Engine("cpu", split.interpreted, rates=slow)
    with split.engines("npu", rates=fast) as (npu,):
        for graph in graphs:
            base = settled(graph, {}, ["cpu", "npu"])
            search = Search(graph, base, [cpu, npu])
            nodes = list(base.devices)
            costs = [
                search.score(dict(zip(nodes, names, strict=True)))
                for names in itertools.product(("cpu", "npu"), repeat=len(nodes))
            ]
            for tries, bound in ((1024, 1.0), (0, 1.1)):  # all of them, and by moving groups
                found, _ = best(graph, base, [cpu, npu], lambda *_: True, tries=tries)
                assert min(costs) <= search.score(found) <= bound * min(costs) * (1 + 1e-9)
        assert weft.place(graphs[1], "auto", devices=["cpu", "npu"]).tried > 0


def test_auto_keeps_within_the_memory_of_a_device() -> None:
    spec = weft.spec((256, 256))
    graph = weft.make_graph(lambda x, w: weft.tanh(x @ w @ w), spec, spec)
    fast = weft.Rates(1e15, 1e15, 0.0)
    with split.engines("large", rates=fast):
        assert "large" in weft.place(graph, "auto", devices=["cpu", "large"]).devices.values()
    with split.engines("small", rates=fast, memory=1000):
        placed = weft.place(graph, "auto", devices=["cpu", "small"])
        assert set(placed.devices.values()) == {"cpu"}
        with pytest.raises(MemoryError, match=r"the nodes on small need .* bytes, and it has 1000"):
            weft.place(graph, {"products": "small"})
        with pytest.raises(MemoryError, match="no placement fits"):
            weft.place(graph, "auto", devices=["small"])


def test_what_a_device_cannot_run_goes_to_the_cpu_and_is_named() -> None:
    def refuses(node: Node) -> str:
        return "it has no sine" if node.op.name == "sin" else ""

    with split.engines("npu", refuses=refuses):
        placed = weft.place(weft.parse_graph(CLASSIC), {"elementwise": "npu"})
        assert [str(f) for f in placed.fallbacks] == ["sin: cpu, not npu: it has no sine"]
        assert "sin: cpu, not npu: it has no sine" in placed.explain()
        assert "transfers: 4" in placed.explain()


# --- errors --------------------------------------------------------------------------------------


def one_device(device: str) -> Any:
    return weft.compile(lambda x: x * 2 + 1, backend=weft.Split({"multiply": device}))


def test_bad_input() -> None:
    graph = weft.parse_graph(CLASSIC)
    other = weft.parse_graph(CLASSIC)
    with split.engines("npu", refuses=lambda node: "it runs nothing"):
        with pytest.raises(DeviceError, match=r"there is no device 'tpu' .*\n.*\n.*known are"):
            one_device("tpu")
        with pytest.raises(DeviceError, match="there is no device 'tpu'"):
            weft.place(graph, {}, devices=["tpu"])
        with pytest.raises(DeviceError, match=r"exp: no device runs this node: on npu, it runs"):
            weft.place(graph, {}, devices=["npu"])
        with pytest.raises(RangeError, match="is no node of graph @f"):
            weft.place(graph, {other.nodes[0]: "cpu"})
        with pytest.raises(RangeError, match="placement is 'fast'"):
            weft.place(graph, "fast")
        with pytest.raises(RangeError, match="3 is no rule"):
            weft.place(graph, {3: "cpu"})
        with pytest.raises(DeviceError, match="already a device 'npu'"):
            weft.register_engine(weft.Engine("npu", split.interpreted))
        with pytest.raises(DeviceError, match="already a device 'ort'"):
            weft.register_engine(weft.Engine("ort", split.interpreted))


def test_an_engine_that_raises_in_the_middle_writes_nothing() -> None:
    def failing(graph: Graph) -> Any:
        def run(arrays: list[Any]) -> list[Any]:
            raise ValueError("out of order\nat unit 7")

        return run

    model = nn.Linear(3, 3)
    before = model.weight.numpy().copy()

    @weft.compile(backend="split")
    def step(x: Any) -> Any:
        with weft.no_grad():
            model.weight.add_(1.0)
        with weft.device("npu"):
            y = weft.sin(model(x)) * 2
        with weft.no_grad():
            model.bias.mul_(y.sum())
        return y

    with split.engines("npu", compile=failing):
        with pytest.raises(DeviceError, match="the engine npu failed in a segment of") as error:
            step(weft.ones(2, 3))
        assert "out of order" in str(error.value)
        assert "test_split_graphs.py" in str(error.value)
        assert isinstance(error.value.__cause__, ValueError)
        assert np.array_equal(model.weight.numpy(), before)


def test_an_engine_that_gives_too_little_is_named() -> None:
    with (
        split.engines("npu", compile=lambda graph: lambda arrays: []),
        pytest.raises(DeviceError, match="npu gave 0 results for 1"),
    ):
        one_device("npu")(weft.ones(2))


@weft.custom_op("split_plus_one")
def plus_one(_xp: Any, x: Any) -> Any:
    return x + 1


del OPS["split_plus_one"]  # tables of all cards are about those of Weft


HOSTS = {
    "while": lambda x: _while(x),
    "if": lambda x: plus_one(x) @ EYE if x.sum() > 0 else weft.py_call(_minus, weft.spec(2), x),
    "for": lambda x: _for(x),
}
EYE = weft.eye(2)


def _minus(x: Any) -> Any:
    return x - 1


def _while(x: Any) -> Any:
    while x[0] < 3:
        x = plus_one(x) @ EYE
    return x


def _for(x: Any) -> Any:
    for _ in range(weft.tensor(3)):
        if x.sum() > 2:
            print("large")
        x = plus_one(x)
    return x


@pytest.mark.parametrize("rules", [{}, {"products": "npu"}, "auto"], ids=str)
@pytest.mark.parametrize("name", HOSTS)
def test_control_flow_with_calls_of_python(name: str, rules: Any) -> None:
    with split.engines("npu"):
        made = weft.compile(HOSTS[name], backend=weft.Split(rules))
        for start in (0.0, 2.0, -5.0):
            x = weft.full((2,), start)
            assert made(x).tolist() == HOSTS[name](x).tolist()


def test_weights_come_to_a_device_twice_at_most() -> None:
    """Also in the iterations of a loop; and what no longer comes is not kept."""
    brought: list[tuple[int, ...]] = []
    w = weft.ones(8, 8) / 8

    def f(x: Any) -> Any:
        i = weft.tensor(0)
        while i < 4:
            x = x @ w
            i = i + 1
        return x

    def put(array: Any) -> Any:
        brought.append(array.shape)
        return array

    with split.engines("npu", put=put):
        made = weft.compile(f, backend=weft.Split({"products": "npu"}))
        for _ in range(3):
            x = weft.randn(2, 8)
            np.testing.assert_allclose(made(x).numpy(), f(x).numpy(), rtol=1e-5)
        assert brought.count((8, 8)) == 2
        assert brought.count((2, 8)) == 12
        for step in range(8):  # in place or not, what comes is what is there
            w += step
            x = weft.randn(2, 8)
            np.testing.assert_allclose(made(x).numpy(), f(x).numpy(), rtol=1e-4)


def test_what_is_inside_of_loops_is_explained_and_counted() -> None:
    w = weft.ones(64, 64)

    def f(x: Any) -> Any:
        i = weft.tensor(0)
        while i < 4:
            with weft.device("npu"):
                x = x @ w
            print("step")
            i = i + 1
        return x

    with split.engines("npu"):
        made = weft.compile(f, backend="split")
        made(weft.ones(2, 64))
        assert "on npu" in repr(made.programs[-1].program.placement)
        text = reason(made)
        assert "npu: 1 nodes: matmul" in text
        assert "transfers: 0" not in text
    with split.engines("npu", memory=2**10), pytest.raises(MemoryError, match="npu need"):
        weft.compile(f, backend="split")(weft.ones(2, 64))


def test_rules_that_fit_nothing_are_named() -> None:
    graph = weft.make_graph(lambda x: weft.exp(x) * 2, weft.spec(4))
    with split.engines("npu"):
        with pytest.warns(UserWarning, match="'productz' fits no node.*did you mean 'products'"):
            placed = weft.place(graph, {"productz": "npu", "exp": "npu"})
        assert "the rule 'productz' fits no node" in placed.explain()
        assert placed.unused == ["productz"]
        assert weft.place(graph, {"products": "npu"}).unused == ["products"]  # known: no warning
        only = weft.place(graph, {"exp": "npu"}, devices="cpu")
        assert "none of the devices that may be used" in str(only.fallbacks[0])
    with pytest.raises(DeviceError, match="'ort:'"):
        weft.place(graph, {"exp": "ort:"})


@pytest.mark.parametrize("far", [False, True], ids=["shared memory", "put and get"])
@pytest.mark.parametrize(
    "made",
    [
        lambda x: [np.sin(x[0].astype(np.float64))],
        lambda x: [np.sin(x[0])[:1].copy()],
        lambda x: None,
        lambda x: [[1.0, 2.0]],
        lambda x: [weft.asarray(x[0])],
    ],
    ids=["float64", "too small", "None", "a list", "a tensor"],
)
def test_what_an_engine_gives_is_checked(made: Any, far: bool) -> None:
    options = {"put": lambda a: a, "get": lambda a: a} if far else {}
    with split.engines("npu", compile=lambda graph: made, **options):
        f = weft.compile(lambda x: weft.sin(x) + 1, backend=weft.Split({"sin": "npu"}))
        with pytest.raises(DeviceError, match="npu gave"):
            f(weft.ones(3, 3))


def test_engines_are_checked_when_they_are_made() -> None:
    for name in ("", 3, "a b", "auto"):
        with pytest.raises(RangeError, match="no name of a device"):
            weft.register_engine(weft.Engine(name, compile=lambda g: g))  # type: ignore[arg-type]
    with pytest.raises(RangeError, match="flops is 0"):
        weft.Rates(0, 1, 1)
    for wrong in ({"rates": "fast"}, {"memory": "1GB"}, {"compile": None}):
        with pytest.raises(weft.errors.WeftError, match=next(iter(wrong))):
            weft.register_engine(weft.Engine("npu", **{"compile": lambda g: g, **wrong}))

    def no(_array: Any) -> Any:
        raise ZeroDivisionError("no")

    with split.engines("npu", put=no):
        f = weft.compile(lambda x: weft.sin(x) + 1, backend=weft.Split({"sin": "npu"}))
        with pytest.raises(DeviceError, match="npu cannot take or give an array: no"):
            f(weft.ones(3, 3))
    graph = weft.make_graph(weft.sin, weft.spec(3))
    raised = pytest.raises(DeviceError, match="refuses of npu raised ZeroDivisionError")
    with split.engines("npu", refuses=lambda node: 1 / 0), raised:
        weft.place(graph, {"sin": "npu"})
    with split.engines("npu", refuses=lambda node: node.op.name == "sin"):
        placed = weft.place(weft.make_graph(weft.sin, weft.spec(3)), {"sin": "npu"})
        assert "it says no" in placed.explain()


def test_transfers_overlap_with_the_work_of_their_device() -> None:
    running: list[str] = []
    beside: list[bool] = []

    def slow(what: str, call: Any) -> Any:
        def done(*args: Any) -> Any:
            beside.append(bool(running) and what not in running)
            running.append(what)
            time.sleep(0.02)
            running.remove(what)
            return call(*args)

        return done

    def f(x: Any) -> Any:
        i = weft.tensor(0.0)
        total = x * 0
        while i < 4:
            with weft.device("npu"):
                y = weft.sin(x + i)
            total = total + y
            i = i + 1
        return total

    options = {"compile": lambda graph: slow("run", interpreted_run(graph))}
    rates = weft.Rates(1e12, 1e11, 1e-5, 1e9, 0.02)
    with split.engines("npu", put=slow("put", lambda a: a), rates=rates, **options):
        made = weft.compile(f, backend=weft.Split(threads=3))
        np.testing.assert_allclose(made(weft.ones(2)).numpy(), f(weft.ones(2)).numpy(), rtol=1e-6)
    assert any(beside)


def interpreted_run(graph: Graph) -> Any:
    prepared = PreparedGraph(graph)

    def run(arrays: Any) -> Any:
        return [x.numpy() for x in interpreted(prepared, [weft.asarray(a) for a in arrays])]

    return run


@pytest.mark.parametrize("pool", ["adaptive_avg_pool2d", "adaptive_max_pool2d"])
def test_windows_as_large_as_the_image(pool: str) -> None:
    made = weft.compile(lambda x: getattr(nn.functional, pool)(x, 1), backend="split")
    for height, width in ((8, 8), (9, 7), (2, 3)):
        x = weft.randn(2, 1, height, width)
        wanted = getattr(nn.functional, pool)(x, 1).numpy()
        np.testing.assert_allclose(made(x).numpy(), wanted, rtol=1e-5)


def test_sizes_of_rows_taken_in_a_loop_reach_every_segment() -> None:
    """The backward needs the size on the CPU, where a stack tells it, and on the device."""

    def f(x: Any) -> Any:
        i = weft.tensor(0)
        s = x.sum() * 0
        while i < 3:
            s = s + x[x > i * 0.1].sum()
            i = i + 1
        return s

    def picks(node: Node) -> bool:
        return node.op.name not in ("broadcast_to", "full")

    with split.engines("npu"):
        for rule in (picks, lambda node: not picks(node), lambda _node: True):
            x = weft.tensor([1.0, -2.0, 0.15, 3.0], requires_grad=True)
            y = weft.compile(f, backend=weft.Split({rule: "npu"}))(x)
            y.backward()
            assert float(y) == pytest.approx(12.3)
            np.testing.assert_allclose(x.grad.numpy(), [3, 0, 2, 3])


def test_values_stay_on_a_device_across_control_flow() -> None:
    """What one device alone reads in a branch or loop is not brought to the host in between."""
    moved: list[str] = []
    w = weft.ones(8, 8) / 8

    def f(x: Any) -> Any:
        y = x @ w
        if x.sum() > 0:
            return y @ w
        z = x * 0
        for _ in range(weft.tensor(3)):
            if x.sum() < -100:
                z = z + y @ w
        return z

    def note(what: str) -> Any:
        return lambda array: (moved.append(f"{what} {array.shape}"), array)[1]

    with split.engines("npu", put=note("put"), get=note("get")):
        made = weft.compile(f, backend=weft.Split({"products": "npu"}))
        for sign, wanted in ((1.0, ["put (2, 8)", "put (8, 8)", "get (2, 8)"]), (-1.0, None)):
            x = weft.ones(2, 8) * sign
            moved.clear()
            np.testing.assert_allclose(made(x).numpy(), f(x).numpy(), rtol=1e-5)
            assert wanted is None or sorted(moved) == sorted(wanted)
        x = weft.full((2, 8), -50.0)
        np.testing.assert_allclose(made(x).numpy(), f(x).numpy(), rtol=1e-5)
        placed = made.programs[-1].program.placement.split()
        assert weft.parse_graph(placed.text()).equals(placed)
