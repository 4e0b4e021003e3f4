"""The verifier of plans finds planted mistakes of each kind, and those the scheduler once made."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
import weft.nn.functional as F
from weft.codegen.cpu import CpuTarget
from weft.codegen.machine import host
from weft.ir.graph import Value
from weft.runtime.generate import generated
from weft.schedule.grouping import Grouping
from weft.schedule.groups import Group, Leaf, Scalar
from weft.schedule.layouts import Layout
from weft.schedule.plan import GraphPlan, ProgramPlan, Step
from weft.schedule.values import Values
from weft.schedule.verify import PlanError, verify_plan
from weft.schedule.views import View, dense

X = weft.spec((8, 6))
Y = weft.spec((8, 6))
W = weft.spec((6, 6))
PICTURES = weft.spec((2, 4, 8, 8))
INDICES = weft.spec((8,), "int64")
FILTERS = weft.spec((3, 2, 3, 3))


TARGET = CpuTarget(host())
TABLE = np.arange(48.0, dtype="float32").reshape(8, 6)


def _plan(function: Callable[..., Any], *specs: Any) -> ProgramPlan:
    """The plan of a function, which is right so far."""
    plan = generated(weft.make_graph(function, *specs), False, None)[1]
    verify_plan(plan, TARGET)
    return plan


def _group(plan: GraphPlan, op: str) -> Group:
    return next(s.group for s in plan.steps for node in s.group.nodes if node.op.name == op)


def _node(group: Group, op: str) -> Any:
    return next(node for node in group.nodes if node.op.name == op)


# --- functions, and mistakes in their plans -------------------------------------------------------


def _softmax(x: Any) -> Any:
    return weft.softmax(weft.exp(x), axis=-1)


def _products(x: Any, w: Any) -> Any:
    return weft.exp(weft.exp(x @ w) @ w) @ w


def _update(x: Any, y: Any) -> Any:
    return x - 0.1 * y, weft.exp(y).sum()


def _loop(x: Any) -> Any:
    def body(carry: Any, row: Any) -> Any:
        carry = weft.exp(carry).sum() + row.sum() + carry
        return carry, carry

    return weft.scan(body, x[0], weft.concat([x, x, x]))[0]


def _late(plan: GraphPlan) -> None:
    plan.steps.reverse()


def _never(plan: GraphPlan) -> None:
    plan.steps.pop()


def _own_output(plan: GraphPlan) -> None:
    """The fused copy of the issue: what a group writes is read by it from memory."""
    group = _group(plan, "exp")
    value = group.outputs[0]
    copy = next(node for node in group.nodes if value in node.outputs)
    kind = value.tensor_type
    group.operands[copy][0] = Leaf(value, dense(kind.shape))


def _wave(plan: GraphPlan) -> None:
    plan.waves = [(0, 2)]


def _overlap(plan: GraphPlan) -> None:
    first, second = [s.outputs[0] for s in plan.steps[:2]]
    plan.memory.offsets[second] = plan.memory.offsets[first] + 4


def _unaligned(plan: GraphPlan) -> None:
    value = plan.steps[-2].outputs[0]
    plan.memory.offsets[value] += 8
    plan.memory.peak += 64


def _other_constant(plan: GraphPlan) -> None:
    literal = next(iter(plan.constants.values()))
    plan.constants = dict.fromkeys(plan.constants, type(literal)(literal.array + 1))


def _overlap_memory(plan: GraphPlan) -> None:
    step = next(step for step in plan.steps if step.room)
    value = next(leaf.root for leaf in _leaves(step) if leaf.root in plan.memory.offsets)
    plan.memory.offsets[step.group] = plan.memory.offsets[value]


def _leaves(step: Step) -> list[Leaf]:
    return [op for ops in step.group.operands.values() for op in ops if isinstance(op, Leaf)]


def _too_little_memory(plan: GraphPlan) -> None:
    step = next(step for step in plan.steps if step.nested)
    step.kernels[0] = dataclasses.replace(step.kernels[0], scratch=64)


def _small_arena(plan: GraphPlan) -> None:
    plan.memory.peak -= 64


def _nested_in_place(plan: GraphPlan) -> None:
    next(step for step in plan.steps if step.nested).nested[-1].in_place.append((0, 0))


def _strided_operand(plan: GraphPlan) -> None:
    """The convolution of the issue: it is handed a view, right as that is."""
    group = _group(plan, "conv")
    base = plan.graph.inputs[0]
    view = View((2, 2, 8, 8), (256, 64, 8, 1))
    group.operands[group.nodes[0]][0] = Leaf(base, view)


def _other_strides(plan: GraphPlan) -> None:
    group = _group(plan, "exp")
    node = _node(group, "exp")
    leaf = group.operands[node][0]
    assert isinstance(leaf, Leaf)
    group.operands[node][0] = Leaf(leaf.root, View((8, 6), (1, 8)))


def _other_operand(plan: GraphPlan) -> None:
    group = _group(plan, "subtract")
    node = _node(group, "subtract")
    group.operands[node][0] = Leaf(plan.graph.inputs[1], dense((8, 6)))


def _not_a_number(plan: GraphPlan) -> None:
    group = _group(plan, "subtract")
    group.operands[_node(group, "subtract")][0] = Scalar(1.0)


def _turned_map(plan: GraphPlan) -> None:
    group = _group(plan, "exp")
    value = _node(group, "exp").outputs[0]
    group.maps[value] = group.maps[value][::-1]


def _used_too_early(plan: GraphPlan) -> None:
    group = _group(plan, "exp")
    group.nodes.reverse()


def _used_before_summed(plan: GraphPlan) -> None:
    group = _group(plan, "exp")
    group.after.add(_node(group, "exp").outputs[0])


def _other_rows(plan: GraphPlan) -> None:
    group = _group(plan, "sum")
    group.marks["row"] = (tuple(group.space.order[:1]),)


def _fewer_elements(plan: GraphPlan) -> None:
    group = _group(plan, "exp")
    group.space.sizes[group.space.order[-1]] -= 1


def _leaves_what_it_has_not(plan: GraphPlan) -> None:
    plan.steps[0].group.outputs.append(plan.steps[1].outputs[0])


def _other_result(plan: GraphPlan) -> None:
    first, second = plan.outputs
    plan.outputs = {first: plan.outputs[second], second: plan.outputs[first]}


def _in_place(*pairs: tuple[int, int]) -> Callable[[GraphPlan], None]:
    def plant(plan: GraphPlan) -> None:
        plan.in_place[:] = pairs

    return plant


FAULTS: list[tuple[Callable[[GraphPlan], None], str, Callable[..., Any], tuple[Any, ...]]] = [
    (_late, "before it is written", _products, (X, W)),
    (_never, "never written", _products, (X, W)),
    (_own_output, "not its operand|before it is written", _softmax, (X,)),
    (_overlap, "overlap", _products, (X, W)),
    (_unaligned, "not aligned", lambda x, w: weft.exp(x @ w) @ w, (X, W)),
    (_other_constant, "no constant of the program", lambda x: x * TABLE, (X,)),
    (_overlap_memory, "overlap", _loop, (X,)),
    (_too_little_memory, "bytes, and uses", _loop, (X,)),
    (_small_arena, "ends at", _products, (X, W)),
    (_nested_in_place, "is nested", _loop, (X,)),
    (_strided_operand, "is handed", lambda z, w: F.conv2d(z[:, :2], w), (PICTURES, FILTERS)),
    (_other_strides, "and it lies as", _softmax, (X,)),
    (_other_operand, "not its operand", _update, (X, Y)),
    (_not_a_number, "known number", _update, (X, Y)),
    (_turned_map, "runs along|lies along", _softmax, (X,)),
    (_used_too_early, "do not have it", _softmax, (X,)),
    (_used_before_summed, "before the loops are done", _softmax, (X,)),
    (_other_rows, "the loops along", _softmax, (X,)),
    (_fewer_elements, "elements of operand|loops compute", _softmax, (X,)),
    (_leaves_what_it_has_not, "does not compute", _products, (X, W)),
    (_other_result, "which it is not", _update, (X, Y)),
    # A result where an input lies: read later, given back, turned, summed, an operand of a product,
    # and before something that may fail.
    (_in_place((0, 0)), "reads it later", lambda x, w: (weft.exp(x), weft.exp(x) @ w + x), (X, W)),
    (_in_place((0, 0)), "given back", lambda x: (x + 1, x), (X,)),
    (_in_place((0, 0)), "reads other elements|reads it as", lambda w: w + w.T, (W,)),
    (_in_place((0, 0)), "does not write each element", _softmax, (X,)),
    (_in_place((0, 0)), "reads other elements", lambda x, w: weft.exp(x @ w), (X, W)),
    (_in_place((0, 1)), "reads other elements", lambda x, w: weft.exp(x @ w), (W, W)),
    (_in_place((0, 0)), "may fail", lambda x, i: (weft.exp(x), weft.exp(x)[i]), (X, INDICES)),
    (_in_place((0, 1)), "they are", lambda x, w: x @ w, (X, W)),
    (_wave, "same memory of the arena", _products, (X, W)),
    (_wave, "same memory of input 0", lambda x, w: (x @ w, x - 1), (X, W)),
    (_wave, "may fail, beside others", lambda x, i: (x[i], weft.exp(x).sum(axis=0)), (X, INDICES)),
    (_wave, "are no wave", lambda x: x + 1, (X,)),
]


@pytest.mark.parametrize(("plant", "said", "function", "specs"), FAULTS)
def test_a_planted_fault_is_found(
    plant: Callable[[GraphPlan], None],
    said: str,
    function: Callable[..., Any],
    specs: tuple[Any, ...],
) -> None:
    plan = _plan(function, *specs)
    plant(plan.root)
    with pytest.raises(PlanError, match=said):
        verify_plan(plan, TARGET)


def test_updates_are_in_place_and_right() -> None:
    plan = _plan(_update, X, Y)
    assert set(plan.root.in_place) == {(0, 0), (0, 1)}


# --- mistakes that the scheduler once made --------------------------------------------------------


def _scalars(w: Any, z: Any, h: Any) -> Any:
    rates = []
    for _ in range(3):
        z = (h * z + w @ z) * h
        rates.append(h)
        h = h * 1.1
    return z * weft.stack(rates).sum()


OF_OLD: list[tuple[Any, str, Any, Callable[..., Any], tuple[Any, ...]]] = [
    (Values, "_is_ready", lambda *_: True, lambda r: F.gelu(r.T.reshape(-1)), (X,)),
    (Values, "_is_computed", lambda *_: True, _scalars, (W, weft.spec((6,)), weft.spec(()))),
    (
        Grouping,
        "_handed_to",
        lambda groups, node, place, _kind: groups.handed(node.inputs[place], Layout.MATRIX),
        lambda z, w: F.conv2d(z[:, :2], w),
        (PICTURES, FILTERS),
    ),
]


@pytest.mark.parametrize(("where", "name", "old", "function", "specs"), OF_OLD)
def test_a_mistake_of_old_is_found(
    where: Any,
    name: str,
    old: Any,
    function: Callable[..., Any],
    specs: tuple[Any, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _plan(function, *specs)
    monkeypatch.setattr(where, name, old)
    with pytest.raises(PlanError):
        _plan(function, *specs)


def test_the_setting_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Values, "_is_ready", lambda *_: True)
    graph = weft.make_graph(lambda r: F.gelu(r.T.reshape(-1)), X)
    monkeypatch.setenv("WEFT_VERIFY_PLANS", "1")
    with pytest.raises(PlanError, match="before it is written"):
        generated(graph, False, None)
    monkeypatch.setenv("WEFT_VERIFY_PLANS", "0")
    assert isinstance(generated(graph, False, None)[1].root.results[0], Value)
