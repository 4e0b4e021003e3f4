"""Builtin functions on tensors of a graph: range(n), max(a, b).

Each returns NotImplemented if no tensor of a graph is involved, so that the builtin itself runs.
The table is `weft.capture.builtin_table`.
"""

from __future__ import annotations

import builtins
import functools
import math
from collections.abc import Callable
from types import CellType, GeneratorType
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.autodiff.transforms.levels import innermost_level
from weft.base.dim_algebra import Dim
from weft.base.shapes import normalize_axis, size_of
from weft.capture.from_source import repeat
from weft.capture.from_source.conditions import predicate
from weft.capture.from_source.dynamic_list import dynamic_list_of
from weft.capture.from_source.iteration import (
    MANY_NUMBERS,
    IteratorRows,
    rows_of,
)
from weft.capture.from_source.run import standing_for
from weft.capture.result_numbers import may_catch, of_tensor, rounded
from weft.capture.watch.builtin_calls import Handler, comparing
from weft.capture.watch.refusals import OneSided
from weft.capture.watch.settled_numbers import settled, sized
from weft.capture.watch.texts import TextParts
from weft.core.number import (
    HELD_AS,
    Number,
    as_held,
    fitting,
    is_outside,
    is_unknown,
    joint_kind,
    kind_of,
)
from weft.core.tensor import Tensor
from weft.ir.types import TensorType
from weft.ops.elementwise import greater, less, round, trunc
from weft.ops.numpy_protocol import counterpart, tensors_in
from weft.ops.select import where
from weft.ops.shape import moveaxis, reshape
from weft.record.control import branches as control
from weft.record.control import loops
from weft.record.control.branches import truth
from weft.record.control.loop_rows import LoopRows, Steps, zipped
from weft.record.control.nested import known_number, size_number
from weft.record.effects import py_call

if TYPE_CHECKING:
    from weft.capture.hooks import Hooks


def range_(hooks: Hooks, *args: Any) -> Any:
    if hooks.watch.numbers and hooks.watch.active and hooks.records():
        args = tuple(map(sized, args))
    if not any(hooks.asks(value) or _is_size(hooks, value) for value in args):
        return NotImplemented
    for value in args:
        if not isinstance(value, Tensor):
            continue
        if value.dtype.kind not in ("int", "uint") or size_of(value.shape) != 1:
            return NotImplemented  # for its error
    given = (0, *args, 1) if len(args) == 1 else (*args, 1)[:3]
    return LoopRows([Steps(*given)], 0)


def _is_size(hooks: Hooks, value: Any) -> bool:
    """Whether a value is a symbolic size, of which a loop can be made."""
    return isinstance(value, Dim) and hooks.watch.active and hooks.records()


def _has_tensor(hooks: Hooks, value: Any) -> bool:
    """Whether a loop over a value may be one of the graph, which knows how to go through it."""
    if isinstance(value, LoopRows) or hooks.asks(value):
        return True
    if isinstance(value, range) or (type(value) in (list, tuple) and len(value) >= MANY_NUMBERS):
        return hooks.records()
    # Inside of a branch or body Python cannot ask how long a list is.
    return hooks.flow.depth > 0 and dynamic_list_of(value) is not None


def zip_(hooks: Hooks, *args: Any, strict: Any = False) -> Any:
    if not any(_has_tensor(hooks, value) for value in args):
        return NotImplemented
    rows = [rows_of(hooks, value) for value in args]
    known = [part for part in rows if part is not None]
    counts = {part.count for part in known if isinstance(part.count, int)}
    equal = strict is False or (len(counts) == 1 and all(isinstance(r.count, int) for r in known))
    if len(known) < len(rows) or not equal:
        return NotImplemented
    return _once(hooks, zipped(known))


def enumerate_(hooks: Hooks, iterable: Any, start: Any = 0) -> Any:
    rows = rows_of(hooks, iterable) if _has_tensor(hooks, iterable) else None
    if rows is None or not isinstance(start, int):
        return NotImplemented
    return _once(hooks, zipped([LoopRows([Steps(start, start + rows.count, 1)], 0), rows]))


def reversed_(hooks: Hooks, values: Any) -> Any:
    rows = rows_of(hooks, values) if _has_tensor(hooks, values) else None
    if rows is None or isinstance(values, IteratorRows):  # for its error
        return NotImplemented
    return _once(hooks, rows.reversed())


def _once(hooks: Hooks, rows: LoopRows) -> IteratorRows:
    return IteratorRows(rows, hooks.flow.depth)


def int_(hooks: Hooks, *args: Any, **kwargs: Any) -> Any:
    value = args[0] if len(args) == 1 and not kwargs else None
    whole = rounded(math.trunc)(hooks, value)
    if whole is not NotImplemented:
        return whole
    value = of_tensor(hooks, value)
    if not isinstance(value, Number):
        return NotImplemented
    if value.kind == "int":
        return value
    if may_catch(hooks):
        return int(settled(value))
    held = as_held(value, HELD_AS[value.kind])
    if value.kind == "complex":
        return NotImplemented  # for its error
    if value.kind == "float":
        return _whole(trunc(held))
    return known_number(held.astype(HELD_AS["int"]))


def _whole(value: Tensor) -> Any:
    """A float without a fraction as a Python integer of the graph."""
    return known_number(fitting(value.astype(HELD_AS["int"]), value))


def float_(hooks: Hooks, value: Any = 0) -> Any:
    value = size_number(value) if _is_size(hooks, value) else of_tensor(hooks, value)
    if not isinstance(value, Number) or value.kind == "complex":
        return NotImplemented
    return known_number(as_held(value, HELD_AS["float"]))


def bool_(hooks: Hooks, value: Any = False) -> Any:
    return known_number(predicate(value)) if hooks.asks(value) else NotImplemented


def round_(hooks: Hooks, number: Any, ndigits: Any = None) -> Any:
    if isinstance(number, Dim):
        return number
    if not isinstance(number, Number) or is_outside(number):
        return NotImplemented
    if ndigits is not None and (type(ndigits) is not int or number.kind not in ("int", "float")):
        return NotImplemented
    if may_catch(hooks):
        return builtins.round(settled(number), ndigits)
    if ndigits is not None:
        kind = TensorType(HELD_AS[number.kind], ())
        return known_number(py_call(builtins.round, kind, number, ndigits))
    if number.kind != "float":
        return int_(hooks, number)
    return _whole(round(as_held(number, HELD_AS["float"])))


def is_instance(hooks: Hooks, value: Any, wanted: Any) -> Any:
    if value.__class__ in (Dim, TextParts):
        return isinstance(0 if value.__class__ is Dim else "", wanted)
    if not isinstance(value, Number):
        return NotImplemented
    classes = wanted if isinstance(wanted, tuple) else (wanted,)
    return any(isinstance(cls, type) and issubclass(value.python_class, cls) for cls in classes)


def type_of(hooks: Hooks, *args: Any) -> Any:
    value = args[0] if len(args) == 1 else None
    if value.__class__ is TextParts:
        return str
    return value.python_class if isinstance(value, Number) else NotImplemented


def extreme(function: Any) -> Handler:
    """min, max"""

    def choose(best: Any, value: Any) -> Any:
        """Of two numbers: the first where they are equal, or one of them is NaN."""
        kinds = kind_of(best), kind_of(value)
        assert kinds[0] is not None
        assert kinds[1] is not None
        dtype = HELD_AS[joint_kind(kinds[0], kinds[1])]
        a, b = as_held(best, dtype), as_held(value, dtype)
        return known_number(where(less(b, a) if function is min else greater(b, a), b, a))

    def handle(hooks: Hooks, *args: Any, **kwargs: Any) -> Any:
        if kwargs or not args:
            return NotImplemented
        values = list(hooks.iter(args[0])) if len(args) == 1 else list(args)
        kinds = {kind_of(value) for value in values}
        if any(map(is_unknown, values)) and len(kinds) == 1 and len(values) > 1:
            return functools.reduce(choose, values)
        asked = not any(map(is_unknown, values)) or hooks.flow.depth > 0
        if not asked or not any(hooks.asks(value) for value in values) or len(values) < 2:
            return comparing(function)(hooks, values)  # an iterator is already consumed
        best = values[0]
        for value in values[1:]:
            if kind_of(value) is not None and kind_of(best) is not None:
                best = choose(best, value)
            else:
                # The first of two equal values wins: max(a, b) is b only where b > a.
                less = value < best if function is min else value > best
                best = hooks.choose(less, _constant(value), _constant(best))
        return best

    return handle


def _constant(value: Any) -> Callable[[], Any]:
    return lambda: value


def quantifier(all_of: bool) -> Handler:
    """all, any"""

    def handle(hooks: Hooks, given: Any) -> Any:
        # Inside of a branch or body Python cannot stop early: it reads all of a generator.
        listed = (list, tuple, GeneratorType) if hooks.flow.depth else (list, tuple)
        if hooks.asks(given) or not isinstance(given, listed):
            return NotImplemented
        values = list(hooks.iter(given))
        if not any(hooks.asks(value) for value in values):
            return (all if all_of else any)(hooks.test(value) for value in values)
        join = hooks.all_of if all_of else hooks.any_of
        made = join(values[0], *[_constant(value) for value in values[1:]])
        return known_number(truth(made, "all")) if hooks.asks(made) else made

    return handle


def next_(hooks: Hooks, iterator: Any, *default: Any) -> Any:
    """Refuse to advance an iterator in code that is recorded once and run any number of times."""
    known = hooks.flow.iterators.get(id(iterator))
    if hooks.flow.depth and (known is None or known[1] < hooks.flow.depth):
        raise OneSided(
            f"an iterator ({type(iterator).__name__}) is advanced inside of a branch or loop of "
            "the graph, which is recorded once and run any number of times",
            hint="loop over a list or a tensor, or unroll the loop: weft.unroll(range(n))",
        )
    return NotImplemented


def len_(hooks: Hooks, value: Any) -> Any:
    if isinstance(value, Tensor) and value.ndim and value.shape[0].__class__ is Dim:
        return value.shape[0]  # which len() would ask for its number
    dynamic = dynamic_list_of(value)
    return NotImplemented if dynamic is None else dynamic.length()


def sum_(hooks: Hooks, values: Any, start: Any = 0) -> Any:
    """sum of a list of the graph, inside of a branch or loop."""
    dynamic = dynamic_list_of(values)
    if dynamic is None or not hooks.flow.depth:
        return NotImplemented
    total = dynamic.total()
    return NotImplemented if total is None else start + total


def stack(hooks: Hooks, values: Any, axis: Any = 0, *, dim: Any = 0) -> Any:
    """weft.stack of a list of the graph."""
    whole = _tensors_of(values)
    if whole is None:
        return NotImplemented
    return moveaxis(whole, 0, normalize_axis(axis or dim, whole.ndim, "stack"))


def concat(hooks: Hooks, values: Any, axis: Any = 0, *, dim: Any = 0) -> Any:
    """weft.concat of a list of the graph."""
    whole = _tensors_of(values)
    if whole is None or whole.ndim < 2 or axis is None:
        return NotImplemented
    at = normalize_axis(axis or dim, whole.ndim - 1, "concat")
    apart = moveaxis(whole, 0, at)
    shape = apart.shape
    return reshape(apart, (*shape[:at], shape[at] * shape[at + 1], *shape[at + 2 :]))


def _tensors_of(values: Any) -> Tensor | None:
    """The tensors of a list of the graph, along a new first axis; None: it holds something else."""
    dynamic = dynamic_list_of(values)
    if dynamic is None or len(dynamic.kinds) != 1 or dynamic.numbers[0]:
        return None
    return dynamic.tensors()[0]


# --- functions of Weft that call their arguments -------------------------------------------------


def with_functions(function: Any) -> Handler:
    """A function of Weft that calls functions it is given."""

    def followed(hooks: Hooks, value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return type(value)(followed(hooks, part) for part in value)
        return hooks.callback(value)

    def handle(hooks: Hooks, *args: Any, **kwargs: Any) -> Any:
        named = {key: followed(hooks, value) for key, value in kwargs.items()}
        return function(*[followed(hooks, value) for value in args], **named)

    return handle


def cond(hooks: Hooks, pred: Any, true_fn: Any, false_fn: Any, *operands: Any) -> Any:
    if innermost_level() is not None:  # in vmap elements may take different paths
        return with_functions(control.cond)(hooks, pred, true_fn, false_fn, *operands)
    return hooks.choose(
        pred,
        standing_for(lambda: hooks.call(true_fn, *operands), true_fn),
        standing_for(lambda: hooks.call(false_fn, *operands), false_fn),
    )


def while_loop(hooks: Hooks, cond_fn: Any, body_fn: Any, init: Any) -> Any:
    if innermost_level() is not None:
        return with_functions(loops.while_loop)(hooks, cond_fn, body_fn, init)
    carry = CellType(init)
    hooks.flow.created(carry)  # journals of enclosing branches and loops need not save it

    def body() -> None:
        carry.cell_contents = hooks.call(body_fn, carry.cell_contents)

    def test() -> Any:
        return hooks.call(cond_fn, carry.cell_contents)

    state = [("the carry", carry, None)]
    repeat.while_(hooks, test, standing_for(body, body_fn), state, ("the carry",), ("the carry",))
    return carry.cell_contents


def numpy_product(hooks: Hooks, values: Any, *args: Any, **kwargs: Any) -> Any:
    """np.prod(x.shape)"""
    sizes = type(values) in (list, tuple) and all(type(n) in (int, Dim) for n in values)
    if args or kwargs or not sizes or Dim not in map(type, values):
        return numpy_function(np.prod)(hooks, values, *args, **kwargs)
    return math.prod(values)


def numpy_function(function: Any) -> Handler:
    """A function of NumPy that Weft has, too: for tensors, Weft's function is called."""

    def call(hooks: Hooks, *args: Any, **kwargs: Any) -> Any:
        tensors = tensors_in([args, list(kwargs.values())])
        if all(x.__class__ is Number for x in tensors):  # NumPy's results are no Python numbers
            return NotImplemented
        ours = counterpart(function, args, kwargs)
        if ours is None:
            return NotImplemented
        called, places, named = ours
        return hooks.call(called, *places, **named)

    return call
