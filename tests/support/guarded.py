"""Runs with their guards: objects to read, and rows of what is changed and which guard sees it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from weft.capture.hooks import run_watched
from weft.capture.watch.guard_code import compile_guards
from weft.capture.watch.guards import Guard
from weft.capture.watch.watch import Watch


class Box:
    shared = 5

    def __init__(self, value: Any = 1, other: Any = 2) -> None:
        self.value = value
        self.other = other

    def method(self) -> Any:
        return self.value

    @property
    def twice(self) -> Any:
        return self.value * 2

    @classmethod
    def of(cls) -> Any:
        return cls.shared


def helper(x: Any, k: int = 2) -> Any:
    return x * k


def watched(fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Watch, list[Guard]]:
    watch = Watch()
    run_watched(watch, fn, args, kwargs)
    assert watch.uncacheable == [], watch.uncacheable
    return watch, watch.take_guards()


def failure(guards: list[Guard], args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    number = compile_guards(guards)(args, kwargs)
    return None if number < 0 else guards[number].found(args, kwargs)


#: What it is about, the function, its arguments, the change, what the failing guard says.
Row = tuple[str, Callable[..., Any], tuple[Any, ...], Callable[..., Any], str | None]


def setting(target: Any, name: Any, value: Any) -> Callable[..., None]:
    """A change of an attribute or an item, that is undone when the test is over."""

    def change(patch: pytest.MonkeyPatch) -> None:
        if isinstance(target, dict):
            patch.setitem(target, name, value)
        else:
            patch.setattr(target, name, value)

    return change


def now(*args: Any) -> Callable[..., tuple[Any, ...]]:
    """Call again with other arguments."""
    return lambda _patch: args


def loop(values: Any) -> Any:
    total = 0
    for value in values:
        total += value
    return total


def check_row(row: Row, patch: pytest.MonkeyPatch) -> None:
    """Run, then change what the row changes: the guard that the row names fails, or none."""
    _, fn, args, change, want = row
    _, guards = watched(fn, args, {})
    before = failure(guards, args, {})
    assert before is None, before
    changed = change(patch)
    found = failure(guards, args if changed is None else changed, {})
    if want is None:
        assert found is None, found
    else:
        assert found is not None, f"no guard fails: {want}"
        assert want in found, f"{want!r} is not in {found!r}"
