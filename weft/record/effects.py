"""Effects in recorded graphs, ordered by tokens: each effect takes the token of the previous one.

`weft.print` and `weft.py_call` run at once if nothing is recorded; in a graph, they run each time
the graph reaches them.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Hashable
from typing import Any

from weft.base.errors import CaptureError, DTypeError
from weft.base.pytree import tree_flatten, tree_unflatten
from weft.base.source import SourceLocation, user_location
from weft.core.number import Number, is_of_numpy
from weft.core.symbolic import symbolic
from weft.core.tensor import Tensor, type_of
from weft.ir.graph import Node
from weft.ir.op import Op
from weft.ir.types import TOKEN, TensorType
from weft.ops.creation import asarray
from weft.ops.effects import (
    FIRST_TOKEN,
    PY_CALL,
    SHOW,
    Called,
    Shown,
    Template,
    call_once,
    value_key,
)
from weft.record.control.nested import NestedRecorder, graph_recorder
from weft.record.recorder import GraphRecorder

__all__ = ["print", "py_call"]


def token_of(recorder: GraphRecorder) -> Tensor | None:
    """The last token that a graph sees: its own, or one of the enclosing graphs."""
    if recorder.token is None and isinstance(recorder, NestedRecorder):
        return token_of(recorder.parent)
    return recorder.token


def last_token(recorder: GraphRecorder) -> Tensor:
    """The same; a new token if there is none."""
    found = token_of(recorder)
    if found is not None:
        return found
    root = recorder
    while isinstance(root, NestedRecorder):
        root = root.parent
    node = Node(FIRST_TOKEN, [], {}, [TOKEN], (), user_location())
    root.graph.nodes.append(node)
    made = root.token = symbolic(node.out, root)
    return made


def effect(
    op: Op, tensors: list[Tensor], attrs: dict[str, Any], at: SourceLocation | None = None
) -> list[Tensor]:
    """Record an effect after all earlier ones. Returns its results without the token."""
    here = graph_recorder()
    if here is None:
        raise CaptureError(
            f"{op.name} of a tensor in a function that a transform (vmap, jvp) runs inside of a "
            "compiled one: a graph cannot run it for each element",
            hint="do it outside of the transformed function",
        )
    values = [here.value_of(x) for x in (last_token(here), *tensors)]
    types = op.infer(*[value.type for value in values], **attrs)
    kinds = types if isinstance(types, tuple) else (types,)
    node = Node(op, values, attrs, kinds, (), at or user_location())
    here.graph.nodes.append(node)
    made = [symbolic(value, here) for value in node.outputs]
    here.token = made[0]
    return made[1:]


#: Builds a value from the values of the tensors in it, and a key to compare that by.
Rebuilt = tuple[Callable[[Any], Any], Hashable]


class Later:
    """A value that is made anew each time that an effect runs, like a text of tensors."""

    def rebuilt(self, rebuild: Callable[[Any], Rebuilt]) -> Rebuilt:
        """How to make it; `rebuild` says it of the values in it."""
        raise NotImplementedError


def templated(value: Any, tensors: list[Tensor]) -> Template:
    """A function that rebuilds a Python value from the values of the tensors in it, which are added
    to `tensors`."""
    return Template(*_rebuilt(value, tensors))


def _rebuilt(value: Any, tensors: list[Tensor]) -> Rebuilt:
    def rebuild(part: Any) -> Rebuilt:
        return _rebuilt(part, tensors)

    if isinstance(value, Tensor):
        index = len(tensors)
        tensors.append(value)
        key = Tensor, isinstance(value, Number), is_of_numpy(value)  # which one is an operand
        if is_of_numpy(value):
            return lambda values: values[index].numpy()[()], key
        if isinstance(value, Number):
            return lambda values: values[index].numpy().item(), key
        return lambda values: values[index], key
    if isinstance(value, Later):
        return value.rebuilt(rebuild)
    kind = type(value)
    if kind in (list, tuple):
        parts = [rebuild(part) for part in value]
        keys = tuple([key for _, key in parts])
        return lambda values: kind([make(values) for make, _ in parts]), (kind, keys)
    if kind is dict:
        pairs = {key: rebuild(part) for key, part in value.items()}
        keys = tuple([(value_key(key), own) for key, (_, own) in pairs.items()])
        return lambda values: {key: make(values) for key, (make, _) in pairs.items()}, (dict, keys)
    return lambda values: value, value_key(value)


def print(*values: Any, **kwargs: Any) -> None:
    """Python's print. In a graph it prints at each run, in order with other effects.

    >>> weft.print("x =", weft.asarray([1.0, 2.0]))
    x = tensor([1., 2.])
    """
    if graph_recorder() is None:
        builtins.print(*values, **kwargs)
        return
    tensors: list[Tensor] = []
    build = templated(values, tensors)
    effect(SHOW, tensors, {"show": Shown(builtins.print, build, kwargs)})


def py_call(function: Callable[..., Any], result: Any, *args: Any) -> Any:
    """`function(*args)`. In a graph it is a call back into Python at each run.

    result   the type of the result: `weft.spec(shape, dtype)`, a tree of those, or None

    The function gets tensors with numbers, and returns tensors, arrays or numbers of these types.
    No gradient passes through it.

    >>> weft.py_call(lambda x: np.sort(x.numpy()), weft.spec(3), weft.asarray([3.0, 1.0, 2.0]))
    tensor([1., 2., 3.])
    """
    kinds, structure = tree_flatten(result)
    for kind in kinds:
        if not isinstance(kind, TensorType):
            raise DTypeError(f"a result is described by weft.spec, not {kind!r:.60}", op="py_call")
    tensors: list[Tensor] = []
    build = templated(args, tensors)
    called = Called(function, build, tuple(kinds), structure, asarray)
    if graph_recorder() is None:
        return tree_unflatten(structure, call_once(lambda: called(*tensors)))
    attrs = {"function": called, "results": tuple(kinds)}
    return tree_unflatten(structure, effect(PY_CALL, tensors, attrs))


def py_call_like(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """A call of code of another library as a node; it is called now to find its result types."""
    here = graph_recorder()
    if here is None or isinstance(here, NestedRecorder):
        name = getattr(function, "__name__", "a function")
        raise CaptureError(
            f"{name} is called on tensors inside of a loop or branch of the graph, and the types "
            "of its results are not known",
            hint=f"give the types: weft.py_call({name}, weft.spec(...), x)",
        )
    tensors: list[Tensor] = []
    build = templated((args, kwargs), tensors)
    numbers = [asarray(x.numpy()) if isinstance(x, Tensor) else x for x in tensors]
    given, named = build(numbers)
    leaves, structure = tree_flatten(function(*given, **named))
    kinds = [type_of(asarray(leaf)) for leaf in leaves]
    called = Called(
        lambda pair: function(*pair[0], **pair[1]),
        lambda values: (build(values),),
        tuple(kinds),
        structure,
        asarray,
    )
    made = effect(PY_CALL, tensors, {"function": called, "results": tuple(kinds)})
    return tree_unflatten(structure, made)
