"""Rewritten functions behave as the originals: results, errors, lines, side effects."""

# The programs are written as people write, not as a linter would.
# ruff: noqa: B008, B018, B023, B905, C400, C416, C417, F821, PERF402, PT011, RUF012, RUF015, UP031

from __future__ import annotations

import collections
import contextlib
import dataclasses
import enum
import functools
import itertools
import traceback
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from weft.capture.convert.convert import NoSource, convert
from weft.capture.watch.watch import Watch

SCALE = 3
NAMES = ["a", "b", "c"]


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Vector:
    """Python methods behind every operator."""

    def __init__(self, *parts: int) -> None:
        self.parts = list(parts)

    def __add__(self, other: Any) -> Any:
        if not isinstance(other, Vector):
            return NotImplemented
        return Vector(*(a + b for a, b in zip(self.parts, other.parts, strict=True)))

    def __radd__(self, other: Any) -> Any:
        return Vector(*(other + a for a in self.parts))

    def __iadd__(self, other: Any) -> Any:
        self.parts = [a + other for a in self.parts]
        return self

    def __neg__(self) -> Any:
        return Vector(*(-a for a in self.parts))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vector) and self.parts == other.parts

    def __lt__(self, other: Any) -> bool:
        return sum(self.parts) < sum(other.parts)

    def __len__(self) -> int:
        return len(self.parts)

    def __iter__(self) -> Iterator[int]:
        return iter(self.parts)

    def __getitem__(self, i: Any) -> Any:
        return self.parts[i]

    def __setitem__(self, i: Any, value: Any) -> None:
        self.parts[i] = value

    def __contains__(self, value: object) -> bool:
        return value in self.parts

    def __call__(self, k: int) -> int:
        return sum(self.parts) * k

    def __repr__(self) -> str:
        return f"Vector{tuple(self.parts)}"

    def __format__(self, spec: str) -> str:
        return f"<{spec}|{self.parts}>"

    def __int__(self) -> int:
        return sum(self.parts)

    def __abs__(self) -> int:
        return max(self.parts)

    def __enter__(self) -> Any:
        self.parts.append(100)
        return self

    def __exit__(self, *_exc: object) -> bool:
        self.parts.pop()
        return _exc[0] is KeyError


class Base:
    kind = "base"

    def __init__(self, n: int = 1) -> None:
        self.n = n
        self.__secret = 10 * n

    def name(self) -> str:
        return f"{self.kind}{self.n}"

    @property
    def double(self) -> int:
        return self.n * 2

    @double.setter
    def double(self, value: int) -> None:
        self.n = value // 2

    @classmethod
    def make(cls, n: int) -> Any:
        return cls(n)

    @staticmethod
    def plus(a: int, b: int) -> int:
        return a + b

    def secret(self) -> int:
        return self.__secret

    def __getattr__(self, name: str) -> Any:
        if name.startswith("no"):
            raise AttributeError(name)
        return f"?{name}"


class Child(Base):
    kind = "child"

    def __init__(self, n: int = 2) -> None:
        super().__init__(n)
        self.extra = [super().name() for _ in range(1)] if False else [n]

    def name(self) -> str:
        return "<" + super().name() + ">"


@dataclasses.dataclass
class Point:
    x: int
    y: int = 2
    tags: list[str] = dataclasses.field(default_factory=list)
    size: int = dataclasses.field(init=False, default=0)

    def __post_init__(self) -> None:
        self.size = self.x + self.y


@dataclasses.dataclass(frozen=True)
class Frozen:
    x: int
    y: int = 1


Pair = collections.namedtuple("Pair", "left right")


@contextlib.contextmanager
def noted(log: list[str], name: str) -> Iterator[str]:
    log.append(f"+{name}")
    try:
        yield name.upper()
    finally:
        log.append(f"-{name}")


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


def doubled(function: Callable[..., int]) -> Callable[..., int]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> int:
        return 2 * function(*args, **kwargs)

    return call


@doubled
def decorated(a: int, *, b: int = 5) -> int:
    return a + b


# --- the programs: each returns something that can be compared ------------------------------------


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


def reflected_errors() -> Any:
    return Vector(1) + "a"


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


def frame_functions() -> Any:
    here, there = 1, 2
    names = sorted(locals())
    return names, sorted(vars()), eval("here + there"), "SCALE" in globals()


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


def default_values() -> Any:
    def f(a: int, b: list[int] = [], *, c: dict[str, int] = {"k": 1}) -> Any:  # noqa: B006
        b.append(a)
        return list(b), c["k"]

    return f(1), f(2)


def slices() -> Any:
    a = list(range(10))
    a[2:4] = [20, 30, 40]
    a[::5] = [0, 0, 0]
    return a[1:8:2], a[-2:], a[:2], "text"[1:], (1, 2, 3)[::-1]


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


def groups() -> Any:
    out = []
    try:
        raise ExceptionGroup("g", [ValueError(1), KeyError(2)])
    except* ValueError as group:
        out.append(len(group.exceptions))
    except* KeyError:
        out.append("key")
    return out


def ternaries() -> Any:
    return [("a" if x else "b") if x < 2 else "c" for x in range(3)], (lambda: (yield))


def nested_functions_names() -> Any:
    def inner() -> None: ...

    return inner.__qualname__, (lambda: 0).__qualname__, inner.__module__ == __name__


def annotated() -> Any:
    x: int = 3
    y: str
    holder = types.SimpleNamespace()
    holder.z: float = 1.5
    y = "s"
    return x, y, holder.z


PROGRAMS = [
    *(arithmetic, chained, shortcuts, conditions, comprehensions, comprehension_scopes),
    *(generators, exceptions, contexts, unpacking, augmented, star_arguments, closures, classes),
    *(attributes, operators, iteration, dataclasses_, tuples_and_enums, matching, formatting),
    *(library_calls, walrus, deletion, globals_, imports, default_values),
    *(slices, decorators, groups, nested_functions_names, annotated),
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_a_program_gives_what_it_gave(program: Any) -> None:
    watch = Watch()
    assert repr(watch.run(program, (), {})) == repr(program())
    assert watch.uncacheable == []


def test_functions_of_the_frame() -> None:
    watch = Watch()
    assert watch.run(frame_functions, (), {}) == frame_functions()
    assert any("eval()" in reason for reason in watch.uncacheable)


# --- errors --------------------------------------------------------------------------------------


def no_name() -> Any:
    x = 1
    return x + nowhere  # type: ignore[name-defined]


def no_attribute() -> Any:
    x = Vector(1)
    return (
        x.parts[0] + x.nothing  # type: ignore[attr-defined]
    )


def no_key() -> Any:
    return {"a": 1}["b"]


def no_index() -> Any:
    values = [1]
    values[0] += 1
    return values[3]


def no_call() -> Any:
    x: Any = 3
    return x(1)


def bad_arguments() -> Any:
    return decorated(1, 2)


def bad_unpacking() -> Any:
    a, b = [1, 2, 3]
    return a, b


def too_few() -> Any:
    a, (b, c) = 1, (2,)
    return a, b, c


def not_iterable() -> Any:
    x: Any = 5
    a, b = x
    return a, b


def in_a_loop() -> Any:
    for i in range(3):
        if i == 2:
            raise ValueError(i)


def in_a_callee() -> Any:
    return list(map(lambda v: 1 // v, [1, 0]))


def in_a_method() -> Any:
    return Child(1).no_such()


def assertion() -> Any:
    x = 3
    if x == 3:
        raise AssertionError(f"x is {x}")


def unbound() -> Any:
    if SCALE == 0:
        y = 1
    return y


def bad_context() -> Any:
    x: Any = 3
    with x:
        pass


def bad_bool() -> Any:
    class Bad:
        def __bool__(self) -> Any:
            return 3

    return 1 if Bad() else 2


def bad_order() -> Any:
    return Vector(1) < 3


ERRORS = [
    *(no_name, no_attribute, no_key, no_index, no_call, bad_arguments, bad_unpacking, too_few),
    *(not_iterable, in_a_loop, in_a_callee, in_a_method, assertion, unbound, bad_context),
    *(bad_bool, reflected_errors, bad_order),
]


def lines_of(error: BaseException) -> list[tuple[str, int | None]]:
    """The user's part of a traceback: functions of this file, without the test's own."""
    return [
        (frame.name, frame.lineno)
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename == __file__ and not frame.name.startswith("test_")
    ]


@pytest.mark.parametrize("program", ERRORS, ids=lambda f: f.__name__)
def test_an_error_is_what_it_was_and_where(program: Any) -> None:
    with pytest.raises(Exception) as plain:
        program()
    with pytest.raises(Exception) as watched:
        Watch().run(program, (), {})
    assert type(watched.value) is type(plain.value)
    assert str(watched.value) == str(plain.value)
    assert lines_of(watched.value) == lines_of(plain.value)


# --- finding the source --------------------------------------------------------------------------

two = [lambda x: x + 1, lambda x: x + 2]
three = lambda y: y * 3, lambda y: y * 4


def test_lambdas_on_one_line_are_told_apart() -> None:
    assert [Watch().run(f, (10,), {}) for f in (*two, *three)] == [11, 12, 30, 40]


def test_no_source_is_a_reason() -> None:
    namespace: dict[str, Any] = {}
    exec("def f(x):\n    return x + 1", namespace)
    watch = Watch()
    assert watch.run(namespace["f"], (1,), {}) == 2
    assert "f cannot be watched: there is no source file <string>" in watch.uncacheable[0]


def test_changed_source_is_noticed(tmp_path: Any, monkeypatch: Any) -> None:
    file = tmp_path / "weft_changed.py"
    file.write_text("def f(x):\n    return x + 1\n\ndef g(x):\n    return x - 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import weft_changed  # type: ignore[import-not-found]

    file.write_text("def f(x):\n    return x + 2\n\ndef g(x):\n    return x - 1\n")
    with pytest.raises(NoSource, match="has changed since"):
        convert(weft_changed.f)
    assert Watch().run(weft_changed.g, (1,), {}) == 0
    watch = Watch()
    assert watch.run(weft_changed.f, (1,), {}) == 2
    assert watch.uncacheable


def test_a_callable_object_a_partial_and_a_method() -> None:
    v = Vector(1, 2)
    assert Watch().run(v, (3,), {}) == 9
    assert Watch().run(functools.partial(decorated, b=1), (3,), {}) == 8
    assert Watch().run(Child(3).name, (), {}) == "<child3>"
    assert Watch().run(Child.make, (3,), {}).n == 3
    assert Watch().run(Point, (1,), {}).size == 3


def test_functions_that_outlive_the_run_still_work() -> None:
    def make(n: int) -> Any:
        values = [n]

        def add(x: int) -> int:
            values.append(x)
            return sum(values) * SCALE

        return add

    watch = Watch()
    add = watch.run(make, (1,), {})
    before = len(watch.take_guards())
    assert (add(2), add(3)) == (9, 18)
    assert before
    assert not watch.take_guards()


def test_async_functions_are_not_watched() -> None:
    async def wait() -> int:
        return 1

    def run() -> Any:
        return wait().close()

    watch = Watch()
    assert watch.run(run, (), {}) is None
    assert any("asynchronous" in reason for reason in watch.uncacheable)
