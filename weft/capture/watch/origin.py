"""Origin: how a later call finds a value that a run read from outside.

An origin is a root (an argument, or an object that is pinned because its identity is guarded) and
steps from there: attributes, items, contents of closure cells. It has the Python expression that
fetches the value, for generated guard code, and a text for users: `args[0].scale`,
`global CONFIG["lr"]`, `self.layers[2].p`.
"""

from __future__ import annotations

import keyword as keywords
import operator
from collections.abc import Callable
from types import CellType
from typing import Any

from weft.base.lazy import Lazy

json = Lazy("json")
ARG, KWARG, PIN = "arg", "kwarg", "pin"  # roots
ATTR, MAYBE, OWN, CLASS_ATTR = "attr", "maybe", "own", "class attribute"
ITEM, GET, AT, HAS, CELL = "item", "get", "at", "has", "cell"
CALC = "calculation"
#: How a signature calls each kind of root and step.
STEP_KINDS = {
    **{kind: kind for kind in (ARG, KWARG, HAS)},
    **dict.fromkeys((ATTR, MAYBE, OWN, CLASS_ATTR, CELL), "attr"),
    **dict.fromkeys((ITEM, GET, AT), "item"),
}


class Missing:
    """Marks a value that does not exist."""

    def __repr__(self) -> str:
        return "nothing"


MISSING = Missing()


class Pool:
    """The constants of generated code, each with a name."""

    def __init__(self) -> None:
        self.namespace: dict[str, Any] = {}
        self._names: dict[int, str] = {}

    def name(self, value: Any) -> str:
        found = self._names.get(id(value))
        if found is None:
            found = self._names[id(value)] = f"c{len(self._names)}"
            self.namespace[found] = value  # kept alive here, so that its id stays valid
        return found


class Origin:
    """A root or a step. Origins of one run are interned: equal origins are the same object."""

    __slots__ = ("children", "from_args", "key", "kind", "operands", "parent", "step", "text")

    def __init__(self, kind: str, key: Any, parent: Origin | None, text: str, from_args: bool):
        self.kind = kind
        self.key = key
        self.parent = parent
        self.text = text  # as a user reads it; a better name may be found later
        #: The part of the text after the parent's; None if it does not begin with that.
        self.step: str | None = None
        if parent is not None and text.startswith(parent.text):
            self.step = text[len(parent.text) :]
        self.from_args = from_args
        self.children: dict[Any, Origin] = {}
        self.operands: tuple[Any, ...] = ()  # of a calculation: origins and numbers

    def __repr__(self) -> str:
        return f"<Origin {self.text}>"

    def _step(self, kind: str, key: Any, text: str) -> Origin:
        name = (kind, id(key)) if isinstance(key, Origin) else (kind, type(key), repr(key))
        found = self.children.get(name)
        if found is None:
            found = self.children[name] = Origin(kind, key, self, text, self.from_args)
        return found

    def attr(self, name: str, text: str = "") -> Origin:
        """`parent.name`."""
        return self._step(ATTR, name, text or f"{self.text}.{name}")

    def maybe(self, name: str) -> Origin:
        """The attribute, or MISSING: a slot that may be empty."""
        return self._step(MAYBE, name, f"{self.text}.{name}")

    def own(self, name: str) -> Origin:
        """The instance's own attribute, past descriptors of its class."""
        return self._step(OWN, name, f"{self.text}.{name}")

    def class_attr(self, name: str) -> Origin:
        """The attribute of a class, without calling a descriptor."""
        return self._step(CLASS_ATTR, name, f"{self.text}.{name}")

    def item(self, key: Any, text: str = "") -> Origin:
        """`parent[key]`; the key is a plain value or an origin."""
        shown = key.text if isinstance(key, Origin) else quoted(key)
        return self._step(ITEM, key, text or f"{self.text}[{shown}]")

    def get(self, key: Any, text: str = "") -> Origin:
        """An item of a dict by `dict.get`, which never calls `__missing__`."""
        shown = key.text if isinstance(key, Origin) else quoted(key)
        return self._step(GET, key, text or f"{self.text}[{shown}]")

    def at(self, index: int) -> Origin:
        """An item of a list or tuple, past any `__getitem__` of a subclass."""
        return self._step(AT, index, f"{self.text}[{index}]")

    def has(self, value: Any) -> Origin:
        """Whether a set holds a plain value."""
        return self._step(HAS, value, f"{quoted(value)} in {self.text}")

    def contents(self, text: str) -> Origin:
        """The contents of a closure cell."""
        return self._step(CELL, "", text)

    def evaluate(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The current value. Raises what the expression would raise."""
        if self.kind == CALC:
            values = [
                x.evaluate(args, kwargs) if isinstance(x, Origin) else x for x in self.operands
            ]
            return self.key(*values)
        if self.kind == ARG:
            return args[self.key]
        if self.kind == KWARG:
            return kwargs[self.key]
        if self.kind == PIN:
            return self.key
        assert self.parent is not None
        base = self.parent.evaluate(args, kwargs)
        key = self.key.evaluate(args, kwargs) if isinstance(self.key, Origin) else self.key
        return STEPS[self.kind](base, key)

    def expression(self, base: str, key: str, pool: Pool) -> str:
        """Python text of this step, from the text of its parent and of its key."""
        return EXPRESSIONS[self.kind](base, key, self.key, pool)


SYMBOLS: dict[Any, str] = {
    **{operator.add: "+", operator.sub: "-", operator.mul: "*", operator.truediv: "/"},
    **{operator.floordiv: "//", operator.mod: "%", operator.pow: "**"},
    **{operator.eq: "==", operator.ne: "!=", operator.lt: "<", operator.le: "<="},
    **{operator.gt: ">", operator.ge: ">=", operator.and_: "&", operator.or_: "|"},
    **{operator.xor: "^", operator.lshift: "<<", operator.rshift: ">>"},
}


def calculation(function: Callable[..., Any], operands: tuple[Any, ...]) -> Origin:
    """What a function gives for numbers that are found in some places, and others."""
    first = next(x for x in operands if isinstance(x, Origin))
    ids = [id(x) if isinstance(x, Origin) else (type(x), repr(x)) for x in operands]
    name = (CALC, function, *ids)
    found = first.children.get(name)
    if found is None:
        texts = [x.text if isinstance(x, Origin) else repr(x) for x in operands]
        parts = [text.removeprefix("global ") for text in texts]
        found = first.children[name] = Origin(CALC, function, None, _said(function, parts), False)
        found.operands = operands
    return found


def itself(value: Any) -> Any:
    return value


def _said(function: Callable[..., Any], parts: list[str]) -> str:
    """A calculation as a user would write it."""
    symbol = SYMBOLS.get(function)
    if symbol is not None and len(parts) == 2:
        return f"({parts[0]} {symbol} {parts[1]})"
    bare = [part[1:-1] if part.startswith("(") else part for part in parts]
    if function in (itself, bool) or function.__name__ == "rows_of":
        return bare[0]
    name = getattr(function, "__name__", "f")
    return f"{'len' if name == 'size_of' else name}({', '.join(bare)})"


def argument(index: int, text: str = "") -> Origin:
    return Origin(ARG, index, None, text or f"args[{index}]", True)


def keyword(name: str, text: str = "") -> Origin:
    return Origin(KWARG, name, None, text or f"kwargs[{quoted(name)}]", True)


def pinned(value: Any, text: str) -> Origin:
    return Origin(PIN, value, None, text, False)


def same_place(a: Origin | None, b: Origin | None) -> bool:
    """Whether origins of two runs have the same root and steps; their texts may differ."""
    while a is not None and b is not None:
        if a.kind != b.kind or type(a.key) is not type(b.key):
            return False
        if a.kind == PIN:
            return a.key is b.key or a.text == b.text
        if a.kind == CALC:
            return (
                a.key is b.key
                and len(a.operands) == len(b.operands)
                and all(map(_same_operand, a.operands, b.operands))
            )
        if isinstance(a.key, Origin):
            if not same_place(a.key, b.key):
                return False
        elif repr(a.key) != repr(b.key):
            return False
        a, b = a.parent, b.parent
    return a is b


#: Where a value is found, the same for each recording.
PlaceKey = tuple[Any, ...]


def place_key(origin: Origin, known: dict[int, PlaceKey] | None = None) -> PlaceKey:
    """The way to a place, as plain data, equal in all recordings; a pinned object is itself.

    `known` keeps the keys of origins that live as long, by their ids.
    """
    found = None if known is None else known.get(id(origin))
    if found is not None:
        return found
    key: Any = origin.key
    if origin.kind == CALC:
        parts = [place_key(x) if isinstance(x, Origin) else repr(x) for x in origin.operands]
        key = (repr(key), *parts)
    elif origin.kind == PIN:
        key = id(key)
    elif isinstance(key, Origin):
        key = place_key(key, known)
    else:
        key = (type(key).__name__, repr(key))
    step = (STEP_KINDS.get(origin.kind, origin.kind), key)
    made = (step,) if origin.parent is None else (*place_key(origin.parent, known), step)
    if known is not None:
        known[id(origin)] = made
    return made


def _same_operand(a: Any, b: Any) -> bool:
    if isinstance(a, Origin):
        return isinstance(b, Origin) and same_place(a, b)
    return type(a) is type(b) and repr(a) == repr(b)


def quoted(key: Any) -> str:
    return json.dumps(key, ensure_ascii=False) if type(key) is str else repr(key)


def static_lookup(cls: type, name: str) -> Any:
    """A class attribute of the class or its bases, without descriptors; MISSING if none."""
    for base in cls.__mro__:
        found = base.__dict__.get(name, MISSING)
        if found is not MISSING:
            return found
    return MISSING


def _contents(cell: CellType, _key: Any) -> Any:
    return cell.cell_contents


def own_attribute(obj: Any, name: str) -> Any:
    return obj.__dict__.get(name, MISSING)


def _dict_get(mapping: dict[Any, Any], key: Any) -> Any:
    return dict.get(mapping, key, MISSING)


def _at(sequence: Any, index: int) -> Any:
    # deque is not a list: it has its own item access
    if isinstance(sequence, list):
        return list.__getitem__(sequence, index)
    if isinstance(sequence, tuple):
        return tuple.__getitem__(sequence, index)
    return sequence[index]


STEPS: dict[str, Callable[[Any, Any], Any]] = {
    ATTR: getattr,
    MAYBE: lambda base, name: getattr(base, name, MISSING),
    OWN: own_attribute,
    CLASS_ATTR: static_lookup,
    ITEM: lambda base, key: base[key],
    GET: _dict_get,
    AT: _at,
    HAS: lambda base, value: value in base,
    CELL: _contents,
}


def _attribute(base: str, name: str) -> str:
    if name.isidentifier() and not keywords.iskeyword(name):
        return f"{base}.{name}"
    return f"getattr({base}, {name!r})"


EXPRESSIONS: dict[str, Callable[[str, str, Any, Pool], str]] = {
    ARG: lambda base, key, raw, pool: f"args[{raw}]",
    KWARG: lambda base, key, raw, pool: f"kwargs[{raw!r}]",
    PIN: lambda base, key, raw, pool: pool.name(raw),
    ATTR: lambda base, key, raw, pool: _attribute(base, raw),
    MAYBE: lambda base, key, raw, pool: f"getattr({base}, {raw!r}, {pool.name(MISSING)})",
    OWN: lambda base, key, raw, pool: f"{base}.__dict__.get({raw!r}, {pool.name(MISSING)})",
    CLASS_ATTR: lambda base, key, raw, pool: f"{pool.name(static_lookup)}({base}, {raw!r})",
    ITEM: lambda base, key, raw, pool: f"{base}[{key}]",
    GET: lambda base, key, raw, pool: f"{pool.name(dict.get)}({base}, {key}, {pool.name(MISSING)})",
    AT: lambda base, key, raw, pool: f"{pool.name(_at)}({base}, {key})",
    HAS: lambda base, key, raw, pool: f"{key} in {base}",
    CELL: lambda base, key, raw, pool: f"{base}.cell_contents",
}


def input_name(text: str) -> str:
    """The name of a graph input for an origin's text: state["w"][0] becomes state.w.0

    >>> from weft.capture.watch.origin import input_name
    >>> input_name('opt.state[model.tok.weight]["step"]'), input_name("self.head.bias")
    ('opt.state.model.tok.weight.step', 'head.bias')
    """
    text = text.removeprefix("global ").removeprefix("self.")
    kept = "".join(c if c.isalnum() or c == "_" else " " for c in text)
    name = ".".join(kept.split())
    return name if name and not name[0].isdigit() else f"x{name}"
