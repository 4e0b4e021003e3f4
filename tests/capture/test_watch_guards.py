"""What a run read from outside is a guard: change it and it fails; other changes are let pass."""

from __future__ import annotations

import functools
import math
import threading
import timeit
from collections.abc import Callable
from typing import Any

import pytest
from guarded import Box, Row, check_row, failure, helper, now, setting, watched

import weft
from weft.capture.hooks import run_watched
from weft.capture.watch.guard_code import compile_guards
from weft.capture.watch.watch import Watch

CONFIG: dict[str, Any] = {"lr": 0.1, "steps": 3, "nested": {"deep": [1, 2]}}
LIMIT = 4
FLAG = True


def closure(value: Any) -> tuple[Callable[[], Any], Callable[[Any], None]]:
    def read() -> Any:
        return value

    def write(new: Any) -> None:
        nonlocal value
        value = new

    return read, write


def counter() -> tuple[Callable[[int], int], list[int]]:
    factors = [2, 3]

    def f(x: int) -> int:
        return x * factors[0]

    return f, factors


def lr() -> float:
    return CONFIG["lr"] * 2


def with_default(x: int, k: int = 3, *, m: int = 4) -> int:
    return x + k + m


def with_list(x: int, acc: list[int] = [1, 2]) -> int:  # noqa: B006
    return x + acc[0]


read_closure, write_closure = closure(7)
scaled, factors = counter()
bound = Box(11).method
partial = functools.partial(helper, k=5)
functions = {"f": helper, "g": math.sqrt}

ROWS: list[Row] = [
    # globals and closures
    ("global", lambda: LIMIT + 1, (), setting(globals(), "LIMIT", 5), "global LIMIT was 4, now 5"),
    ("other global", lambda: LIMIT + 1, (), setting(globals(), "FLAG", False), None),
    ("global item", lr, (), setting(CONFIG, "lr", 0.2), 'global CONFIG["lr"] was 0.1, now 0.2'),
    ("other item", lr, (), setting(CONFIG, "steps", 9), None),
    ("equal dict", lr, (), setting(globals(), "CONFIG", {"lr": 0.1}), None),
    (
        "nested item",
        lambda: CONFIG["nested"]["deep"][1],
        (),
        setting(CONFIG, "nested", {"deep": [1, 3]}),
        "[1] was 2, now 3",
    ),
    (
        "missing key",
        lambda: CONFIG.get("z"),
        (),
        setting(CONFIG, "z", 1),
        'global CONFIG["z"] was missing',
    ),
    ("key in dict", lambda: "z" in CONFIG, (), setting(CONFIG, "z", 1), "was missing, now"),
    ("other key in dict", lambda: "z" in CONFIG, (), setting(CONFIG, "y", 1), None),
    ("closure", read_closure, (), lambda _p: write_closure(8), "value was 7, now 8"),
    ("closure item", scaled, (2,), lambda _p: factors.__setitem__(0, 5), "factors[0] was 2, now 5"),
    ("closure other item", scaled, (2,), lambda _p: factors.append(9), None),
    ("builtin shadowed", lambda: LIMIT, (), setting(globals(), "len", 3), None),
    (
        "default",
        with_default,
        (1,),
        lambda p: p.setattr(with_default, "__defaults__", (9,)),
        "with_default.__defaults__ was (3,), now (9,)",
    ),
    (
        "keyword default",
        with_default,
        (1,),
        lambda p: p.setitem(with_default.__kwdefaults__, "m", 9),
        'with_default.__kwdefaults__["m"] was 4, now 9',
    ),
    (
        "mutable default",
        with_list,
        (1,),
        lambda _p: with_list.__defaults__[0].__setitem__(0, 9),
        "[0] was 1, now 9",
    ),
    # functions
    (
        "callee",
        lambda x: helper(x),
        (1,),
        setting(globals(), "helper", lambda x: x),
        "global helper was the function helper, now",
    ),
    (
        "callee code",
        lambda x: helper(x),
        (1,),
        lambda p: p.setattr(helper, "__code__", (lambda x, k: x).__code__),
        "helper.__code__ was the code of helper",
    ),
    (
        "callee default",
        lambda x: helper(x),
        (1,),
        lambda p: p.setattr(helper, "__defaults__", (7,)),
        "global helper.__defaults__",
    ),
    (
        "module function",
        lambda x: math.floor(x),
        (1.5,),
        lambda p: p.setattr(math, "floor", math.ceil),
        "math.floor was",
    ),
    (
        "function argument",
        lambda f: f(2),
        (lambda v: v + 1,),
        now(lambda v: v + 2),
        "args[0] was the function",
    ),
    ("made anew", lambda f: f(), (closure(5)[0],), now(closure(5)[0]), None),
    (
        "its closure",
        lambda f: f(),
        (closure(5)[0],),
        now(closure(6)[0]),
        "value of args[0] was 5, now 6",
    ),
    (
        "bound method",
        lambda: bound(),
        (),
        lambda _p: setattr(bound.__self__, "value", 12),
        ".value was 11, now 12",
    ),
    (
        "partial",
        lambda x: partial(x),
        (1,),
        setting(globals(), "partial", functools.partial(helper, k=6)),
        "global partial was",
    ),
    (
        "function in a dict",
        lambda: functions["f"](1),
        (),
        setting(functions, "f", math.sqrt),
        'functions["f"] was the function helper',
    ),
    (
        "other in that dict",
        lambda: functions["f"](1),
        (),
        setting(functions, "g", math.floor),
        None,
    ),
    # modes
    (
        "grad mode",
        lambda x: x,
        (1,),
        lambda p: p.setattr(weft.core.grad_mode.mode, "enabled", False),
        "grad mode was True, now False",
    ),
    (
        "default dtype",
        lambda x: x,
        (1,),
        lambda p: p.setattr(weft.base.dtypes, "_default_float", weft.float64),
        "default dtype was weft.float32",
    ),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0].replace(" ", "-"))
def test_a_guard_sees(row: Row, monkeypatch: pytest.MonkeyPatch) -> None:
    check_row(row, monkeypatch)


# --- arguments by name, order, cost --------------------------------------------------------------


def test_keyword_arguments() -> None:
    _, guards = watched(lambda *, n, box: n + box.value, (), {"n": 1, "box": Box(2)})
    assert failure(guards, (), {"n": 1, "box": Box(2)}) is None
    assert failure(guards, (), {"n": 2, "box": Box(2)}) == 'kwargs["n"] was 1, now 2'
    assert failure(guards, (), {"n": 1, "box": Box(3)}) == 'kwargs["box"].value was 2, now 3'
    assert "the call was" in str(failure(guards, (1,), {"box": Box(2)}))


def test_descriptions_and_lines() -> None:
    def f(x: Any) -> Any:
        return x.value + CONFIG["steps"]

    _, guards = watched(f, (Box(1),), {})
    texts = {guard.description: guard for guard in guards}
    assert 'global CONFIG["steps"] == 3' in texts
    assert "args[0].value == 1" in texts
    assert "type(args[0]) is Box" in texts
    line = f.__code__.co_firstlineno + 1
    assert texts["args[0].value == 1"].location == f"{__file__}:{line}"


def test_guards_are_taken_in_parts() -> None:
    taken: list[list[str]] = []

    def f(x: Any) -> Any:
        a = x.value
        taken.append([guard.description for guard in watch.take_guards()])
        return a + x.other

    watch = Watch()
    run_watched(watch, f, (Box(),), {})
    last = [guard.description for guard in watch.take_guards()]
    assert "args[0].value == 1" in taken[0]
    assert "args[0].other == 2" not in taken[0]
    assert "args[0].other == 2" in last
    assert "args[0].value == 1" not in last


def test_an_error_in_a_guard_is_a_guard_that_fails() -> None:
    _, guards = watched(lambda x: x.value[0]["k"], (Box([{"k": 1}]),), {})
    assert failure(guards, (Box([{"k": 1}]),), {}) is None
    for bad in (Box([]), Box([{}]), Box(None), Box([None])):
        assert failure(guards, (bad,), {}) is not None
    gone = Box([{"k": 1}])
    del gone.value
    assert "now there is none" in str(failure(guards, (gone,), {}))


def test_objects_that_the_run_made_are_free() -> None:
    def f(n: int) -> Any:
        box = Box([n])
        box.value.append(2)
        made = {"k": box.value}
        return sum(made["k"]) + len(made)

    _, guards = watched(f, (1,), {})
    texts = [guard.text for guard in guards]
    assert not any("value" in text or '"k"' in text for text in texts)


def test_ten_guards_cost_two_microseconds() -> None:
    def f(x: Any, c: Any, n: int) -> Any:
        return c.value + c.other + n + LIMIT if FLAG else len(CONFIG)

    args = (weft.ones(2), Box(), 3)
    _, guards = watched(f, args, {})
    assert len(guards) >= 10
    check = compile_guards(guards)
    assert check(args, {}) == -1
    best = min(timeit.repeat(lambda: check(args, {}), number=2000, repeat=20)) / 2000
    assert best < 2e-6 * max(1, len(guards) / 10)


def test_several_threads_record_at_once() -> None:
    def f(box: Any, n: int) -> Any:
        total = 0
        for i in range(50):
            total += box.value * i if i % 2 else helper(i)
        box.other = total + n
        return box.other

    def run(n: int) -> None:
        for _ in range(5):
            box = Box(n)
            watch = Watch()
            want = f(Box(n), n)
            found = run_watched(watch, f, (box, n), {})
            guards = watch.take_guards()
            check = compile_guards(guards)
            ok = (found == want, box.other == want, check((Box(n), n), {}) == -1)
            results.append((*ok, check((Box(n + 1), n), {}) >= 0, not watch.uncacheable))

    results: list[tuple[bool, ...]] = []
    threads = [threading.Thread(target=run, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 30
    assert all(map(all, results))
