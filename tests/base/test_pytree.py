"""Trees of containers: flatten and unflatten are inverse, and structure is what it says."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque, namedtuple
from dataclasses import dataclass, field
from typing import Any

import pytest

import weft
from weft.base.pytree import tree_flatten

Point = namedtuple("Point", "x y")


@dataclass
class Config:
    scale: float
    parts: list[Any] = field(default_factory=list)


@dataclass(frozen=True)
class Frozen:
    a: int
    b: Any


class Own:
    def __init__(self, left: Any, right: Any, label: str) -> None:
        self.left, self.right, self.label = left, right, label

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Own) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]


weft.register_pytree(
    Own, lambda o: ((o.left, o.right), o.label), lambda label, parts: Own(*parts, label)
)

TREES: list[tuple[Any, list[Any], list[str]]] = [
    (1, [1], [""]),
    (None, [], []),
    ([], [], []),
    ((1, [2, 3]), [1, 2, 3], ["[0]", "[1][0]", "[1][1]"]),
    ({"b": 1, "a": (2,)}, [1, 2], ["['b']", "['a'][0]"]),
    (OrderedDict(x=1), [1], ["['x']"]),
    (defaultdict(list, {"k": 5}), [5], ["['k']"]),
    (deque([1, 2], maxlen=3), [1, 2], ["[0]", "[1]"]),
    (Point(1, [2]), [1, 2], [".x", ".y[0]"]),
    (Config(0.5, [1]), [0.5, 1], [".scale", ".parts[0]"]),
    (Frozen(1, {"z": None}), [1], [".a"]),
    (Own(1, (2, 3), "label"), [1, 2, 3], ["[0]", "[1][0]", "[1][1]"]),
    ("text", ["text"], [""]),
    (weft.float32, [weft.float32], [""]),
    (weft.spec((2, "B")), [weft.spec((2, "B"))], [""]),
]


@pytest.mark.parametrize(("tree", "leaves", "paths"), TREES, ids=[repr(t[0])[:30] for t in TREES])
def test_flatten_and_unflatten_are_inverse(tree: Any, leaves: list[Any], paths: list[str]) -> None:
    found, spec = tree_flatten(tree)
    assert found == leaves
    assert spec.paths() == paths
    again = weft.tree_unflatten(spec, found)
    assert type(again) is type(tree)
    assert again == tree
    assert tree_flatten(again)[1] == spec
    assert hash(tree_flatten(again)[1]) == hash(spec)


def test_structures_differ() -> None:
    specs = [tree_flatten(tree)[1] for tree, *_ in TREES if not isinstance(tree, (int, str))]
    different = [spec for spec in specs if spec.kind is not None]
    for i, a in enumerate(different):
        for b in different[i + 1 :]:
            assert a != b


def test_a_dataclass_keeps_fields_that_its_init_does_not_take() -> None:
    @dataclass
    class Late:
        a: int
        b: int = field(init=False, default=0)

        def __post_init__(self) -> None:
            self.b = self.a + 1

    tree = Late(1)
    tree.b = 10
    leaves, spec = tree_flatten(tree)
    assert leaves == [1, 10]
    assert weft.tree_unflatten(spec, [2, 20]).b == 20


def test_tree_map() -> None:
    assert weft.tree_map(lambda a, b: a + b, {"x": (1, 2)}, {"x": (10, 20)}) == {"x": (11, 22)}
    with pytest.raises(TypeError, match="different structure"):
        weft.tree_map(lambda a, b: a, [1], (1,))


def test_the_number_of_leaves_is_checked() -> None:
    _, spec = tree_flatten([1, 2])
    with pytest.raises(TypeError, match="3 leaves for a tree of 2"):
        weft.tree_unflatten(spec, [1, 2, 3])
