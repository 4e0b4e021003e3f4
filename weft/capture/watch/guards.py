"""Guards: what must hold for a recording to be used again.

A guard says what a run saw in one place (`Origin`). `weft.capture.watch.guard_code` makes one
Python function of many.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from weft.autodiff.node import hooks_of, leaf_hooks
from weft.capture.watch.origin import MISSING, Origin, Pool
from weft.capture.watch.values import (
    SINGLETONS,
    content_of,
    is_by_identity,
    packed,
    same_keys,
    same_value,
    shown,
    size_of,
    tensor_facts,
)


@dataclass(eq=False)
class Guard:
    """One fact that a run relied on.

    kind        which comparison: a row of `TESTS`
    origin      where the value is found; None for facts about the call as a whole
    expected    what the run saw there
    others      further places, for facts about several: that they are one object, or are not
    grouped     it is about what a module or an optimizer holds: true as long as none changes
    location    the user's line that read the value
    """

    kind: str
    origin: Origin | None
    expected: Any
    others: tuple[Origin, ...] = ()
    grouped: bool = False
    location: str = ""
    root: Origin | None = field(default=None, repr=False)  # the module from the arguments, if any

    @property
    def description(self) -> str:
        """What must hold, as a user reads it."""
        return DESCRIPTIONS[self.kind](self)

    @property
    def text(self) -> str:
        return self.origin.text if self.origin is not None else ""

    def expression(self, pool: Pool, value: str, others: Sequence[str]) -> str:
        """Python text that is true when the guard does not hold."""
        return TESTS[self.kind](self, value, others, pool)

    def found(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """After a failure: what the place holds now. "args[1] was 2, now 3"."""
        if self.kind == "call":
            return (
                f"the call was {_call_text(self.expected)}, now {_call_text(call_of(args, kwargs))}"
            )
        if self.kind == "distinct":
            return (
                f"{', '.join(o.text for o in self.others)} were different objects, now some are one"
            )
        if self.kind == "unhooked":
            return f"{', '.join(o.text for o in self.others)} had no hooks, now some have"
        assert self.origin is not None
        if self.kind == "same":
            return f"{self.text} was the same object as {self.others[0].text}, now it is not"
        try:
            now = self.origin.evaluate(args, kwargs)
        except Exception as error:
            return f"{self.text} was {_was(self)}, now there is none ({type(error).__name__})"
        return f"{self.text} was {_was(self)}, now {_is(self, now)}"


def call_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[int, tuple[str, ...]]:
    return len(args), tuple(kwargs)


def _call_text(call: tuple[int, tuple[str, ...]]) -> str:
    count, names = call
    return f"with {count} positional arguments" + (f" and {', '.join(names)}" if names else "")


# --- what each kind compares ---------------------------------------------------------------------

Test = Callable[[Guard, str, Sequence[str], Pool], str]


def _differs(guard: Guard, v: str, _others: Sequence[str], pool: Pool) -> str:
    """The text that is true when a plain value is not exactly the expected one."""
    expected = guard.expected
    kind = type(expected)
    if kind in SINGLETONS or is_by_identity(expected):
        return f"{v} is not {pool.name(expected)}"
    name = pool.name(kind)
    if kind in (int, str, bytes):
        return f"{v}.__class__ is not {name} or {v} != {pool.name(expected)}"
    if kind is float:
        if expected and not math.isnan(expected):
            return f"{v}.__class__ is not {name} or {v} != {pool.name(expected)}"
        bits = pool.name(packed(expected))
        return f"{v}.__class__ is not {name} or {pool.name(packed)}({v}) != {bits}"
    return f"not {pool.name(same_value)}({v}, {pool.name(expected)})"


def _tensor(guard: Guard, v: str, _others: Sequence[str], pool: Pool) -> str:
    facts = guard.expected
    parts = [f"{v}.__class__ is not {pool.name(facts.cls)}"]
    if facts.array is np.ndarray:
        dtype = pool.name(facts.dtype)
        parts += [
            f"(d := {v}._data).__class__ is not {pool.name(np.ndarray)}",
            # NumPy's dtypes are nearly always one object each
            f"(d.dtype is not {dtype} and d.dtype != {dtype})",
            f"d.shape != {pool.name(facts.shape)}",
        ]
        if facts.leaf is None:
            parts.append(f"{v}._node is not None")
        else:
            parts.append(f"(n := {v}._node) is None or n.is_leaf is not {facts.leaf}")
    else:
        parts.append(f"{pool.name(tensor_facts)}({v}) != {pool.name(facts)}")
    return " or ".join(parts)


def _hooks(guard: Guard, v: str, _others: Sequence[str], pool: Pool) -> str:
    return f"{pool.name(hooks_of)}({v}._node) != {pool.name(guard.expected)}"


def _unhooked(_guard: Guard, _v: str, others: Sequence[str], pool: Pool) -> str:
    found = " or ".join(f"{pool.name(hooks_of)}({other}._node)" for other in others)
    return f"{pool.name(leaf_hooks)}.registered and ({found})"


def _array(guard: Guard, v: str, _others: Sequence[str], pool: Pool) -> str:
    cls, dtype, shape = guard.expected
    d = pool.name(dtype)
    return (
        f"{v}.__class__ is not {pool.name(cls)} or {v}.dtype is not {d} and {v}.dtype != {d} "
        f"or {v}.shape != {pool.name(shape)}"
    )


def _keys(guard: Guard, v: str, _others: Sequence[str], pool: Pool) -> str:
    expected = guard.expected
    if all(type(key) is str for key in expected):
        return f"(*{v},) != {pool.name(expected)}"
    return f"not {pool.name(same_keys)}({v}, {pool.name(expected)})"


def _call(guard: Guard, _v: str, _others: Sequence[str], pool: Pool) -> str:
    count, names = guard.expected
    return f"len(args) != {count} or " + (
        f"(*kwargs,) != {pool.name(names)}" if names else "kwargs"
    )


TESTS: dict[str, Test] = {
    "value": _differs,
    "identity": lambda g, v, o, pool: f"{v} is not {pool.name(g.expected)}",
    "class": lambda g, v, o, pool: f"{v}.__class__ is not {pool.name(g.expected)}",
    "code": lambda g, v, o, pool: f"{v}.__code__ is not {pool.name(g.expected)}",
    "missing": lambda g, v, o, pool: f"{v} is not {pool.name(MISSING)}",
    "present": lambda g, v, o, pool: f"{v} is {pool.name(MISSING)}",
    "tensor": _tensor,
    "bare": lambda g, v, o, pool: f"{v}._node is not None",
    "hooks": _hooks,
    "unhooked": _unhooked,
    "array": _array,
    "content": lambda g, v, o, pool: f"{pool.name(content_of)}({v}) != {pool.name(g.expected)}",
    "length": lambda g, v, o, pool: f"len({v}) != {g.expected}",
    "size": lambda g, v, o, pool: f"{pool.name(size_of)}({v}) != {g.expected}",
    "keys": _keys,
    "order": lambda g, v, o, pool: f"not {pool.name(same_keys)}({v}, {pool.name(g.expected)})",
    "same": lambda g, v, o, pool: f"{v} is not {o[0]}",
    "distinct": lambda g, v, o, pool: (
        f"len({{{', '.join(f'id({other})' for other in o)}}}) != {len(o)}"
    ),
    "call": _call,
}

#: Those that go through all elements are checked after the others.
COSTLY = frozenset({"content"})

Describe = Callable[[Guard], str]

DESCRIPTIONS: dict[str, Describe] = {
    "value": lambda g: f"{g.text} == {shown(g.expected)}",
    "identity": lambda g: f"{g.text} is {shown(g.expected)}",
    "class": lambda g: f"type({g.text}) is {g.expected.__name__}",
    "code": lambda g: f"{g.text} has the code of {g.expected.co_qualname}",
    "missing": lambda g: f"there is no {g.text}",
    "present": lambda g: f"there is {g.text}",
    "tensor": lambda g: f"{g.text} is {g.expected}",
    "bare": lambda g: f"{g.text} has no history",
    "unhooked": lambda g: f"{', '.join(o.text for o in g.others)} have no hooks",
    "hooks": lambda g: f"{g.text} has {'the same' if g.expected else 'no'} hooks",
    "array": lambda g: f"{g.text} is an array {g.expected[1]}{list(g.expected[2])}",
    "content": lambda g: f"the elements of {g.text} are the same",
    "length": lambda g: f"len({g.text}) == {g.expected}",
    "size": lambda g: f"len({g.text}) == {g.expected}",
    "keys": lambda g: f"list({g.text}) == {shown(list(g.expected))}",
    "order": lambda g: f"list({g.text}) == {shown(list(g.expected))}",
    "same": lambda g: f"{g.text} is {g.others[0].text}",
    "distinct": lambda g: f"{', '.join(o.text for o in g.others)} are different objects",
    "call": lambda g: f"the call is {_call_text(g.expected)}",
}


def _was(guard: Guard) -> str:
    expected = guard.expected
    if guard.kind == "class":
        return f"of class {expected.__name__}"
    if guard.kind == "code":
        return f"the function {expected.co_qualname}"
    if guard.kind == "content":
        return "an array of other elements"
    if guard.kind in ("length", "size"):
        return f"of length {expected}"
    if guard.kind == "tensor":
        return str(expected)
    if guard.kind == "array":
        return f"an array {expected[1]}{list(expected[2])}"
    if guard.kind == "missing":
        return "missing"
    if guard.kind == "bare":
        return "without a history"
    if guard.kind == "hooks":
        return "with other hooks"
    if guard.kind == "present":
        return "there"
    return shown(list(expected) if guard.kind in ("keys", "order") else expected)


def _is(guard: Guard, now: Any) -> str:
    if now is MISSING:
        return "missing"
    try:
        if guard.kind == "class":
            return f"of class {type(now).__name__}"
        if guard.kind in ("length", "size"):
            return f"of length {size_of(now)}"
        if guard.kind == "tensor":
            return str(tensor_facts(now))
        if guard.kind == "array":
            return f"an array {now.dtype}{list(now.shape)}"
        if guard.kind == "content":
            return "not"
        if guard.kind == "bare":
            return "one with"
        if guard.kind == "hooks":
            return "not"
        if guard.kind in ("keys", "order"):
            return shown(list(now))
    except (AttributeError, TypeError):
        return shown(now)
    text = shown(now)
    same_text = text == _was(guard)
    return f"another {type(now).__name__} of that text" if same_text else text
