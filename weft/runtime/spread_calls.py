"""Ops called one by one on tensors that lie over many ranks.

A call is a program of one node: it gets the layouts, the collectives and the results that the
compiler would give it (`weft/passes/layouts`), and is kept for the next call of these types. All
ranks make the same calls.
"""

from __future__ import annotations

import weakref
import zlib
from collections.abc import Callable, Hashable, Mapping
from typing import Any

import numpy as np

from weft.autodiff.node import FREED, Dropped, OpNode, PartNode, freed
from weft.base.errors import DistributedError
from weft.base.world import Axes, check_mesh, current_world
from weft.core.bind import bind
from weft.core.call_errors import cause, explained
from weft.core.grad_mode import no_grad
from weft.core.parts import Parts
from weft.core.tensor import Tensor, labelled, result_class_of, type_of, wrap
from weft.ir.attributes import attrs_key
from weft.ir.graph import Graph
from weft.ir.interpret import PreparedGraph
from weft.ir.op import Op
from weft.passes.layouts.convert import steps
from weft.passes.layouts.program import RankProgram, rank_program
from weft.passes.layouts.states import of_cuts, whole

__all__ = ["bound", "gathered"]

#: Gives a result its history: `weft.autodiff.tape.record`.
Tape = Callable[..., Any]

#: Calls by their types, the oldest first.
_programs: dict[Hashable, tuple[RankProgram, PreparedGraph]] = {}
MOST_PROGRAMS = 1 << 16


def bound(op: Op, inputs: tuple[Tensor, ...], attrs: dict[str, Any], tape: Tape) -> Any:
    """What `bind` gives for operands of which some are parts."""
    try:
        found = call(op, inputs, attrs)
    except Exception as error:
        raise explained(op, inputs, attrs, error) from cause(error)
    parts = found if isinstance(found, tuple) else (found,)
    made = tuple([wrap(x) for x in parts])
    out = labelled(made if isinstance(found, tuple) else made[0], result_class_of(inputs))
    return taped(tape(op, inputs, attrs, out))


def call(op: Op, inputs: tuple[Tensor, ...], attrs: Mapping[str, Any]) -> Any:
    """The data of the result, or of several."""
    mesh = _mesh(inputs)
    check_mesh(mesh, current_world().size)
    key: Hashable = (op, tuple([type_of(x) for x in inputs]), mesh, attrs_key(attrs))
    program, prepared = _program(op, key, inputs, attrs, mesh)
    _check_alike(key, inputs, mesh)
    given = [x._data.tensor if x._data.__class__ is Parts else wrap(x._data) for x in inputs]
    with no_grad():
        slots = prepared.run(given, bind)
    found = [
        _laid_out(slots[place], program, number) for number, place in enumerate(prepared.outputs)
    ]
    return tuple(found) if len(found) > 1 else found[0]


def _laid_out(x: Tensor, program: RankProgram, number: int) -> Any:
    cuts = program.outputs[number]
    if cuts is None:
        return x._data
    return Parts(x._data, program.laid_out.outputs[number].tensor_type.shape, cuts, program.mesh)


def _mesh(inputs: tuple[Tensor, ...]) -> Axes:
    meshes = {x._data.mesh: None for x in inputs if x._data.__class__ is Parts}
    if len(meshes) > 1:
        one, two, *_ = meshes
        raise DistributedError(
            f"tensors over two meshes meet: {one} and {two}",
            hint="use one mesh with all its axes, or bring one together: distributed.full(x)",
        )
    (mesh,) = meshes
    return mesh


def _program(
    op: Op, key: Hashable, inputs: tuple[Tensor, ...], attrs: Mapping[str, Any], mesh: Axes
) -> tuple[RankProgram, PreparedGraph]:
    found = _programs.get(key)
    if found is None:
        graph = Graph(op.name)
        graph.set_inputs([type_of(x) for x in inputs])
        graph.outputs = graph.add(op, *graph.inputs, **attrs).outputs
        program = rank_program(graph, mesh)
        found = program, PreparedGraph(program.local)
        while len(_programs) >= MOST_PROGRAMS:
            _programs.pop(next(iter(_programs)), None)
        _programs[key] = found
    return found


#: Of each world of this process: the calls whose operands were compared among ranks.
_compared: weakref.WeakKeyDictionary[Any, set[Hashable]] = weakref.WeakKeyDictionary()


def _check_alike(key: Hashable, inputs: tuple[Tensor, ...], mesh: Axes) -> None:
    """What is no part must be the same on all ranks: the first call of each kind looks."""
    arrays = [x._data for x in inputs if x._data.__class__ is not Parts]
    world = current_world()
    if not arrays or world.size == 1:
        return
    known = _compared.setdefault(world, set())
    if key in known:
        return
    known.add(key)
    mine = np.array([zlib.crc32(x.tobytes()) for x in arrays], np.int64)
    all_of_them = world.group(mesh, tuple(name for name, _ in mesh)).all_gather(mine)
    if (all_of_them != mine).any():
        raise DistributedError(
            "an operand is neither a part nor the same on all ranks",
            hint="distributed.split(x, ...) of what all ranks have alike, "
            "distributed.from_local(part, ...) of what differs",
        )


def gathered(parts: Parts) -> np.ndarray[Any, Any]:
    """The numbers of the whole, on all ranks together."""
    found = parts.tensor
    before = of_cuts(parts.cuts, parts.mesh)
    with no_grad():
        for step in steps(before, whole(parts.mesh), parts.ndim, parts.mesh):
            found, _ = step.run(bind, found, found.shape, parts.shape)
    array: np.ndarray[Any, Any] = found._data
    return array


class _SpreadNode(OpNode):
    """Of a call on parts: its derivative rules run on tensors, NumPy cannot compute with parts."""

    __slots__ = ()

    def apply(self, g: Any, create: bool, keep: bool, wanted: tuple[bool, ...] | None) -> Any:
        if self.kept is FREED:
            raise freed(self.name())
        while self.kept.__class__ is Dropped:
            self.kept = self.kept.restored()
        grads = self._apply_to_tensors(g, create, wanted)
        if self.plan.keeps and not keep:
            self.kept = FREED
        return grads


def taped(out: Any) -> Any:
    """A result with its history."""
    for x in out if isinstance(out, (tuple, list)) else (out,):
        node = x._node
        if isinstance(node, PartNode):
            node = node.parent
        if node.__class__ is OpNode:
            node.__class__ = _SpreadNode
    return out
