"""Guards: what must hold for a recording to be used again.

A guard says what a run read at one origin (`Origin`). `weft.capture.watch.guard_code` compiles many
guards to one Python function.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from weft.autodiff.node import hooks_of, leaf_hooks
from weft.base.dataclass import dataclass
from weft.base.dims import has_dims
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
from weft.core.parts import Parts


@dataclass(eq=False)
class Guard:
    """One fact that a run relied on.

    kind        the comparison: a row of `KINDS`
    origin      how to get the value; None for facts about the call as a whole
    expected    what the run read there
    others      further origins, for facts about several: whether they are the same object
    grouped     about contents of a module or an optimizer: holds until one of them changes
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
        return KINDS[self.kind].says(self)

    @property
    def text(self) -> str:
        return self.origin.text if self.origin is not None else ""

    def expression(self, pool: Pool, value: str, others: Sequence[str]) -> str:
        """Python text that is true when the guard does not hold."""
        return KINDS[self.kind].test(self, value, others, pool)

    def found(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """After a failure: the old and the new value, such as "args[1] was 2, now 3"."""
        if self.kind == "call":
            return (
                f"the call was {_call_text(self.expected)}, now {_call_text(call_of(args, kwargs))}"
            )
        if self.kind == "sizes":
            where = f" at {self.location}" if self.location else ""
            return f"{self.expected.found([o.evaluate(args, kwargs) for o in self.others])}{where}"
        if self.kind == "distinct":
            return f"{_places(self)} were different objects, now some are one"
        if self.kind == "unhooked":
            return f"{_places(self)} had no hooks, now some have"
        assert self.origin is not None
        if self.kind == "same":
            return f"{self.text} was the same object as {_places(self)}, now it is not"
        was = KINDS[self.kind].was(self.expected)
        try:
            now = self.origin.evaluate(args, kwargs)
        except Exception as error:
            return f"{self.text} was {was}, now there is none ({type(error).__name__})"
        return f"{self.text} was {was}, now {self._now(now, was)}"

    def _now(self, value: Any, was: str) -> str:
        if value is MISSING:
            return "missing"
        try:
            text = KINDS[self.kind].now(value)
        except (AttributeError, TypeError):
            text = shown(value)
        return f"another {type(value).__name__} of that text" if text == was else text


def call_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[int, tuple[str, ...]]:
    return len(args), tuple(kwargs)


def _call_text(call: tuple[int, tuple[str, ...]]) -> str:
    count, names = call
    return f"with {count} positional arguments" + (f" and {', '.join(names)}" if names else "")


# --- what each kind compares ---------------------------------------------------------------------

Test = Callable[[Guard, str, Sequence[str], Pool], str]


def _differs(guard: Guard, v: str, _others: Sequence[str], pool: Pool) -> str:
    """Python text that is true when a plain value is not exactly the expected one."""
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
    if guard.grouped and facts.array is np.ndarray and not has_dims(facts.shape):
        # There may be thousands, which are rarely checked: short text is compiled fast.
        known = [pool.name(part) for part in (facts.cls, facts.dtype, facts.shape, facts.leaf)]
        return f"{pool.name(_array_differs)}({v}, {', '.join(known)})"
    parts = [f"{v}.__class__ is not {pool.name(facts.cls)}"]
    if facts.array in (np.ndarray, Parts):
        dtype = pool.name(facts.dtype)
        parts += [
            f"(d := {v}._data).__class__ is not {pool.name(facts.array)}",
            # NumPy's dtypes are nearly always one object each
            f"(d.dtype is not {dtype} and d.dtype != {dtype})",
            _shape_differs(facts.shape, pool),
        ]
        if facts.array is Parts:
            parts.append(f"d.layout != {pool.name(facts.layout)}")
        if facts.leaf is None:
            parts.append(f"{v}._node is not None")
        else:
            parts.append(f"(n := {v}._node) is None or n.is_leaf is not {facts.leaf}")
    else:
        parts.append(f"{pool.name(tensor_facts)}({v}) != {pool.name(facts)}")
    return " or ".join(parts)


def _array_differs(
    value: Any, cls: Any, dtype: Any, shape: tuple[int, ...], leaf: bool | None
) -> bool:
    """What `_tensor` writes as text, of a tensor of known sizes."""
    if value.__class__ is not cls or (d := value._data).__class__ is not np.ndarray:
        return True
    if d.dtype != dtype or d.shape != shape:
        return True
    node = value._node
    return node is not None if leaf is None else node is None or node.is_leaf is not leaf


def _shape_differs(shape: tuple[Any, ...], pool: Pool) -> str:
    """Symbolic sizes have guards of their own: see `size_guards`."""
    if not has_dims(shape):
        return f"d.shape != {pool.name(shape)}"
    fixed = [f"d.shape[{i}] != {n}" for i, n in enumerate(shape) if n.__class__ is int]
    return " or ".join([f"d.ndim != {len(shape)}", *fixed])


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


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of guard.

    test     Python text that is true when the guard does not hold
    says     what must hold, as a user reads it
    was      after a failure: the expected value, as text
    now      after a failure: the value found now, as text
    """

    test: Test
    says: Callable[[Guard], str]
    was: Callable[[Any], str] = shown
    now: Callable[[Any], str] = shown


def _length(sized: Any) -> str:
    return f"of length {sized if isinstance(sized, int) else size_of(sized)}"


def _listed(keys: Any) -> str:
    return shown(list(keys))


def _places(guard: Guard) -> str:
    listed = [origin.text for origin in guard.others if origin.text != guard.text]
    return ", ".join(listed) or "the one that was read before"


KINDS: dict[str, Kind] = {
    "value": Kind(_differs, lambda g: f"{g.text} == {shown(g.expected)}"),
    "identity": Kind(
        lambda g, v, o, pool: f"{v} is not {pool.name(g.expected)}",
        lambda g: f"{g.text} is {shown(g.expected)}",
    ),
    "class": Kind(
        lambda g, v, o, pool: f"{v}.__class__ is not {pool.name(g.expected)}",
        lambda g: f"type({g.text}) is {g.expected.__name__}",
        lambda cls: f"of class {cls.__name__}",
        lambda now: f"of class {type(now).__name__}",
    ),
    "code": Kind(
        lambda g, v, o, pool: f"{v}.__code__ is not {pool.name(g.expected)}",
        lambda g: f"{g.text} has the code of {g.expected.co_qualname}",
        lambda code: f"the function {code.co_qualname}",
    ),
    "missing": Kind(
        lambda g, v, o, pool: f"{v} is not {pool.name(MISSING)}",
        lambda g: f"there is no {g.text}",
        lambda _: "missing",
    ),
    "present": Kind(
        lambda g, v, o, pool: f"{v} is {pool.name(MISSING)}",
        lambda g: f"there is {g.text}",
        lambda _: "there",
    ),
    "tensor": Kind(
        _tensor, lambda g: f"{g.text} is {g.expected}", str, lambda now: str(tensor_facts(now))
    ),
    "bare": Kind(
        lambda g, v, o, pool: f"{v}._node is not None",
        lambda g: f"{g.text} has no history",
        lambda _: "without a history",
        lambda _: "one with",
    ),
    "hooks": Kind(
        lambda g, v, o, pool: f"{pool.name(hooks_of)}({v}._node) != {pool.name(g.expected)}",
        lambda g: f"{g.text} has {'the same' if g.expected else 'no'} hooks",
        lambda _: "with other hooks",
        lambda _: "not",
    ),
    "unhooked": Kind(_unhooked, lambda g: f"{_places(g)} have no hooks"),
    "array": Kind(
        _array,
        lambda g: f"{g.text} is an array {g.expected[1]}{list(g.expected[2])}",
        lambda facts: f"an array {facts[1]}{list(facts[2])}",
        lambda now: f"an array {now.dtype}{list(now.shape)}",
    ),
    "content": Kind(
        lambda g, v, o, pool: f"{pool.name(content_of)}({v}) != {pool.name(g.expected)}",
        lambda g: f"the elements of {g.text} are the same",
        lambda _: "an array of other elements",
        lambda _: "not",
    ),
    "length": Kind(
        lambda g, v, o, pool: f"len({v}) != {g.expected}",
        lambda g: f"len({g.text}) == {g.expected}",
        *(_length, _length),
    ),
    "size": Kind(
        lambda g, v, o, pool: f"{pool.name(size_of)}({v}) != {g.expected}",
        lambda g: f"len({g.text}) == {g.expected}",
        *(_length, _length),
    ),
    "keys": Kind(_keys, lambda g: f"list({g.text}) == {_listed(g.expected)}", _listed, _listed),
    "order": Kind(
        lambda g, v, o, pool: f"not {pool.name(same_keys)}({v}, {pool.name(g.expected)})",
        lambda g: f"list({g.text}) == {_listed(g.expected)}",
        *(_listed, _listed),
    ),
    "sizes": Kind(lambda g, v, o, pool: str(g.expected.test(o)), lambda g: str(g.expected.says)),
    "same": Kind(lambda g, v, o, pool: f"{v} is not {o[0]}", lambda g: f"{g.text} is {_places(g)}"),
    "distinct": Kind(
        lambda g, v, o, pool: f"len({{{', '.join(f'id({other})' for other in o)}}}) != {len(o)}",
        lambda g: f"{_places(g)} are different objects",
    ),
    "call": Kind(_call, lambda g: f"the call is {_call_text(g.expected)}"),
}
#: Kinds that compare all elements of an array; they are checked last.
COSTLY = frozenset({"content"})
