"""Which functions are rewritten: how their source is found, and what happens without."""

from __future__ import annotations

import functools
from typing import Any

import pytest
from converted import SCALE, Child, Point, Vector, decorated

from weft.capture.convert.convert import NoSource, convert
from weft.capture.watch.watch import Watch

two = [lambda x: x + 1, lambda x: x + 2]
three = lambda y: y * 3, lambda y: y * 4


def test_lambdas_on_one_line_are_told_apart() -> None:
    assert [Watch().run(f, (10,), {}) for f in (*two, *three)] == [11, 12, 30, 40]


def test_no_source_is_a_reason() -> None:
    namespace: dict[str, Any] = {}
    exec("def f(x):\n    return x + 1", namespace)
    watch = Watch()
    assert watch.run(namespace["f"], (1,), {}) == 2
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
