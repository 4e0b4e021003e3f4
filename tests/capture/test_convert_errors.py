"""Errors of rewritten functions: the same message, from the same lines."""

# The programs are written as people write, not as a linter would.
# ruff: noqa: C417, F821, PT011

from __future__ import annotations

import traceback
from typing import Any

import converted
import pytest
from converted import SCALE, Child, Vector, decorated

from weft.capture.hooks import run_watched
from weft.capture.watch.watch import Watch

FILES = (__file__, converted.__file__)


def reflected_errors() -> Any:
    return Vector(1) + "a"


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
    """The user's part of a traceback: functions of these files, without the test's own."""
    return [
        (frame.name, frame.lineno)
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename in FILES and not frame.name.startswith("test_")
    ]


@pytest.mark.parametrize("program", ERRORS, ids=lambda f: f.__name__)
def test_an_error_is_what_it_was_and_where(program: Any) -> None:
    with pytest.raises(Exception) as plain:
        program()
    with pytest.raises(Exception) as watched:
        run_watched(Watch(), program, (), {})
    assert type(watched.value) is type(plain.value)
    assert str(watched.value) == str(plain.value)
    assert lines_of(watched.value) == lines_of(plain.value)
