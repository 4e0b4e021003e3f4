"""Kernels for eager calls on large arrays: found by the call, or compiled at its first."""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from weft.autodiff.save_plan import ArrayType, SavePlan
from weft.base.locks import process_lock
from weft.core.large import large
from weft.core.tensor import Tensor, own, wrap
from weft.ir.attributes import attrs_key
from weft.ir.dispatch import Kernel
from weft.ir.graph import Graph, Value
from weft.ir.op import Op, Trait
from weft.ir.signature import OutputRouting
from weft.ops.cards import ADD
from weft.passes.pipeline import has_registered, optimize, passes
from weft.runtime.eager.graphs import (
    Names,
    Operand,
    call_function,
    gradient_function,
    named,
    recorded,
    types_of,
    ways_to_name,
)
from weft.runtime.eager.layouts import DENSE, dense_of, layout_of
from weft.runtime.executable import Program
from weft.runtime.native import NativeProgram, native
from weft.runtime.output_routing import Call
from weft.runtime.sized import SizedProgram
from weft.runtime.specialized import SpecializedProgram

__all__ = ["gradients_of_large", "kernel_for_large", "sum_of_large", "update_large"]

Array = np.ndarray[Any, Any]
ndarray = np.ndarray

#: Ops with one of these traits have no kernel here: there is nothing to compute, or what they do is
#: more than to compute arrays from arrays.
_OTHERS = (
    *(Trait.VIEW, Trait.CREATION, Trait.EFFECT, Trait.STACK, Trait.BRANCH, Trait.LOOP),
    *(Trait.PYTHON, Trait.DATA_SHAPE, Trait.COLLECTIVE, Trait.RANDOM),
)
#: How many calls are known: one for each op, attributes, and dtypes, shapes and strides of arrays.
MOST = 4096

_kernels: dict[tuple[Op, Kernel], Kernel] = {}
_calls: dict[Any, Any] = {}  # EagerCall, or None
_programs: dict[Any, Any] = {}  # _Built, NO_CODE or NEEDS_NUMBERS
#: Why there was no code, by the name of the op: the last error.
reasons: dict[str, Exception] = {}
_UNKNOWN: Any = object()
_KEPT = (ndarray, ArrayType)
_lock = process_lock()


class _Thread(threading.local):
    """Whether a kernel is being made in this thread: what that computes is computed as ever."""

    makes = False


_thread = _Thread()


def kernel_for_large(op: Op, kernel: Kernel) -> Kernel:
    """What runs a call of `op` on large arrays, instead of its kernel."""
    found = _kernels.get((op, kernel))
    if found is None:
        found = kernel if _has_none(op) else partial(_run, op, kernel)
        if len(_kernels) > MOST:
            _kernels.clear()
        _kernels[op, kernel] = found
    return found


def _has_none(op: Op) -> bool:
    return any(trait in op.traits for trait in _OTHERS) or op.nested or op.kernels.overridden


def _run(op: Op, kernel: Kernel, /, *arrays: Array, **attrs: Any) -> Any:
    call = _call_for(op, arrays, attrs)
    if call is not None:
        try:
            return call(arrays)
        except Exception:  # the card's kernel raises the error that users know
            pass
    return kernel(*arrays, **attrs)


def _call_for(op: Op, arrays: Sequence[Array], attrs: dict[str, Any]) -> EagerCall | None:
    what = (op, attrs_key(attrs))
    key = (what, *[(a.dtype, a.shape, a.strides) for a in arrays])
    found, call = call_known(key)
    if found:
        return call

    def make() -> EagerCall | None:
        operands = operands_of(arrays, fixed=range(1, len(arrays)))
        function = call_function(op, attrs)
        return made_call(
            op.name, op.outputs, operands, lambda _names: what, lambda _names: function
        )

    return known_call(key, make)


def gradients_of_large(
    plan: SavePlan,
    attrs: dict[str, Any],
    shapes: Sequence[Any],
    g: Any,
    kept: Sequence[Any],
    wanted: tuple[bool, ...] | None,
) -> list[Any] | None:
    """The gradients of the inputs of a call, by one kernel; None if there is none."""
    op = plan.op
    arrays = [g, *[part for part in kept if part.__class__ is ndarray]]
    numbers = [n for n, _, _ in plan.rules if wanted is None or wanted[n]]
    if not numbers or _has_none(op) or Trait.CONDITIONAL in op.traits:
        return None
    if not all(part is None or part.__class__ in _KEPT for part in kept):
        return None
    if g.__class__ is not ndarray or max([a.size for a in arrays]) < large.start:
        return None
    # Where types are kept, and to which shapes gradients are summed.
    others = (
        tuple(numbers),
        tuple([(x.shape, x.dtype) if x.__class__ is ArrayType else x is None for x in kept]),
        tuple(shapes) if plan.elementwise else (),
    )
    key = (op, attrs_key(attrs), others, *[(a.dtype, a.shape, a.strides) for a in arrays])
    found, call = call_known(key)
    if not found:

        def make() -> EagerCall | None:
            fixed = [part is not None and n > 1 for n, part in enumerate(kept) if _is_array(part)]
            operands = operands_of(arrays, fixed=[n + 1 for n, yes in enumerate(fixed) if yes])

            def what(names: Names) -> Any:
                return op, attrs_key(attrs), _renamed(others, names)

            def function(names: Names) -> Callable[..., Any]:
                return gradient_function(plan, attrs, shapes, kept, wanted, names)

            return made_call(op.name, op.outputs, operands, what, function)

        call = known_call(key, make)
    if call is None:
        return None
    try:
        parts = call.results(arrays)
    except Exception:  # the rules raise the error that users know
        return None
    grads: list[Any] = [None] * len(shapes)
    for number, part in zip(numbers, parts, strict=True):
        grads[number] = part
    return grads


def update_large(op: Op, operands: Sequence[Tensor], attrs: dict[str, Any]) -> bool:
    """Give the first operands their new values, in place where nobody else holds their arrays.
    Returns whether it was done."""
    if _has_none(op):
        return False
    what = ("update", op, attrs_key(attrs))
    key = (what, *[(x._data.dtype, x._data.shape, x._data.strides) for x in operands])
    found, call = call_known(key)
    if not found:

        def make() -> EagerCall | None:
            arrays = [x._data for x in operands]
            function = call_function(op, attrs)
            return made_call(
                op.name,
                op.outputs,
                operands_of(arrays),
                lambda _names: what,
                lambda _names: function,
                op.outputs,
            )

        call = known_call(key, make)
    if call is None or any(call.dense[: op.outputs]):
        return False
    for x in operands[: op.outputs]:
        if x._data.base is not None or not x._data.flags.writeable:
            own(x)
    try:
        call.update(operands)
    except Exception:  # before anything was written: see `weft.schedule.in_place`
        return False
    return True


def sum_of_large(a: Any, b: Any) -> Any:
    """The sum of two gradients."""
    if a.__class__ is ndarray and b.__class__ is ndarray and a.dtype is b.dtype:
        return kernel_for_large(ADD, operator.add)(a, b)
    return a + b


# --- calls ---------------------------------------------------------------------------------------


class EagerCall:
    """A program, as a call on arrays.

    dense    for each array what makes it dense, or None
    same     results that are operands themselves, by number
    ops      of which the program consists
    """

    __slots__ = ("count", "dense", "ops", "plain", "run", "same")

    def __init__(self, program: _Built, operands: Sequence[Operand], count: int) -> None:
        self.run = program.call
        self.ops = program.ops
        self.dense = [dense_of(x.layout) for x in operands]
        self.plain = not any(self.dense)
        self.same = program.same
        self.count = count

    def __call__(self, arrays: Sequence[Array]) -> Any:
        """The result of an op: an array, or a tuple of several."""
        found = self.results(arrays)
        return found[0] if self.count == 1 else tuple(found)

    def results(self, arrays: Sequence[Array]) -> list[Array]:
        if self.plain:
            given = [wrap(array) for array in arrays]
        else:
            pairs = zip(arrays, self.dense, strict=True)
            given = [wrap(a if dense is None else dense(a)) for a, dense in pairs]
        found = [x._data for x in self.run(given)]
        if self.same:
            rest = iter(found)
            total = len(self.same) + len(found)
            return [arrays[self.same[i]] if i in self.same else next(rest) for i in range(total)]
        return found

    def update(self, operands: Sequence[Tensor]) -> None:
        pairs = zip(operands, self.dense, strict=True)
        self.run([x if dense is None else wrap(dense(x._data)) for x, dense in pairs])


def call_known(key: Any) -> tuple[bool, EagerCall | None]:
    """Whether a call is known, and what is known of it."""
    found = _calls.get(key, _UNKNOWN)
    return (False, None) if found is _UNKNOWN else (True, found)


def known_call(key: Any, make: Callable[[], EagerCall | None]) -> EagerCall | None:
    """Keep what is made for a call; the first thread makes it, others wait."""
    if _thread.makes:
        return None
    with _lock:
        found, call = call_known(key)
        if not found:
            if len(_calls) >= MOST:
                _calls.clear()
            call = _calls[key] = _in_thread(make)
    return call


def _in_thread(make: Callable[[], EagerCall | None]) -> EagerCall | None:
    """Make it in a thread of its own: what the thread of the caller records, transforms or observes
    has no part in it."""
    found: list[EagerCall | None] = []

    def work() -> None:
        _thread.makes = True
        found.append(make())

    thread = threading.Thread(target=work, name="weft: kernel of an eager call", daemon=True)
    try:
        thread.start()
    except RuntimeError:  # the process ends
        return None
    thread.join()
    return found[0] if found else None


def operands_of(arrays: Sequence[Array], fixed: Sequence[int] = ()) -> list[Operand]:
    return [Operand(a.dtype, a.shape, layout_of(a), i in fixed) for i, a in enumerate(arrays)]


def _is_array(part: Any) -> bool:
    return part.__class__ is ndarray


def _renamed(what: Any, names: Names) -> Any:
    """With names for sizes: shapes are the only tuples of numbers above 1 in it."""
    _numbers, kept, shapes = what
    return (
        _numbers,
        tuple([(named(x[0], names), x[1]) if isinstance(x, tuple) else x for x in kept]),
        tuple([None if shape is None else named(shape, names) for shape in shapes]),
    )


# --- programs ------------------------------------------------------------------------------------


def made_call(
    name: str,
    count: int,
    operands: Sequence[Operand],
    what: Callable[[Names], Any],
    function: Callable[[Names], Callable[..., Any]],
    updates: int = 0,
) -> EagerCall | None:
    """The call for these operands, with `count` results; None if there is no machine code. `what`
    and `function` tell for names of sizes what is computed: a key, and a function of symbolic
    tensors."""
    if any(0 in x.shape for x in operands):
        return None
    for names in ways_to_name(operands):
        key = (what(names), types_of(operands, names), tuple([x.read for x in operands]))
        if key not in _programs:
            if len(_programs) >= MOST:
                _programs.clear()
            _programs[key] = _built(name, operands, names, function(names), updates)
        found = _programs[key]
        if found is NO_CODE:
            return None
        if found is not NEEDS_NUMBERS:
            return EagerCall(found, operands, count)
    return None


class _Built(NamedTuple):
    """A program: its call, which results are operands themselves, and its ops."""

    call: Call
    same: Mapping[int, int]
    ops: tuple[Op, ...]


#: There is no machine code for a call; or only if it knows more of its sizes.
NO_CODE, NEEDS_NUMBERS = "no code", "needs numbers"


def _built(
    name: str,
    operands: Sequence[Operand],
    names: Names,
    function: Callable[..., Any],
    updates: int,
) -> Any:
    failed = NEEDS_NUMBERS if names else NO_CODE
    try:
        graph = recorded(name, operands, names, function)
        same = {} if updates else _same(graph, operands)
        if all(i in same or _is_view(value) for i, value in enumerate(graph.outputs)):
            return NO_CODE
        if same:
            rest = [i for i in range(len(graph.outputs)) if i not in same]

            def others(*given: Any) -> Any:
                found = function(*given)
                return tuple([found[i] for i in rest])

            graph = recorded(name, operands, names, others)
        program = _program(graph, updates)
    except Exception as error:
        reasons[name] = error
        return failed
    if isinstance(program, SpecializedProgram):
        return failed
    whole = program.native if isinstance(program, SizedProgram) else program
    if not isinstance(whole, NativeProgram) or whole.calls:
        return NO_CODE
    call: Call | None = program.call
    if updates:
        call = program.routed_call(OutputRouting(values={i: i for i in range(updates)}))
    ops = tuple({node.op for node in graph.nodes})
    return NO_CODE if call is None else _Built(call, same, ops)


def _program(graph: Graph, updates: int) -> Program:
    written = {i: i for i in range(updates)}
    if has_registered():  # passes of users are for their compiled functions
        return native(graph, written, keeps_results=False)
    known = ",".join(step.name for step in passes()).encode()
    return native(graph, written, lambda: optimize(graph), known, keeps_results=False)


def _same(graph: Graph, operands: Sequence[Operand]) -> dict[int, int]:
    """Outputs that are inputs."""
    inputs = {value: i for i, value in enumerate(graph.inputs) if operands[i].layout == DENSE}
    return {i: inputs[value] for i, value in enumerate(graph.outputs) if value in inputs}


def _is_view(value: Value) -> bool:
    """Whether a value only has elements of an input, in another order: NumPy needs no copy."""
    while value.node is not None and value.node.op.view:
        value = value.node.inputs[0]
    return value.node is None
