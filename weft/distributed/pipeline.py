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
from weft.base.world import Array, current_world, ranks_of
from weft.compile import compile as compile_function
from weft.core.grad_mode import no_grad
from weft.core.operands import as_tensor
from weft.core.tensor import Tensor, wrap
from weft.distributed.collectives import broadcast
from weft.distributed.mesh import Mesh, current_mesh
from weft.nn.containers import Sequential
from weft.nn.module import Module

__all__ = ["SCHEDULES", "Pipeline", "pipeline"]

#: What a stage does next: the forward or the backward of a micro-batch.
Order = list[tuple[str, int]]


def gpipe(stage: int, stages: int, count: int) -> Order:
    """All forwards, then all backwards: simple, but all micro-batches are held at once."""
    return [("F", i) for i in range(count)] + [("B", i) for i in range(count)]


def one_forward_one_backward(stage: int, stages: int, count: int) -> Order:
    """As soon as a micro-batch comes back, its backward: a stage holds as many of them as there are
    stages from it to the end."""
    ahead = min(count, stages - stage - 1)
    order: Order = [("F", i) for i in range(ahead)]
    for i in range(count - ahead):
        order += [("F", ahead + i), ("B", i)]
    return order + [("B", i) for i in range(count - ahead, count)]


SCHEDULES: dict[str, Callable[[int, int, int], Order]] = {
    "gpipe": gpipe,
    "1f1b": one_forward_one_backward,
}


class Pipeline(Module):
    """The stage of this rank of a model, and how micro-batches pass through all stages."""

    def __init__(
        self, stage: Sequential, names: set[str], ranks: list[int], micro_batches: int, order: Order
    ) -> None:
        super().__init__()
        self.stage = stage
        self.micro_batches = micro_batches
        self.order = order
        self.most_held = 0  # micro-batches between their forward and their backward, at most
        self._names = names  # of the tensors of all stages
        self._ranks = ranks
        self._place = ranks.index(current_world().rank)
        self._run = compile_function(stage)
        self._loss: tuple[Any, Any] | None = None
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
        held: dict[int, tuple[Tensor, Tensor]] = {}
        total = 0.0
        before = {p: p.grad for p in self._learning()}
        for parameter in before:
            parameter.grad = None
        for kind, i in self.order:
            if kind == "F":
                entry = given[i] if self.is_first else self._taken(self._place - 1)
                out = self._run(entry)
                if self.is_last:
                    out = self._compiled_loss(loss)(out, *[parts[i] for parts in wanted])
                    if out.shape != ():
                        raise ShapeError(f"the loss is no number, but {out.type}", op="pipeline")
                    total += float(out.item()) / self.micro_batches
                    out = out / self.micro_batches
                else:
                    self._post(out, self._place + 1)
                held[i] = entry, out
                self.most_held = max(self.most_held, len(held))
            else:
                self._go_back(*held.pop(i))
        self._finish(before)
        return self._everywhere(total)

    def forward(self, x: Any) -> Tensor:
        """model(x) on all ranks, without gradients."""
        outs = []
        with no_grad():
            given = self._cut(x) if self.is_first else []
            for i in range(self.micro_batches):
                out = self._run(given[i] if self.is_first else self._taken(self._place - 1))
                if self.is_last:
                    outs.append(out.numpy())
                else:
                    self._post(out, self._place + 1)
        if not self.is_last:
            return self._taken(len(self._ranks) - 1, gradient=False)
        whole = wrap(np.concatenate(outs))
        for place in range(len(self._ranks) - 1):
            self._post(whole, place)
        return whole

    def load_state_dict(self, state_dict: Any, *args: Any, **given: Any) -> Any:
        """As of other modules; tensors of other stages are passed over."""
        mine = set(self.state_dict())
        kept = {n: x for n, x in state_dict.items() if n in mine or n not in self._names}
        return super().load_state_dict(kept, *args, **given)

    # --- parts of a step ----------------------------------------------------------------------

    def _learning(self) -> list[Any]:
        return [p for p in self.stage.parameters() if p.requires_grad]

    def _go_back(self, entry: Tensor, out: Tensor) -> None:
        """The backward of a micro-batch."""
        if self.is_last:
            out.backward()
        else:
            out.backward(self._taken(self._place + 1, gradient=False))
        if not self.is_first:
            gradient = entry.grad
            zeros = np.zeros(entry.shape, entry.dtype.numpy)
            self._post(wrap(zeros) if gradient is None else gradient, self._place - 1)

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
        size, rest = divmod(whole.shape[0] if whole.ndim else 0, self.micro_batches)
        if rest or not size:
            raise ShapeError(
                f"a batch {whole.type} cannot be cut into {self.micro_batches} micro-batches",
                op="pipeline",
                hint="another micro_batches=, or a batch that it divides",
            )
        return [whole[i * size : (i + 1) * size] for i in range(self.micro_batches)]

    def _post(self, x: Tensor, place: int) -> None:
        array: Array = x.detach().numpy()
        current_world().post(array, self._ranks[place])

    def _taken(self, place: int, gradient: bool = True) -> Tensor:
        found = wrap(current_world().take(self._ranks[place]))
        if gradient and found.dtype.kind == "float":
            found.requires_grad = True
        return found

    def _everywhere(self, total: float) -> Tensor:
        """The loss, which only the last stage knows."""
        world = current_world()
        if not self.is_last:
            return wrap(world.take(self._ranks[-1]))
        found = np.array(total, np.float32)
        for rank in self._ranks[:-1]:
            world.post(found, rank)
        return wrap(found)


def pipeline(
    model: Sequential,
    over: str,
    *,
    micro_batches: int = 8,
    schedule: str = "1f1b",
    cuts: Sequence[int] | None = None,
    mesh: Mesh | None = None,
) -> Pipeline:
    """Put the layers of a model on the ranks along an axis of the mesh, one stage on each.

    over            the axis of the mesh
    micro_batches   how many parts a batch is cut into, one after the other through the stages
    schedule        "1f1b", or "gpipe", which holds all micro-batches at once
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
    if not isinstance(model, Sequential):
        raise DistributedError(
            f"a pipeline is made of an nn.Sequential, not of a {type(model).__name__}",
            hint="its children are what stages are made of",
        )
    starts = _starts(list(model), len(ranks), cuts)
    _check_apart(model, starts)
    with no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            tensor[...] = broadcast(tensor, over, mesh=on)
    place = ranks.index(current_world().rank)
    stage = model[starts[place] : starts[place + 1]]
    stage.train(model.training)
    everything = {f"stage.{name}" for name in model.state_dict()}
    order = SCHEDULES[schedule](place, len(ranks), micro_batches)
    return Pipeline(stage, everything, ranks, micro_batches, order)


def _starts(layers: list[Module], stages: int, cuts: Sequence[int] | None) -> list[int]:
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


def _check_apart(model: Sequential, starts: list[int]) -> None:
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
