"""A plan on a real mesh: the training step of a model, laid out as the plan says.

Each choice of a plan is a mechanism of `weft.distributed`: weights are cut by `tensor_parallel`,
`fully_sharded` and `sharded_state`, batches by `split`, values between units by `layout`, memory is
saved by `weft.checkpoint`, and stages are those of `pipeline`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from weft.autodiff.checkpoint import checkpoint
from weft.base.errors import DistributedError, ShapeError
from weft.base.world import current_world, ranks_of
from weft.compile import compile as compile_function
from weft.core.operands import as_tensor
from weft.core.tensor import Tensor
from weft.distributed.compiled_steps import along_sequence, compiled_backward, compiled_step
from weft.distributed.layouts import from_local, local, split
from weft.distributed.mesh import Mesh
from weft.distributed.parallel import fully_sharded, replicate, sharded_state, tensor_parallel
from weft.distributed.pipeline import Pipeline, check_apart, own_parts, stage_names
from weft.distributed.planning.parallel_plan import ParallelPlan
from weft.distributed.stage_world import StageWorld
from weft.nn.containers import Sequential
from weft.nn.module import Module
from weft.optim.optimizer import Optimizer

__all__ = ["PlannedStep"]


class PlannedStep:
    """A training step on this rank: `loss = step(x, *targets)`.

    model   what this rank has of the model: all of it, or its stages of the pipeline

    Batches are those of all ranks together: whole ones, or parts that lie along "data". The loss is
    the mean over micro-batches, on all ranks.
    """

    def __init__(
        self,
        plan: ParallelPlan,
        micro_batches: int,
        begins: Sequence[str],
        rules: Mapping[str, str],
        model: Module,
        optimizer: Optimizer,
        loss: Callable[..., Tensor],
    ) -> None:
        self.plan = plan
        self.optimizer = optimizer
        self.micro_batches = micro_batches
        mesh = Mesh(plan.mesh)
        replicate(model, mesh)
        self._world = StageWorld(current_world(), mesh.axes, "pipeline")
        self._loss = loss
        with self._world.entered():
            if plan.pipeline == 1:
                _lay_out(model, plan, rules)
                self.model = model
            else:
                self.model = self._staged(model, begins, rules, mesh)
            _keep_own(optimizer, self.model)
            if plan.sharded == "state" and plan.data > 1:
                sharded_state(optimizer, "data")
        self._update = compile_function(optimizer.step)
        self._part = compiled_backward(self.model, loss, micro_batches)
        self._whole = compiled_step(self.model, loss, optimizer)

    def _staged(
        self, model: Module, begins: Sequence[str], rules: Mapping[str, str], mesh: Mesh
    ) -> Pipeline:
        """The stages of this rank."""
        plan, outer = self.plan, self._world.outer
        starts = _starts(model, begins)
        assert isinstance(model, Sequential)
        check_apart(model, starts)
        names = stage_names(model)
        ranks = ranks_of(outer.rank, mesh.axes, ("pipeline",))
        parts = own_parts(model, starts, ranks.index(outer.rank), len(ranks))
        for part in parts:
            _lay_out(part, plan, rules)
        entries = ("data", "tensor") if plan.sequence else ("data",)
        return Pipeline(
            parts, names, ranks, self.micro_batches, plan.schedule, outer, entries=entries
        )

    def __call__(self, x: Any, *targets: Any) -> Tensor:
        with self._world.entered():
            self.optimizer.zero_grad()
            if isinstance(self.model, Pipeline):
                total = self.model.backward(self._loss, x, *targets)
                self._update()
                return total
            if self.micro_batches == 1:
                parts = [split(as_tensor(each, "step"), "data") for each in (x, *targets)]
                found: Tensor = self._whole(*parts)
                return found
            given = [self._cut(each) for each in (x, *targets)]
            losses: list[Tensor] = [self._part(*part) for part in zip(*given, strict=True)]
            self._update()
            return sum(losses[1:], losses[0])

    def _cut(self, x: Any) -> Iterator[Tensor]:
        """The micro-batches of a batch: of each, this rank has as much as of the others."""
        whole = local(split(as_tensor(x, "step"), "data"))
        size, rest = divmod(whole.shape[0], self.micro_batches)
        if rest or not size:
            raise ShapeError(
                f"a batch of {whole.shape[0]} samples on each rank does not fall into the "
                f"{self.micro_batches} micro-batches of the plan",
                op="step",
                hint=f"the plan is for batches of {self.micro_batches * self.plan.micro_batch}",
            )
        for i in range(self.micro_batches):
            yield from_local(whole[i * size : (i + 1) * size], "data")


def _lay_out(part: Module, plan: ParallelPlan, rules: Mapping[str, str]) -> None:
    """Cut the weights of a model, or of a stage, and prepare its units."""
    units = list(_units(part))
    mine = {name for name, _ in part.named_modules()}
    tensor_parallel(part, "tensor", {name: rule for name, rule in rules.items() if name in mine})
    if plan.sharded == "all":
        fully_sharded(part, "data")
    for unit in units:
        if plan.recompute:
            unit.forward = checkpoint(unit.forward)
        if plan.sequence:
            unit.register_forward_hook(along_sequence)


def _units(model: Module) -> Iterator[Module]:
    """The members of lists of modules, as the planner takes them for units: blocks.3."""
    for name, module in model.named_modules():
        before, _, last = name.rpartition(".")
        if last.isdigit() and not any(part.isdigit() for part in before.split(".")):
            yield module


def _starts(model: Module, begins: Sequence[str]) -> list[int]:
    """The numbers of the layers that stages begin with, and the end."""
    if not isinstance(model, Sequential):
        raise DistributedError(
            f"the plan has {len(begins)} stages, and a {type(model).__name__} cannot be cut",
            op="apply",
            hint="stages are made of the children of an nn.Sequential; or plan with pipeline=1",
        )
    names = [name for name, _ in model.named_children()]
    found = [0, *[_child(name, names) for name in begins[1:]], len(names)]
    if any(a >= b for a, b in pairwise(found)):
        raise DistributedError(
            f"the plan cuts inside of a child of the model: {', '.join(begins)}",
            op="apply",
            hint="give each stage children of its own",
        )
    return found


def _child(path: str, names: Sequence[str]) -> int:
    """Sequential.3 -> 3, the number of the child that is named so."""
    name = path.split(".")[1] if "." in path else ""
    if name not in names:
        raise DistributedError(
            f"the model of the plan has a unit {path!r}, and the children of this one are "
            f"{', '.join(names)}",
            op="apply",
        )
    return names.index(name)


def _keep_own(optimizer: Optimizer, model: Module) -> None:
    """An optimizer updates what this rank has."""
    own = set(map(id, model.parameters()))
    for group in optimizer.param_groups:
        group["params"] = [p for p in group["params"] if id(p) in own]
