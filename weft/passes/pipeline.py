"""The passes in their order: the one place that says which passes run, and when."""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Callable, Iterable, Iterator, Sequence

from weft.base.errors import GraphError
from weft.base.gc_pause import gc_paused
from weft.ir.graph import Graph, Stage
from weft.passes.algebra import Algebra
from weft.passes.branches import ConstantBranches, SelectBranches, TrimBranches
from weft.passes.bundles import Bundles
from weft.passes.canonical import Canonical
from weft.passes.casts import Casts
from weft.passes.common import CommonSubexpressions
from weft.passes.contract import FunctionPass, Notes, Pass
from weft.passes.dead_code import DeadCode
from weft.passes.fold import Fold
from weft.passes.hoist import Hoist
from weft.passes.joins import Joins
from weft.passes.loops import TrimLoops
from weft.passes.push_constants import PushConstants
from weft.passes.sink import SinkBroadcasts
from weft.passes.slices import Slices
from weft.passes.strength import Strength
from weft.passes.unroll import Unroll
from weft.passes.views import Views

__all__ = ["optimize", "passes", "register", "unregister"]

#: What runs, in this order, until nothing changes any more.
DEFAULT: tuple[Pass, ...] = (
    DeadCode(),  # first, so that no other pass works on dead code
    Canonical(),  # one form for the rules that follow
    CommonSubexpressions(),  # rules that match "the same value twice" depend on it
    Fold(),
    Algebra(),
    Strength(),
    Casts(),
    Views(),
    Slices(),
    Joins(),
    SinkBroadcasts(),
    PushConstants(),  # control flow, from here on
    ConstantBranches(),
    TrimBranches(),
    SelectBranches(),
    TrimLoops(),
    Hoist(),
    Unroll(),
    Bundles(),  # last, when it is known what is still there
)

#: The most rounds over the list. Two are usual: one changes the graph, one finds nothing to do.
MOST_ROUNDS = 20

AnyPass = Pass | Callable[[Graph], Graph]

_current: list[Pass] = list(DEFAULT)


def passes() -> tuple[Pass, ...]:
    """The passes that `weft.optimize` runs, in order: ours and those that users registered.

    >>> [p.name for p in weft.passes.passes()][:3]
    ['dead_code', 'canonical', 'cse']
    """
    return tuple(_current)


def register(new: AnyPass, *, after: str = "", before: str = "") -> Pass:
    """Add a pass (or a function from graph to graph) to those that `weft.optimize` runs.

    `after` and `before` name the pass it is put next to; without either it comes last. Returns the
    pass, which `unregister` takes out again.
    """
    made = as_pass(new)
    if after and before:
        raise GraphError("a pass goes after one pass or before one, not both", op="register")
    names = [known.name for known in _current]
    if made.name in names:
        raise GraphError(
            f"there is already a pass {made.name!r}",
            op="register",
            hint="give it another name, or unregister that one first",
        )
    place = len(names)
    if after or before:
        place = _index(after or before) + bool(after)
    _current.insert(place, made)
    return made


def unregister(which: Pass | str) -> None:
    """Take a pass out again that `register` added."""
    name = which if isinstance(which, str) else which.name
    place = _index(name)
    if _current[place] in DEFAULT:
        raise GraphError(
            f"{name!r} was not registered, it is one of Weft's own",
            op="unregister",
            hint="give weft.optimize the list of passes to run: passes=[...]",
        )
    del _current[place]


def has_registered() -> bool:
    """Whether users have added passes of their own."""
    return len(_current) > len(DEFAULT)


def _index(name: str) -> int:
    for place, known in enumerate(_current):
        if known.name == name:
            return place
    listed = ", ".join(known.name for known in _current)
    raise GraphError(f"there is no pass {name!r}", hint=f"there are {listed}")


def as_pass(given: AnyPass | str) -> Pass:
    """A pass from one, from its name, or from a function."""
    if isinstance(given, str):
        return _current[_index(given)]
    if isinstance(given, Pass):
        return given
    if callable(given) and not isinstance(given, type):
        return FunctionPass(given)
    raise GraphError(f"{given!r} is no pass", hint="give a Pass, its name or a function")


def optimize(
    graph: Graph,
    passes: Iterable[AnyPass | str] | None = None,
    *,
    verify: bool = False,
    show: bool = False,
    told: Callable[[Graph], None] | None = None,
) -> Graph:
    """The graph after all passes, run until nothing changes; `graph` itself if nothing changes.

    `passes` replaces the usual list: passes, their names, or functions. With `verify` the graph is
    checked after each pass; with `show` each pass prints what it changed. `told` is called with
    each graph on the way.

    >>> graph = weft.make_graph(lambda x: (x * 1 + x / 4) - (x / 4) * 0.5, weft.spec(3))
    >>> [node.op.name for node in weft.optimize(graph).nodes if node.inputs]
    ['multiply', 'add', 'multiply', 'subtract']
    """
    todo = tuple(_current) if passes is None else tuple(map(as_pass, passes))
    with _fewer_collections() as made:
        return _run_all(todo, graph, verify, show, (made, told) if told else (made,))


def _run_all(
    todo: tuple[Pass, ...],
    graph: Graph,
    verify: bool,
    show: bool,
    tell: Sequence[Callable[[Graph], None]],
) -> Graph:
    clean: dict[Pass, Graph] = {}  # the graph in which this pass found nothing to do
    for _ in range(MOST_ROUNDS):
        start = graph
        for step in todo:
            if clean.get(step) is not graph:
                new = _run(step, graph, verify)
                if new is graph:
                    clean[step] = graph
                else:
                    for told in tell:
                        told(new)
                    if show:
                        print(new.history[-1])
                graph = new
        if graph is start:
            break
    return graph


#: After this many new nodes, discarded graphs are collected.
MOST_NODES = 1_000_000


@contextlib.contextmanager
def _fewer_collections() -> Iterator[Callable[[Graph], None]]:
    """Pause Python's cycle collector: it takes as long as the passes themselves, and finds little.

    Yields a function to call with each new graph; it collects after many new nodes.
    """
    nodes = 0

    def made(graph: Graph) -> None:
        nonlocal nodes
        nodes += len(graph.nodes)
        if nodes > MOST_NODES:
            gc.collect()
            nodes = 0

    with gc_paused():
        yield made


def _run(step: Pass, graph: Graph, verify: bool) -> Graph:
    """Run one pass, and note it in the history of the graph that it made."""
    notes = Notes()
    begin = time.perf_counter()
    new = step.run(graph, notes)
    seconds = time.perf_counter() - begin
    if new is graph:
        return graph
    if verify:
        _check(step, graph, new)
    text = str(notes) or f"{graph.node_count()} → {new.node_count()} nodes"
    return new.stamped(Stage(step.name, seconds, text))


def _check(step: Pass, old: Graph, new: Graph) -> None:
    """Check the contract of a pass, as far as that is possible without running the graph."""
    try:
        new.verify()
    except GraphError as error:
        error.message = f"after the pass {step.name!r}: {error.message}"
        raise
    for what, before, after in (
        ("inputs", old.inputs, new.inputs),
        ("outputs", old.outputs, new.outputs),
    ):
        if [v.type for v in before] != [v.type for v in after]:
            raise GraphError(f"the pass {step.name!r} changed the types of the {what}")


def timings(graph: Graph) -> dict[str, float]:
    """Seconds per pass, from the history of a graph."""
    seconds: dict[str, float] = {}
    for stage in graph.history:
        seconds[stage.name] = seconds.get(stage.name, 0.0) + stage.seconds
    return seconds
