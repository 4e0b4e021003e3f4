"""Ways to lay out models over a mesh, each one line: cut their parameters in place.

A program is written for one machine. Where its parameters and its batch lie says the rest: the
compiler lays out what is computed of them, gradients and the state of optimizers included.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from weft.base.errors import DistributedError
from weft.core.grad_mode import no_grad
from weft.core.parts import Parts
from weft.core.tensor import Tensor
from weft.distributed.collectives import broadcast
from weft.distributed.layouts import Entry, cuts_of, relaid_array
from weft.distributed.mesh import Mesh, current_mesh
from weft.ir.cuts import Cuts
from weft.nn.attention import MultiheadAttention
from weft.nn.embedding import Embedding
from weft.nn.linear import Linear
from weft.nn.module import Module
from weft.nn.recurrent import GRU, LSTM
from weft.nn.transformer import TransformerDecoderLayer, TransformerEncoderLayer
from weft.optim.optimizer import Optimizer

__all__ = ["fully_sharded", "replicate", "shard", "sharded_state", "tensor_parallel"]

M = TypeVar("M", bound=Module)
Opt = TypeVar("Opt", bound=Optimizer)


def shard(x: Tensor, *entries: Entry, mesh: Mesh | None = None) -> Tensor:
    """Cut a tensor in place, such as a parameter: from here on this rank holds its part.

    The values are those of rank 0.

    >>> from weft import distributed, nn
    >>> def rows():
    ...     layer = nn.Linear(4, 2)
    ...     distributed.shard(layer.weight, "ranks")
    ...     return distributed.local(layer.weight).shape
    >>> distributed.run_virtual(2, rows)
    [(1, 4), (1, 4)]
    """
    on = mesh or current_mesh()
    return _cut(x, cuts_of(x, entries, on, "shard"), on)


def _cut(x: Tensor, cuts: Cuts, on: Mesh) -> Tensor:
    cuts.check(x.shape, on.axes)  # refused before anything is sent
    with no_grad():
        if x._data.__class__ is not Parts and on.size > 1:
            x._data = broadcast(x, mesh=on)._data
        array = relaid_array(x, cuts, on.axes)
    whole = x.shape
    x._data = Parts(array, whole, cuts, on.axes) if cuts else array
    return x


def replicate(model: M, mesh: Mesh | None = None) -> M:
    """Let all ranks have the parameters and buffers of rank 0."""
    on = mesh or current_mesh()
    for x in (*model.parameters(), *model.buffers()):
        if x._data.__class__ is not Parts:
            _cut(x, Cuts(((),) * x.ndim), on)
    return model


def fully_sharded(model: M, over: str | Sequence[str] = "data", *, mesh: Mesh | None = None) -> M:
    """Cut each parameter over ranks: they are put together where they are used, gradients are
    added up and cut again, and an optimizer keeps its state for the part of the rank (ZeRO, FSDP).

    Of each parameter, the first axis is cut that the ranks divide and nothing cuts yet; where there
    is none, it stays whole.

    >>> from weft import distributed, nn
    >>> def parts():
    ...     with distributed.Mesh({"data": 2}):
    ...         model = distributed.fully_sharded(nn.Linear(4, 6))
    ...     return [distributed.local(p).shape for p in model.parameters()]
    >>> distributed.run_virtual(2, parts)
    [[(3, 4), (3,)], [(3, 4), (3,)]]
    """
    on = mesh or current_mesh()
    for p in model.parameters():
        _share_out(p, on.names(over), on)
    return replicate(model, on)


def _share_out(x: Tensor, names: tuple[str, ...], on: Mesh) -> None:
    """Cut the first axis that ranks divide and nothing cuts yet."""
    ranks = on.group_size(names)
    before = x._data.cuts.axes if x._data.__class__ is Parts else ((),) * x.ndim
    if any(name in each for each in before for name in names):
        return
    for axis, size in enumerate(x.shape):
        if not before[axis] and size and size % ranks == 0:
            _cut(x, Cuts((*before[:axis], names, *before[axis + 1 :])), on)
            break


def sharded_state(
    optimizer: Opt, over: str | Sequence[str] = "data", *, mesh: Mesh | None = None
) -> Opt:
    """Cut what an optimizer keeps for each parameter over ranks, where all have the parameters
    whole: each updates a part of them, and they are put together after it (ZeRO, stage 1).

    Called before the first step.

    >>> from weft import distributed, nn, optim
    >>> def parts():
    ...     with distributed.Mesh({"data": 2}):
    ...         model = distributed.tensor_parallel(nn.Linear(4, 6), "data", {})
    ...         adam = distributed.sharded_state(optim.Adam(model.parameters()))
    ...     kept = adam.state[model.weight]["exp_avg"]
    ...     return distributed.local(kept).shape
    >>> distributed.run_virtual(2, parts)
    [(3, 4), (3, 4)]
    """
    on = mesh or current_mesh()
    optimizer._first_states(always=True)
    for p, kept in optimizer.state.items():
        for value in kept.values():
            if isinstance(value, Tensor) and value.shape == p.shape:
                _share_out(value, on.names(over), on)
    return optimizer


#: How a rule cuts the parameters of a module: by their names.
Rule = str | Mapping[str, Sequence[Entry]]


def tensor_parallel(
    model: M,
    over: str = "model",
    rules: Mapping[str, str] | None = None,
    *,
    mesh: Mesh | None = None,
) -> M:
    """Cut the weights of layers over ranks, so that each computes a part of each layer.

    `rules` say how, by patterns of names of modules:

    - "columns": a Linear gives each rank a part of its outputs
    - "rows": a Linear takes a part of its inputs on each rank; the results are added up
    - "heads": MultiheadAttention: each rank has some of the heads
    - "vocabulary": an Embedding of which each rank has some of the rows
    - "gates": LSTM, GRU: each rank has a part of the hidden features
    - "whole": as it is

    Without rules, layers of transformers are cut: heads, then the columns of the first and the rows
    of the second Linear.

    >>> from weft import distributed, nn
    >>> def parts():
    ...     model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))
    ...     distributed.tensor_parallel(model, "ranks", {"0": "columns", "2": "rows"})
    ...     return [distributed.local(p).shape for p in model.parameters()]
    >>> distributed.run_virtual(2, parts)[0]
    [(4, 4), (4,), (4, 4), (4,)]
    """
    on = mesh or current_mesh()
    on.names(over)
    used: set[str] = set()
    for name, module in model.named_modules():
        if rules is None:
            _cut_transformer(module, over, on)
            continue
        for pattern, rule in rules.items():
            if fnmatch.fnmatchcase(name, pattern):
                used.add(pattern)
                _apply(name, module, rule, over, on)
                break
    unused = [pattern for pattern in rules or () if pattern not in used]
    if unused:
        known = ", ".join(name for name, _ in model.named_modules() if name)
        raise DistributedError(f"no module is named {unused[0]!r}", hint=f"there are {known}")
    return replicate(model, on)


def _cut_transformer(module: Module, over: str, on: Mesh) -> None:
    if isinstance(module, MultiheadAttention):
        _apply("", module, "heads", over, on)
    elif isinstance(module, (TransformerEncoderLayer, TransformerDecoderLayer)):
        _apply("linear1", module.linear1, "columns", over, on)
        _apply("linear2", module.linear2, "rows", over, on)


def _apply(name: str, module: Module, rule: str, over: str, on: Mesh) -> None:
    if rule == "whole":
        return
    kinds, cut = _RULES.get(rule, ((), None))
    if cut is None:
        raise DistributedError(f"there is no rule {rule!r}", hint=", ".join([*_RULES, "whole"]))
    if not isinstance(module, kinds):
        wanted = " or ".join(kind.__name__ for kind in kinds)
        raise DistributedError(
            f"the rule {rule!r} is for {wanted}, and {name!r} is {type(module).__name__}"
        )
    cut(module, over, on)


def _columns(layer: Linear, over: str, on: Mesh) -> None:
    _cut(layer.weight, Cuts(((over,), ())), on)
    if layer.bias is not None:
        _cut(layer.bias, Cuts(((over,),)), on)


def _rows(layer: Linear, over: str, on: Mesh) -> None:
    _cut(layer.weight, Cuts(((), (over,))), on)


def _vocabulary(layer: Embedding, over: str, on: Mesh) -> None:
    _cut(layer.weight, Cuts(((over,), ())), on)


def _heads(layer: MultiheadAttention, over: str, on: Mesh) -> None:
    if layer.num_heads % on.group_size(over):
        raise DistributedError(
            f"{layer.num_heads} heads cannot be cut over {on.group_size(over)} ranks",
            hint="choose another mesh, or another number of heads",
        )
    if layer.in_proj_weight is not None:
        _cut(layer.in_proj_weight, Cuts(((f"{over}:3",), ())), on)
    for weight in (layer.q_proj_weight, layer.k_proj_weight, layer.v_proj_weight):
        if weight is not None:
            _cut(weight, Cuts(((over,), ())), on)
    if layer.in_proj_bias is not None:
        _cut(layer.in_proj_bias, Cuts(((f"{over}:3",),)), on)
    _rows(layer.out_proj, over, on)


def _gates(layer: Any, over: str, on: Mesh) -> None:
    sections = 4 if isinstance(layer, LSTM) else 3
    for name, p in layer.named_parameters():
        kept = ((),) * (p.ndim - 1)
        if "_hr_" not in name:
            _cut(p, Cuts(((f"{over}:{sections}",), *kept)), on)


_RULES: dict[str, tuple[tuple[type[Module], ...], Any]] = {
    "columns": ((Linear,), _columns),
    "rows": ((Linear,), _rows),
    "heads": ((MultiheadAttention,), _heads),
    "vocabulary": ((Embedding,), _vocabulary),
    "gates": ((LSTM, GRU), _gates),
}
