"""Signatures as data that JSON and its like can hold, and back.

Types and Python values are text, in the grammar of the text of graphs ([ir.md](ir.md)). Reading a
signature runs no code from it: classes of trees are those that this process has loaded.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from typing import Any, NoReturn

from weft.base.dim_algebra import Dim
from weft.base.dims import dim
from weft.base.errors import GraphError, WeftError
from weft.base.pytree import LEAF, PLAIN_TREES, TreeSpec, tree_rules
from weft.ir.attribute_parse import AttributeParser
from weft.ir.attribute_text import AttributeText
from weft.ir.attributes import attr_key
from weft.ir.scan import Scanner
from weft.ir.signature import (
    NONE,
    SAME,
    Constant,
    Given,
    Leaf,
    Made,
    NewLeaf,
    Place,
    Signature,
    Step,
    Write,
)
from weft.ir.types import TensorType

__all__ = ["SignatureReader", "SignatureWriter", "signature_data", "signature_of_data"]

Class = type  # readers have a method of that name

#: What a defaultdict makes that can be written down.
_FACTORIES = {kind.__name__: kind for kind in (list, dict, set, tuple, int, float, str, bool)}
_KINDS = {kind.__name__: kind for kind in PLAIN_TREES}


def signature_data(signature: Signature) -> dict[str, Any]:
    """Dicts, lists, strings, numbers, booleans and None; an error names what cannot be written."""
    return SignatureWriter(signature.name).signature(signature)


def signature_of_data(data: dict[str, Any]) -> Signature:
    """The signature that `signature_data` made this of."""
    try:
        found = SignatureReader(data).signature()
        check_signature(found)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, WeftError):
            raise
        raise GraphError(f"this is no signature: {error!r:.200}", op="signature") from error
    return found


def check_signature(signature: Signature) -> None:
    """All numbers are those of places and outputs, and the tree has as many leaves as there are."""
    places = [*signature.inputs, *signature.handed_on()]
    outputs = [*signature.tracked, *[leaf.output for leaf in signature.new_leaves]]
    outputs += [leaf.output for leaf in signature.leaves if isinstance(leaf, Made)]
    for write in signature.writes:
        outputs += [x for x in (write.value, write.grad) if isinstance(x, int)]
    for leaf in signature.new_leaves:
        (outputs if isinstance(leaf.grad, int) else places).extend(_numbers(leaf.grad))
    for numbers, end in ((places, len(signature.places)), (outputs, len(signature.outputs))):
        for number in numbers:
            if not (isinstance(number, int) and 0 <= number < end):
                _cannot(signature.name, f"the number {number!r:.20}, and there are {end}")
    if signature.result.leaves != len(signature.leaves):
        _cannot(signature.name, f"{len(signature.leaves)} leaves for another tree")


def _numbers(grad: int | Given | None) -> list[int]:
    return [] if grad is None else [grad.place if isinstance(grad, Given) else grad]


def _cannot(name: str, what: str, hint: str = "") -> NoReturn:
    raise GraphError(f"the signature of {name} holds {what}", op="signature", hint=hint)


class SignatureWriter:
    """Writes the parts of one signature; `text.bounds` collects the names of sizes in it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.text = AttributeText({})

    def signature(self, given: Signature) -> dict[str, Any]:
        data = {
            "name": given.name,
            "places": [self.place(place) for place in given.places],
            "inputs": [*given.inputs],
            "outputs": [self.text.type(kind) for kind in given.outputs],
            "tracked": [*given.tracked],
            "result": self.tree(given.result),
            "leaves": [self.leaf(leaf) for leaf in given.leaves],
            "writes": [self.write(write) for write in given.writes],
            "new_leaves": [self.new_leaf(leaf) for leaf in given.new_leaves],
            "effects": [*given.effects],
        }
        return {**data, "dims": {name: [*bounds] for name, bounds in self.text.bounds.items()}}

    def place(self, place: Place) -> dict[str, Any]:
        kind = None if place.type is None else self.text.type(place.type)
        return {"name": place.name, "path": self.path(place.path), "type": kind}

    def path(self, path: tuple[Step, ...]) -> list[Any]:
        return [[kind, self.path(x) if kind == "key" else self.value(x)] for kind, x in path]

    def value(self, value: Any) -> str:
        text = self.text.value(value)
        try:
            same = attr_key(_read(text, self.dims())) == attr_key(value)
        except WeftError:
            same = False
        if not same:
            _cannot(self.name, f"{value!r:.60}, which has no text", "give plain values and tensors")
        return text

    def dims(self) -> dict[str, Dim]:
        return {name: dim(name, low or 0, high) for name, (low, high) in self.text.bounds.items()}

    def leaf(self, leaf: Leaf) -> dict[str, Any]:
        if isinstance(leaf, Made):
            return {"output": leaf.output, "number": leaf.is_number}
        if isinstance(leaf, Given):
            return {"place": leaf.place}
        return {"constant": self.value(leaf.value)}

    def grad(self, grad: int | Given | str | None) -> Any:
        return {"place": grad.place} if isinstance(grad, Given) else grad

    def write(self, write: Write) -> dict[str, Any]:
        made = {"place": write.place, "value": write.value, "history": write.history}
        return {**made, "grad": self.grad(write.grad)}

    def new_leaf(self, leaf: NewLeaf) -> dict[str, Any]:
        made = {"output": leaf.output, "class": self.class_name(leaf.cls), "learns": leaf.learns}
        return {**made, "grad": self.grad(leaf.grad)}

    def tree(self, tree: TreeSpec) -> Any:
        if tree.kind is None:
            return "*"
        what = tree.what
        made: dict[str, Any] = {"kind": self.class_name(tree.kind)}
        if tree.kind is defaultdict:
            factory, what = what
            made["factory"] = None if factory is None else self.factory(factory)
        if what is not None:
            made["what"] = self.value(what)
        return {**made, "children": [self.tree(child) for child in tree.children]}

    def factory(self, factory: Any) -> str:
        if factory not in _FACTORIES.values():
            _cannot(self.name, f"a defaultdict of {factory!r:.60}")
        return str(factory.__name__)

    def class_name(self, cls: type) -> str:
        if cls in PLAIN_TREES:
            return cls.__name__
        name = f"{cls.__module__}:{cls.__qualname__}"
        if _loaded(name) is not cls:
            _cannot(self.name, f"a {name}, which is not found by that name")
        return name


class SignatureReader:
    """Reads the parts of one signature."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.data = data
        self.dims = {name: dim(name, low or 0, high) for name, (low, high) in data["dims"].items()}

    def signature(self) -> Signature:
        data = self.data
        made: dict[str, Any] = {
            "name": data["name"],
            "places": [self.place(place) for place in data["places"]],
            "inputs": data["inputs"],
            "outputs": [self.type(kind) for kind in data["outputs"]],
            "tracked": data["tracked"],
            "result": self.tree(data["result"]),
            "leaves": [self.leaf(leaf) for leaf in data["leaves"]],
            "writes": [self.write(write) for write in data["writes"]],
            "new_leaves": [self.new_leaf(leaf) for leaf in data["new_leaves"]],
            "effects": data["effects"],
        }
        for name, found in made.items():
            made[name] = tuple(found) if isinstance(found, list) else found
        return Signature(**made)

    def type(self, text: str) -> TensorType:
        found = _read(text, self.dims, is_type=True)
        if not isinstance(found, TensorType):
            _cannot(self.data["name"], f"{text!r:.60} in place of the type of a tensor")
        return found

    def value(self, text: str) -> Any:
        return _read(text, self.dims)

    def place(self, data: dict[str, Any]) -> Place:
        kind = None if data["type"] is None else self.type(data["type"])
        return Place(data["name"], self.path(data["path"]), kind)

    def path(self, data: list[Any]) -> tuple[Step, ...]:
        return tuple([(k, self.path(x) if k == "key" else self.value(x)) for k, x in data])

    def leaf(self, data: dict[str, Any]) -> Leaf:
        if "output" in data:
            return Made(data["output"], data["number"])
        if "place" in data:
            return Given(data["place"])
        return Constant(self.value(data["constant"]))

    def grad(self, data: Any) -> Any:
        if isinstance(data, str) and data not in (SAME, NONE):
            _cannot(self.data["name"], f"a gradient that is {data!r:.60}")
        return Given(data["place"]) if isinstance(data, dict) else data

    def write(self, data: dict[str, Any]) -> Write:
        return Write(data["place"], data["value"], data["history"], self.grad(data["grad"]))

    def new_leaf(self, data: dict[str, Any]) -> NewLeaf:
        cls = self.class_of(data["class"])
        return NewLeaf(data["output"], cls, data["learns"], self.grad(data["grad"]))

    def tree(self, data: Any) -> TreeSpec:
        if data == "*":
            return LEAF
        kind = self.class_of(data["kind"])
        rules = tree_rules(kind)
        if rules is None:
            _cannot(self.data["name"], f"a tree of {data['kind']}, which is no tree")
        what = None if "what" not in data else self.value(data["what"])
        if kind is defaultdict:
            what = (None if data["factory"] is None else _FACTORIES[data["factory"]], what)
        return TreeSpec(kind, what, tuple([self.tree(x) for x in data["children"]]), rules[1])

    def class_of(self, name: str) -> Class:
        found = _KINDS.get(name) or _loaded(name)
        if found is None:
            hint = f"import {name.partition(':')[0]} first"
            _cannot(self.data["name"], f"a {name}, which is not loaded here", hint)
        return found


def _read(text: str, dims: dict[str, Dim], is_type: bool = False) -> Any:
    parser = AttributeParser(Scanner(text), {})
    parser.names.update(dims)
    found = parser.type() if is_type else parser.value()
    if parser.scanner.kind != "end":
        parser.scanner.fail("expected the end")
    return found


def _loaded(name: str) -> type | None:
    """A class by its name, where its module is loaded."""
    module, _, path = name.partition(":")
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    return found if isinstance(found, type) else None
