"""The time and memory of one training step on a cluster, from its graph alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from weft.base.errors import DistributedError
from weft.distributed.planning.cluster import Cluster
from weft.distributed.planning.costs import Costs, names_of
from weft.distributed.planning.cuts import stage_cuts
from weft.distributed.planning.links import group_of
from weft.distributed.planning.parallel_plan import ParallelPlan
from weft.distributed.planning.pattern import BACKWARD, FORWARD, ONCE
from weft.distributed.planning.splits import WHOLE
from weft.distributed.planning.timetable import Timetable, timetable
from weft.distributed.planning.units import module_key
from weft.distributed.schedules import in_flight

__all__ = ["Memory", "Prediction", "Stage", "StepRun", "check", "general_name", "predict", "run_of"]

#: Bytes that libraries and their buffers take on a device.
RESERVED = 2e9


@dataclass(frozen=True)
class Memory:
    """Bytes on one device of a stage."""

    weights: float
    gradients: float
    state: float
    activations: float
    working: float
    reserved: float = RESERVED

    @property
    def total(self) -> float:
        parts = (self.weights, self.gradients, self.state, self.activations, self.working)
        return sum(parts) + self.reserved


@dataclass(frozen=True)
class Stage:
    """One stage of the pipeline: the names of its first and last unit, and its costs.

    forward, backward   seconds for one micro-batch
    kernels, talk       of these, without and within collectives along the tensor axis
    reduce, update      seconds once per step: sums of gradients, the optimizer
    """

    first: str
    last: str
    units: int
    forward: float
    backward: float
    kernels: float
    talk: float
    reduce: float
    update: float
    memory: Memory


@dataclass(frozen=True)
class Prediction:
    """What a step is expected to cost.

    seconds        one step
    flops          of products, of all devices, recomputation included
    micro_batches  how many a pipeline takes in one step
    bubble         the share of the devices' time in which they wait for other stages
    shares         where the time of the slowest stage goes
    memory         bytes on the fullest device
    weights        for each weight matrix its shape, and the axis that is cut over the tensor axis
    begins         for each part of the model, the module that its first unit begins with
    run            the timetable of the pipeline
    """

    plan: ParallelPlan
    cluster: Cluster
    seconds: float
    flops: float
    micro_batches: int
    bubble: float
    shares: dict[str, float]
    stages: tuple[Stage, ...]
    weights: dict[str, tuple[tuple[int, ...], int | None]] = field(default_factory=dict)
    begins: tuple[str, ...] = ()
    run: Timetable | None = field(default=None, repr=False, compare=False)

    @property
    def memory(self) -> float:
        return max(stage.memory.total for stage in self.stages)

    @property
    def fits(self) -> bool:
        return self.memory <= self.cluster.processor.memory

    @property
    def flops_per_device(self) -> float:
        """Flops per second of each device."""
        return self.flops / self.seconds / self.plan.devices


def predict(
    costs: Costs, plan: ParallelPlan, *, least_memory: bool = False, keep_tasks: bool = False
) -> Prediction:
    """The time and memory of one step, as a plan lays it out."""
    return run_of(costs, plan, least_memory=least_memory).prediction(keep_tasks)


def run_of(costs: Costs, plan: ParallelPlan, *, least_memory: bool = False) -> StepRun:
    """A plan with the costs of its stages; an error where it does not fit the step or the
    cluster."""
    return StepRun(costs, plan, check(costs, plan), least_memory)


def check(costs: Costs, plan: ParallelPlan) -> int:
    """How many micro-batches a pipeline takes in one step; an error where degrees do not fit."""
    devices, batch = costs.cluster.devices, costs.outline.batch
    if plan.devices != devices:
        raise DistributedError(
            f"data {plan.data} × tensor {plan.tensor} × pipeline {plan.pipeline} is "
            f"{plan.devices}, and the cluster has {devices} devices",
            op="simulate",
            hint="the product of the degrees is the number of devices",
        )
    if batch % (plan.data * plan.micro_batch):
        raise DistributedError(
            f"a batch of {batch} does not fall into {plan.data} parts of micro-batches of "
            f"{plan.micro_batch}",
            op="simulate",
            hint="choose degrees and a micro-batch whose product divides the batch",
        )
    units = len(costs.chain.units)
    if plan.pipeline * plan.chunks > units:
        raise DistributedError(
            f"{plan.pipeline * plan.chunks} stages of a step with {units} units",
            op="simulate",
            hint="a unit is not cut; choose a smaller pipeline",
        )
    return batch // (plan.data * plan.micro_batch)


class StepRun:
    def __init__(self, costs: Costs, plan: ParallelPlan, count: int, least_memory: bool) -> None:
        self.costs, self.plan, self.count = costs, plan, count
        self.cluster = costs.cluster
        self.units = costs.chain.units
        self.by_kind = costs.spreads(plan, least_memory=least_memory)
        self.spreads = [self.by_kind[unit.kind] for unit in self.units]
        self.rate = self.cluster.processor.bandwidth * self.cluster.processor.streamed
        self.data = group_of(self.cluster, plan.data, plan.tensor)
        last = len(self.units) - 1
        times: dict[tuple[int, bool], tuple[float, float]] = {}
        for i, unit in enumerate(self.units):
            key = unit.kind, i == last
            if key not in times:
                times[key] = self._forward(i), self._backward(i)
        found = [times[unit.kind, i == last] for i, unit in enumerate(self.units)]
        self.forward = [one for one, _ in found]
        self.backward = [two for _, two in found]
        self.work = sum(self.forward) + sum(self.backward)

    @cached_property
    def parts(self) -> list[range]:
        """The units of each part of the model; a stage has one, or as many as there are chunks."""
        each = [one + two for one, two in zip(self.forward, self.backward, strict=True)]
        cuts = stage_cuts(self.plan.cuts, self.units, each, self.plan.pipeline * self.plan.chunks)
        return [range(a, b) for a, b in zip(cuts, (*cuts[1:], len(self.units)), strict=True)]

    # --- one unit ------------------------------------------------------------------------------

    def recomputes(self, i: int) -> bool:
        """The last unit's backward follows at once: there is nothing to save."""
        return self.plan.recompute and i < len(self.units) - 1

    def gathers(self, i: int) -> float:
        """Where parameters are shared out: the time to have those of a unit whole."""
        if self.plan.sharded != "all":
            return 0.0
        return self.data.all_gather(self.spreads[i].weights)

    def _forward(self, i: int) -> float:
        return max(self.spreads[i].forward, self.gathers(i))

    def _backward(self, i: int) -> float:
        found = self.spreads[i]
        again = found.forward if self.recomputes(i) else 0.0
        added = 1.5 * found.gradients / self.rate if self.count > 1 else 0.0
        sent = 0.0
        if self.plan.sharded == "all":
            sent = self.gathers(i) + self.data.all_gather(found.gradients)
        return max(found.backward + again + added, sent)

    # --- one stage -----------------------------------------------------------------------------

    def of(self, device: int) -> list[range]:
        """The parts of the model on a device."""
        return self.parts[device :: self.plan.pipeline]

    def memory(self, device: int) -> Memory:
        plan = self.plan
        weights = gradients = state = live = 0.0
        working = 0.0
        counts = in_flight(plan.schedule, plan.pipeline, self.count, device, plan.chunks)
        for part, alive in zip(self.of(device), counts, strict=True):
            held = 0.0
            for i in part:
                found = self.spreads[i]
                weights += found.weights + found.kept
                gradients += found.gradients
                state += found.states
                taken = found.taken
                held += taken if self.recomputes(i) else taken + found.stored
                once = found.stored if self.recomputes(i) else 0.0
                working = max(working, once + 2 * found.given)
            live += held * alive
        shares = plan.data
        if plan.sharded != "none":
            state /= shares
        if plan.sharded == "all":
            whole = max(self.spreads[i].weights for part in self.of(device) for i in part)
            weights, gradients = weights / shares, gradients / shares
            working += 2 * whole
        return Memory(weights, gradients, state, live, working)

    def reduce(self, device: int) -> list[tuple[float, float]]:
        """For each unit of a stage, last first: seconds of its backward, and of the sum of its
        gradients over the data group."""
        found = []
        for part in reversed(self.of(device)):
            for i in reversed(part):
                size = self.spreads[i].gradients
                if self.plan.sharded == "none":
                    spent = self.data.all_reduce(size)
                elif self.plan.sharded == "state":
                    spent = self.data.all_gather(size)  # a reduce_scatter
                else:
                    spent = 0.0  # summed in each backward
                found.append((self.backward[i], spent))
        return found

    def update(self, device: int) -> float:
        places = [i for part in self.of(device) for i in part]
        shares = 1 if self.plan.sharded == "none" else self.plan.data
        moved = sum(self.spreads[i].update for i in places)
        found = [self.spreads[i] for i in places]
        once = sum(each.seconds[ONCE] + each.talk[ONCE] for each in found)
        spent = moved / shares / self.rate + once
        if self.plan.sharded == "state":
            spent += self.data.all_gather(sum(self.spreads[i].weights for i in places))
        return spent

    def shared_sums(self) -> float:
        """Gradients of weights that several stages have are summed over these."""
        where = {i: p % self.plan.pipeline for p, part in enumerate(self.parts) for i in part}
        spent = 0.0
        for value, places in self.costs.chain.shared.items():
            stages = {where[i] for i in places}
            if len(stages) > 1:
                size = value.tensor_type.nbytes / self._share(value)
                group = group_of(self.cluster, len(stages), self.plan.data * self.plan.tensor)
                spent += group.all_reduce(size)
        return spent

    def _share(self, value: object) -> int:
        for kind, found in self.by_kind.items():
            pattern = self.costs.chain.pattern(kind, self.plan.micro_batch)
            for place in pattern.weights:
                if pattern.outside[place] is value and found.layouts.get(place, -1) >= 0:
                    return self.plan.tensor
        return 1

    def send(self) -> float:
        """The time of a message between stages: each device of a tensor group sends all of it, or a
        part that the others gather."""
        plan = self.plan
        if plan.pipeline == 1:
            return 0.0
        link = group_of(self.cluster, 2, plan.data * plan.tensor)
        size = max(self.spreads[part[-1]].given for part in self.parts[:-1])
        part = link.send(size / plan.tensor)
        if plan.sequence:
            return part
        return min(link.send(size), part + self.costs.group(plan).all_gather(size))

    # --- the step ------------------------------------------------------------------------------

    def times(self) -> tuple[list[list[float]], list[list[float]]]:
        devices = range(self.plan.pipeline)
        forward = [
            [sum(self.forward[part.start : part.stop]) for part in self.of(d)] for d in devices
        ]
        backward = [
            [sum(self.backward[part.start : part.stop]) for part in self.of(d)] for d in devices
        ]
        return forward, backward

    def prediction(self, keep_tasks: bool) -> Prediction:
        plan = self.plan
        forward, backward = self.times()
        run = timetable(
            forward,
            backward,
            self.send(),
            self.count,
            plan.schedule,
            overlap=plan.overlap,
            keep_tasks=keep_tasks,
        )
        stages, ends = [], []
        for device in range(plan.pipeline):
            begun, end = run.ends[device]
            sums = self.reduce(device)
            at, free = begun, (begun if plan.overlap else end)
            for spent, talk in sums:
                at += spent
                free = max(free, at) + talk
            done = max(free, end)
            update = self.update(device)
            ends.append(done + update)
            places = [i for part in self.of(device) for i in part]
            stages.append(
                self._stage(
                    device, places, sum(forward[device]), sum(backward[device]), done - end, update
                )
            )
        seconds = max(ends) + self.shared_sums()
        slowest = max(range(plan.pipeline), key=lambda d: run.busy[d])
        return Prediction(
            plan,
            self.cluster,
            seconds,
            self.flops() * plan.devices / plan.pipeline,
            self.count,
            run.bubble,
            self._shares(stages[slowest], run, slowest, seconds),
            tuple(stages),
            self._weights(),
            tuple([module_key(self.units[part.start].forward[0]) for part in self.parts]),
            run if keep_tasks else None,
        )

    def _stage(
        self,
        device: int,
        places: Sequence[int],
        forward: float,
        backward: float,
        reduce: float,
        update: float,
    ) -> Stage:
        talk = sum(
            self.spreads[i].talk[FORWARD] * (1 + self.recomputes(i))
            + self.spreads[i].talk[BACKWARD]
            for i in places
        )
        names = [self.units[i].name for i in places]
        kernels = forward + backward - talk
        return Stage(
            *(names[0], names[-1], len(names), forward, backward, kernels, talk, reduce, update),
            self.memory(device),
        )

    def _shares(
        self, stage: Stage, run: Timetable, device: int, seconds: float
    ) -> dict[str, float]:
        wait = run.seconds - run.busy[device]
        shares = {
            "kernels": self.count * stage.kernels,
            "tensor collectives": self.count * stage.talk,
            "waiting for stages": wait,
            "gradient sums": seconds - run.seconds - stage.update,
            "optimizer": stage.update,
        }
        return {name: max(spent, 0.0) / seconds for name, spent in shares.items()}

    def flops(self) -> float:
        """Of one device of each stage together."""
        total = 0.0
        for i, found in enumerate(self.spreads):
            again = 1 + self.recomputes(i)
            total += found.flops[FORWARD] * again + found.flops[BACKWARD]
        return total * self.count

    def memory_needed(self) -> float:
        """Bytes on the fullest device."""
        return max(self.memory(device).total for device in range(self.plan.pipeline))

    def bound(self) -> float:
        """The least time of a step, wherever the chain is cut."""
        longest = max(map(sum, zip(self.forward, self.backward, strict=True)))
        each = max(self.work / self.plan.pipeline, longest)  # of the stage that works most
        return max(self.count * each, self.work)

    def least_seconds(self) -> float:
        """A bound that knows the cuts: a device waits for the first forward of those before it, and
        they for its last backward, while it updates."""
        plan = self.plan
        forward, backward = self.times()
        found = before = after = 0.0
        for device in range(plan.pipeline):
            work = self.count * (sum(forward[device]) + sum(backward[device]))
            found = max(found, before + work + max(after, self.update(device)))
            before += forward[device][0]
            after += backward[device][0]
        return found * (1 - 1e-9)

    def memory_floor(self) -> float:
        """The least bytes on the fullest device, without activations."""
        weights = sum(found.weights + found.gradients for found in self.spreads)
        state = sum(found.states for found in self.spreads)
        kept = sum(found.kept for found in self.spreads)
        if self.plan.sharded != "none":
            state /= self.plan.data
        if self.plan.sharded == "all":
            weights, kept = weights / self.plan.data, kept / self.plan.data
        return (weights + state + kept) / self.plan.pipeline + RESERVED

    def _weights(self) -> dict[str, tuple[tuple[int, ...], int | None]]:
        """The shape of each weight and the axis that is cut; one entry for those of equal units."""
        found: dict[str, tuple[tuple[int, ...], int | None]] = {}
        if self.plan.tensor == 1:
            return found
        for unit in {unit.kind: unit for unit in reversed(self.units)}.values():
            pattern = self.costs.chain.pattern(unit.kind, self.plan.micro_batch)
            layouts = self.by_kind[unit.kind].layouts
            for place, name in names_of(pattern).items():
                shape = pattern.shapes[place]
                if len(shape) > 1:
                    axis = layouts.get(place, WHOLE)
                    found.setdefault(general_name(name), (shape, axis if axis >= 0 else None))
        return found


def general_name(name: str) -> str:
    """GPT.blocks.3.up -> GPT.blocks.*.up"""
    return ".".join("*" if part.isdigit() else part for part in name.split("."))
