"""Rewritten functions, classes and their objects behave as the originals."""

# The programs are written as people write, not as a linter would.
# ruff: noqa: B008, B905, PERF402, RUF012

from __future__ import annotations

import collections
import dataclasses
import functools
import itertools
from typing import Any

import pytest
from converted import SCALE, Base, Child, Color, Point, Vector, decorated, doubled

from weft.capture.hooks import run_watched
from weft.capture.watch.watch import Watch


@dataclasses.dataclass(frozen=True)
class Frozen:
    x: int
    y: int = 1


Pair = collections.namedtuple("Pair", "left right")


class Countdown:
    def __init__(self, n: int) -> None:
        self.n = n

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> int:
        if not self.n:
            raise StopIteration
        self.n -= 1
        return self.n


class Old:
    """Iterated by its items."""

    def __getitem__(self, i: int) -> int:
        if i > 2:
            raise IndexError(i)
        return i * i


@functools.lru_cache
def cached(n: int) -> int:
    return n + SCALE


@functools.singledispatch
def dispatched(value: Any) -> str:
    return "other"


@dispatched.register
def _(value: int) -> str:
    return f"int {value}"


def star_arguments() -> Any:
    def f(a: int, /, b: int, *rest: int, c: int, d: int = 4, **more: int) -> Any:
        return a, b, rest, c, d, more

    args, named = [2, 3, 4], {"c": 5, "z": 6}
    return f(1, *args, **named), f(*[1], *(2,), c=3), [*args, *"ab"], {**named, "c": 9}, {*args}


def closures() -> Any:
    total = 0

    def add(n: int) -> int:
        nonlocal total
        total += n
        return total

    def recursive(n: int) -> int:
        return 1 if n < 2 else n * recursive(n - 1)

    makers = [lambda x, k=k: x * k for k in range(3)]
    return add(2), add(3), total, recursive(5), [m(2) for m in makers]


def classes() -> Any:
    class Local(Base):
        kind = "local"
        table: dict[str, int] = {"a": 1}
        both = [kind, len(table)]

        def name(self) -> str:
            return super().name() + "!"

        class Inner:
            __hidden = 5

            def get(self) -> int:
                return self.__hidden

    a = Local(3)
    return a.name(), a.secret(), Local.both, Local.Inner().get(), Local.__qualname__, a.whatever


def attributes() -> Any:
    c = Child(4)
    c.double = 20
    before = c.double, c.n
    del c.extra
    missing = getattr(c, "nothing", "default"), hasattr(c, "nope"), hasattr(c, "n")
    c.new = 1
    return before, missing, c.new, c.name(), Child.make(7).n, c.plus(1, 2), c.secret(), c.any_other


def operators() -> Any:
    v = Vector(1, 2)
    w = v + Vector(3, 4)
    u = 10 + v
    v += 5
    v[0] = 9
    return (
        *(repr(v), repr(w), repr(u), repr(-w), v == w, v != w, v < w, w > v, len(v), list(v)),
        *(v[1], 7 in v, 8 not in v, v(2), f"{v:abc} {v!r} {v}", bool(Vector()), int(v), abs(v)),
        *(str(v), sorted([w, v, u])[0] is w, max(v), sum([v, w], Vector(0, 0)).parts, [*v]),
    )


def iteration() -> Any:
    out = [list(Countdown(3)), list(Old()), 4 in Old(), next(Countdown(2)), next(iter([]), "none")]
    for x in Countdown(2):
        out.append(x)
    a, b, c = Old()
    out += [a, b, c, list(zip(Countdown(2), Old())), list(reversed([1, 2])), [*Countdown(2)]]
    it = iter(lambda it=itertools.count(): next(it), 3)
    return out, list(it), dict(zip("ab", Countdown(2)))


def dataclasses_() -> Any:
    p = Point(1)
    q = Point(1, 2, size_tags := ["t"])
    f = Frozen(3)
    try:
        f.x = 4  # type: ignore[misc]
    except dataclasses.FrozenInstanceError as error:
        frozen = str(error)
    return p.size, q.tags is size_tags, p == Point(1), repr(f), frozen, dataclasses.replace(f, y=5)


def tuples_and_enums() -> Any:
    p = Pair(1, right=2)
    left, right = p
    return (
        p.left,
        p[1],
        left + right,
        p._replace(left=5),
        Color.RED.name,
        Color(2),
        Color["BLUE"].value,
    )


def library_calls() -> Any:
    return (
        *(sorted("bca", key=lambda c: -ord(c)), max([1, 5, 3], key=lambda v: -v), min(3, 2)),
        *(list(map(lambda a, b: a + b, [1, 2], [3, 4])), list(filter(None, [0, 1]))),
        *(functools.reduce(lambda a, b: a * b, [1, 2, 3, 4]), cached(2), dispatched(3)),
        *(dispatched("x"), decorated(1), decorated(1, b=2), functools.partial(decorated, b=1)(3)),
        *(any(x > 2 for x in [1, 3]), all([]), list(itertools.accumulate([1, 2], max))),
        *(collections.Counter("aab")["a"], "-".join(["x", "y"]), [3, 1, 2].index(1), divmod(7, 2)),
        *(isinstance(True, int), int is int, issubclass(bool, int), callable(len), abs(-2)),
    )


def frame_functions() -> Any:
    here, there = 1, 2
    names = sorted(locals())
    return names, sorted(vars()), eval("here + there"), "SCALE" in globals()


def default_values() -> Any:
    def f(a: int, b: list[int] = [], *, c: dict[str, int] = {"k": 1}) -> Any:  # noqa: B006
        b.append(a)
        return list(b), c["k"]

    return f(1), f(2)


def decorators() -> Any:
    def tag(name: str) -> Any:
        def wrap(f: Any) -> Any:
            f.tag = name
            return f

        return wrap

    @tag("outer")
    @doubled
    def f(x: int) -> int:
        return x + SCALE

    @tag("class")
    class C:
        @functools.cached_property
        def slow(self) -> int:
            return SCALE * 2

    c = C()
    return f(1), f.tag, C.tag, c.slow, c.slow, "slow" in vars(c)


def nested_functions_names() -> Any:
    def inner() -> None: ...

    return inner.__qualname__, (lambda: 0).__qualname__, inner.__module__ == __name__


PROGRAMS = [
    *(star_arguments, closures, classes, attributes, operators, iteration, dataclasses_),
    *(tuples_and_enums, library_calls, default_values, decorators, nested_functions_names),
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_a_program_gives_what_it_gave(program: Any) -> None:
    watch = Watch()
    assert repr(run_watched(watch, program, (), {})) == repr(program())
    assert watch.uncacheable == []


def test_functions_of_the_frame() -> None:
    watch = Watch()
    assert run_watched(watch, frame_functions, (), {}) == frame_functions()
    assert any("eval()" in reason for reason in watch.uncacheable)
