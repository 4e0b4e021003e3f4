"""Compiles guards to one Python function, which also fetches what a recording reads from outside.

Objects that lead to several values are looked up once, and costly comparisons come last. Modules
and optimizers share one version number (`weft.core.structure`) that changes with any of them. While
it stays the same, their guards hold, and the tensors in them are the ones found before. So the cost
of a call does not depend on the number of parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from types import CodeType
from typing import Any

import numpy as np

from weft.base import store
from weft.base.code_cache import PYTHON, cached_code
from weft.capture.watch.guards import COSTLY, Guard
from weft.capture.watch.origin import CALC, SYMBOLS, Origin, Pool, itself
from weft.core.counted import NUMBERS
from weft.core.structure import structure

#: (args, kwargs) -> the number of a failed guard, or -1.
Check = Callable[[tuple[Any, ...], dict[str, Any]], int]
#: (args, kwargs) -> the number of a failed guard, or a list of fetched values.
Enter = Callable[[tuple[Any, ...], dict[str, Any]], Any]
#: An origin to fetch, and a function to apply to its value, or None.
Wanted = tuple[Origin, Callable[[Any], Any] | None]

_INDENT = " " * 8


def compile_guards(guards: Sequence[Guard]) -> Check:
    """`check(args, kwargs)`: -1 if all guards hold, else the number of one that fails.

    If a value cannot be fetched (a missing attribute, an index out of range), its guard fails.
    """
    enter = compile_entry(guards, ())[0]

    def check(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
        found = enter(args, kwargs)
        return -1 if found.__class__ is list else int(found)

    return check


def compile_entry(guards: Sequence[Guard], wanted: Sequence[Wanted]) -> tuple[Enter, list[int]]:
    """`enter(args, kwargs)`: the wanted values as a list, or the number of a failed guard.

    Also returns the order of that list: its element i is the value of wanted[order[i]]. An origin
    that no guard covers must exist.
    """
    pool, functions = Pool(), _Functions()
    numbered = list(enumerate(guards))
    grouped = [(i, g) for i, g in numbered if g.grouped]
    rest = [(i, g) for i, g in numbered if not g.grouped and g.kind != "call"]
    rest.sort(key=lambda entry: entry[1].kind in COSTLY)  # stable: containers before their contents
    fixed = {id(g.origin): g.origin for _, g in grouped if g.origin is not None and _is_fixed(g)}
    last = numbered[-1][0] if numbered else 0
    held = [i for i, (o, _) in enumerate(wanted) if id(o) in fixed]

    head = _Code(pool)
    for number, guard in numbered:
        if guard.kind == "call":
            head.test(guard, number)
    tail = _Code(pool, fixed)
    for number, guard in rest:
        tail.test(guard, number)
    free = [i for i in range(len(wanted)) if i not in set(held)]
    parts = ["*held"] if held else []
    for i in free:
        place, convert = tail.place(wanted[i][0], last), wanted[i][1]
        parts.append(place if convert is None else f"{pool.name(convert)}({place})")
    tail.add(f"return [{', '.join(parts)}]", last)
    if grouped:
        _add_group(head, functions, grouped, tail.kept, [wanted[i][0] for i in held])
    head.lines += tail.lines
    head.guards += tail.guards
    functions.add("check", head)
    return functions.built(pool), held + free


class _Code:
    """Lines of a check function, each with the number of the guard that it belongs to."""

    def __init__(self, pool: Pool, fixed: dict[int, Origin] | None = None) -> None:
        self.pool = pool
        self.lines: list[str] = []
        self.guards: list[int] = []
        self.locals: dict[int, str] = {}
        self.fixed = fixed or {}  # origins of guards in the group, by id
        self.kept: list[Origin] = []  # those of `fixed` that these lines use

    def add(self, line: str, guard: int) -> None:
        self.lines.append(_INDENT + line)
        self.guards.append(guard)

    def place(self, origin: Origin, guard: int) -> str:
        """The local variable that holds the value of an origin; fetched at its first use."""
        found = self.locals.get(id(origin))
        if found is not None:
            return found
        if id(origin) in self.fixed:
            text = f"kept[{len(self.kept)}]"
            self.kept.append(origin)
        elif origin.kind == CALC:
            text = self._calculation(origin, guard)
        else:
            base = self.place(origin.parent, guard) if origin.parent is not None else ""
            if isinstance(origin.key, Origin):
                key = self.place(origin.key, guard)
            else:
                key = self.pool.name(origin.key)
            text = origin.expression(base, key, self.pool)
        if text.isidentifier():
            self.locals[id(origin)] = text
            return text
        name = self.locals[id(origin)] = f"v{len(self.locals)}"
        self.add(f"{name} = {text}", guard)
        return name

    def _calculation(self, origin: Origin, guard: int) -> str:
        parts = [
            self.place(x, guard) if isinstance(x, Origin) else self.pool.name(x)
            for x in origin.operands
        ]
        symbol = SYMBOLS.get(origin.key)
        if symbol is not None and len(parts) == 2:
            return f"{parts[0]} {symbol} {parts[1]}"
        if origin.key is itself:
            return parts[0]
        return f"{self.pool.name(origin.key)}({', '.join(parts)})"

    def test(self, guard: Guard, number: int) -> None:
        value = "" if guard.origin is None else self.place(guard.origin, number)
        others = [self.place(origin, number) for origin in guard.others]
        self.add(f"if {guard.expression(self.pool, value, others)}: return {number}", number)

    def give(self, origins: Sequence[Origin], guard: int) -> None:
        """Return the values of these origins as a tuple."""
        places = [self.place(origin, guard) for origin in origins]
        self.add(f"return ({''.join(f'{place}, ' for place in places)})", guard)


def _is_fixed(guard: Guard) -> bool:
    """Whether a guard of the group means that its origin still holds the same object."""
    return guard.kind in ("tensor", "identity") or (
        guard.kind == "class"
        and guard.expected not in NUMBERS
        and not issubclass(guard.expected, np.generic)
    )


def _add_group(
    code: _Code,
    functions: _Functions,
    grouped: list[tuple[int, Guard]],
    kept: list[Origin],
    inputs: list[Origin],
) -> None:
    """Check the guards about modules and optimizers only if one changed since they last held.

    Tensors that must have no history are checked at every call, all at once: an in-place write may
    give them one without a change of the version.
    """
    pool, first = code.pool, grouped[0][0]
    group = _Code(pool)
    for number, guard in grouped:
        group.test(guard, number)
    bare = [g.origin for _, g in grouped if g.kind == "bare" and g.origin is not None]
    pool.namespace["structure"] = structure
    functions.add("group", group)
    parts = {"bare": bare, "kept": kept, "held": inputs}
    for part, origins in parts.items():
        listed = _Code(pool)
        listed.give(origins, first)
        functions.add(f"find_{part}", listed)
    roots = {id(g.root): g.root for _, g in grouped if g.root is not None}
    # One tuple each, replaced as a whole: other threads may check at the same time.
    held: list[Any] = [(-1, (), (), (), *[None] * len(roots))]
    failed: list[Any] = [(-1, 0, *[None] * len(roots))]
    # Facts about tensors can change without a change of the version; all other failures last.
    lasting = frozenset(i for i, g in grouped if g.kind not in ("tensor", "bare"))
    yes, no, final = pool.name(held), pool.name(failed), pool.name(lasting)
    places = [code.place(root, first) for root in roots.values()]
    rest = "".join(f", {place}" for place in places)
    unlike = "".join(f" or seen[{i}] is not {place}" for i, place in enumerate(places, 4))
    alike = "".join(f" and seen[{i}] is {place}" for i, place in enumerate(places, 2))
    found = ", ".join(f"find_{part}(args, kwargs)" for part in parts)
    code.add(f"seen = {yes}[0]", first)
    code.add(f"if seen[0] != structure.version{unlike}:", first)
    code.add("    version = structure.version", first)
    code.add(f"    seen = {no}[0]", first)
    code.add(f"    if seen[0] == version{alike}: return seen[1]", first)
    code.add("    failed = group(args, kwargs)", first)
    code.add("    if failed >= 0:", first)
    code.add(f"        if failed in {final}: {no}[0] = (version, failed{rest})", first)
    code.add("        return failed", first)
    code.add(f"    seen = {yes}[0] = (version, {found}{rest})", first)
    for i, (part, origins) in enumerate(parts.items(), 1):
        if origins:
            code.add(f"{part} = seen[{i}]", first)
    if bare:
        pool.namespace["history"] = attrgetter("_node")
        code.add("if any(map(history, bare)):", first)
        code.add("    failed = group(args, kwargs)", first)
        code.add("    if failed >= 0: return failed", first)


class _Functions:
    """Functions of guard code. They are compiled together and share the constants of one pool."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.guards: list[int] = []  # for each line

    def add(self, name: str, code: _Code) -> None:
        head = [f"def {name}(args, kwargs):", "    try:"]
        tail = [
            "    except Exception as error:",
            "        return failed_at(error.__traceback__.tb_lineno)",
            "    return -1",
        ]
        self.lines += [*head, *(code.lines or [f"{_INDENT}pass"]), *tail]
        self.guards += [0, 0, *(code.guards or [0]), 0, 0, 0]

    def built(self, pool: Pool) -> Enter:
        """Compile them; returns `check`."""
        text, numbers = "\n".join(self.lines) + "\n", self.guards
        pool.namespace["failed_at"] = lambda line: numbers[line - 1]
        exec(_compiled_text(text), pool.namespace)
        check: Enter = pool.namespace["check"]
        check.__doc__ = text[text.index("def check(") :]  # so that the code can be read
        return check


#: From this length on, loading the code from disk is faster than compiling it.
LONG = 4000


def _compiled_text(text: str) -> CodeType:
    def compiled() -> CodeType:
        return compile(text, "<weft guards>", "exec")

    if len(text) < LONG:
        return compiled()
    return cached_code(store.name_of(b"guards 1", PYTHON, text.encode()), "guards", compiled)
