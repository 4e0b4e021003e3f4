"""Which functions are rewritten: how their source is found, and what happens without."""

from __future__ import annotations

import dis
import functools
import importlib
from typing import Any

import pytest
from converted import SCALE, Child, Point, Vector, decorated

from weft.capture.hooks import run_watched
from weft.capture.watch.watch import Watch
from weft.convert.convert import NoSource, _same_code, convert

two = [lambda x: x + 1, lambda x: x + 2]
three = lambda y: y * 3, lambda y: y * 4
constants = lambda y: 1.0, lambda y: (2.0, 3), lambda y: -1, lambda y: (2.0, 3)


def test_lambdas_on_one_line_are_told_apart() -> None:
    watch = Watch()
    wanted = [11, 12, 30, 40, 1.0, (2.0, 3), -1, (2.0, 3)]
    assert [run_watched(watch, f, (10,), {}) for f in (*two, *three, *constants)] == wanted
    assert not watch.uncacheable


def test_no_source_is_a_reason() -> None:
    namespace: dict[str, Any] = {}
    exec("def f(x):\n    return x + 1", namespace)
    watch = Watch()
    assert run_watched(watch, namespace["f"], (1,), {}) == 2
    # From 3.13 on, Python keeps the text of `python -c`, under the same name.
    reasons = ("there is no source file <string>", "<string> no longer holds it")
    assert watch.uncacheable[0].startswith(tuple(f"f cannot be watched: {why}" for why in reasons))


def test_changed_source_is_noticed(tmp_path: Any, monkeypatch: Any) -> None:
    file = tmp_path / "weft_changed.py"
    file.write_text("def f(x):\n    return x + 1\n\ndef g(x):\n    return x - 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import weft_changed  # type: ignore[import-not-found]

    file.write_text("def f(x):\n    return x + 2\n\ndef g(x):\n    return x - 1\n")
    with pytest.raises(NoSource, match="has changed since"):
        convert(weft_changed.f)
    assert run_watched(Watch(), weft_changed.g, (1,), {}) == 0
    watch = Watch()
    assert run_watched(watch, weft_changed.f, (1,), {}) == 2
    assert watch.uncacheable


#: A body, and what it was changed to. What names are used stays the same, and where it can the
#: constants, too.
EDITS = {
    "a small number": ("return x * 2", "return x * 3"),
    "a large number": ("return x * 1000", "return x * 1001"),
    "numbers that changed places": ("return x * 2 + 3", "return x * 3 + 2"),
    "operands that changed places": ("return x - y", "return y - x"),
    "an operator": ("return x - y", "return x + y"),
    "a comparison": ("return x < y", "return x <= y"),
    "which is given back": ("x = x + 1; y = y + 1; return x", "x = x + 1; y = y + 1; return y"),
    "which is assigned": ("x, y = y, x; return x", "y, x = y, x; return x"),
    "an index": ("return x[0]", "return x[1]"),
    "the end of a slice": ("return x[1:2]", "return x[1:3]"),
    "a constant that is given back": ("return 1", "return 2"),
    "a list and a tuple": ("return [x, y]", "return (x, y)"),
    "a not": ("return not x", "return x"),
    "a loop": (
        "for i in range(3): x = x + y\n    return x",
        "for i in range(4): x = x + y\n    return x",
    ),
    "a function inside": ("return (lambda z: z * 2)(x)", "return (lambda z: z * 3)(x)"),
    "and, or": ("return x and y", "return x or y"),
}


@pytest.mark.parametrize("edit", EDITS)
def test_each_change_is_noticed(edit: str, tmp_path: Any, monkeypatch: Any) -> None:
    before, after = EDITS[edit]
    name = f"weft_edited_{list(EDITS).index(edit)}"
    file = tmp_path / f"{name}.py"
    file.write_text(f"def f(x, y):\n    {before}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    module = importlib.import_module(name)
    file.write_text(f"def f(x, y):\n    {after}\n")
    with pytest.raises(NoSource, match="has changed since"):
        convert(module.f)


def test_an_instruction_that_is_in_no_list_is_compared() -> None:
    """Python 3.14 loads small numbers by an instruction of their own, which no list knew."""
    plain = (lambda x: x).__code__
    other = dis.opmap["BUILD_STRING"]
    one, two = (plain.replace(co_code=plain.co_code + bytes([other, n])) for n in (1, 2))
    assert _same_code(one, one)
    assert not _same_code(one, two)


def test_a_callable_object_a_partial_and_a_method() -> None:
    v = Vector(1, 2)
    assert run_watched(Watch(), v, (3,), {}) == 9
    assert run_watched(Watch(), functools.partial(decorated, b=1), (3,), {}) == 8
    assert run_watched(Watch(), Child(3).name, (), {}) == "<child3>"
    assert run_watched(Watch(), Child.make, (3,), {}).n == 3
    assert run_watched(Watch(), Point, (1,), {}).size == 3


def test_functions_that_outlive_the_run_still_work() -> None:
    def make(n: int) -> Any:
        values = [n]

        def add(x: int) -> int:
            values.append(x)
            return sum(values) * SCALE

        return add

    watch = Watch()
    add = run_watched(watch, make, (1,), {})
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
    assert run_watched(watch, run, (), {}) is None
    assert any("asynchronous" in reason for reason in watch.uncacheable)
