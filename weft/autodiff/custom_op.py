"""`weft.custom_op`: a function of arrays as a primitive op of its own."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from weft.base.errors import DTypeError, WeftError
from weft.core.bind import bind
from weft.core.operands import as_tensor
from weft.core.tensor import Tensor, type_of, wrap
from weft.ir.op import OPS, Cost, DerivativeRule, Op, Trait
from weft.ir.types import TensorType

__all__ = ["custom_op"]

F = TypeVar("F", bound=Callable[..., Any])
_CUSTOM: set[str] = set()


def _type_of_first(function: Callable[..., Any]) -> Callable[..., Any]:
    """A type rule with the inputs and attributes of an evaluation rule, which has `xp` before."""

    def infer(*types: Any, **_attrs: Any) -> Any:
        return types[0]

    parameters = list(inspect.signature(function).parameters.values())[1:]
    infer.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return infer


def _checked(
    name: str, function: Callable[..., Any], infer: Callable[..., Any], count: int
) -> Callable[..., Any]:
    """The evaluation rule, whose results are held against the type rule: compiled code reads the
    memory of what it was promised."""

    @functools.wraps(function)
    def evaluate(xp: Any, *arrays: Any, **attrs: Any) -> Any:
        found = function(xp, *arrays, **attrs)
        if any(isinstance(x, Tensor) for x in arrays):  # the rule runs on tensors
            return found
        made = infer(*[type_of(wrap(x)) for x in arrays], **attrs)
        wanted = made if isinstance(made, tuple) else (made,)
        given = found if isinstance(found, tuple) else (found,)
        if len(given) != len(wanted) or (count > 1) is not isinstance(found, tuple):
            raise DTypeError(
                f"its function gave {_shown(found)}, and its type rule says {len(wanted)} "
                f"array{'s' * (len(wanted) > 1)}",
                op=name,
                hint="return a tuple of as many arrays as outputs= says",
            )
        given = tuple([np.asarray(x) if isinstance(x, np.generic) else x for x in given])
        for array, kind in zip(given, wanted, strict=True):
            _check(name, array, kind)
        return given if isinstance(found, tuple) else given[0]

    return evaluate


def _check(name: str, array: Any, kind: Any) -> None:
    try:
        made: TensorType | None = type_of(wrap(array))
    except (WeftError, AttributeError, TypeError):
        made = None
    if isinstance(kind, TensorType) and made is not None and made.dtype is kind.dtype:
        sizes = zip(made.shape, kind.shape, strict=False)
        if made.ndim == kind.ndim and all(type(n) is not int or m == n for m, n in sizes):
            return
    raise DTypeError(
        f"its function gave {made or _shown(array)}, and its type rule says {kind}",
        op=name,
        hint="let infer= give the types of the results, or the function these types",
    )


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return f"{len(value)} values"
    return f"{value!r:.60}" if value is None else f"one {type(value).__name__}"


def custom_op(
    name: str,
    *,
    infer: Callable[..., Any] | None = None,
    vjp: Sequence[DerivativeRule | None] | None = None,
    batch: Callable[..., Any] | None = None,
    cost: Callable[..., Cost] | None = None,
    kinds: str = "all",
    traits: Trait = Trait.NONE,
    outputs: int = 1,
) -> Callable[[F], Callable[..., Any]]:
    """Make a function of arrays a primitive op of its own, with its rules.

    The decorated function is the evaluation rule: `(xp, *arrays, **attributes)`. `infer` is the
    type rule; without one the result has the type of the first input. `vjp` holds one derivative
    rule per input, as on every card (see `weft.ir.op.Op`).

    >>> @weft.custom_op("doc_cube", vjp=[lambda xp, g, _out, x: g * 3 * x * x])
    ... def cube(xp, x):
    ...     return x * x * x
    >>> x = weft.tensor(2.0, requires_grad=True)
    >>> cube(x).backward()
    >>> x.grad
    tensor(12.)
    """

    def define(function: F) -> Callable[..., Any]:
        if name in _CUSTOM:  # defined anew, as when a notebook's cell is run again
            OPS.pop(name, None)
        rule = infer or _type_of_first(function)
        op = Op(
            name,
            rule,
            _checked(name, function, rule, outputs),
            kinds=kinds,
            traits=traits,
            outputs=outputs,
            vjp=None if vjp is None else tuple(vjp),
            batch=batch,
            cost=cost,
        )
        _CUSTOM.add(name)

        def call(*inputs: Any, **attrs: Any) -> Any:
            if not inputs:
                raise DTypeError("at least one input is needed", op=name)
            first = as_tensor(inputs[0], name)
            return bind(op, first, *(as_tensor(x, name, like=first) for x in inputs[1:]), **attrs)

        call.__name__ = call.__qualname__ = name
        call.__doc__ = function.__doc__
        call.op = op  # type: ignore[attr-defined]
        return call

    return define
