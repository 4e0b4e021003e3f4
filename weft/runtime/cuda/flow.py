"""Loops and branches around launches: conditional nodes of a CUDA graph, or the CPU's.

The carries of a `while` lie where its results do; an iteration writes the next ones elsewhere, and
a kernel copies them. The iterations of a `scan`, whose number is known, are launched one by one,
each writing where the next one reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from weft.codegen.cuda.emitter import FLAG, STACKS, Result, Work
from weft.codegen.cuda.flow import Room
from weft.ir.graph import Value
from weft.ops.cards import IF, SCAN
from weft.schedule.groups import Leaf
from weft.schedule.memory import size_of_type
from weft.schedule.plan import Arena, Constant, GraphPlan, Input, Output

if TYPE_CHECKING:
    from weft.runtime.cuda.program import CudaProgram

__all__ = ["run_flow"]


class _Nested:
    """Where the values of a nested graph lie, given the addresses of its inputs and outputs."""

    def __init__(
        self, outer: Any, plan: GraphPlan, inputs: Sequence[int], outputs: Sequence[int], base: int
    ) -> None:
        self.outer = outer
        self.program: CudaProgram = outer.program
        self.plan = plan
        self.inputs = inputs
        self.outputs = outputs
        self.base = base

    def address(self, value: Value | Result | str | None, work: Work) -> int:
        if isinstance(value, (str, Result)):
            found: int = self.outer.address(value, work)
            return found
        if value is None:
            offset = self.plan.memory.offsets.get(work.step.group)
            return 0 if offset is None else self.base + offset
        match self.plan.place(value):
            case Input(number):
                return self.inputs[number]
            case Output(number):
                return self.outputs[number]
            case Constant(literal):
                return self.program._driver.address(self.program._constant(literal))
            case Arena(offset):
                return self.base + offset
        return self.base  # a result that nobody reads

    def run(self, works: Sequence[Work], last: Work) -> None:
        """Run the graph; `last` is the work that it belongs to."""
        self.program._launch(works, self)
        for number, value in enumerate(self.plan.results):
            if self.plan.outputs.get(value) != number:
                size = size_of_type(value.type)
                self.program._driver.copy(self.outputs[number], self.address(value, last), size)


def run_flow(program: CudaProgram, work: Work, outer: Any) -> None:
    """Start control flow whose parts are launched."""
    node = work.step.nodes[0]
    operands = work.step.group.operands[node]
    given = [outer.address(op.root, work) for op in operands if isinstance(op, Leaf)]
    out = [outer.address(value, work) for value in node.outputs]
    base = outer.address(None, work)
    if node.op is IF:
        _branch(program, work, outer, given, out, base)
    elif node.op is SCAN:
        _scan(program, work, outer, given, out, base)
    else:
        _while(program, work, outer, given, out, base)


def _branch(
    program: CudaProgram, work: Work, outer: Any, given: list[int], out: list[int], base: int
) -> None:
    def side(number: int) -> None:
        plan = work.step.nested[number]
        _Nested(outer, plan, given[1:], out, base).run(work.nested[number], work)

    flag = outer.address(FLAG, work)
    program._driver.choose(given[0], flag, lambda: side(0), lambda: side(1))


def _scan(
    program: CudaProgram, work: Work, outer: Any, given: list[int], out: list[int], base: int
) -> None:
    node, plan = work.step.nodes[0], work.step.nested[0]
    consts, carries, length = (node.attrs[word] for word in ("consts", "carries", "length"))
    others = [base + place for place in Room.of(work.step).places]
    now = given[consts : consts + carries]
    sizes = [size_of_type(value.type) for value in node.outputs[:carries]]
    first = consts + carries
    rows = [size_of_type(v.type) // max(length, 1) for v in node.inputs[first:]]
    made = [size_of_type(v.type) // max(length, 1) for v in node.outputs[carries:]]
    for step in range(length):
        at = length - 1 - step if node.attrs["reverse"] else step
        targets = others if (length - 1 - step) % 2 else out[:carries]
        inputs = [*given[:consts], *now]
        inputs += [x + at * size for x, size in zip(given[first:], rows, strict=True)]
        outputs = [*targets]
        outputs += [y + at * size for y, size in zip(out[carries:], made, strict=True)]
        _Nested(outer, plan, inputs, outputs, base).run(work.nested[0], work)
        now = targets
    if not length:
        for to, source, size in zip(out, now, sizes, strict=False):
            program._driver.copy(to, source, size)


def _while(
    program: CudaProgram, work: Work, outer: Any, given: list[int], out: list[int], base: int
) -> None:
    node, driver = work.step.nodes[0], program._driver
    consts = node.attrs["consts"]
    count = len(node.inputs) - consts
    room = Room.of(work.step)
    predicate = base + room.inner
    places = [base + place for place in room.places]
    sizes = [size_of_type(value.type) for value in node.outputs[:count]]
    condition, body = work.step.nested
    carries = out[:count]
    inputs = [*given[:consts], *carries]
    for to, source, size in zip(carries, given[consts:], sizes, strict=True):
        driver.copy(to, source, size)
    for address in out[count:]:  # the number of iterations, and stacks
        driver.clear(address, 8)
    bounds, flag = outer.address(STACKS, work), outer.address(FLAG, work)

    def ask() -> None:
        _Nested(outer, condition, inputs, [predicate], base).run(work.nested[0], work)

    def once() -> None:
        _Nested(outer, body, inputs, places, base).run(work.nested[1], work)
        helpers = list(work.launches)
        if carries:
            pairs = zip(carries, places, strict=False)
            program._start(helpers.pop(0), [address for pair in pairs for address in pair])
        if node.attrs["counted"]:
            counter, *pushes = helpers
            program._start(counter, [out[count]])
            for number, value in enumerate(places[count:]):
                for launch in pushes[2 * number : 2 * number + 2]:
                    stack = out[count + 1 + number]
                    program._start(launch, [stack, value, stack, bounds, flag])
        ask()

    ask()
    driver.repeat(predicate, flag, once)
