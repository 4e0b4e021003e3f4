"""From a few layouts to one for every value.

Inputs of a graph, and its `layout` calls, say how they lie over a mesh. For each call `Propagation`
chooses one of the ways of its card (`weft/ir/ways.py`) along each mesh axis, by what it costs to
bring the operands into that form and to use the results: forwards over the graph; then backwards,
where it notes what later calls ask for; and forwards again with these wishes. The result is the
same graph with cuts in all types, and a `layout` call wherever a value changes its layout: the
whole communication of the program, to be read, checked and drawn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from weft.base.dims import dims_in, substitute
from weft.base.world import Axes
from weft.ir.cuts import Interleaved, divides
from weft.ir.graph import Graph, Node, Value
from weft.ir.op import Trait
from weft.ir.types import TensorType
from weft.ir.ways import SUM, State, Way, ways_of
from weft.ops.layout import LAYOUT
from weft.passes.layouts.costs import Costs
from weft.passes.layouts.loops import Loops
from weft.passes.layouts.states import Choice, States, cut_as, states_of

__all__ = ["Propagation"]

#: Sweeps over the graph: forwards, backwards, ..., forwards.
ROUNDS = 3
#: What counts as a size that is not known.
USUAL = 256


class Propagation:
    """The layouts of one graph.

    states  of each value
    wants   for values of which later calls ask for a part: the axis that is cut, per mesh axis
    """

    def __init__(
        self,
        graph: Graph,
        mesh: Axes,
        costs: Costs,
        inputs: Sequence[States],
        wanted: Mapping[int, States] | None = None,
        hints: Mapping[str, int] | None = None,
    ) -> None:
        self.graph = graph
        self.hints = hints or {}
        self.mesh = mesh
        self.costs = costs
        self.states: dict[Value, States] = dict(zip(graph.inputs, inputs, strict=True))
        self.wants: dict[Value, list[State]] = {}
        self.choices: dict[Node, Choice] = {}
        self._known: dict[Node, tuple[Way, ...]] = {}
        self._loops = Loops(self)
        for number, states in (wanted or {}).items():
            self.want(graph.outputs[number], states)

    def run(self) -> Propagation:
        for _ in range(ROUNDS):
            before = dict(self.states)
            self._made: dict[tuple[Value, int], set[State]] = {}
            for node in self.graph.nodes:
                choice = self.choices[node] = self._choose(node)
                self.states.update(zip(node.outputs, choice.outputs, strict=True))
            if self.states == before:
                break
            for node in reversed(self.graph.nodes):
                self._ask(node, self.choices[node])
        return self

    @property
    def outputs(self) -> list[States]:
        return [self.states[value] for value in self.graph.outputs]

    # --- wishes ---------------------------------------------------------------------------------

    def want(self, value: Value, states: States) -> None:
        """Note the layout that somebody asks for, where nobody has asked before."""
        found = self.wants.setdefault(value, [None] * len(self.mesh))
        for k, state in enumerate(states):
            if isinstance(state, int) and found[k] is None:
                found[k] = state

    def wanted(self, value: Value, k: int) -> State:
        found = self.wants.get(value)
        return None if found is None else found[k]

    def _ask(self, node: Node, choice: Choice) -> None:
        for k in range(len(self.mesh)):
            way = choice.ways[k] or self._wished(node, k)
            states = way.inputs if way is not None else [s[k] for s in choice.inputs]
            for value, state in zip(node.inputs, states, strict=True):
                if isinstance(state, int) and not isinstance(self.states[value][k], int):
                    asked: list[State] = [None] * len(self.mesh)
                    asked[k] = state
                    self.want(value, tuple(asked))

    def _wished(self, node: Node, k: int) -> Way | None:
        """The way that gives the results as they are wanted along a mesh axis."""
        for j, value in enumerate(node.outputs):
            wish = self.wanted(value, k)
            if wish is not None:
                for way in self._candidates(node, (), (wish,)):
                    if way.outputs[j] == wish:
                        return way
        return None

    def _candidates(
        self, node: Node, states: Sequence[State], wishes: Sequence[State]
    ) -> list[Way]:
        """The ways of a call, also those for the interleaved parts that operands have."""
        ways = self._ways(node)
        sections = {s.sections for s in (*states, *wishes) if isinstance(s, Interleaved)}
        more = [way.interleaved(count) for way in ways for count in sections]
        return [*ways, *[way for way in more if way is not None]]

    # --- choices --------------------------------------------------------------------------------

    def _ways(self, node: Node) -> tuple[Way, ...]:
        found = self._known.get(node)
        if found is None:
            found = self._known[node] = ways_of(node)
        return found

    def _choose(self, node: Node) -> Choice:
        if node.op is LAYOUT:
            made = states_of(node.attrs["axes"], node.attrs["terms"], self.mesh)
            return Choice([None] * len(self.mesh), [made], [made])
        if node.graphs:
            return self._loops.choose(node)
        ways = self._ways(node)
        chosen: list[Way | None] = []
        used: dict[Way, int] = {}
        for k, (_, ranks) in enumerate(self.mesh):
            way = self._best(node, k, ranks, used) if ways else None
            chosen.append(way)
            if way is not None:
                used[way] = used.get(way, 1) * ranks
                for value, state in zip(node.inputs, way.inputs, strict=True):
                    self._made.setdefault((value, k), set()).add(state)
        return self.choice_of(node, chosen)

    def choice_of(self, node: Node, ways: Sequence[Way | None]) -> Choice:
        none = (None,) * max(len(node.inputs), len(node.outputs))
        columns = [
            (way.inputs, way.outputs if not way.combine else none) if way else (none, none)
            for way in ways
        ]
        inputs = [tuple(c[0][i] for c in columns) for i in range(len(node.inputs))]
        outputs = [tuple(c[1][j] for c in columns) for j in range(len(node.outputs))]
        return Choice(ways, inputs, outputs)

    def _best(self, node: Node, k: int, ranks: int, used: Mapping[Way, int]) -> Way | None:
        """The cheapest way along a mesh axis, of those that some operand or wish suggests."""
        states = [self.states[value][k] for value in node.inputs]
        wishes = [self.wanted(value, k) for value in node.outputs]
        best: Way | None = None
        least = self._cost(node, None, k, ranks, states, wishes)
        for way in self._candidates(node, states, wishes):
            many = ranks * used.get(way, 1)
            if not divides(many, way.parts) and not self._pads(node, way, k, many):
                continue
            if any(_collide(way, ranks, other, many) for other, many in used.items()):
                continue
            suggested = any(
                a is not None and a == b for a, b in zip(way.inputs, states, strict=True)
            ) or any(a is not None and a == b for a, b in zip(way.outputs, wishes, strict=True))
            if suggested:
                cost = self._cost(node, way, k, ranks, states, wishes)
                if cost < least or (cost == least and best is None):
                    best, least = way, cost
        return best

    def _pads(self, node: Node, way: Way, k: int, ranks: int) -> bool:
        """Whether a call may run so on parts of which the last ones are filled up: with copies of
        the last element, which are elements like others. Only sums must not count them."""
        if not way.even or way.rule is not None or ranks != self.mesh[k][1]:
            return False
        values, states = (*node.inputs, *node.outputs), (*way.inputs, *way.outputs)
        pairs = zip(values, states, strict=True)
        sizes = [v.tensor_type.shape[s] for v, s in pairs if isinstance(s, int)]
        if any(size.__class__ is not int or size != way.parts for size in sizes):
            return False
        for value, state in zip(node.inputs, way.inputs, strict=True):
            cut_twice = any(s == state for j, s in enumerate(self.states[value]) if j != k)
            if isinstance(state, int) and cut_twice:
                return False
        if SUM in way.inputs:
            return False
        given = [self.states[value][k] for value in node.inputs]
        if not any(isinstance(a, int) and a == b for a, b in zip(given, way.inputs, strict=True)):
            return False  # only what is filled up already
        if way.combine:
            return way.combine in ("max", "min")
        if all(isinstance(state, int) for state in way.outputs):
            return True
        return all(state == SUM for state in way.outputs) and Trait.LINEAR in node.op.traits

    def _cost(
        self,
        node: Node,
        way: Way | None,
        k: int,
        ranks: int,
        states: Sequence[State],
        wishes: Sequence[State],
    ) -> float:
        """Of the operands' changes, of what becomes of the results, and of the work itself."""
        costs = self.costs
        total = 0.0
        for i, (value, state) in enumerate(zip(node.inputs, states, strict=True)):
            target = None if way is None else way.inputs[i]
            made = self._made.get((value, k), ())
            if target != state and target not in made:
                total += costs.change(state, target, self.nbytes(value), ranks)
            elif state == SUM and target == SUM and None not in made:
                # It is added up later, as a part of the result: see below.
                total -= costs.change(SUM, None, self.nbytes(value), ranks)
        for j, (value, wish) in enumerate(zip(node.outputs, wishes, strict=True)):
            given = None if way is None else way.outputs[j]
            if way is not None and way.combine:
                total += costs.all_reduce(self.nbytes(value), ranks)
            elif given != wish and (given == SUM or (wish is not None and given is not None)):
                total += costs.change(given, wish, self.nbytes(value), ranks)
        share = ranks if way is not None and _is_shared(way) else 1
        return total + self._work(node) / share

    def _work(self, node: Node) -> float:
        if not all(isinstance(v.type, TensorType) for v in (*node.inputs, *node.outputs)):
            return 0.0
        inputs = tuple([self._usual(value.tensor_type) for value in node.inputs])
        outputs = tuple([self._usual(value.tensor_type) for value in node.outputs])
        attrs = node.attrs
        for name in {name for size in dims_in(attrs) for name in size.names}:
            attrs = substitute(attrs, {name: self._size(name)}, partly=True)
        found = node.op.estimate(inputs, outputs, **attrs)
        return self.costs.work(found.flops, found.bytes)

    def nbytes(self, value: Value) -> int:
        kind = value.type
        return self._usual(kind).nbytes if isinstance(kind, TensorType) else 0

    def _usual(self, kind: TensorType) -> TensorType:
        """The type with numbers for named sizes: those of the first call."""
        if all(size.__class__ is int for size in kind.shape):
            return kind
        known = {name: self._size(name) for size in dims_in(kind.shape) for name in size.names}
        return kind.like(shape=substitute(kind.shape, known))

    def _size(self, name: str) -> int:
        return self.hints.get(name, USUAL)

    # --- the graph with its layouts -------------------------------------------------------------

    def graph_with_layouts(self, wanted: Mapping[int, States] | None = None) -> Graph:
        """The graph with cuts in its types, and a `layout` call for each change. `wanted`: the
        layouts of outputs; others stay as they are, but terms are added up."""
        made = Graph(self.graph.name)
        made.history, made.interface = self.graph.history, self.graph.interface
        made.set_inputs(
            [cut_as(v.type, self.states[v], self.mesh) for v in self.graph.inputs],
            [v.name for v in self.graph.inputs],
        )
        changes = _Changes(self, made)
        for old, new in zip(self.graph.inputs, made.inputs, strict=True):
            changes.known[old, self.states[old]] = new
        for node in self.graph.nodes:
            choice = self.choices[node]
            given = [
                changes.value(value, states, node)
                for value, states in zip(node.inputs, choice.inputs, strict=True)
            ]
            if node.op is LAYOUT:
                changes.known[node.out, choice.outputs[0]] = given[0]
                continue
            types = [
                cut_as(value.type, states, self.mesh)
                for value, states in zip(node.outputs, choice.outputs, strict=True)
            ]
            graphs = self._loops.graphs(node, choice) if node.graphs else ()
            call = Node(node.op, given, node.attrs, types, graphs, node.location)
            made.nodes.append(call)
            for old, value, states in zip(node.outputs, call.outputs, choice.outputs, strict=True):
                value.name = old.name
                changes.known[old, states] = value
        outputs = []
        for number, value in enumerate(self.graph.outputs):
            states = self.states[value]
            target = (wanted or {}).get(number)
            if target is None:
                target = tuple(None if state == SUM else state for state in states)
            outputs.append(changes.value(value, target, None))
        made.outputs = tuple(outputs)
        return made


class _Changes:
    """The values of the new graph, in each layout in which they are needed."""

    def __init__(self, propagation: Propagation, graph: Graph) -> None:
        self.propagation = propagation
        self.graph = graph
        self.known: dict[tuple[Value, States], Value] = {}
        self.forms: dict[Value, list[States]] = {}

    def value(self, old: Value, states: States, user: Node | None) -> Value:
        found = self.known.get((old, states))
        if found is not None:
            return found
        p = self.propagation
        forms = self.forms.setdefault(old, [p.states[old]])
        nbytes = p.nbytes(old)

        def cost(form: States) -> float:
            return sum(
                p.costs.change(a, b, nbytes, ranks)
                for a, b, (_, ranks) in zip(form, states, p.mesh, strict=True)
            )

        source = self.known[old, min(forms, key=cost)]
        kind = cut_as(old.type, states, p.mesh)
        cuts = kind.cuts if isinstance(kind, TensorType) else None
        attrs = {
            "mesh": p.mesh,
            "axes": cuts.axes if cuts else ((),) * kind.ndim,
            "terms": cuts.terms if cuts else (),
        }
        location = user.location if user is not None else old.node.location if old.node else None
        node = Node(LAYOUT, [source], attrs, [kind], (), location)
        self.graph.nodes.append(node)
        self.known[old, states] = node.out
        forms.append(states)
        return node.out


def _collide(one: Way, ranks: int, two: Way, others: int) -> bool:
    """Whether two mesh axes would cut one axis, so that sections of it are no longer whole."""
    for a, b in zip((*one.inputs, *one.outputs), (*two.inputs, *two.outputs), strict=True):
        if isinstance(a, int) and isinstance(b, int) and int(a) == int(b):
            if isinstance(a, Interleaved) and isinstance(b, Interleaved):
                return True
            if isinstance(a, Interleaved) and a.sections % others:
                return True
            if isinstance(b, Interleaved) and b.sections % ranks:
                return True
    return False


def _is_shared(way: Way) -> bool:
    """Whether the ranks share the work: each has a part of something."""
    return any(isinstance(state, int) for state in (*way.inputs, *way.outputs))
