"""Pipeline parallel training: the layers of a model lie on the ranks along an axis of the mesh.

A batch is cut into micro-batches, which go through the stages one after the other; a stage works on
one while the next stage works on the one before. A schedule says in which order a stage runs the
forward (F) and the backward (B) of its micro-batches; between stages, values and their gradients
are messages. Each forward and each backward is one call of machine code.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.base.errors import DistributedError, RangeError, ShapeError
from weft.base.world import Array, World, current_world, ranks_of
from weft.compile import compile as compile_function
from weft.core.grad_mode import no_grad
from weft.core.operands import as_tensor
from weft.core.parts import Parts
from weft.core.tensor import Tensor, wrap
from weft.distributed.collectives import broadcast
from weft.distributed.compiled_steps import compiled_stage
from weft.distributed.layouts import Entry, from_local, full, layout, local, split
from weft.distributed.mesh import Mesh, current_mesh
from weft.distributed.schedules import SCHEDULES, order_of
from weft.nn.containers import Sequential
from weft.nn.module import Module

__all__ = ["Pipeline", "check_apart", "own_parts", "pipeline", "stage_names", "stage_starts"]

#: A message between stages: whether it is of the forward, to which stage, of which micro-batch.
Key = tuple[bool, int, int]


class Pipeline(Module):
    """The stages of this rank of a model, and how micro-batches pass through all stages.

    stage     the layers of this rank
    parts     the same, one for each chunk: this rank has the stages `place + chunk * ranks`
    ranks     along the pipeline, in `world`
    names     of the tensors of all stages
    entries   how what goes from stage to stage lies over the other axes of the mesh, if parameters
              and batches have layouts: then `backward` is called in the world of the stage
    """

    def __init__(
        self,
        parts: list[Sequential],
        names: set[str],
        ranks: list[int],
        micro_batches: int,
        schedule: str,
        world: World,
        *,
        entries: Sequence[Entry] | None = None,
    ) -> None:
        super().__init__()
        self.stage = parts[0] if len(parts) == 1 else Sequential(_named(parts))
        self.micro_batches = micro_batches
        self.most_held = 0  # micro-batches between their forward and their backward, at most
        self._names = names
        self._ranks = ranks
        self._world = world
        self._place = ranks.index(self._world.rank)
        self._last = len(ranks) * len(parts) - 1
        self.order = order_of(schedule, len(ranks), micro_batches, self._place, len(parts))
        self._runs = tuple([compiled_stage(part, entries) for part in parts])
        self._loss: tuple[Any, Any] | None = None
        self._entries = entries
        #: Messages that came before they were asked for; only chunks make such.
        self._early: dict[Key, Array] | None = {} if len(parts) > 1 else None
        self._average: Callable[[list[Tensor]], list[Tensor]] | None = None

    @property
    def is_first(self) -> bool:
        return self._place == 0

    @property
    def is_last(self) -> bool:
        return self._place == len(self._ranks) - 1

    def average_gradients(self, average: Callable[[list[Tensor]], list[Tensor]]) -> None:
        """What `data_parallel` does with the gradients of a step, once for all micro-batches."""
        self._average = average

    def backward(self, loss: Callable[..., Tensor], x: Any, *targets: Any) -> Tensor:
        """The mean of `loss(model(x), *targets)` over micro-batches, on all ranks; parameters get
        their gradients. The first stage reads x, the last one the targets.
        """
        given = self._cut(x) if self.is_first else []
        wanted = [self._cut(target) for target in targets] if self.is_last else []
        held: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}
        total = 0.0
        sums: dict[Any, Tensor] = {}
        before = {p: p.grad for p in self._learning()}
        for parameter in before:
            parameter.grad = None
        for is_forward, i, chunk in self.order:
            stage = chunk * len(self._ranks) + self._place
            if not is_forward:
                self._go_back(*held.pop((chunk, i)), stage, i)
                self._sum_parts(sums)
                continue
            entry = given[i] if stage == 0 else self._taken((True, stage, i))
            out = self._runs[chunk](entry)
            if stage == self._last:
                out = self._compiled_loss(loss)(out, *[parts[i] for parts in wanted])
                if out.shape != ():
                    raise ShapeError(f"the loss is no number, but {out.type}", op="pipeline")
                total += float(out.item()) / self.micro_batches
                out = out / self.micro_batches
            else:
                self._post(out, (True, stage + 1, i))
            held[chunk, i] = entry, out
            self.most_held = max(self.most_held, len(held))
        for parameter, gradient in sums.items():
            parameter.grad = gradient
        self._finish(before)
        return self._everywhere(total)

    def forward(self, x: Any) -> Tensor:
        """model(x) on all ranks, without gradients."""
        outs, ranks = [], len(self._ranks)
        with no_grad():
            given = self._cut(x) if self.is_first else []
            for chunk, run in enumerate(self._runs):
                stage = chunk * ranks + self._place
                for i in range(self.micro_batches):
                    out = run(given[i] if stage == 0 else self._taken((True, stage, i)))
                    if stage == self._last:
                        outs.append(full(out).numpy())
                    else:
                        self._post(out, (True, stage + 1, i))
        if not self.is_last:
            return wrap(self._world.take(self._ranks[-1]))
        whole = np.concatenate(outs)
        for rank in self._ranks[:-1]:
            self._world.post(whole, rank)
        return wrap(whole)

    def load_state_dict(self, state_dict: Any, *args: Any, **given: Any) -> Any:
        """As of other modules; tensors of other stages are passed over."""
        mine = set(self.state_dict())
        kept = {n: x for n, x in state_dict.items() if n in mine or n not in self._names}
        return super().load_state_dict(kept, *args, **given)

    # --- parts of a step ----------------------------------------------------------------------

    def _learning(self) -> list[Any]:
        return [p for p in self.stage.parameters() if p.requires_grad]

    def _go_back(self, entry: Tensor, out: Tensor, stage: int, i: int) -> None:
        """The backward of a micro-batch."""
        if stage == self._last:
            out.backward()
        else:
            out.backward(self._taken((False, stage, i), learns=False))
        if stage:
            gradient = entry.grad
            if gradient is None:
                zeros = np.zeros(local(entry).shape, entry.dtype.numpy)
                gradient = self._lying(wrap(zeros))
            elif self._entries is not None:
                gradient = layout(gradient, *self._entries)
            self._post(gradient, (False, stage - 1, i))

    def _sum_parts(self, sums: dict[Any, Tensor]) -> None:
        """Add gradients that lie over ranks to those of the micro-batches before, part by part."""
        if self._entries is None:
            return
        for parameter in self._learning():
            gradient = parameter.grad
            if gradient is None or gradient._data.__class__ is not Parts:
                continue
            parameter.grad = None
            known = sums.setdefault(parameter, gradient)
            if known is not gradient:
                np.add(known._data.local, gradient._data.local, out=known._data.local)

    def _finish(self, before: dict[Any, Tensor | None]) -> None:
        """Average the gradients of the step over ranks that have other data, and add them to those
        that were there."""
        learnt = [p for p in before if p.grad is not None]
        grads = [p.grad for p in learnt]
        if self._average is not None and grads:
            with no_grad():
                grads = self._average(grads)
        for parameter, grad in zip(learnt, grads, strict=True):
            earlier = before[parameter]
            parameter.grad = grad if earlier is None else earlier + grad

    def _compiled_loss(self, loss: Callable[..., Tensor]) -> Any:
        if self._loss is None or self._loss[0] is not loss:
            self._loss = loss, compile_function(loss)
        return self._loss[1]

    def _cut(self, x: Any) -> list[Tensor]:
        """The micro-batches of a tensor."""
        whole = as_tensor(x, "pipeline")
        if self._entries is not None:
            whole = local(split(whole, *self._entries[: whole.ndim]))
        size, rest = divmod(whole.shape[0] if whole.ndim else 0, self.micro_batches)
        if rest or not size:
            raise ShapeError(
                f"a batch {whole.type} cannot be cut into {self.micro_batches} micro-batches",
                op="pipeline",
                hint="another micro_batches=, or a batch that it divides",
            )
        parts = [whole[i * size : (i + 1) * size] for i in range(self.micro_batches)]
        return [self._lying(part) for part in parts]

    def _lying(self, x: Tensor) -> Tensor:
        """What this rank has of a value, as it lies over the ranks of the stage."""
        return x if self._entries is None else from_local(x, *self._entries[: x.ndim])

    def _post(self, x: Tensor, key: Key) -> None:
        rank = self._ranks[key[1] % len(self._ranks)]
        if self._early is not None:
            self._world.post(np.array(key, np.int64), rank)
        array: Array = local(x.detach() if self._entries is None else x).numpy()
        self._world.post(array, rank)

    def _taken(self, key: Key, learns: bool = True) -> Tensor:
        is_forward, stage, _ = key
        rank = self._ranks[(stage - 1 if is_forward else stage + 1) % len(self._ranks)]
        if self._early is None:
            found = self._world.take(rank)
        else:
            while key not in self._early:
                number = self._world.take(rank).tolist()
                self._early[bool(number[0]), number[1], number[2]] = self._world.take(rank)
            found = self._early.pop(key)
        made = self._lying(wrap(found))
        if learns and made.dtype.kind == "float":
            made.requires_grad = True
        return made

    def _everywhere(self, total: float) -> Tensor:
        """The loss, which only the last stage knows."""
        if not self.is_last:
            return wrap(self._world.take(self._ranks[-1]))
        found = np.array(total, np.float32)
        for rank in self._ranks[:-1]:
            self._world.post(found, rank)
        return wrap(found)


def _named(parts: list[Sequential]) -> dict[str, Module]:
    return {name: layer for part in parts for name, layer in part.named_children()}


def pipeline(
    model: Sequential,
    over: str,
    *,
    micro_batches: int = 8,
    schedule: str = "1f1b",
    chunks: int = 1,
    cuts: Sequence[int] | None = None,
    mesh: Mesh | None = None,
) -> Pipeline:
    """Put the layers of a model on the ranks along an axis of the mesh, one stage on each.

    over            the axis of the mesh
    micro_batches   how many parts a batch is cut into, one after the other through the stages
    schedule        "1f1b"; "gpipe", which holds all micro-batches at once; or "interleaved"
    chunks          how many stages are on each rank, with the interleaved schedule: the bubble is
                    as many times smaller, and there are as many times more messages
    cuts            the numbers of the layers that begin the second stage, the third …; else stages
                    have about as many parameters

    All stages start as rank 0 along the axis. What comes back has the parameters of this rank's
    stage only: an optimizer of these updates this stage.

    >>> from weft import distributed, nn, optim
    >>> def train():
    ...     with distributed.Mesh({"pipe": 2}):
    ...         weft.manual_seed(0)
    ...         layers = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
    ...         model = distributed.pipeline(layers, "pipe", micro_batches=2, cuts=[1])
    ...     optimizer = optim.SGD(model.parameters(), lr=0.1)
    ...     x, y = weft.ones((4, 3)), weft.ones((4, 1))
    ...     for _ in range(20):
    ...         optimizer.zero_grad()
    ...         loss = model.backward(nn.functional.mse_loss, x, y)
    ...         optimizer.step()
    ...     return bool(loss < 1e-3), [name for name, _ in model.named_parameters()]
    >>> distributed.run_virtual(2, train)
    [(True, ['stage.0.weight', 'stage.0.bias']), (True, ['stage.2.weight', 'stage.2.bias'])]
    """
    on = mesh or current_mesh()
    names = on.names(over)
    ranks = ranks_of(current_world().rank, on.axes, names)
    if schedule not in SCHEDULES:
        raise RangeError(f"schedule is {schedule!r}", op="pipeline", hint=" or ".join(SCHEDULES))
    if micro_batches < 1:
        raise RangeError(f"micro_batches is {micro_batches}", op="pipeline")
    if chunks < 1 or (chunks > 1) != (schedule == "interleaved"):
        raise RangeError(
            f"chunks is {chunks} with the schedule {schedule!r}",
            op="pipeline",
            hint='schedule="interleaved" needs 2 or more; others have 1',
        )
    if schedule == "interleaved" and micro_batches % len(ranks):
        raise RangeError(
            f"{micro_batches} micro-batches are not a multiple of {len(ranks)} ranks",
            op="pipeline",
            hint='another micro_batches=, or schedule="1f1b"',
        )
    if not isinstance(model, Sequential):
        raise DistributedError(
            f"a pipeline is made of an nn.Sequential, not of a {type(model).__name__}",
            hint="its children are what stages are made of",
        )
    starts = stage_starts(list(model), len(ranks) * chunks, cuts)
    check_apart(model, starts)
    with no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            tensor[...] = broadcast(tensor, over, mesh=on)
    parts = own_parts(model, starts, ranks.index(current_world().rank), len(ranks))
    return Pipeline(parts, stage_names(model), ranks, micro_batches, schedule, current_world())


def own_parts(model: Sequential, starts: list[int], place: int, ranks: int) -> list[Sequential]:
    """The stages of a rank."""
    found: list[Sequential] = []
    for begin, end in list(itertools.pairwise(starts))[place::ranks]:
        part = model[begin:end]
        part.train(model.training)
        found.append(part)
    return found


def stage_names(model: Sequential) -> set[str]:
    """The names of the tensors of all stages, as stages have them."""
    return {f"stage.{name}" for name in model.state_dict()}


def stage_starts(layers: list[Module], stages: int, cuts: Sequence[int] | None) -> list[int]:
    """The number of the first layer of each stage, and the end."""
    count = len(layers)
    if cuts is not None:
        starts = [0, *cuts, count]
        if len(starts) != stages + 1 or any(
            not 0 <= a < b <= count for a, b in itertools.pairwise(starts)
        ):
            raise RangeError(
                f"cuts {list(cuts)} do not make {stages} stages of {count} layers", op="pipeline"
            )
        return starts
    if count < stages:
        raise RangeError(f"{count} layers cannot be {stages} stages", op="pipeline")
    weights = [1 + sum(p.size for p in layer.parameters()) for layer in layers]
    # best[k][i]: the largest stage where k stages hold the first i layers; where the last begins
    best = [[(0.0 if i == 0 else float(np.inf), 0) for i in range(count + 1)]]
    for k in range(1, stages + 1):
        row = [(float(np.inf), 0)] * (count + 1)
        for i in range(k, count + 1):
            row[i] = min(
                (max(best[k - 1][j][0], float(sum(weights[j:i]))), j) for j in range(k - 1, i)
            )
        best.append(row)
    starts = [count]
    for k in range(stages, 0, -1):
        starts.append(best[k][starts[-1]][1])
    return starts[::-1]


def check_apart(model: Sequential, starts: list[int]) -> None:
    """Stages have no parameter together."""
    seen: dict[int, tuple[int, str]] = {}
    for stage, (begin, end) in enumerate(itertools.pairwise(starts)):
        for name, parameter in model[begin:end].named_parameters():
            first, known = seen.setdefault(id(parameter), (stage, name))
            if first != stage:
                raise DistributedError(
                    f"{name} of stage {stage} is {known} of stage {first}",
                    hint="stages lie on different ranks: they cannot share a parameter",
                )
