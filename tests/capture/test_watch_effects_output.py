"""What a run prints, logs and warns of is shown again, with the values of each call."""

# ruff: noqa: C416

from __future__ import annotations

import logging
import warnings
from typing import Any

import pytest
from effect_objects import same

import weft
from weft.capture.hooks import run_watched
from weft.capture.watch.effects import replay
from weft.capture.watch.watch import Watch


def test_print_shows_the_values_of_each_call(capsys: Any) -> None:
    def f(x: Any, n: int) -> None:
        print("x is", x, [x, n], end="!\n")
        print(f"sum {x.sum():.1f} of {n}", sep="")

    watch = Watch()
    x = weft.asarray([1.0, 2.0])
    run_watched(watch, f, (x, 3), {})
    assert capsys.readouterr().out == "x is tensor([1., 2.]) [tensor([1., 2.]), 3]!\nsum 3.0 of 3\n"
    (total,) = [t for t in watch.effects[1].tensors()]
    table = {id(x): weft.asarray([5.0, 6.0]), id(total): weft.asarray(11.0)}
    replay(watch.effects, (x, 3), {}, lambda t: table[id(t)])
    assert (
        capsys.readouterr().out == "x is tensor([5., 6.]) [tensor([5., 6.]), 3]!\nsum 11.0 of 3\n"
    )


def test_what_is_printed_is_what_it_was_then(capsys: Any) -> None:
    def f(x: Any) -> None:
        values = [x]
        print(values, {"k": values})
        values.append(1)
        print(values)

    watch = Watch()
    x = weft.asarray(1.0)
    run_watched(watch, f, (x,), {})
    first = capsys.readouterr().out
    replay(watch.effects, (x,), {}, same)
    assert capsys.readouterr().out == first


def test_logging_and_warnings(caplog: Any) -> None:
    logger = logging.getLogger("weft.test")

    def f(n: int) -> None:
        logger.warning("got %d", n)
        warnings.warn(f"careful {n}", UserWarning, stacklevel=1)

    watch = Watch()
    with pytest.warns(UserWarning, match="careful 2") as found:
        run_watched(watch, f, (2,), {})
    assert watch.uncacheable == []
    assert found[0].filename == __file__
    assert found[0].lineno == f.__code__.co_firstlineno + 2
    with pytest.warns(UserWarning, match="careful 2"):
        replay(watch.effects, (2,), {}, same)
    assert [record.getMessage() for record in caplog.records] == ["got 2", "got 2"]


@pytest.mark.parametrize("wrap", [weft.trace, weft.compile])
def test_a_leaf_is_printed_as_it_was(wrap: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """The value before a later write, as a leaf; in containers and texts, too."""
    w = weft.tensor([1.0], requires_grad=True)

    def f(x: Any) -> Any:
        print(w, [w], {"w": w})
        print(f"{w}")
        with weft.no_grad():
            w.mul_(2)
        return x * w

    shown = []
    for call in (f, wrap(f)):
        with weft.no_grad():
            w.fill_(1.0)
        for _ in range(3):
            call(weft.ones(1))
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1]
    assert "tensor([4.], requires_grad=True)" in shown[0]
