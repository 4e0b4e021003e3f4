"""What values are to code outside the watched function: text, keys, operands, arguments."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from weft.capture.watch import guard_recursively, library, operators, printing, stores
from weft.capture.watch.effects import TextPart, TextParts
from weft.capture.watch.guard_recursively import Calls
from weft.capture.watch.values import CONTAINERS
from weft.core.tensor import Tensor

if TYPE_CHECKING:
    from weft.capture.hooks import Hooks
    from weft.capture.watch.watch import Known, Watch


class Handing:
    """The part of the hooks that looks at values which leave the watched code."""

    watch: Watch

    @property
    def _whole(self) -> Hooks:
        return cast("Hooks", self)

    # --- arrays -------------------------------------------------------------------------------

    def write_view(self, array: Any) -> None:
        """An array that the run made is written to: it may be a view of one from outside."""
        base = array.base
        while base is not None:
            known = self.watch.known(base)
            if known is not None and isinstance(base, np.ndarray):
                original = base.copy()
                self.watch.undo(functools.partial(np.copyto, base, original))
                self.watch.refuse(f"a view of {known.origin.text} is written to")
            base = getattr(base, "base", None)

    def write_array(self, known: Known, write: Callable[[], Any], text: str) -> Any:
        """Write to the elements of an outside array; a replay gives it the new elements."""
        array = known.obj
        kept = stores.store_of(known)
        if kept.original is None:
            kept.original = array.copy()
            original = kept.original
            self.watch.undo(lambda: np.copyto(array, original))
        self.watch.content(known)
        result = write()
        self.watch.effect(f"{known.origin.text}{text} …", np.copyto, known.origin, array.copy())
        return result

    # --- keys ---------------------------------------------------------------------------------

    def key(self, value: Any) -> Any:
        """Something is hashed: its identity counts, or its own rule does."""
        cls = type(value)
        if cls in operators.SIMPLE:
            return value
        if operators.special(cls, "__hash__") is not None or (
            operators.special(cls, "__eq__") is not None
        ):
            self.watch.refuse(
                f"{cls.__name__} is hashed by a rule of its own, which is not watched"
            )
        elif type(value) is tuple:
            for part in value:
                self.key(part)
        elif not isinstance(value, Tensor):
            self.watch.identity(value)
        return value

    def keys_of_all(self, args: tuple[Any, ...]) -> None:
        """What becomes the keys of a new dict or set."""
        for value in args:
            if isinstance(value, CONTAINERS):
                for part in list(self._whole.iter(value)):
                    self.key(part[0] if type(part) is tuple and part else part)

    # --- text ---------------------------------------------------------------------------------

    def part(self, value: Any, conversion: int, spec: str) -> Any:
        """One value of an f-string: its text, or what to make the text of at each call."""
        if isinstance(value, TextParts):
            value = str(value)
        if printing.shows_tensors(value):
            self.deep(value, "format", calls=False)
            return TextPart(value, conversion, spec)
        if conversion == ord("r") or conversion == ord("a"):
            value = printing.text_of(self._whole, value, "__repr__", repr)
            value = ascii(value)[1:-1] if conversion == ord("a") and not value.isascii() else value
        elif conversion == ord("s"):
            value = printing.text_of(self._whole, value, "__str__", str)
        return printing.formatted(self._whole, value, spec)

    def joined(self, *parts: Any) -> str:
        return "".join(part.text() if isinstance(part, TextPart) else part for part in parts)

    def text(self, *parts: Any) -> Any:
        """An f-string that is handed to a call, which may show it anew each time."""
        if any(isinstance(part, TextPart) for part in parts):
            return TextParts(parts)
        return "".join(parts)

    # --- what leaves the watched code ---------------------------------------------------------

    def shallow(self, value: Any) -> Any:
        """A container whose elements are handed on as they are."""
        known = self.watch.known(value)
        if known is not None:
            if isinstance(value, CONTAINERS):
                stores.whole(self.watch, known)
            elif isinstance(value, np.ndarray):
                self.watch.content(known)
        elif type(value) is tuple:
            for part in value:
                self.shallow(part)
        return value

    def operand(self, value: Any, other: Any) -> Any:
        """An operand of a builtin operator, which may look into containers and arrays."""
        if isinstance(value, np.ndarray):
            known = self.watch.known(value)
            if known is not None and not (
                isinstance(other, Tensor) and library.taken(self._whole, known, "operator")
            ):
                self.watch.content(known)
            return value
        return self.shallow(value) if isinstance(value, CONTAINERS) else value

    def deep(self, value: Any, user: str, calls: Calls = True) -> list[Known]:
        """All of a value is read by code that is not followed."""
        return guard_recursively.read(self._whole, value, user, calls)

    def deep_all(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], user: str, calls: Calls = True
    ) -> list[Known]:
        found: list[Known] = []
        for value in (*args, *kwargs.values()):
            found += self.deep(value, user, calls)
        return found
