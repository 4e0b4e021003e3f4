"""Dataclasses compiled at the first call do what those of the standard library do."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import itertools
import pickle
import subprocess
import sys
from typing import Any

import pytest

import weft
from weft.base import dataclass as module
from weft.base.device import Device

OURS, STANDARD = module._dataclass, dataclasses.dataclass
OPTIONS = [
    dict(zip(("frozen", "slots", "eq", "repr"), chosen, strict=True))
    for chosen in itertools.product((False, True), repeat=4)
]


def _made(dataclass: Any, options: dict[str, bool]) -> Any:
    class Base:
        x: int
        y: list[int] = dataclasses.field(default_factory=list)
        shown: str = dataclasses.field(default="s", repr=False)
        apart: float = dataclasses.field(default=1.0, compare=False)
        later: int = dataclasses.field(init=False, default=3)
        named: int = dataclasses.field(default=4, kw_only=True)

        def __post_init__(self) -> None:
            object.__setattr__(self, "later", self.x + 1)

    Base = dataclass(**options)(Base)

    class Sub(Base):  # type: ignore[misc, valid-type]
        z: int = 9

    return Base, dataclass(**options)(Sub)


def _said(call: Any) -> Any:
    """What a call gives, or the class of its error."""
    try:
        found = call()
    except (TypeError, AttributeError) as error:
        return type(error)
    return str(found) if isinstance(found, (inspect.Signature, str)) else found


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("sub", [0, 1])
def test_what_they_do_is_what_the_standard_library_does(options: dict[str, bool], sub: int) -> None:
    ways = []
    for dataclass in (OURS, STANDARD):
        cls = _made(dataclass, options)[sub]
        made, same = cls(1, [2], apart=2.0, named=5), cls(1, [2], named=5)
        calls = [
            lambda made=made: [getattr(made, field.name) for field in dataclasses.fields(made)],
            lambda made=made, same=same: made == same,
            lambda made=made, cls=cls: made == cls(2, [2], named=5),
            lambda cls=cls: cls(1).y is cls(1).y,
            lambda cls=cls: hash(cls(1, ())) == hash(cls(1, ())),
            lambda made=made: setattr(made, "x", 7),
            lambda made=made: made.x,
            lambda made=made: delattr(made, "x"),
            lambda made=made: hasattr(made, "x"),
            lambda made=made: hasattr(made, "__dict__"),
            lambda cls=cls: cls(),
            lambda cls=cls: cls(1, 2, "a", 3.0, 9, 9),
            lambda cls=cls: cls.__match_args__,
            lambda cls=cls: dataclasses.astuple(dataclasses.replace(cls(3, named=2), x=8)),
            lambda cls=cls: copy.copy(cls(3, named=2)).named,
            lambda cls=cls: list(inspect.signature(cls).parameters),
            lambda cls=cls, options=options: repr(cls(4)) if options["repr"] else "",
        ]
        ways.append([_said(call) for call in calls])
    assert ways[0] == ways[1]


def test_methods_that_a_class_has_stay() -> None:
    @OURS(frozen=True)
    class Named:
        x: int

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 5

        def __repr__(self) -> str:
            return "named"

    assert (Named(1) == Named(2), hash(Named(1)), repr(Named(1))) == (True, 5, "named")


@OURS(frozen=True, slots=True)
class Kept:
    x: int
    y: tuple[int, ...] = ()


def test_a_frozen_one_of_the_standard_library_may_inherit() -> None:
    @dataclasses.dataclass(frozen=True, slots=True)
    class Sub(Kept):
        z: int = 3

    assert repr(Sub(1, z=2)).endswith("Sub(x=1, y=(), z=2)")
    with pytest.raises(dataclasses.FrozenInstanceError):
        Sub(1).x = 2  # type: ignore[misc]


def test_values_are_pickled_and_shown_in_signatures() -> None:
    assert pickle.loads(pickle.dumps(Kept(1, (2,)))) == Kept(1, (2,))
    assert str(inspect.signature(Kept)) == "(x: 'int', y: 'tuple[int, ...]' = ())"
    assert {Kept(1): 2}[Kept(1)] == 2


def test_captured_code_makes_and_compares_them() -> None:
    @weft.compile
    def f(x: Any, name: str) -> Any:
        return x * 2 if Device(name) == Device("cpu") else x

    for _ in range(2):  # before and after the methods are compiled
        assert float(f(weft.asarray(3.0), "cpu")) == 6.0
    assert Device("cpu") in {Device("cpu"): 1}
    assert float(f(weft.ones(1), "cpu").sum()) == 2.0


def test_modules_that_import_weft_loads_use_it() -> None:
    code = (
        "import sys, dataclasses, weft; print([name for name, module in sys.modules.items()"
        " if name.startswith('weft.')"
        " and getattr(module, 'dataclass', 0) is dataclasses.dataclass])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
