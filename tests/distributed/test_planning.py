"""The planner: units, layouts, schedules, and that it finds what an exhaustive search finds."""

from __future__ import annotations

import dataclasses
import itertools
import json
import random
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import weft
from weft import distributed, nn, optim
from weft.base.errors import DistributedError, WeftError
from weft.distributed import Cluster, ParallelPlan
from weft.distributed.planning.costs import Costs, chain_of
from weft.distributed.planning.cuts import all_cuts, balanced_cuts
from weft.distributed.planning.links import group_of
from weft.distributed.planning.pattern import BACKWARD, FORWARD
from weft.distributed.planning.prediction import predict, run_of
from weft.distributed.planning.search import CHUNKS, SAMPLES
from weft.distributed.planning.splits import WHOLE
from weft.distributed.planning.spread import Spread, spread
from weft.distributed.planning.timetable import Task, timetable
from weft.distributed.schedules import in_flight, order_of
from weft.nn import functional as F


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: weft.Tensor) -> weft.Tensor:
        b, t, c = x.shape
        parts = self.qkv(self.norm1(x)).reshape(b, t, self.heads, 3, c // self.heads)
        q, k, v = parts.permute_dims((3, 0, 2, 1, 4))
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.swapaxes(1, 2).reshape(b, t, c))
        return x + self.down(F.relu(self.up(self.norm2(x))))


def stepped(make: Callable[[], nn.Module]) -> Callable[[], Callable[..., Any]]:
    def build() -> Callable[..., Any]:
        model = make()
        optimizer = optim.Adam(model.parameters())

        def step(x: weft.Tensor) -> weft.Tensor:
            optimizer.zero_grad()
            loss = (model(x) ** 2).mean()
            loss.backward()
            optimizer.step()
            return loss

        return step

    return build


def mlp(widths: tuple[int, ...], batch: int) -> distributed.Outline:
    def make() -> nn.Module:
        pairs = itertools.pairwise(widths)
        return nn.Sequential(*[nn.Sequential(nn.Linear(a, b), nn.Tanh()) for a, b in pairs])

    return distributed.outline(stepped(make), weft.spec((batch, widths[0])))


def transformer(layers: int, width: int = 512, batch: int = 8) -> distributed.Outline:
    def make() -> nn.Module:
        return nn.Sequential(*[Block(width, 8) for _ in range(layers)])

    return distributed.outline(stepped(make), weft.spec((batch, 128, width)))


def small_cluster(devices: int, memory: float = 80e9, per_node: int = 8) -> Cluster:
    full = Cluster.a100(8)
    processor = dataclasses.replace(full.processor, memory=memory)
    return dataclasses.replace(full, processor=processor, devices=devices, per_node=per_node)


# --- outlines and units --------------------------------------------------------------------------


def test_an_outline_has_types_alone_and_leaves_random_numbers_as_they_are() -> None:
    weft.manual_seed(3)
    expected = weft.rand(4)
    weft.manual_seed(3)
    step = mlp((400_000, 400_000), 8)  # 640 GB
    assert step.parameters == 400_000 * 400_001
    assert bool(weft.all(weft.rand(4) == expected))


def test_a_model_that_asks_for_numbers_is_refused() -> None:
    def build() -> Any:
        scale = float(weft.rand(1).sum())
        return lambda x: x * scale

    with pytest.raises(WeftError, match="no numbers are there yet"):
        distributed.outline(build, weft.spec((4, 3)))


def test_layers_are_units_and_equal_ones_are_of_one_kind() -> None:
    units = chain_of(transformer(6)).units
    assert [unit.name for unit in units] == [f"Sequential.{i}" for i in range(6)]
    assert len({unit.kind for unit in units[:-1]}) <= 2  # the first has no unit before it
    for unit in units:
        assert len(unit.parameters) == 12
        assert len(unit.learns) == 12
        assert len(unit.states) == 24
    total = sum(len(unit.forward) + len(unit.backward) for unit in units)
    assert max(len(unit.backward) for unit in units) < total / 4


def test_all_work_of_a_step_is_in_its_units() -> None:
    step = transformer(3)
    costs = Costs(step, small_cluster(1))
    spreads = costs.spreads(ParallelPlan(micro_batch=8))
    rows, width = 8 * 128, 512
    forward = 3 * 2 * rows * (12 * width**2 + 2 * 128 * width)
    found = [spreads[unit.kind] for unit in costs.chain.units]
    assert sum(s.flops[FORWARD] for s in found) == forward
    assert sum(s.flops[BACKWARD] for s in found) == 2 * forward
    assert sum(s.weights for s in found) == step.parameters * 4
    assert sum(s.states for s in found) == step.parameters * 8


class Net(nn.Module):
    """Convolutions with running statistics, which are written in the forward."""

    def __init__(self) -> None:
        super().__init__()
        layers = [nn.Sequential(nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8), nn.ReLU()) for _ in range(3)]
        self.layers, self.head = nn.Sequential(*layers), nn.Linear(8, 4)

    def forward(self, x: weft.Tensor) -> weft.Tensor:
        y: weft.Tensor = self.head(self.layers(x).mean(axis=(2, 3)))
        return y


def clipped() -> Any:
    model = nn.Sequential(*[nn.Linear(8, 8) for _ in range(3)])
    optimizer = optim.AdamW(model.parameters())

    def step(x: weft.Tensor) -> weft.Tensor:
        optimizer.zero_grad()
        loss = model(x).sum()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    return step


def compiled() -> Any:
    return weft.compile(clipped())


@pytest.mark.parametrize(
    ("build", "shape", "names", "learns"),
    [
        (stepped(Net), (4, 8, 12, 12), "layers.0 layers.1 layers.2 head", [4, 4, 4, 2]),
        (clipped, (4, 8), "0 1 2", [2, 2, 2]),
        (compiled, (4, 8), "0 1 2", [2, 2, 2]),
    ],
    ids=["running statistics", "clipped gradients", "compiled"],
)
def test_steps_of_other_kinds_have_units(
    build: Any, shape: tuple[int, ...], names: str, learns: list[int]
) -> None:
    step = distributed.outline(build, weft.spec(shape))
    units = chain_of(step).units
    assert [unit.name.partition(".")[2] for unit in units] == names.split()
    assert [len(unit.learns) for unit in units] == learns
    assert all(unit.forward and unit.backward for unit in units)
    assert distributed.plan(step, small_cluster(2)).prediction.fits


def test_a_step_with_control_flow_is_refused() -> None:
    def step_of() -> Any:
        model = nn.LSTM(8, 8, batch_first=True)
        return lambda x: model(x)[0].sum().backward()

    step = distributed.outline(step_of, weft.spec((4, 5, 8)))
    with pytest.raises(DistributedError, match="has control flow"):
        distributed.plan(step, small_cluster(2))


# --- layouts -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("devices", "width", "border"), [(2, 64, 1), (4, 2048, WHOLE), (4, 2048, 1)]
)
def test_layouts_are_the_best_of_all(devices: int, width: int, border: int) -> None:
    costs = Costs(transformer(3, width=width, batch=2), small_cluster(devices))
    chain = costs.chain
    kind = chain.units[1].kind
    pattern = chain.pattern(kind, 2)
    processor, group = costs.cluster.processor, group_of(costs.cluster, devices, 1)

    def cost(found: Spread) -> float:
        return found.forward + found.backward

    matrices = [place for place in pattern.weights if len(pattern.shapes[place]) == 2]
    all_costs = []
    for layouts in itertools.product((0, 1, WHOLE), repeat=len(matrices)):
        pinned = dict(zip(matrices, layouts, strict=True))
        found = spread(pattern, processor, group, border=border, pinned=pinned)
        assert found is not None
        all_costs.append(cost(found))
    best = spread(pattern, processor, group, border=border)
    assert best is not None
    assert cost(best) == min(all_costs)
    assert len(set(all_costs)) > 5


def test_a_pinned_layout_is_kept() -> None:
    plan = distributed.plan(
        transformer(2), small_cluster(4), tensor=4, data=1, pipeline=1, layouts={"up": 1}
    )
    assert plan.prediction.weights["Sequential.*.up"] == ((2048, 512), 1)
    assert "[2048,512{tensor}]" in plan.explain()
    free = distributed.plan(transformer(2), small_cluster(4), tensor=4, data=1, pipeline=1)
    assert plan.prediction.seconds >= free.prediction.seconds


# --- schedules -----------------------------------------------------------------------------------


def longest_path(forward: list[float], backward: list[float], count: int, schedule: str) -> float:
    """The same by relaxation over the graph of what waits for what."""
    stages = len(forward)
    ends: dict[tuple[int, bool, int], float] = {}
    orders = [order_of(schedule, stages, count, device) for device in range(stages)]
    for _ in range(2 * count * stages + 1):
        before = dict(ends)
        for device, order in enumerate(orders):
            last = 0.0
            for is_forward, i, _chunk in order:
                if is_forward:
                    needs = ends.get((device - 1, True, i), 0.0) if device else 0.0
                elif device == stages - 1:
                    needs = ends.get((device, True, i), 0.0)
                else:
                    needs = ends.get((device + 1, False, i), 0.0)
                spent = forward[device] if is_forward else backward[device]
                last = ends[device, is_forward, i] = max(last, needs) + spent
        if ends == before:
            break
    return max(ends.values())


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
@pytest.mark.parametrize(("stages", "count"), [(1, 3), (2, 1), (3, 7), (4, 4), (5, 12)])
def test_a_timetable_is_the_longest_path(schedule: str, stages: int, count: int) -> None:
    numbers = random.Random(stages * 100 + count)
    forward = [numbers.uniform(0.5, 2) for _ in range(stages)]
    backward = [numbers.uniform(1, 4) for _ in range(stages)]
    found = timetable([[x] for x in forward], [[x] for x in backward], 0.0, count, schedule)
    assert found.seconds == pytest.approx(longest_path(forward, backward, count, schedule))


@pytest.mark.parametrize("count", [4, 8, 32])
def test_bubbles_fall_out_of_the_events(count: int) -> None:
    stages = 4
    work = count * 3.0
    for schedule in ("1f1b", "gpipe"):
        found = timetable([[1.0]] * stages, [[2.0]] * stages, 0.0, count, schedule)
        assert found.seconds - work == pytest.approx(work * (stages - 1) / count)
    for chunks in (2, 4):
        forward, backward = [[1 / chunks] * chunks] * stages, [[2 / chunks] * chunks] * stages
        found = timetable(forward, backward, 0.0, count, "interleaved")
        assert found.seconds - work == pytest.approx(work * (stages - 1) / count / chunks)


@pytest.mark.parametrize(("schedule", "chunks"), [("1f1b", 1), ("gpipe", 1), ("interleaved", 3)])
@pytest.mark.parametrize(("stages", "count"), [(1, 4), (3, 3), (3, 12), (4, 8)])
def test_as_many_micro_batches_are_in_flight_as_the_order_has(
    schedule: str, chunks: int, stages: int, count: int
) -> None:
    for device in range(stages):
        alive, fullest = [0] * chunks, [0] * chunks
        for forward, _, chunk in order_of(schedule, stages, count, device, chunks):
            alive[chunk] += 1 if forward else -1
            if sum(alive) > sum(fullest):
                fullest = alive[:]
        assert in_flight(schedule, stages, count, device, chunks) == fullest


def test_tasks_do_not_overlap_and_keep_their_order() -> None:
    found = timetable([[1.0, 2.0]] * 3, [[2.0, 3.0]] * 3, 0.25, 6, "interleaved", keep_tasks=True)
    assert len(found.tasks) == 3 * 2 * 2 * 6
    of: dict[int, list[Task]] = {}
    for task in found.tasks:
        of.setdefault(task.device, []).append(task)
    for tasks in of.values():
        assert all(a.stop <= b.start for a, b in itertools.pairwise(tasks))
    ends = {(t.forward, t.chunk * 3 + t.device, t.micro_batch): t for t in found.tasks}
    for (forward, stage, i), task in ends.items():
        needed = ends.get((forward, stage - 1 if forward else stage + 1, i))
        if needed is not None:
            assert task.start >= needed.stop + 0.25
        elif not forward:
            assert task.start >= ends[True, stage, i].stop


def test_a_timeline_is_a_picture_or_a_trace(tmp_path: Path) -> None:
    plan = ParallelPlan(pipeline=4, micro_batch=2, schedule="interleaved", chunks=2)
    found = distributed.simulate(transformer(8), small_cluster(4), plan)
    weft.inspect.save_pipeline(found, tmp_path / "a.svg")
    picture = ElementTree.parse(tmp_path / "a.svg").getroot()
    boxes = picture.findall(".//{*}rect")
    assert len(boxes) == 4 * 2 * 2 * 4  # stages, chunks, forward and backward, micro-batches
    weft.inspect.save_pipeline(found, tmp_path / "a.json")
    events = json.loads((tmp_path / "a.json").read_text())["traceEvents"]
    spans = [event for event in events if event["ph"] == "X"]
    assert len(spans) == len(boxes)
    assert {event["args"]["name"] for event in events if event["ph"] == "M"} == {
        f"stage {i}" for i in range(4)
    }
    assert found.run is not None
    last = max(event["ts"] + event["dur"] for event in spans)
    assert last == pytest.approx(found.run.seconds * 1e6, abs=1)
    with pytest.raises(weft.errors.FileError, match=r"neither \.svg nor \.json"):
        weft.inspect.save_pipeline(found, tmp_path / "a.png")


def test_without_overlap_a_device_waits_for_what_it_sends() -> None:
    """Two stages, two micro-batches, by hand: the first stage sends both forwards, then waits."""
    costs = [[1.0]] * 2, [[2.0]] * 2
    beside = timetable(*costs, 0.5, 2, "gpipe", keep_tasks=True)
    after = timetable(*costs, 0.5, 2, "gpipe", overlap=False, keep_tasks=True)
    starts = [[t.start for t in found.tasks if t.device == 0] for found in (beside, after)]
    assert starts == [[0.0, 1.0, 6.0, 8.0], [0.0, 1.5, 6.5, 9.0]]
    assert (beside.seconds, after.seconds) == (10.0, 11.0)


def test_cuts_are_balanced_as_well_as_can_be() -> None:
    numbers = random.Random(5)
    for _ in range(60):
        times = [numbers.choice([0.1, 1.0, 1.0, 3.0, numbers.random()]) for _ in range(9)]
        for parts in (1, 2, 3, 5, 9):

            def slowest(cuts: tuple[int, ...], times: list[float] = times) -> float:
                ends = (*cuts[1:], len(times))
                return max(sum(times[a:b]) for a, b in zip(cuts, ends, strict=True))

            found = balanced_cuts(times, parts)
            assert len(found) == parts
            assert slowest(found) == pytest.approx(min(map(slowest, all_cuts(9, parts))), rel=2e-6)


# --- the search ----------------------------------------------------------------------------------


def everything(step: distributed.Outline, cluster: Cluster) -> float:
    """The least time of all plans that fit, each simulated."""
    costs = Costs(step, cluster)
    n, units = cluster.devices, len(costs.chain.units)
    divisors = [i for i in range(1, n + 1) if n % i == 0]
    best = float("inf")
    for tensor, pipeline in itertools.product(divisors, repeat=2):
        if n % (tensor * pipeline):
            continue
        data = n // (tensor * pipeline)
        schedules = [("1f1b", 1), ("gpipe", 1), *[("interleaved", c) for c in CHUNKS if c < 4]]
        for size, recompute, sharded, sequence, (schedule, chunks), thrifty in itertools.product(
            SAMPLES,
            (False, True),
            ("none", "state", "all"),
            (False, True),
            schedules,
            (False, True),
        ):
            if pipeline * chunks > units:
                continue
            for cuts in all_cuts(units, pipeline * chunks):
                plan = ParallelPlan(
                    *(data, tensor, pipeline, size, recompute, sharded, sequence, schedule, chunks),
                    cuts=cuts,
                )
                try:
                    found = predict(costs, plan, least_memory=thrifty)
                except DistributedError:
                    break
                run = run_of(costs, plan, least_memory=thrifty)
                assert run.bound() <= found.seconds * (1 + 1e-9), plan
                assert run.least_seconds() <= found.seconds, plan
                assert run.memory_floor() <= found.memory, plan
                if found.fits:
                    best = min(best, found.seconds)
    return best


@pytest.mark.parametrize(
    ("widths", "batch", "devices", "memory", "per_node"),
    [
        ((256, 512, 256, 128), 8, 2, 80e9, 8),
        ((8192, 8192, 8192, 8192), 4, 4, 80e9, 8),
        ((8192, 4096, 16384, 8192), 4, 4, 80e9, 2),
        ((8192, 8192, 8192, 8192), 4, 4, 3.2e9, 2),
        ((4096, 4096, 4096, 4096), 64, 4, 2.3e9, 8),
        ((2048, 2050, 2048, 6), 6, 6, 80e9, 3),
        ((16384, 8192, 64, 32), 4, 2, 80e9, 2),
    ],
)
def test_the_plan_is_the_best_of_all(
    widths: tuple[int, ...], batch: int, devices: int, memory: float, per_node: int
) -> None:
    step, cluster = mlp(widths, batch), small_cluster(devices, memory, per_node)
    found = distributed.plan(step, cluster)
    assert found.prediction.fits
    assert found.prediction.seconds == everything(step, cluster)


@pytest.mark.parametrize("seed", range(8))
def test_the_plan_of_a_random_step_is_the_best_of_all(seed: int) -> None:
    numbers = random.Random(seed)
    widths = [numbers.choice((48, 256, 1000, 4096, 8192)) for _ in range(numbers.choice((3, 4)))]
    batch = numbers.choice((4, 6, 12))
    devices = numbers.choice((2, 3, 4))
    memory = 2.02e9 + numbers.choice((0.3, 1.0, 3.0)) * 12e0 * sum(
        map(prod, itertools.pairwise(widths))
    )
    cluster = small_cluster(devices, memory, per_node=devices)
    step = mlp(tuple(widths), batch)
    wanted = everything(step, cluster)
    try:
        found = distributed.plan(step, cluster).prediction.seconds
    except DistributedError:
        found = float("inf")
    assert found == wanted


def test_a_plan_says_what_it_chose_and_rejected_and_why() -> None:
    found = distributed.plan(mlp((8192, 8192, 8192, 8192), 12), small_cluster(8), pipeline=1)
    report = found.explain()
    for part in ("Plan for", "pinned: pipeline=1", "Where the time goes", "Rejected", "optimizer"):
        assert part in report
    assert "does not fall into 8 parts" in report
    shapes = {(r.data, r.tensor, r.pipeline) for r in found.rejected}
    chosen = (found.plan.data, found.plan.tensor, found.plan.pipeline)
    assert shapes | {chosen} == {(8, 1, 1), (4, 2, 1), (2, 4, 1), (1, 8, 1)}
    for row in found.rejected:
        assert row.why
        assert row.seconds is None or row.seconds >= found.prediction.seconds


def test_pins_are_kept() -> None:
    step, cluster = transformer(8), small_cluster(8)
    pins: dict[str, Any] = {"pipeline": 4, "micro_batch": 2, "schedule": "gpipe", "recompute": True}
    pins |= {"cuts": (0, 1, 2, 5), "sharded": "none"}
    found = distributed.plan(step, cluster, **pins)
    for name, value in pins.items():
        assert getattr(found.plan, name) == value
    assert [stage.units for stage in found.prediction.stages] == [1, 1, 3, 3]


def test_a_step_that_does_not_fit_says_by_how_much_and_what_would_help() -> None:
    step = mlp((40_000, 40_000, 40_000), 8)
    with pytest.raises(DistributedError) as caught:
        distributed.plan(step, small_cluster(2, 10e9))
    text = str(caught.value)
    assert "more than there are" in text
    assert "devices" in text
    assert "to fix" in text
    needed = 3.2e9 * 16 / 2  # weights, gradients and two moments, shared by two devices
    assert f"{needed / 1e9:.0f}" in text or "GB" in text
    helped = int(text.split("to fix: ")[1].split(" devices")[0])
    assert distributed.plan(step, small_cluster(helped, 10e9)).prediction.fits


def test_memory_shrinks_with_what_is_traded_for_it() -> None:
    step, cluster = transformer(8, batch=64), small_cluster(4)
    costs = Costs(step, cluster)

    def memory(**choices: Any) -> float:
        return predict(costs, ParallelPlan(**{"data": 4, "micro_batch": 4, **choices})).memory

    assert memory(recompute=True) < memory()
    assert memory(sharded="all") < memory(sharded="state") < memory()
    assert memory(micro_batch=1) < memory()
    assert memory(data=1, tensor=4) < memory(data=4)
    in_pipeline = {"data": 1, "pipeline": 4}
    gpipe = memory(**in_pipeline, schedule="gpipe")
    assert memory(**in_pipeline) < gpipe


def test_a_mesh_is_taken_as_it_is() -> None:
    step = mlp((64, 64, 64), 8)

    def planned() -> Any:
        mesh = distributed.Mesh({"data": 1, "model": 2})
        return distributed.plan(step, mesh).plan

    for found in distributed.run_virtual(2, planned):
        assert (found.data, found.tensor, found.pipeline) == (1, 2, 1)
    with pytest.raises(DistributedError, match="'x'"):
        distributed.plan(step, distributed.Mesh({"x": 1}))


def test_the_rules_of_a_plan_lay_out_a_model() -> None:
    """Training with them gives what one process gives."""
    widths, data = (64, 96, 64, 32), weft.rand((8, 64))
    found = distributed.plan(mlp(widths, 8), Cluster.cpus(2), tensor=2, data=1, pipeline=1)

    def trained(over: str) -> Any:
        weft.manual_seed(1)
        pairs = itertools.pairwise(widths)
        layers = [nn.Sequential(nn.Linear(a, b), nn.Tanh()) for a, b in pairs]
        model = nn.Sequential(*layers)
        if over:
            rules = found.rules(model)
            assert rules
            assert set(rules.values()) <= {"columns", "rows"}
            distributed.tensor_parallel(model, over, rules)
        optimizer = optim.SGD(model.parameters(), lr=0.1)

        @weft.compile
        def step(x: weft.Tensor) -> weft.Tensor:
            optimizer.zero_grad()
            loss = (model(x) ** 2).mean()
            loss.backward()
            optimizer.step()
            return loss

        return [step(data).item() for _ in range(3)]

    expected = trained("")
    for losses in distributed.run_virtual(2, lambda: trained("ranks")):
        assert losses == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        ({"data": 3}, "the cluster has 8 devices"),
        ({"data": 8, "micro_batch": 5}, "does not fall into 8 parts of micro-batches of 5"),
        ({"pipeline": 8}, "8 stages of a step with 4 units"),
        ({"data": 2, "pipeline": 4, "cuts": (0, 1, 2)}, "cuts are"),
        ({"data": 2, "pipeline": 4, "cuts": (0, 2, 1, 3)}, "cuts are"),
        ({"data": 8, "layouts": {"nothing": 0}}, "there is no weight 'nothing'"),
        ({"tensor": 8, "layouts": {"up": 5}}, "no axis 5"),
        ({"tensor": 8, "layouts": {"out": 0, "up": 7}}, "no axis 7"),
        ({"data": 8, "schedule": "later"}, "schedule is 'later'"),
        ({"data": 8, "sharded": "some"}, "sharded is 'some'"),
        ({"data": 8, "chunks": 2}, "2 chunks"),
        ({"data": 0}, "data is 0"),
    ],
)
def test_plans_that_do_not_fit_are_refused(plan: dict[str, Any], said: str) -> None:
    step = transformer(4, batch=24)
    with pytest.raises(DistributedError, match=said):
        distributed.simulate(step, small_cluster(8), ParallelPlan(**plan))


def test_degrees_that_divide_nothing_are_refused() -> None:
    step = mlp((30, 30, 30), 30)
    with pytest.raises(DistributedError, match="no weight has an axis that 4 divides"):
        distributed.plan(step, small_cluster(4), tensor=4)
    with pytest.raises(DistributedError, match="do not fit 4 devices"):
        distributed.plan(step, small_cluster(4), tensor=3)
    with pytest.raises(DistributedError, match="no 'tensors' to pin"):
        distributed.plan(step, small_cluster(4), tensors=4)
    with pytest.raises(DistributedError, match="neither a cluster nor a mesh"):
        distributed.plan(step, 4)  # type: ignore[arg-type]
    with pytest.raises(DistributedError, match="do not fill nodes"):
        Cluster.a100(12)


def test_links_between_nodes_are_shared_by_the_groups_of_a_node() -> None:
    cluster = Cluster.a100(64)
    inside, between = cluster.inside.rate, cluster.between.rate
    assert group_of(cluster, 8, 1).rate == inside
    assert group_of(cluster, 16, 1).rate == min(inside, 8 * between)
    assert group_of(cluster, 16, 4).rate == 2 * between
    assert group_of(cluster, 8, 8).rate == between
    group = group_of(cluster, 8, 1)
    for size in (1e3, 1e6, 1e9):
        assert group.all_reduce(size) <= 2 * group.all_gather(size) + 1e-12
    assert prod([group_of(cluster, 1, 1).all_reduce(1e9)]) == 0


def test_outlined_steps_without_modules_and_optimizers_are_planned() -> None:
    def build() -> Any:
        def loss(weights: list[weft.Tensor], x: weft.Tensor) -> weft.Tensor:
            for weight in weights:
                x = weft.tanh(x @ weight)
            return (x * x).mean()

        def step(weights: list[weft.Tensor], x: weft.Tensor) -> Any:
            value, gradients = weft.value_and_grad(loss)(weights, x)
            return value, [w - 0.1 * g for w, g in zip(weights, gradients, strict=True)]

        return step

    weights = [weft.spec((4096, 4096))] * 4
    step = distributed.outline(build, weights, weft.spec((64, 4096)), batch=64)
    units = chain_of(step).units
    assert len(units) == 4
    assert [len(unit.learns) for unit in units] == [1, 1, 1, 1]
    assert [len(unit.parameters) for unit in units] == [1, 1, 1, 1]
    assert distributed.plan(step, small_cluster(4)).prediction.fits
