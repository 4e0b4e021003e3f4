"""The cards of effects: what a graph does beside giving results, in the order of the program.

An effect takes a token first and gives one first. `token` makes the first one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.base.errors import DTypeError
from weft.base.pytree import TreeSpec, tree_flatten
from weft.base.source import SourceLocation
from weft.core.tensor import Tensor, wrap
from weft.ir.op import Op, Trait
from weft.ir.types import TOKEN, TensorType, TokenType

__all__: list[str] = []


class Muted:
    """While recording computes what Python asks for, nothing is shown."""

    on = False


muted = Muted()


def _token_type() -> TokenType:
    return TOKEN


def _shown_type(token: Any, *values: TensorType, show: Any) -> TokenType:
    return TOKEN


def _show(_run: Any, token: Any, *values: Any, show: Callable[..., None]) -> Any:
    if not muted.on:
        show(*values)
    return ((),)


def _checked_type(
    token: Any, predicate: TensorType, *values: TensorType, message: Any
) -> TokenType:
    return TOKEN


def _check(_run: Any, token: Any, predicate: Any, *values: Any, message: Any) -> Any:
    if not muted.on and not bool(predicate):
        raise message(*values)
    return ((),)


def _failed_type(token: Any, *values: TensorType, error: Any) -> TokenType:
    return TOKEN


def _fail(_run: Any, token: Any, *values: Any, error: Callable[..., BaseException]) -> Any:
    if not muted.on:
        raise error(*values)
    return ((),)


def _called_type(
    token: Any, *values: TensorType, function: Any, results: Sequence[TensorType]
) -> tuple[Any, ...]:
    return (TOKEN, *results)


def _call(_run: Any, token: Any, *values: Any, function: Any, results: Any) -> Any:
    return ((), *function(*values))


_EFFECT = Trait.EFFECT | Trait.STACK

FIRST_TOKEN = Op("token", _token_type, lambda run: ((),), traits=Trait.STACK)
SHOW = Op("print", _shown_type, _show, traits=_EFFECT)
CHECK = Op("assert", _checked_type, _check, traits=_EFFECT)
FAIL = Op("raise", _failed_type, _fail, traits=_EFFECT)
PY_CALL = Op("py_call", _called_type, _call, traits=_EFFECT)


class Shown:
    """print(...) with tensors in it, made anew from their values.

    parts   what is printed: Python values, and `Slot`s for the tensors that the op is given
    """

    def __init__(self, function: Any, build: Callable[..., Any], kwargs: dict[str, Any]) -> None:
        self.function = function
        self.build = build
        self.kwargs = kwargs

    def __call__(self, *values: Tensor) -> None:
        self.function(*self.build(_kept(values)), **self.kwargs)

    def __repr__(self) -> str:
        return f"<{getattr(self.function, '__name__', 'call')}>"


def _kept(values: Sequence[Tensor]) -> list[Tensor]:
    """Values that the user's code may keep: what lies in the memory of a native run is copied."""
    return [
        wrap(x._data.copy()) if isinstance(x._data, np.ndarray) and x._data.base is not None else x
        for x in values
    ]


class Raised:
    """An error that a branch of the graph raises where it is taken."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __call__(self, *values: Tensor) -> BaseException:
        error = self.error
        try:
            made: BaseException = type(error)(*error.args)
            made.__dict__.update(error.__dict__)
        except Exception:
            made = error
        return made.with_traceback(None)

    def __repr__(self) -> str:
        return f"<{type(self.error).__name__}>"


class Message:
    """The error of an assert that does not hold, with the values of the run."""

    def __init__(self, build: Callable[..., Any], location: SourceLocation | None) -> None:
        self.build = build
        self.location = location

    def __call__(self, *values: Tensor) -> AssertionError:
        error = AssertionError(*self.build(values))
        error.add_note(f"  at {self.location}")
        return error

    def __repr__(self) -> str:
        return "<message>"


class Called:
    """A call back into Python: its results are checked against what was said of them."""

    def __init__(
        self,
        function: Callable[..., Any],
        build: Callable[..., Any],
        kinds: tuple[TensorType, ...],
        structure: TreeSpec,
        asarray: Callable[..., Tensor],
    ) -> None:
        self.function = function
        self.build = build
        self.kinds = kinds
        self.structure = structure
        self.asarray = asarray

    def __call__(self, *values: Tensor) -> list[Tensor]:
        leaves, structure = tree_flatten(self.function(*self.build(_kept(values))))
        if structure != self.structure:
            raise DTypeError(
                f"{self!r} gave {structure}, and {self.structure} was said", op="py_call"
            )
        made: list[Tensor] = []
        for leaf, kind in zip(leaves, self.kinds, strict=True):
            known = isinstance(leaf, (Tensor, np.ndarray, np.generic))
            tensor = self.asarray(leaf) if known else self.asarray(leaf, dtype=kind.dtype)
            if tensor.type != kind:
                raise DTypeError(f"{self!r} gave {tensor.type}, and {kind} was said", op="py_call")
            made.append(wrap(tensor._data))
        return made

    def __repr__(self) -> str:
        return f"<{getattr(self.function, '__name__', 'function')}>"
