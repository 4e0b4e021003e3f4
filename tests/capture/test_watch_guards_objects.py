"""Guards on containers and objects: only what was read of them, of their class too."""

# ruff: noqa: B905, C416

from __future__ import annotations

import collections
import dataclasses
import types

import pytest
from guarded import Box, Row, check_row, loop, now, setting


class Slotted:
    __slots__ = ("a", "b")

    def __init__(self) -> None:
        self.a = 1


@dataclasses.dataclass
class Options:
    rate: float = 0.5
    names: tuple[str, ...] = ("a",)


Pair = collections.namedtuple("Pair", "left right")
BOX = Box()

box, box2, box3, box4, box5 = Box(), Box(), Box(), Box(), Box()
options = Options()
table = {"a": 1, "b": 2}
lists = [[1, 2], [3, 4]]
queue = collections.deque([1, 2, 3], maxlen=5)
ordered = collections.OrderedDict(a=1, b=2)
grouped = collections.defaultdict(list, {"k": [1]})
slotted = Slotted()
space = types.SimpleNamespace(a=1, b=Box(3))
pair = Pair(1, [2, 3])


def filled(x):
    """A dict of the run's own takes all of another container."""
    made = {"other": 0}
    made.update(x)
    return made["a"]


def merged(x):
    made = {"other": 0}
    made |= x
    return made["a"]


ROWS: list[Row] = [
    # containers
    ("dict.update", filled, ({"a": 1},), now({"a": 2}), 'args[0]["a"] was 1, now 2'),
    (
        "dict.update keys",
        filled,
        ({"a": 1},),
        now({"a": 1, "b": 2}),
        "now ['a', 'b']",
    ),
    ("dict.update pairs", filled, ([["a", 1]],), now([["a", 2]]), "args[0][0][1] was 1, now 2"),
    ("dict |=", merged, ({"a": 1},), now({"a": 2}), 'args[0]["a"] was 1, now 2'),
    ("list item", lambda x: x[1], ([1, 2],), now([1, 3]), "args[0][1] was 2, now 3"),
    ("list other item", lambda x: x[1], ([1, 2],), now([0, 2, 5]), None),
    ("list index", lambda x: x[-1], ([1, 2],), now([2]), None),
    ("list length", lambda x: len(x), ([1, 2],), now([3, 4]), None),
    (
        "list longer",
        lambda x: len(x),
        ([1, 2],),
        now([3, 4, 5]),
        "args[0] was of length 2, now of length 3",
    ),
    ("list loop", loop, ([1, 2],), now([1, 3]), "args[0][1] was 2, now 3"),
    ("list loop longer", loop, ([1, 2],), now([1, 2, 3]), "of length 2, now of length 3"),
    (
        "list or tuple",
        loop,
        ([1, 2],),
        now((1, 2)),
        "args[0] was of class list, now of class tuple",
    ),
    ("list truth", lambda x: 1 if x else 2, ([1],), now([]), "of length 1, now of length 0"),
    (
        "list equality",
        lambda x: x == [1, [2]],
        ([1, [2]],),
        now([1, [3]]),
        "args[0][1][0] was 2, now 3",
    ),
    ("list slice", lambda x: x[1:], ([1, 2],), now([1, 2, 3]), "of length 2, now of length 3"),
    ("list sum", lambda x: sum(x), ([1, 2],), now([1, 4]), "args[0][1] was 2, now 4"),
    ("list sorted", lambda x: sorted(x), ([1, 2],), now([1, 4]), "args[0][1] was 2, now 4"),
    (
        "list unpacked",
        lambda x: [a + b for a, b in [x]],
        ([1, 2],),
        now([1, 4]),
        "args[0][1] was 2, now 4",
    ),
    ("list star", lambda x: max(*x), ([1, 2],), now([1, 4]), "args[0][1] was 2, now 4"),
    ("list zip", lambda x: list(zip(x, x)), ([1, 2],), now([1, 4]), "args[0][1] was 2, now 4"),
    ("list in", lambda x: 2 in x, ([1, 2],), now([1, 4]), "args[0][1] was 2, now 4"),
    ("list text", lambda x: f"{x}", ([1, 2],), now([1, 4]), "args[0][1] was 2, now 4"),
    (
        "list of lists",
        lambda x: x[0][1],
        (lists,),
        now([[1, 9], [3, 4]]),
        "args[0][0][1] was 2, now 9",
    ),
    ("list of lists unread", lambda x: x[0][1], (lists,), now([[1, 2], []]), None),
    ("tuple", lambda x: x[0], ((1, 2),), now((1, 3)), None),
    ("tuple item", lambda x: x[0], ((1, 2),), now((3, 2)), "args[0][0] was 1, now 3"),
    ("dict item", lambda x: x["a"], (table,), now({"a": 5, "b": 2}), 'args[0]["a"] was 1, now 5'),
    (
        "dict loop",
        lambda x: [k for k in x],
        (table,),
        now({"b": 2, "a": 1}),
        "args[0] was ['a', 'b'], now ['b', 'a']",
    ),
    ("dict values unread", lambda x: [k for k in x], (table,), now({"a": 7, "b": 8}), None),
    (
        "dict items",
        lambda x: dict(x.items()),
        (table,),
        now({"a": 1, "b": 3}),
        'args[0]["b"] was 2, now 3',
    ),
    (
        "dict values",
        lambda x: list(x.values()),
        (table,),
        now({"a": 1, "b": 3}),
        'args[0]["b"] was 2, now 3',
    ),
    (
        "dict keywords",
        lambda x: dict(**x),
        (table,),
        now({"a": 1, "b": 3}),
        'args[0]["b"] was 2, now 3',
    ),
    ("dict of ints", lambda x: list(x), ({1: 2},), now({True: 2}), "args[0] was [1], now [True]"),
    (
        "missing argument key",
        lambda x: x.get("c", 0),
        (table,),
        now({"a": 1, "c": 3}),
        'args[0]["c"] was missing, now 3',
    ),
    ("set", lambda x: 3 in x, ({1, 2},), now({1, 3}), "3 in args[0] was False, now True"),
    ("set otherwise", lambda x: 3 in x, ({1, 2},), now({5}), None),
    ("set loop", lambda x: [*x], ({1, 2},), now({1, 3}), "args[0] was [1, 2], now [1, 3]"),
    ("set length", lambda x: len(x), ({1, 2},), now({1, 3}), None),
    ("frozenset", lambda x: sorted(x), (frozenset({1, 2}),), now(frozenset({1, 3})), "now [1, 3]"),
    ("deque", lambda: queue[0], (), lambda p: queue.appendleft(9), "queue[0] was 1, now 9"),
    (
        "ordered dict",
        lambda: list(ordered),
        (),
        lambda p: ordered.move_to_end("a"),
        "now ['b', 'a']",
    ),
    (
        "default dict",
        lambda: grouped["k"][0],
        (),
        lambda _p: grouped["k"].__setitem__(0, 4),
        '["k"][0] was 1, now 4',
    ),
    ("named tuple", lambda x: x.left, (pair,), now(Pair(1, [5])), None),
    (
        "named tuple field",
        lambda x: x.right[0],
        (pair,),
        now(Pair(1, [5])),
        "args[0][1][0] was 2, now 5",
    ),
    # objects
    ("attribute", lambda x: x.value, (Box(1),), now(Box(2)), "args[0].value was 1, now 2"),
    ("equal object", lambda x: x.value, (Box(1),), now(Box(1)), None),
    ("other attribute", lambda x: x.value, (Box(1, 2),), now(Box(1, 3)), None),
    (
        "other class",
        lambda x: x.value,
        (Box(1),),
        now(types.SimpleNamespace(value=1)),
        "of class Box, now of class SimpleNamespace",
    ),
    (
        "global object",
        lambda: BOX.value,
        (),
        lambda p: p.setattr(BOX, "value", 4),
        "global BOX.value was 1, now 4",
    ),
    (
        "another global object",
        lambda: BOX.value,
        (),
        setting(globals(), "BOX", Box(1)),
        "global BOX was a Box",
    ),
    (
        "method",
        lambda x: x.method(),
        (box,),
        lambda p: p.setattr(Box, "method", lambda self: 0),
        "Box.method was the function Box.method",
    ),
    (
        "method of the instance",
        lambda x: x.method(),
        (box,),
        lambda p: p.setattr(box, "method", lambda: 0, raising=False),
        "args[0].method was missing",
    ),
    ("property", lambda x: x.twice, (box,), lambda p: p.setattr(Box, "twice", 3), "Box.twice was"),
    (
        "what a property reads",
        lambda x: x.twice,
        (Box(4),),
        now(Box(5)),
        "args[0].value was 4, now 5",
    ),
    (
        "class attribute",
        lambda x: x.shared,
        (box,),
        lambda p: p.setattr(Box, "shared", 6),
        "Box.shared was 5, now 6",
    ),
    (
        "shadowed class attribute",
        lambda x: x.shared,
        (box2,),
        lambda _p: setattr(box2, "shared", 6),
        "args[0].shared was missing",
    ),
    (
        "class method",
        lambda: Box.of(),
        (),
        lambda p: p.setattr(Box, "shared", 6),
        "Box.shared was 5, now 6",
    ),
    (
        "getattr",
        lambda x: getattr(x, "no", 3),
        (box3,),
        lambda _p: setattr(box3, "no", 1),
        "args[0].no was missing",
    ),
    (
        "hasattr",
        lambda x: hasattr(x, "no"),
        (box4,),
        lambda _p: setattr(box4, "no", 1),
        "args[0].no was missing",
    ),
    (
        "hasattr of a class",
        lambda x: hasattr(x, "no2"),
        (box5,),
        lambda p: p.setattr(Box, "no2", 1, raising=False),
        "Box.no2 was missing",
    ),
    (
        "slots",
        lambda x: x.a,
        (slotted,),
        lambda p: p.setattr(slotted, "a", 9),
        "args[0].a was 1, now 9",
    ),
    (
        "empty slot",
        lambda x: hasattr(x, "b"),
        (slotted,),
        lambda p: setattr(slotted, "b", 9),
        "args[0].b was missing, now 9",
    ),
    (
        "nested object",
        lambda: space.b.value,
        (),
        lambda p: p.setattr(space.b, "value", 9),
        "space.b.value was 3, now 9",
    ),
    (
        "nested replaced",
        lambda: space.b.value,
        (),
        lambda p: p.setattr(space, "b", Box(3)),
        "space.b was a Box",
    ),
    (
        "dataclass",
        lambda x: x.rate,
        (options,),
        now(Options(0.25)),
        "args[0].rate was 0.5, now 0.25",
    ),
    ("dataclass equal", lambda x: x.rate, (options,), now(Options(0.5, ("z",))), None),
    (
        "dataclass compared",
        lambda x: x == Options(),
        (options,),
        now(Options(0.5, ("z",))),
        "args[0].names[0] was 'a'",
    ),
    ("dataclass shown", lambda x: repr(x), (options,), now(Options(0.25)), "args[0].rate was 0.5"),
    (
        "its dict",
        lambda x: x.__dict__["value"],
        (Box(1),),
        now(Box(2)),
        "args[0].value was 1, now 2",
    ),
    ("vars", lambda x: sorted(vars(x)), (box,), lambda _p: setattr(box, "zz", 1), "now ["),
    (
        "iterating objects",
        lambda x: [b.value for b in x],
        ([Box(1), Box(2)],),
        now([Box(1), Box(3)]),
        "args[0][1].value was 2, now 3",
    ),
    ("id", lambda x: id(x), (Box(1),), now(Box(1)), "args[0] was a Box at"),
    ("hash", lambda x: hash(x), (Box(1),), now(Box(1)), "args[0] was a Box at"),
    ("key", lambda x: {x: 1}, (Box(1),), now(Box(1)), "args[0] was a Box at"),
    (
        "made inside",
        lambda: Box(3).method(),
        (),
        lambda p: p.setattr(Box, "__init__", lambda self, v: None),
        "Box.__init__ was the function",
    ),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0].replace(" ", "-"))
def test_a_guard_sees(row: Row, monkeypatch: pytest.MonkeyPatch) -> None:
    check_row(row, monkeypatch)
