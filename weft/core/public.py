"""How functions become part of Weft: `weft.name`, a Tensor method, an operator.

`@public` only notes what a function is to be called; the table `PUBLIC` is read by
`weft/__init__.py`'s test, the generated stub of Tensor methods, the op reference and the tests.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from weft.base.dataclass import dataclass
from weft.core.calling import Calling, callable_as, calling_of, may_vary
from weft.core.tensor import Tensor

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class PublicFunction:
    """One public function: where it is found, and the Tensor methods it serves."""

    name: str
    function: Callable[..., Any]
    namespace: str  # "" for weft itself, or "linalg", "fft"
    methods: tuple[str, ...]
    alias: str = ""  # the name of the function, where this is only another name for it

    @property
    def calling(self) -> Calling:
        """The ways in which it may be called."""
        return calling_of(self.function)


PUBLIC: dict[str, PublicFunction] = {}


def attach(methods: dict[str, Callable[..., Any]]) -> None:
    """Give Tensor methods that are called differently from the function they stand for."""
    for name, method in methods.items():
        setattr(Tensor, name, method)


def attach_properties(
    getters: dict[str, Callable[[Tensor], Any]],
    setters: dict[str, Callable[[Tensor, Any], None]] | None = None,
) -> None:
    for name, getter in getters.items():
        setattr(Tensor, name, property(getter, (setters or {}).get(name)))


def _as_called(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function that users call: `weft/core/calling.py`."""
    return callable_as(function, calling_of(function)) if may_vary(function) else function


def public(*methods: str, namespace: str = "") -> Callable[[F], F]:
    """Enter a function into the public table, and attach it to Tensor under `methods`.

    What comes back is the function as users call it (`weft/core/calling.py`).
    """

    def register(function: F) -> F:
        name = f"{namespace}.{function.__name__}" if namespace else function.__name__
        called: Any = _as_called(function)
        PUBLIC[name] = PublicFunction(name, called, namespace, methods)
        attach(dict.fromkeys(methods, called))
        return called  # type: ignore[no-any-return]

    return register


def method(*names: str) -> Callable[[F], F]:
    """Attach a function to Tensor only, with the same forms of calls; by default by its name."""

    def register(function: F) -> F:
        called: Any = _as_called(function)
        attach(dict.fromkeys(names or (function.__name__,), called))
        return called  # type: ignore[no-any-return]

    return register


def alias(name: str, function: Callable[..., Any], *methods: str) -> None:
    """Enter another name for a public function, and attach it to Tensor under `methods`."""
    own = next(entry for entry in PUBLIC.values() if entry.function is function)
    PUBLIC[name] = PublicFunction(name, function, "", methods, alias=own.name)
    attach(dict.fromkeys(methods, function))
