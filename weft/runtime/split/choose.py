"""Which device each node asks for, by hand and by rule, and which one it gets."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from weft.base.errors import DeviceError, RangeError, WeftError
from weft.base.source import warn_user
from weft.ir.graph import Graph, Node
from weft.ir.op import OPS, Trait, card
from weft.ir.types import TensorType
from weft.runtime.dataflow.tasks import is_users
from weft.runtime.split.devices import CPU, engine
from weft.runtime.split.segments import HOST, carries_lists, cut, is_free

__all__ = ["Choice", "Fallback", "asked", "check_rules", "settled"]

#: What rules may name besides ops and modules.
FAMILIES: dict[str, Callable[[Node], bool]] = {
    "products": lambda node: Trait.PRODUCT in node.op.traits,
    "elementwise": lambda node: node.op.elementwise,
    "reductions": lambda node: node.op.reduction,
    "views": lambda node: node.op.view,
    "control flow": lambda node: node.op.branch or node.op.loop,
}
#: What a rule is: a name of an op, a family or a module, a node, or a function of nodes.
Rules = Mapping[Any, str]


@dataclass(frozen=True, slots=True)
class Fallback:
    """A node that does not run where it was asked to, and why."""

    node: Node
    wanted: str
    got: str
    why: str

    def __str__(self) -> str:
        line = f" at {self.node.location.short}" if self.node.location else ""
        return f"{self.node.op.name}{line}: {self.got}, not {self.wanted}: {self.why}"


@dataclass
class Choice:
    """The device of each node, nested graphs included; `HOST` for those that the executor runs."""

    devices: dict[Node, str] = field(default_factory=dict)
    fallbacks: list[Fallback] = field(default_factory=list)


def asked(graph: Graph, rules: Rules) -> tuple[dict[Node, str], list[Any]]:
    """The device that each node asks for: by hand, by `with weft.device`, or by the first rule that
    fits; nodes that nothing is said about are not in it. And the rules that fit no node."""
    found: dict[Node, str] = {}
    used: set[Any] = set()
    by_hand = {key: device for key, device in rules.items() if isinstance(key, Node)}
    others = [(key, _matcher(key), d) for key, d in rules.items() if not isinstance(key, Node)]
    nodes = [node for part in graph.walk() for node in part.nodes]
    for node in nodes:
        if node in by_hand:
            found[node] = by_hand[node]
            used.add(node)
            continue
        for key, matches, device in others:
            if matches(node):
                used.add(key)
                found.setdefault(node, device)
        if node.location is not None and node.location.device:
            found[node] = node.location.device
    for device in rules.values():
        engine(device)  # an error names what is not there
    for node, device in found.items():
        try:
            engine(device)
        except DeviceError as error:
            error.location = node.location or error.location
            raise
    for key in by_hand:
        if key not in used:
            raise RangeError(
                f"{key!r} is no node of graph @{graph.name}",
                op="place",
                hint="take nodes from this very graph: graph.nodes",
            )
    return found, [key for key, _, _ in others if key not in used]


def warn_of_unknown(graph: Graph, rules: Iterable[Any]) -> None:
    """Warn of rules that fit nothing, and are no names of ops or families: perhaps misspelled."""
    for rule in rules:
        if isinstance(rule, str) and rule not in FAMILIES and card(rule) is None:
            modules = {n.location.module for g in graph.walk() for n in g.nodes if n.location}
            close = difflib.get_close_matches(rule, [*FAMILIES, *OPS, *filter(None, modules)], n=1)
            meant = f"; did you mean {close[0]!r}?" if close else ""
            warn_user(
                f"the rule {rule!r} fits no node of graph @{graph.name}: it is no op, no family of "
                f"ops and no module in it{meant}"
            )


def check_rules(rules: Any) -> Rules:
    """Rules as they are given, checked as far as that is possible without a graph."""
    if not isinstance(rules, Mapping):
        raise RangeError(
            f"placement is {rules!r:.60}",
            op="place",
            hint='"auto", or rules: {"conv": "ort", "backbone": "ort", "products": "cpu"}',
        )
    for key, device in rules.items():
        _matcher(key)
        if not isinstance(device, str):
            raise RangeError(f"{device!r:.60} is no name of a device", op="place", hint='"cpu"')
    return rules


def _matcher(key: Any) -> Callable[[Node], bool]:
    if isinstance(key, Node):
        return lambda node: node is key
    if callable(key):
        return lambda node: bool(key(node))
    if not isinstance(key, str) or not key:
        raise RangeError(
            f"{key!r:.60} is no rule",
            op="place",
            hint="a rule is an op, a family, a module, a node of the graph, or a function of nodes",
        )
    if key in FAMILIES:
        return FAMILIES[key]
    op = card(key)
    if op is not None:
        return lambda node: node.op is op
    parts = key.split(".")

    def in_module(node: Node) -> bool:
        if node.location is None or node.location.role:
            return False
        path = node.location.module.split(".")
        return path[: len(parts)] == parts or path[1 : len(parts) + 1] == parts

    return in_module


# --- what they get -------------------------------------------------------------------------------


def settled(graph: Graph, wanted: Mapping[Node, str], among: Iterable[str] = ()) -> Choice:
    """The device of each node. What a device cannot run goes to the CPU, which is nearest to each;
    control flow that cannot run on one device is run by the executor, its bodies where they ask to.

    `among`: the devices that may be used; by default all.
    """
    choice = Choice()
    allowed = frozenset(among)
    _settle(graph, wanted, allowed, choice)
    _keep_lists(graph, choice.devices)
    return choice


def _keep_lists(graph: Graph, devices: dict[Node, str]) -> None:
    """Lists stay with the executor where they go from part to part: in this graph, and in bodies
    that it runs itself."""
    while True:
        found = carries_lists(graph, cut(graph, devices))
        if not found:
            break
        devices.update(dict.fromkeys(found, HOST))
    for node in graph.nodes:
        if node.op.nested and devices.get(node) == HOST:
            for inner in node.graphs:
                _keep_lists(inner, devices)


def _settle(
    graph: Graph, wanted: Mapping[Node, str], allowed: frozenset[str], choice: Choice
) -> None:
    for node in graph.nodes:
        if is_free(node):
            continue
        if is_host(node):
            choice.devices[node] = HOST
            for inner in node.graphs:
                _settle(inner, wanted, allowed, choice)
            continue
        typed = _devices_of(node)
        if typed:  # its values are on that device already: what moves them is a call of the host
            choice.devices[node] = typed.pop() if len(typed) == 1 else HOST
            continue
        target = wanted.get(node, CPU)
        if allowed and target not in allowed:
            got = CPU if CPU in allowed else next(iter(sorted(allowed)))
            if node in wanted:
                why = f"{target} is none of the devices that may be used"
                choice.fallbacks.append(Fallback(node, target, got, why))
            target = got
        why = refusal(node, target)
        if why and node.op.nested:
            target = CPU
        elif why:
            got = _nearest(node, target, allowed, why)
            choice.fallbacks.append(Fallback(node, target, got, why))
            target = got
        if node.op.nested and target == CPU:
            for inner in node.graphs:
                _settle(inner, wanted, allowed, choice)
            kinds = {choice.devices[n] for g in node.graphs for n in _all(g) if n in choice.devices}
            target = CPU if kinds <= {CPU} else HOST
        choice.devices[node] = target


def _devices_of(node: Node) -> set[str]:
    """The kinds of devices that the values of a node are on, if one is not the CPU."""
    values = (*node.inputs, *node.outputs)
    kinds = {v.type.device.kind for v in values if isinstance(v.type, TensorType)}
    return kinds if kinds - {CPU} else set()


def _all(graph: Graph) -> list[Node]:
    return [node for part in graph.walk() for node in part.nodes]


def is_host(node: Node) -> bool:
    """Whether a node calls Python, or orders effects: the executor runs it itself."""
    if (
        Trait.PYTHON in node.op.traits
        or node.op.effect
        or (not node.op.nested and is_users(node.op))
    ):
        return True
    if any(is_host(inner) for graph in node.graphs for inner in _all(graph)):
        return True
    values = (*node.inputs, *node.outputs)
    return any(str(value.type) == "token" for value in values)


def refusal(node: Node, device: str) -> str:
    """Why a device does not run a node; "" if it does."""
    if device != CPU:
        for value in (*node.inputs, *node.outputs):
            if not isinstance(value.type, TensorType):
                return "it works on a list"
    made = engine(device)
    try:
        why = made.refuses(node)
    except WeftError:
        raise
    except Exception as error:
        found = DeviceError(
            f"the function refuses of {device} raised {type(error).__name__}: {error}",
            op=node.op.name,
        )
        found.location = node.location or found.location
        raise found from error
    return why if isinstance(why, str) else "" if not why else "it says no"


def _nearest(node: Node, wanted: str, allowed: frozenset[str], why: str) -> str:
    """The CPU is nearest to every device: all transfers go through it."""
    if not allowed or CPU in allowed:
        return CPU
    for other in sorted(allowed - {wanted}):
        if not refusal(node, other):
            return other
    error = DeviceError(
        f"no device runs this node: on {wanted}, {why}",
        op=node.op.name,
        operands=[value.type for value in node.inputs],
        hint='let "cpu" be one of the devices',
    )
    error.location = node.location or error.location
    raise error
