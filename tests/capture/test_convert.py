"""Rewritten statements and expressions give what the originals give."""

# The programs are written as people write, not as a linter would.
# ruff: noqa: B018, B023, C400, C416, C417, F821, RUF015, UP031

from __future__ import annotations

import contextlib
import types
from collections.abc import Iterator
from typing import Any

import pytest
from converted import Color, Point, Vector

from weft.capture.hooks import run_watched
from weft.capture.watch.watch import Watch

NAMES = ["a", "b", "c"]


@contextlib.contextmanager
def noted(log: list[str], name: str) -> Iterator[str]:
    log.append(f"+{name}")
    try:
        yield name.upper()
    finally:
        log.append(f"-{name}")


def arithmetic() -> Any:
    a, b = 7, 2
    return (
        a + b - a * b / 3 // 1 % 5**2 << 1 >> 0
        if False
        else (a << b, a | b, a & b, a ^ b, ~a, -a, +b)
    )


def chained(log: list[int] | None = None) -> Any:
    seen: list[int] = []

    def at(n: int) -> int:
        seen.append(n)
        return n

    first = at(1) < at(2) < at(3)
    second = at(5) < at(4) < at(6)
    third = at(1) < at(2) == at(2) != at(9) >= at(0)
    return first, second, third, seen


def shortcuts() -> Any:
    seen: list[Any] = []

    def at(value: Any) -> Any:
        seen.append(value)
        return value

    return (at(0) or at("") or at([1]) or at(2)), (at(1) and at("") and at(3)), not at([]), seen


def conditions() -> Any:
    out = []
    for i in range(6):
        if i == 1:
            continue
        elif i > 4:
            break
        else:
            out.append("even" if i % 2 == 0 else "odd")
    else:
        out.append("never")
    n = 3
    while n:
        n -= 1
    else:
        out.append("done")
    return out


def comprehensions() -> Any:
    k = 2
    squares = [x * x for x in range(5) if x != k]
    pairs = {(a, b) for a in range(2) for b in range(a, 3) if a or b}
    table = {name: i for i, name in enumerate(NAMES)}
    lazy = sum(x * k for x in range(3))
    nested = [[y for y in range(x)] for x in range(3)]
    last = [(last := x) for x in range(3)]
    return squares, sorted(pairs), table, lazy, nested, last


def comprehension_scopes() -> Any:
    x = 10
    values = [x for x in range(3)]
    return x, values, [lambda: i for i in range(3)][0](), list(map(lambda v: v + x, values))


def generators() -> Any:
    def count(n: int) -> Iterator[int]:
        got = yield n
        while got:
            got = yield got * 2
        return

    def outer() -> Iterator[Any]:
        result = yield from inner()
        yield result

    def inner() -> Any:
        yield 1
        return "end"

    gen = count(1)
    return next(gen), gen.send(5), list(outer()), list(x for x in count(0) if x == 0)


def exceptions() -> Any:
    log: list[str] = []

    def run(kind: type[Exception]) -> str:
        try:
            log.append("try")
            if kind is not Warning:
                raise kind("x")
        except (KeyError, IndexError) as error:
            return f"caught {type(error).__name__}"
        except ValueError:
            log.append("value")
            raise
        else:
            log.append("else")
        finally:
            log.append("finally")
        return "end"

    out = [run(KeyError), run(Warning)]
    try:
        run(ValueError)
    except ValueError as error:
        out.append(str(error))
    try:
        try:
            1 / 0
        except ZeroDivisionError as error:
            raise RuntimeError("second") from error
    except RuntimeError as error:
        out.append(repr(error.__cause__))
    return out, log


def contexts() -> Any:
    log: list[str] = []
    with noted(log, "a") as a, noted(log, "b") as b:
        log.append(a + b)
    v = Vector(1, 2)
    with v as inside, contextlib.suppress(ValueError):
        log.append(str(len(inside)))
        raise ValueError
    with v:
        raise KeyError
    return log, v.parts


def unpacking() -> Any:
    a, (b, *c), d = 1, (2, 3, 4), 5
    [e, f] = "xy"
    g = h = [0, 0]
    g[0], h[1] = 7, 8
    holder = types.SimpleNamespace()
    holder.x, (holder.y, g[0]) = 1, (2, 9)
    first, *rest = range(4)
    for i, (j, k) in enumerate([(1, 2), (3, 4)]):
        a += i * j * k
    for holder.x, g[1] in [(5, 6)]:
        pass
    return a, b, c, d, e, f, g, h, vars(holder), first, rest


def augmented() -> Any:
    order: list[str] = []

    class Box:
        def __init__(self) -> None:
            self.n = 1
            self.items = [1, 2]

        def get(self) -> int:
            order.append("get")
            self.n = 50
            return 5

    box = Box()
    box.n += box.get()
    box.items[0] *= 3
    box.items += [4]
    s = "a"
    s += "b"
    t = (1,)
    t += (2,)
    d = {"k": 1}
    d["k"] -= 3
    d |= {"m": 2}
    return box.n, box.items, s, t, d, order


def matching() -> Any:
    def kind(value: Any) -> Any:
        match value:
            case 0 | 1:
                return "small"
            case [a, *rest] if rest:
                return a, rest
            case {"k": v, **more}:
                return v, more
            case Point(x=0, y=y):
                return "point", y
            case Color.RED:
                return "red"
            case str() as s:
                return s.upper()
            case _:
                return None

    values = [0, [1, 2, 3], {"k": 1, "z": 2}, Point(0, 5), Color.RED, "s", Color.BLUE, 7]
    return [kind(v) for v in values]


def formatting() -> Any:
    x, width, name = 3.14159, 8, "n"
    return (
        f"{x:.2f} {x:>{width}.1f} {name!r} {name!s:>3} {{}} {1 + 1}",
        f"{x=}",
        "%s %d" % (name, 4),
    )


def walrus() -> Any:
    out = []
    data = [1, 2, 3]
    while (n := len(data)) > 1:
        out.append(n)
        data.pop()
    if (m := n + 1) and (k := m * 2):
        out.append(k)
    return out, n, m, k, [y := 5, y**2]


def deletion() -> Any:
    a = [1, 2, 3, 4]
    d = {"x": 1, "y": 2}
    del a[0], d["x"]
    del a[:1]
    b = 1
    del b
    try:
        b
    except UnboundLocalError as error:
        return a, d, type(error).__name__
    return None


def globals_() -> Any:
    global _made
    _made = 5
    _made += 1
    value = _made
    del _made
    try:
        return value, _made
    except NameError as error:
        return value, str(error)


def imports() -> Any:
    import math as m
    from collections import OrderedDict as Ordered
    from os.path import join

    return m.floor(2.5), Ordered(a=1)["a"], join("a", "b")


def slices() -> Any:
    a = list(range(10))
    a[2:4] = [20, 30, 40]
    a[::5] = [0, 0, 0]
    return a[1:8:2], a[-2:], a[:2], "text"[1:], (1, 2, 3)[::-1]


def groups() -> Any:
    out = []
    try:
        raise ExceptionGroup("g", [ValueError(1), KeyError(2)])
    except* ValueError as group:
        out.append(len(group.exceptions))
    except* KeyError:
        out.append("key")
    return out


def annotated() -> Any:
    x: int = 3
    y: str
    holder = types.SimpleNamespace()
    holder.z: float = 1.5
    y = "s"
    return x, y, holder.z


PROGRAMS = [
    *(arithmetic, chained, shortcuts, conditions, comprehensions, comprehension_scopes),
    *(generators, exceptions, contexts, unpacking, augmented, matching, formatting),
    *(walrus, deletion, globals_, imports, slices, groups, annotated),
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_a_program_gives_what_it_gave(program: Any) -> None:
    watch = Watch()
    assert repr(run_watched(watch, program, (), {})) == repr(program())
    assert watch.uncacheable == []
