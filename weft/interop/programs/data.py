"""What a program is besides its graph and its tensors, as data that JSON holds, and back."""

from __future__ import annotations

from typing import Any

from weft.base.asked_sizes import SizeFact
from weft.base.dims import parse_dim
from weft.interop.programs.arguments import KINDS, Argument, Arguments
from weft.interop.programs.run import Routine
from weft.ir.graph import Graph
from weft.ir.signature import Constant
from weft.ir.signature_data import SignatureReader, SignatureWriter, check_signature
from weft.ir.types import TensorType

__all__ = ["program_data", "program_of_data"]

SIGNS = ("<", "<=", ">", ">=", "==", "!=")


def program_data(routine: Routine, arguments: Arguments, learn: list[str]) -> dict[str, Any]:
    """Dicts, lists, texts, numbers, booleans and None."""
    writer = SignatureWriter(routine.signature.name)
    return {
        "signature": writer.signature(routine.signature),
        "arguments": [
            {
                "name": p.name,
                "kind": p.kind,
                "tree": writer.tree(p.tree),
                "leaves": [
                    {"constant": writer.value(leaf.value)} if isinstance(leaf, Constant) else leaf
                    for leaf in p.leaves
                ],
            }
            for p in arguments.parameters
        ],
        "gradients": [[number, of] for number, of in routine.grads.items()],
        "learn": learn,
        "learned": sorted(routine.learns),
        "freed": sorted(routine.freed),
        "facts": [[str(fact.left), fact.sign, str(fact.right)] for fact in routine.facts],
    }


def program_of_data(data: Any, graph: Graph) -> tuple[Routine, Arguments, frozenset[str]]:
    """The parts of a program, and the names of the state that requires gradients. Wrong data raise
    some exception."""
    reader = SignatureReader(data["signature"])
    signature = reader.signature()
    check_signature(signature)
    parameters = [_argument(reader, entry) for entry in data["arguments"]]
    count = sum(place.is_argument for place in signature.places)
    taken = sorted(leaf for p in parameters for leaf in p.leaves if isinstance(leaf, int))
    _must(taken == list(range(count)), "the arguments do not hold each input once")
    _must(len({p.name for p in parameters}) == len(parameters), "two parameters have one name")
    names = tuple([place.name for place in signature.places])
    _must(all(type(name) is str for name in names), "a name is no text")
    _must(len(set(names)) == len(names), "two places have one name")
    types = [place.type for place in signature.places]
    _must(signature.inputs == tuple(range(len(names))), "the inputs are not the places")
    _must([value.type for value in graph.inputs] == types, "the graph takes other inputs")
    _must([v.type for v in graph.outputs] == [*signature.outputs], "the graph has other outputs")
    for i, place in enumerate(signature.places):
        wanted = (("arg", i),) if i < count else ()
        _must(place.path == wanted, f"{place.name} is found in another way")
    _must(not signature.effects, "it acts on Python objects")
    for write in signature.writes:
        if write.value is not None:
            same = signature.outputs[write.value] == types[write.place]
            _must(same, f"{names[write.place]} gets a value of another type")
    _must(len({write.place for write in signature.writes}) == len(signature.writes), "two writes")
    grads = {_int(number): _int(of) for number, of in data["gradients"]}
    for number, of in grads.items():
        known = count <= number < len(names) and count <= of < len(names) and of not in grads
        _must(known, "a gradient of nothing")
    facts = tuple([_fact(reader, *parts) for parts in data["facts"]])
    learn = frozenset(data["learn"])
    _must(learn <= set(names[count:]), "what requires a gradient is no state")
    freed = frozenset(map(_int, data["freed"]))
    _must(freed <= set(signature.tracked), "a result without a history has lost it")
    learned = frozenset(map(_int, data["learned"]))
    _must(learned <= set(range(len(names))), "what required a gradient is no place")
    given = Arguments(
        signature.name,
        tuple(parameters),
        names[:count],
        tuple([kind for kind in types[:count] if isinstance(kind, TensorType)]),
    )
    given.signature  # noqa: B018  (names and kinds of parameters are checked here)
    return Routine(graph, signature, grads, freed, learned, facts), given, learn


def _argument(reader: SignatureReader, entry: dict[str, Any]) -> Argument:
    tree = reader.tree(entry["tree"])
    leaves = tuple(
        [
            leaf if type(leaf) is int else Constant(reader.value(leaf["constant"]))
            for leaf in entry["leaves"]
        ]
    )
    _must(len(leaves) == tree.leaves, "another number of leaves than the tree has")
    _must(entry["kind"] in KINDS and type(entry["name"]) is str, "a parameter of no known kind")
    return Argument(entry["name"], entry["kind"], tree, leaves)


def _fact(reader: SignatureReader, left: str, sign: str, right: str) -> SizeFact:
    _must(sign in SIGNS, f"the comparison {sign!r:.10}")
    return SizeFact(parse_dim(left, reader.dims), sign, parse_dim(right, reader.dims))


def _int(value: Any) -> int:
    _must(type(value) is int, f"{value!r:.20} is no number")
    return int(value)


def _must(holds: bool, otherwise: str) -> None:
    if not holds:
        raise ValueError(otherwise)
