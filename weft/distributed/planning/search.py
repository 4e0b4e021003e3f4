"""The search for a plan: every mesh shape, micro-batch and trade of time for memory, best bounds
first.

A bound tells the least time that a candidate can take: the work of its slowest stage if the chain
could be cut anywhere, for all micro-batches. Candidates are looked at in the order of their
bounds, and the search ends with the first whose bound is no better than the best plan, so none
better is missed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from math import comb
from typing import Any

from weft.base.errors import DistributedError, WeftError
from weft.core.tensor import Tensor
from weft.distributed.mesh import Mesh
from weft.distributed.planning.apply import PlannedStep
from weft.distributed.planning.cluster import Cluster
from weft.distributed.planning.costs import Costs
from weft.distributed.planning.cuts import all_cuts
from weft.distributed.planning.outline import Outline
from weft.distributed.planning.parallel_plan import SHARDED, ParallelPlan
from weft.distributed.planning.prediction import Prediction, general_name, predict, run_of
from weft.distributed.planning.report import plan_report, shown_bytes
from weft.nn.attention import MultiheadAttention
from weft.nn.embedding import Embedding
from weft.nn.linear import Linear
from weft.nn.module import Module
from weft.optim.optimizer import Optimizer

__all__ = ["Planned", "Rejected", "plan"]

#: So many ways to cut a chain are all tried; of more, the one with the fastest slowest stage is
#: taken.
MOST_CUTS = 300
#: The micro-batches that are tried, unless one is pinned.
SAMPLES = (1, 2, 3, 4, 6, 8, 12, 16, 32)
#: Tensor groups over more nodes than this are not tried, unless pinned.
MOST_NODES = 2
#: The numbers of chunks that are tried with the interleaved schedule, unless one is pinned.
CHUNKS = (2, 3, 4, 5, 6, 8, 10, 12, 15)
AXES = {
    "data": "data",
    "tensor": "tensor",
    "model": "tensor",
    "pipeline": "pipeline",
    "stage": "pipeline",
}


#: Rules of `tensor_parallel`, by kinds of modules and the axis of their weight that is cut.
_RULES: tuple[tuple[type[Module], dict[int | None, str]], ...] = (
    (Linear, {0: "columns", 1: "rows"}),
    (Embedding, {0: "vocabulary"}),
    (MultiheadAttention, {0: "heads"}),
)


@dataclass(frozen=True)
class Rejected:
    """A mesh shape that was not chosen.

    seconds   of its best plan; or, with `at_least`, a bound of it; None where there is none
    why       in words
    """

    data: int
    tensor: int
    pipeline: int
    why: str
    seconds: float | None = None
    at_least: bool = False
    memory: float = 0.0


@dataclass(frozen=True)
class Planned:
    """The plan that was chosen, what it is expected to cost, and what was rejected."""

    plan: ParallelPlan
    prediction: Prediction
    rejected: tuple[Rejected, ...]
    tried: int
    pins: Mapping[str, Any] = field(default_factory=dict)

    def explain(self) -> str:
        """A report: what was chosen, where its time and memory go, what was rejected and why."""
        return plan_report(self)

    def rules(self, model: Module) -> dict[str, str]:
        """The layouts of weights, as rules for `weft.distributed.tensor_parallel`.

        `model` is the model of the step: it may be another instance, of any size.
        """
        found: dict[str, str] = {}
        for name, module in model.named_modules():
            path = general_name(f"{type(model).__name__}.{name}")
            _, axis = self.prediction.weights.get(path, ((), None))
            rule = next(
                (cut[axis] for kind, cut in _RULES if isinstance(module, kind) and axis in cut), ""
            )
            if axis is not None and rule:
                found[name] = rule
        return found

    def apply(
        self, model: Module, optimizer: Optimizer, loss: Callable[..., Tensor]
    ) -> PlannedStep:
        """The training step of a model on the ranks that there are, laid out as planned.

        model      on as many ranks as the plan has devices, the same on each: the model of the
                   outlined step. Its weights are cut in place; stages of a pipeline are made of the
                   children of an nn.Sequential
        optimizer  of all its parameters; it keeps those of this rank
        loss       of what the model gives, and the targets: a mean over samples

        `step(x, *targets)` trains once and returns the loss; `step.model` is what this rank has.

        >>> from weft import distributed, nn, optim
        >>> def model_of():
        ...     return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
        >>> def build():
        ...     model = model_of()
        ...     optimizer = optim.SGD(model.parameters(), lr=0.1)
        ...     def step(x, y):
        ...         loss = nn.functional.mse_loss(model(x), y)
        ...         loss.backward()
        ...         optimizer.step()
        ...     return step
        >>> outlined = distributed.outline(build, weft.spec((8, 4)), weft.spec((8, 2)))
        >>> found = distributed.plan(outlined, distributed.Cluster.cpus(4), pipeline=2, tensor=2)
        >>> def train():
        ...     weft.manual_seed(0)
        ...     model = model_of()
        ...     optimizer = optim.SGD(model.parameters(), lr=0.1)
        ...     step = found.apply(model, optimizer, nn.functional.mse_loss)
        ...     for _ in range(20):
        ...         value = step(weft.ones((8, 4)), weft.ones((8, 2)))
        ...     return value.item() < 0.1
        >>> distributed.run_virtual(4, train)
        [True, True, True, True]
        """
        return PlannedStep(
            self.plan,
            self.prediction.micro_batches,
            self.prediction.begins,
            self.rules(model),
            model,
            optimizer,
            loss,
        )

    def __str__(self) -> str:
        return f"{self.plan}: {self.prediction.seconds:.4g} s"


def plan(step: Outline, devices: Cluster | Mesh, **pins: Any) -> Planned:
    """Search for the fastest way to lay a training step out over a cluster or a mesh.

    step      what `weft.distributed.outline` returned
    devices   a cluster; or a mesh, whose axes "data", "tensor" (or "model") and "pipeline" (or
              "stage") are taken as they are
    pins      fields of `ParallelPlan` that are decided already: tensor=8, recompute=False,
              cuts="even", layouts={"up": 0}

    >>> from weft import distributed, nn, optim
    >>> def build():
    ...     model = nn.Sequential(*[nn.Linear(8192, 8192) for _ in range(8)])
    ...     optimizer = optim.SGD(model.parameters(), lr=0.1)
    ...     def step(x):
    ...         loss = model(x).sum()
    ...         loss.backward()
    ...         optimizer.step()
    ...     return step
    >>> step = distributed.outline(build, weft.spec((64, 8192)))
    >>> print(distributed.plan(step, distributed.Cluster.a100(4)))
    data 2 × tensor 2 × pipeline 1, micro-batch 32, sequence cut, all sharded: 0.0223... s
    """
    known = {f.name for f in fields(ParallelPlan)}
    for name in pins:
        if name not in known:
            raise DistributedError(
                f"a plan has no {name!r} to pin", op="plan", hint=f"one of {sorted(known)}"
            )
    if isinstance(devices, Mesh):
        pins = {**_pins_of(devices), **pins}
        cluster = Cluster.cpus(devices.size)
    elif isinstance(devices, Cluster):
        cluster = devices
    else:
        raise DistributedError(
            f"{devices!r:.60} is neither a cluster nor a mesh", op="plan", hint="Cluster.a100(8)"
        )
    return _Search(Costs(step, cluster), pins).run()


def _pins_of(mesh: Mesh) -> dict[str, int]:
    pins = dict.fromkeys(("data", "tensor", "pipeline"), 1)
    for name, size in mesh.axes:
        if name not in AXES:
            raise DistributedError(
                f"the axis {name!r} of {mesh!r} says nothing to the planner",
                op="plan",
                hint=f"name axes {sorted(AXES)}",
            )
        pins[AXES[name]] = size
    return pins


@dataclass(order=True)
class _Candidate:
    bound: float
    order: int
    plan: ParallelPlan = field(compare=False)


class _Search:
    def __init__(self, costs: Costs, pins: Mapping[str, Any]) -> None:
        self.costs = costs
        self.cluster = costs.cluster
        self.pins = dict(pins)
        self.best: Prediction | None = None
        self.tightest: tuple[float, ParallelPlan] | None = None  # what takes the least memory
        self.shapes: dict[tuple[int, int, int], Rejected] = {}
        self.tried = 0

    def run(self) -> Planned:
        candidates = sorted(self._candidates())
        for number, candidate in enumerate(candidates):
            if self.best is not None and candidate.bound >= self.best.seconds:
                for left in candidates[number:]:
                    self._note(left.plan, "slower, by a bound", left.bound, at_least=True)
                break
            self._look(candidate)
        if self.best is None:
            raise self._failure()
        chosen = self.best.plan
        final = predict(self.costs, chosen, least_memory=self._thrifty, keep_tasks=True)
        shape = (chosen.data, chosen.tensor, chosen.pipeline)
        rejected = [found for key, found in self.shapes.items() if key != shape]
        rejected.sort(key=lambda r: (r.seconds is None, r.at_least, r.seconds or 0.0))
        return Planned(chosen, final, tuple(rejected), self.tried, self.pins)

    _thrifty = False

    # --- what there is to try ------------------------------------------------------------------

    def _candidates(self) -> Iterator[_Candidate]:
        n, batch = self.cluster.devices, self.costs.outline.batch
        units = len(self.costs.chain.units)
        number = 0
        for tensor in self._choices("tensor", _divisors(n)):
            for pipeline in self._choices("pipeline", _divisors(n)):
                data = n // (tensor * pipeline) if n % (tensor * pipeline) == 0 else 0
                if not data or self.pins.get("data", data) != data:
                    continue
                shape = data, tensor, pipeline
                why = self._refusal(*shape, batch, units)
                if why:
                    self.shapes[shape] = Rejected(*shape, why)
                    continue
                part = batch // data
                sizes = [size for size in _divisors(part) if size in SAMPLES]
                for size in self._choices("micro_batch", sizes):
                    for sequence in self._choices(
                        "sequence", (False, True) if tensor > 1 else (False,)
                    ):
                        made = ParallelPlan(
                            data, tensor, pipeline, size, sequence=sequence, layouts=self._layouts()
                        )
                        number += 1
                        if part % size == 0:
                            yield _Candidate(self._bound(made), number, made)
        if not number and not self.shapes:
            raise DistributedError(
                f"pinned degrees {self._pinned_degrees()} do not fit {n} devices",
                op="plan",
                hint="the product of data, tensor and pipeline is the number of devices",
            )

    def _pinned_degrees(self) -> dict[str, int]:
        return {k: v for k, v in self.pins.items() if k in ("data", "tensor", "pipeline")}

    def _layouts(self) -> Mapping[str, int | None]:
        found: Mapping[str, int | None] = self.pins.get("layouts", {})
        return found

    def _choices(self, name: str, usual: Any) -> Any:
        return (self.pins[name],) if name in self.pins else usual

    def _refusal(self, data: int, tensor: int, pipeline: int, batch: int, units: int) -> str:
        if batch % data:
            return f"a batch of {batch} does not fall into {data} parts"
        if pipeline > units:
            return f"there are {units} units, not {pipeline}"
        nodes = tensor / self.cluster.per_node
        if nodes > MOST_NODES and "tensor" not in self.pins:
            return f"not tried: its tensor groups go over {nodes:.0f} nodes"
        if tensor > 1 and not self._cuts_weights(tensor):
            return f"no weight has an axis that {tensor} divides"
        return ""

    def _cuts_weights(self, tensor: int) -> bool:
        return any(
            size % tensor == 0
            for unit in self.costs.chain.units
            for value in unit.parameters
            if value.tensor_type.ndim > 1
            for size in value.tensor_type.shape
        )

    def _bound(self, made: ParallelPlan) -> float:
        """The least time of all variants: without recomputation, nothing shared out."""
        return run_of(self.costs, made).bound()

    # --- one candidate -------------------------------------------------------------------------

    def _look(self, candidate: _Candidate) -> None:
        """Try what trades time for memory, and the schedules."""
        fitting: set[tuple[str, str, int]] = set()  # what fits without recomputation
        for made in self._variants(candidate.plan):
            key = made.sharded, made.schedule, made.chunks
            if key in fitting:
                continue  # the same, and slower
            for thrifty in (False, True) if made.tensor > 1 else (False,):
                if self._try(made, thrifty):
                    fitting.add(key)
                    break

    def _try(self, made: ParallelPlan, thrifty: bool) -> bool:
        """Simulate a plan if it can be the best; whether it fits into memory."""
        most = self.cluster.processor.memory
        try:
            run = run_of(self.costs, made, least_memory=thrifty)
            needed = run.memory_floor()
            if needed <= most and self.best is not None and run.bound() >= self.best.seconds:
                self._note(made, "slower, by a bound", run.bound(), at_least=True)
                return False
            if needed <= most:
                needed = run.memory_needed()
        except WeftError as error:
            self._note(made, error.message)
            return False
        if needed > most:
            if self.tightest is None or needed < self.tightest[0]:
                needed = run.memory_needed()
                if self.tightest is None or needed < self.tightest[0]:
                    self.tightest = needed, made
            self._note(made, "", memory=needed)
            return False
        self._take(made, thrifty)
        return True

    def _take(self, made: ParallelPlan, thrifty: bool) -> None:
        for cuts in self._cuts(made):
            try:
                run = run_of(self.costs, replace(made, cuts=cuts), least_memory=thrifty)
                least = run.least_seconds()
            except DistributedError:  # equal layers cannot be shared evenly
                continue
            if self.best is not None and least >= self.best.seconds:
                self._note(run.plan, "slower, by a bound", least, at_least=True)
                continue
            found = run.prediction(keep_tasks=False)
            self.tried += 1
            if not found.fits:
                continue
            self._note(found.plan, "slower", found.seconds, memory=found.memory)
            if self.best is None or found.seconds < self.best.seconds:
                self.best, self._thrifty = found, thrifty

    def _cuts(self, made: ParallelPlan) -> Iterator[Any]:
        units, parts = len(self.costs.chain.units), made.pipeline * made.chunks
        if "cuts" in self.pins or parts == 1 or comb(units - 1, parts - 1) > MOST_CUTS:
            yield made.cuts
            if "cuts" not in self.pins and parts > 1:
                yield "even"
        else:
            yield from all_cuts(units, parts)

    def _variants(self, made: ParallelPlan) -> Iterator[ParallelPlan]:
        """The fastest first."""
        cuts = self.pins.get("cuts")
        overlap = self.pins.get("overlap", True)
        for recompute in self._choices("recompute", (False, True)):
            for sharded in self._choices("sharded", SHARDED if made.data > 1 else ("none",)):
                for schedule, chunks in self._schedules(made):
                    yield replace(
                        made,
                        recompute=recompute,
                        sharded=sharded,
                        schedule=schedule,
                        chunks=chunks,
                        overlap=overlap,
                        cuts=cuts,
                    )

    def _schedules(self, made: ParallelPlan) -> Iterator[tuple[str, int]]:
        units = len(self.costs.chain.units)
        asked = self.pins.get("schedule")
        if self.pins.get("chunks", 1) == 1:
            plain = ("1f1b", "gpipe") if made.pipeline > 1 else ("1f1b",)
            for schedule in self._choices("schedule", plain):
                if schedule != "interleaved":
                    yield schedule, 1
        if asked in (None, "interleaved") and made.pipeline > 1:
            count = self.costs.outline.batch // (made.data * made.micro_batch)
            most = units // made.pipeline
            for chunks in self._choices("chunks", [c for c in CHUNKS if c <= most]):
                if chunks > 1 and count % made.pipeline == 0:
                    yield "interleaved", chunks

    def _note(
        self,
        made: ParallelPlan,
        why: str,
        seconds: float | None = None,
        *,
        at_least: bool = False,
        memory: float = 0.0,
    ) -> None:
        """Keep the best that is known of a mesh shape."""
        shape = (made.data, made.tensor, made.pipeline)
        known = self.shapes.get(shape)
        new = Rejected(*shape, why, seconds, at_least, memory)
        if known is not None:
            if known.seconds is None and seconds is None:
                if known.memory and (not memory or known.memory <= memory):
                    return
            elif seconds is None or (
                known.seconds is not None and (known.at_least, known.seconds) <= (at_least, seconds)
            ):
                return
        if seconds is None and memory:
            most = self.cluster.processor.memory
            why = f"needs {shown_bytes(memory)} of {shown_bytes(most)}"
            new = Rejected(*shape, why, None, False, memory)
        self.shapes[shape] = new

    # --- nothing fits --------------------------------------------------------------------------

    def _failure(self) -> DistributedError:
        most = self.cluster.processor.memory
        tight = self.tightest
        if tight is None:
            reasons = {found.why for found in self.shapes.values()}
            return DistributedError(
                "no mesh shape is possible: " + "; ".join(sorted(reasons)), op="plan"
            )
        needed, made = tight
        message = (
            f"the step does not fit: the plan that takes the least memory needs "
            f"{shown_bytes(needed)} on each device, "
            f"{shown_bytes(needed - most)} more than there are "
            f"({made})"
        )
        fixes = []
        for times in (2, 4, 8, 16, 32, 64):
            larger = self.cluster.of(self.cluster.devices * times)
            free = {k: v for k, v in self.pins.items() if k not in ("data", "tensor", "pipeline")}
            if _fits_somewhere(Costs(self.costs.outline, larger), free):
                fixes.append(f"{larger.devices} devices")
                break
        fixes.append(f"devices with {shown_bytes(needed)}")
        trades = ("recompute", "sharded", "micro_batch", "tensor", "pipeline", "data")
        asked = [name for name in trades if name in self.pins]
        if asked:
            fixes.append(f"leaving {', '.join(asked)} to the planner")
        return DistributedError(message, op="plan", hint=", or ".join(fixes))


def _fits_somewhere(costs: Costs, pins: Mapping[str, Any]) -> bool:
    """Whether the plans that take the least memory fit."""
    search = _Search(costs, pins)
    n, batch, units = costs.cluster.devices, costs.outline.batch, len(costs.chain.units)
    for tensor in _divisors(n):
        for pipeline in _divisors(n // tensor):
            data = n // tensor // pipeline
            if search._refusal(data, tensor, pipeline, batch, units):
                continue
            made = ParallelPlan(
                data,
                tensor,
                pipeline,
                pins.get("micro_batch", 1),
                recompute=pins.get("recompute", True),
                sharded=pins.get("sharded", "all"),
                sequence=pins.get("sequence", tensor > 1),
            )
            try:
                run = run_of(costs, made, least_memory=True)
            except WeftError:
                continue
            if run.memory_needed() <= costs.cluster.processor.memory:
                return True
    return False


def _divisors(n: int) -> list[int]:
    return [i for i in range(1, n + 1) if n % i == 0]
