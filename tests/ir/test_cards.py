"""Completeness: each card has all its pieces, and each public name its documentation."""

from __future__ import annotations

import dis
import functools
import inspect
from typing import Any

import numpy as np
import pytest

import weft
from weft.base.parameters import KINDS, parameters_of
from weft.core.public import PUBLIC
from weft.ir.op import OPS, Op, Trait


def unused_parameters(rule: Any) -> set[str]:
    """Parameters of a function that its code, and code nested in it, never loads."""
    code = rule.__code__
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    loaded: set[Any] = set()
    for instruction in dis.get_instructions(code):
        if "LOAD_FAST" in instruction.opname:  # from 3.13 on, one can load two variables
            given = instruction.argval
            loaded.update(given if isinstance(given, tuple) else (given,))
    return set(names) - loaded - set(code.co_cellvars)


def lacks(op: Op) -> list[str]:
    """What a card lacks, in words."""
    missing = []
    for rule in op.eval.values() if isinstance(op.eval, dict) else [op.eval]:
        if not (isinstance(rule, str) or callable(rule)):
            missing.append("an evaluation rule")
        if isinstance(rule, str) and not hasattr(np, rule):
            missing.append(f"an evaluation rule: the namespace has no {rule!r}")
    if Trait.CREATION in op.traits:
        if not {"dtype", "device"} <= set(op.attrs):
            missing.append("attributes dtype and device to choose a kernel by")
    elif not op.inputs and op.name != "token":  # which is made of nothing
        missing.append("inputs in its type rule")
    if op.vjp:  # () says that no gradient passes
        variadic = len(op.vjp) == 1 and op.inputs[-1:] == ("arrays",)
        if len(op.vjp) != len(op.inputs) and not variadic:
            missing.append(f"a derivative for each of its inputs {op.inputs}")
        for rule in op.vjp:
            unused = {n for n in unused_parameters(rule) if n in op.inputs} if rule else set()
            if unused:
                missing.append(
                    f"an underscore before the unused {sorted(unused)} of its derivative"
                )
    return missing


@pytest.mark.parametrize("op", OPS.values(), ids=lambda op: op.name)
def test_card_is_complete(op: Op) -> None:
    assert not lacks(op), f"{op.name} lacks {', '.join(lacks(op))}"


def test_a_bad_card_is_named() -> None:
    bad = Op(
        "bad_card",
        lambda x, *, axis: x,
        "no_such_function",
        vjp=(lambda xp, g, out, x, *, axis: g, None),
    )
    try:
        told = " ".join(lacks(bad))
    finally:
        del OPS["bad_card"]
    assert "no_such_function" in told
    assert "derivative for each" in told
    assert "unused ['x']" in told


@pytest.mark.parametrize("entry", PUBLIC.values(), ids=lambda entry: entry.name)
def test_public_function_is_documented_and_found(entry: Any) -> None:
    doc = inspect.getdoc(entry.function) or ""
    assert len(doc.split("\n")[0]) > 2, f"{entry.name} has no docstring"
    found: Any = weft
    for part in entry.name.split("."):
        found = getattr(found, part)
    assert found is entry.function
    for method in entry.methods:
        assert hasattr(weft.Tensor, method)


def test_every_exported_function_is_in_the_table() -> None:
    """Functions of other layers (graphs, transforms, registration) are no ops, and not in it."""
    functions = {
        name
        for name, value in vars(weft).items()
        if inspect.isfunction(value)
        and not name.startswith("_")
        and value.__module__.startswith("weft.ops.")
    }
    assert functions <= set(PUBLIC)


def _named(x: Any, /, y: Any, *rest: Any, axis: int = 0, keepdims: bool, **more: Any) -> Any: ...


def _said(*args: Any) -> Any: ...


_said.__signature__ = inspect.signature(lambda x, *, axis: x)  # type: ignore[attr-defined]

TAKING: list[Any] = [
    *(_named, _said, lambda: 0, lambda **more: 0, lambda *, axis: 0, lambda *rest: 0),
    *(functools.partial(_named, 1), functools.wraps(_named)(_said), len, Op.estimate),
]


@pytest.mark.parametrize("function", TAKING, ids=range(len(TAKING)))
def test_parameters_are_those_of_the_signature(function: Any) -> None:
    found = [(p.name, p.kind) for p in inspect.signature(function).parameters.values()]
    assert [(p.name, p.kind) for p in parameters_of(function)] == [
        (name, KINDS[kind]) for name, kind in found
    ]


#: Calls whose types fit and whose values do not.
WRONG: dict[str, Any] = {
    "random_bernoulli": lambda: weft.bernoulli(weft.tensor([2.0])),
    "take": lambda: weft.take(weft.ones(3), weft.asarray([7])),
    "take_along_axis": lambda: weft.take_along_axis(weft.ones(3), weft.asarray([7]), axis=0),
    "gather": lambda: weft.ones(3)[weft.asarray([7])],
    "embedding": lambda: weft.nn.functional.embedding(weft.asarray([7]), weft.ones((3, 2))),
    "cross_entropy": lambda: weft.nn.functional.cross_entropy(weft.ones((1, 3)), weft.asarray([7])),
    "cholesky": lambda: weft.linalg.cholesky(weft.tensor([[-1.0]])),
    "inv": lambda: weft.linalg.inv(weft.zeros((2, 2))),
}


@pytest.mark.parametrize("name", WRONG)
def test_cards_that_fail_on_values_say_so(name: str) -> None:
    with pytest.raises(weft.errors.WeftError, match=name.removeprefix("random_")):
        WRONG[name]()
    assert OPS[name].may_fail
