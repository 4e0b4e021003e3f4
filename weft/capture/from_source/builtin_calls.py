"""Builtin functions that mean something else where a graph is made: range(n) of a tensor, print."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from types import CellType, GeneratorType
from typing import TYPE_CHECKING, Any

from weft.autodiff.transforms.levels import innermost_level
from weft.base.errors import CaptureError
from weft.capture import make_graph
from weft.capture.control import branches as control
from weft.capture.control import loops
from weft.capture.control.branches import truth
from weft.capture.control.nested import known_number
from weft.capture.from_source import repeat, tokens
from weft.capture.from_source.conditions import predicate
from weft.capture.from_source.dynamic_list import dynamic_list_of
from weft.capture.from_source.iteration import Rows, Steps, rows_of, unroll, zipped
from weft.capture.from_source.run import standing_for
from weft.capture.from_source.tokens import effect, templated
from weft.capture.watch.builtin_calls import HANDLERS
from weft.capture.watch.effects import TextParts
from weft.capture.watch.printing import shows_tensors
from weft.core.number import HELD_AS, Number, as_held, fitting, joint_kind, kind_of
from weft.core.tensor import Tensor
from weft.ops.effects import SHOW, Shown
from weft.ops.elementwise import maximum, minimum, round, trunc
from weft.ops.shape import stack

if TYPE_CHECKING:
    from weft.capture.hooks import Hooks

#: Gives NotImplemented where the builtin itself is right.
Handler = Callable[["Hooks", tuple[Any, ...], dict[str, Any]], Any]


def _range(hooks: Hooks, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if not any(hooks.asks(value) for value in args):
        return NotImplemented
    for value in args:
        if not isinstance(value, Tensor):
            continue
        if value.dtype.kind not in ("int", "uint") or value.size != 1:
            return NotImplemented  # for its error
    given = (0, *args, 1) if len(args) == 1 else (*args, 1)[:3]
    return Rows([Steps(*given)], 0)


def _has_tensor(hooks: Hooks, value: Any) -> bool:
    return isinstance(value, Rows) or hooks.asks(value)


def _zip(hooks: Hooks, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if kwargs or not any(_has_tensor(hooks, value) for value in args):
        return NotImplemented
    rows = [rows_of(hooks, value) for value in args]
    if any(part is None for part in rows):
        return NotImplemented
    return zipped([part for part in rows if part is not None])


def _enumerate(hooks: Hooks, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if not _has_tensor(hooks, args[0]):
        return NotImplemented
    rows = rows_of(hooks, args[0])
    start = args[1] if len(args) > 1 else kwargs.get("start", 0)
    if rows is None or not isinstance(start, int):
        return NotImplemented
    numbers = Steps(start, start + rows.count, 1)
    return zipped([Rows([numbers], 0), rows])


def _reversed(hooks: Hooks, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if not _has_tensor(hooks, args[0]):
        return NotImplemented
    rows = rows_of(hooks, args[0])
    return NotImplemented if rows is None else rows.reversed()


def _int(hooks: Hooks, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if len(args) != 1 or args[0].__class__ is not Number or kwargs:
        return NotImplemented
    value = args[0]
    if value.kind == "int":
        return value
    held = as_held(value, HELD_AS[value.kind])
    return (
        _whole(trunc(held)) if value.kind == "float" else known_number(held.astype(HELD_AS["int"]))
    )


def _whole(value: Tensor) -> Any:
    """A float without a fraction as a Python integer of the graph."""
    return known_number(fitting(value.astype(HELD_AS["int"]), value))


def _float(hooks: Hooks, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if len(args) != 1 or args[0].__class__ is not Number or kwargs:
        return NotImplemented
    return known_number(as_held(args[0], HELD_AS["float"]))


def _bool(hooks: Hooks, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if len(args) != 1 or kwargs or not hooks.asks(args[0]):
        return NotImplemented
    return known_number(predicate(args[0]))


def _isinstance(hooks: Hooks, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if len(args) != 2 or args[0].__class__ is not Number:
        return NotImplemented
    kinds = {"bool": bool, "int": int, "float": float, "complex": complex}
    wanted = args[1] if isinstance(args[1], tuple) else (args[1],)
    return any(isinstance(cls, type) and issubclass(kinds[args[0].kind], cls) for cls in wanted)


def _extreme(function: Any, choose: Any) -> Handler:
    def handle(hooks: Hooks, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if kwargs:
            return NotImplemented
        values = list(hooks.iter(args[0])) if len(args) == 1 else list(args)
        if not any(hooks.asks(value) for value in values) or len(values) < 2:
            return HANDLERS[function](hooks, (values,), {})  # an iterator is used up by now
        kinds = [kind_of(value) for value in values]
        best = values[0]
        for value, kind in zip(values[1:], kinds[1:], strict=True):
            first = kind_of(best)
            if kind is not None and first is not None:
                dtype = HELD_AS[joint_kind(first, kind)]
                best = known_number(choose(as_held(best, dtype), as_held(value, dtype)))
            else:
                # The first of two that are equal stays: max(a, b) is b only where b > a.
                less = value < best if function is min else value > best
                best = hooks.choose(less, _constant(value), _constant(best))
        return best

    return handle


def _constant(value: Any) -> Callable[[], Any]:
    return lambda: value


def _round(hooks: Hooks, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if len(args) != 1 or args[0].__class__ is not Number or kwargs:
        return NotImplemented
    if args[0].kind == "int":
        return args[0]
    return _whole(round(as_held(args[0], HELD_AS["float"])))


def _print(hooks: Hooks, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if not hooks.watch.active:
        return NotImplemented
    tensors: list[Tensor] = []
    build = templated(tuple(_kept(hooks, value) for value in args), tensors)
    effect(SHOW, tensors, {"show": Shown(builtins.print, build, dict(kwargs))})
    return None


def _kept(hooks: Hooks, value: Any) -> Any:
    if shows_tensors(value) or isinstance(value, TextParts):
        return value
    return hooks.call(str, value)


def _quantifier(all_of: bool) -> Handler:
    def handle(hooks: Hooks, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        # Inside of a branch or body nobody can be asked when to stop: all of a generator counts.
        listed = (list, tuple, GeneratorType) if hooks.flow.depth else (list, tuple)
        if hooks.asks(args[0]) or not isinstance(args[0], listed):
            return NotImplemented
        values = list(hooks.iter(args[0]))
        if not any(hooks.asks(value) for value in values):
            return (all if all_of else any)(hooks.test(value) for value in values)
        join = hooks.all_of if all_of else hooks.any_of
        made = join(values[0], *[_constant(value) for value in values[1:]])
        return known_number(truth(made, "all")) if hooks.asks(made) else made

    return handle


def _next(hooks: Hooks, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    _check_advance(hooks, args[0])
    return NotImplemented


def _check_advance(hooks: Hooks, iterator: Any) -> None:
    """An iterator cannot be put back: it must not be advanced by code that is recorded once."""
    known = hooks.flow.iterators.get(id(iterator))
    if hooks.flow.depth and (known is None or known[1] < hooks.flow.depth):
        raise CaptureError(
            f"an iterator ({type(iterator).__name__}) is advanced inside of a branch or loop of "
            "the graph, which is recorded once and run any number of times",
            hint="loop over a list or a tensor, or unroll the loop: weft.unroll(range(n))",
        )


def _len(hooks: Hooks, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    dynamic = dynamic_list_of(args[0])
    return NotImplemented if dynamic is None else dynamic.length()


def _stack(hooks: Hooks, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """weft.stack of a list that the graph made."""
    dynamic = dynamic_list_of(args[0])
    if dynamic is None or kwargs or len(args) != 1 or len(dynamic.kinds) != 1 or dynamic.numbers[0]:
        return NotImplemented
    return dynamic.tensors()[0]


def _plain(function: Any) -> Handler:
    return lambda hooks, args, kwargs: function(*args, **kwargs)


def _with_functions(function: Any) -> Handler:
    """A function of Weft's own that calls what it is handed."""

    def followed(hooks: Hooks, value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return type(value)(followed(hooks, part) for part in value)
        return hooks.callback(value)

    def handle(hooks: Hooks, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        named = {key: followed(hooks, value) for key, value in kwargs.items()}
        return function(*[followed(hooks, value) for value in args], **named)

    return handle


def _cond(hooks: Hooks, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if innermost_level() is not None:  # in vmap, say: elements may go different ways
        return _with_functions(control.cond)(hooks, args, kwargs)
    predicate, yes, no, *operands = args
    return hooks.choose(
        predicate,
        standing_for(lambda: hooks.call(yes, *operands), yes),
        standing_for(lambda: hooks.call(no, *operands), no),
    )


def _while_loop(hooks: Hooks, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if innermost_level() is not None:
        return _with_functions(loops.while_loop)(hooks, args, kwargs)
    condition, step, init = args
    carry = CellType(init)
    hooks.flow.created(carry)  # branches and loops around this one know nothing of it

    def body() -> None:
        carry.cell_contents = hooks.call(step, carry.cell_contents)

    def test() -> Any:
        return hooks.call(condition, carry.cell_contents)

    state = [("the carry", carry, None)]
    repeat.while_(hooks, test, standing_for(body, step), state, ("the carry",), ("the carry",))
    return carry.cell_contents


BUILTINS: dict[Any, Handler] = {
    range: _range,
    zip: _zip,
    enumerate: _enumerate,
    reversed: _reversed,
    int: _int,
    float: _float,
    bool: _bool,
    isinstance: _isinstance,
    min: _extreme(min, minimum),
    max: _extreme(max, maximum),
    builtins.round: _round,
    print: _print,
    any: _quantifier(False),
    all: _quantifier(True),
    next: _next,
    len: _len,
    stack: _stack,
    tokens.print: _print,
    tokens.py_call: _plain(tokens.py_call),
    unroll: _plain(unroll),
    make_graph.spec: _plain(make_graph.spec),
    control.cond: _cond,
    loops.while_loop: _while_loop,
    **{f: _with_functions(f) for f in (control.switch, loops.scan, loops.map, loops.fori_loop)},
}


def looks_on(function: Any, instead_of: Any = None) -> Any:
    """Let a function of Weft's own run as it is: it only looks on, and records its own effects."""
    BUILTINS[function if instead_of is None else instead_of] = _plain(function)
    return function
