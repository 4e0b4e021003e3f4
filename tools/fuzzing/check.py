"""Run a case in every mode and say what differs.

A graph: eagerly and as machine code. A program: eagerly, traced, from source by the interpreter
and by the dataflow executor, and from source as machine code. Where check mode is there, some run
in it, too.
"""

from __future__ import annotations

import ast
import gc
import inspect
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import weft
from fuzzing.case import FUNCTIONS, Case, load, unload
from fuzzing.choices import Choices
from fuzzing.derivative import wrong_derivative
from fuzzing.outcomes import Backward, Difference, Outcome, difference, reason, run, threads
from fuzzing.rounding import UNDECIDED, Again, Noise, almost, explained, noise
from fuzzing.transforms import TRANSFORMS
from fuzzing.unused_index import without_index
from fuzzing.world import World
from weft.core.bind import bind
from weft.core.grad_mode import no_grad
from weft.ir.interpret import interpret
from weft.runtime.native import native

Function = Callable[..., Any]


@dataclass(frozen=True)
class Result:
    """What became of a case.

    state    "same", "refused", "invalid" (it raises eagerly, and so everywhere), "undecided"
             (results differ, and rounding decides which are right), or "found"
    kind     found: what differs, and in which mode; refused: why
    text     in words
    """

    state: str
    kind: str = ""
    text: str = ""


#: Whether `weft.compile` has a check mode.
HAS_CHECKS = "check" in inspect.signature(weft.compile).parameters

#: How a program is captured, and what runs it.
PROGRAM_MODES: dict[str, dict[str, Any]] = {
    "traced": {"capture": "trace", "backend": "interpret"},
    "native": {"capture": "source", "backend": "native"},
    "interpreted": {"capture": "source", "backend": "interpret"},
    "dataflow": {"capture": "source", "backend": "dataflow"},
}
#: Of the dataflow executor, one for each case.
SCHEDULERS = ("fifo", "pool", "priority", "deterministic")
if HAS_CHECKS:
    PROGRAM_MODES["checked"] = {"capture": "source", "backend": "native", "check": True}


def check(case: Case) -> Result:
    """Run a case; never raises but for what is wrong with the case itself."""
    with threads(case.threads):
        eager = load(case, loops=bool(TRANSFORMS[case.transform].mapped))
        captured = load(case)
        try:
            found = (_graph if case.kind == "graph" else _program)(case, eager, captured)
        finally:
            unload(eager)
            unload(captured)
    gc.collect(0)
    return found


def _found(mode: str, call: int, found: Difference) -> Result:
    return Result("found", f"{mode}: {found.kind}", f"{mode}, call {call}: {found.text}")


# --- graphs -----------------------------------------------------------------------------------


def _graph(case: Case, eager: Function, captured: Function) -> Result:
    calls = [case.values(call) for call in case.calls]
    wants = [run(eager, values) for values in calls]
    if wants[0].error is not None:
        return Result("invalid", wants[0].error.__name__, wants[0].message)
    if case.transform == "grad" and case.seed % 3 == 0:
        wrong = wrong_derivative(case, eager, calls[0])
        if wrong:
            return _found("eager", 0, Difference("derivative", wrong))
    call, graph = _machine_code(case, captured, calls[0])
    if isinstance(graph, Outcome):
        if graph.refused:
            return Result("refused", reason(graph.message), graph.message)
        return _found("captured", 0, Difference("raises", f"{graph.error}: {graph.message}"))
    state = "same"
    for i in (*range(len(calls)), 0):
        want = wants[i]
        got = call(calls[i])
        if got.refused:
            return Result("refused", reason(got.message), got.message)
        found = difference(want, got, loose=False, exact=True)
        if found is None and want.error is None:
            found = _values(want, got, _with_noise(graph, calls[i]))
        if found is not None and found.kind == "undecided":
            state = "undecided"
        elif found is not None:
            return _found(_blamed(case, graph, calls[i], want), i, found)
    return Result(state)


def _machine_code(case: Case, captured: Function, values: list[Any]) -> tuple[Any, Any]:
    """What calls the machine code of a case, and what gives its graph."""
    made: list[Any] = []

    def graph() -> Any:
        if not made:
            made.append(weft.make_graph(captured, *values))
        return made[0]

    checked = {"check": True} if HAS_CHECKS and case.seed % 5 == 0 else {}
    if case.optimized:
        backend = weft.Dataflow(SCHEDULERS[case.seed % 4], 2) if case.seed % 11 == 6 else "native"
        capture = "source" if case.seed % 4 == 2 else "trace"
        checked = checked if backend == "native" else {}
        function = weft.compile(captured, capture=capture, backend=backend, **checked)
        return lambda given: run(function, given), graph
    program = run(lambda: native(graph()), [])
    if program.error is not None:
        return None, program
    (machine,) = program.leaves
    return lambda given: _direct(machine, given), graph


def _direct(machine: Any, values: list[Any]) -> Outcome:
    out = run(lambda: machine([x for x in values if isinstance(x, weft.Tensor)]), [])
    return out if out.error is not None else Outcome(leaves=out.leaves)


def _with_noise(graph: Callable[[], Any], values: list[Any]) -> Again:
    """Runs a graph by the interpreter, with noise."""

    def again(seed: int | None, choices: Choices) -> Sequence[Any] | None:
        call = Noise(seed, choices).call
        got = run(lambda: _interpret(graph(), values, call), [])
        return None if got.error is not None else got.leaves

    return again


def _interpret(graph: Any, values: list[Any], call: Callable[..., Any]) -> list[Any]:
    with no_grad():
        return interpret(graph, [x for x in values if isinstance(x, weft.Tensor)], call)


def _values(want: Outcome, got: Outcome, again: Again) -> Difference | None:
    """The first number that differs by more than rounding."""
    old, new = want.numbers(), got.numbers()
    i = explained(old, new, again)
    if i == UNDECIDED:
        return Difference("undecided", "")
    if i < 0:
        return None
    results = len(want.leaves)
    kind, place = ("value", i) if i < results else ("gradient", i - results)
    return Difference(kind, f"{kind} {place} is\n{new[i]!r}\n  instead of\n{old[i]!r}", place)


def _blamed(case: Case, graph: Callable[[], Any], values: list[Any], want: Outcome) -> str:
    """Who is wrong: the graph, run op by op, or the machine code that was made of it."""
    got = run(lambda: _interpret(graph(), values, bind), [])
    same = got.error is None and len(got.leaves) == len(want.leaves)
    if same and all(map(almost, want.leaves, got.leaves)):
        return "native"
    return "transform" if case.transform != "none" else "interpreted"


# --- programs ---------------------------------------------------------------------------------


def _program(case: Case, eager: Function, captured: Function) -> Result:
    calls = [case.values(call) for call in case.calls]
    backward = _backwards(case)
    wants = _eagerly(case, eager, calls, backward)
    world = World(captured.__globals__) if case.effects else None
    exact = {mode: not has_branches(case, mode) for mode in PROGRAM_MODES}
    state = "same"
    for mode in PROGRAM_MODES:
        if not _is_due(mode, case):
            continue
        given = (case, captured, calls, wants, backward, exact[mode], world)
        found = _in_mode(mode, *given)
        if found.state == "found" and mode in ("native", "checked", "dataflow"):
            blamed = _in_mode("interpreted", *given)
            return blamed if blamed.state == "found" else found
        if mode == "traced" and found.state == "refused" and TRANSFORMS[case.transform].mapped:
            continue  # it cannot ask elements that may answer differently
        if found.state == "undecided":
            state = "undecided"
        elif found.state != "same":
            return found
    if all(want.error is not None for want in wants):
        return Result("invalid", wants[0].error.__name__ if wants[0].error else "")
    return Result(state)


def _backwards(case: Case) -> list[Backward | None]:
    """What is asked of each call. In a varied case, the second asks for other gradients, and the
    third for none."""
    if case.transform != "none":
        return [None] * len(case.calls)
    asked = tuple(one.is_float and one.grad for one in case.arguments)
    other = tuple(one.is_float and not one.grad for one in case.arguments)
    found: list[Backward | None] = [Backward(asked, case.second) for _ in case.calls]
    if case.varied:
        found[1:3] = [Backward(other, case.second), Backward(asked, quiet=True)][: len(found) - 1]
    return found


def _order(calls: Sequence[Any]) -> tuple[int, ...]:
    """The calls that are made: each once, and the first again."""
    return (*range(len(calls)), 0)


def _eagerly(
    case: Case, eager: Function, calls: list[list[Any]], backward: list[Backward | None]
) -> list[Outcome]:
    """What each call gives. A captured call that raises has no effects."""
    world = World(eager.__globals__) if case.effects else None
    wants = []
    for i in _order(calls):
        if world is None and len(wants) == len(calls):
            return [*wants, wants[0]]
        before = None if world is None else world.state()
        weft.manual_seed(i)
        wants.append(run(eager, calls[i], backward[i], world))
        if world is not None and before is not None and wants[-1].error is not None:
            world.put_back(before)
    return wants


def _is_due(mode: str, case: Case) -> bool:
    """Whether a case is run in a mode. The interpreter has a share only: it runs the graphs that
    machine code is made of, and is asked in any case when that is wrong."""
    shares = {"traced": 1, "native": 1, "interpreted": 3, "dataflow": 4, "checked": 8}
    return case.seed % shares[mode] == 0


def _in_mode(
    mode: str,
    case: Case,
    captured: Function,
    calls: list[list[Any]],
    wants: list[Outcome],
    backward: list[Backward | None],
    exact: bool,
    world: World | None,
) -> Result:
    """What differs in one mode."""
    options = dict(PROGRAM_MODES[mode])
    if case.growing and case.seed % 2:  # symbolic from the first call on
        options["dynamic"] = True
    if mode == "dataflow":
        chosen = SCHEDULERS[case.seed // 4 % len(SCHEDULERS)]
        options["backend"] = weft.Dataflow(chosen, 2, 1 + case.seed // 16 % 3)
    function = weft.compile(captured, **options)
    state = "same"
    if world is not None:
        world.put_back(world.initial)
    for want, i in zip(wants, _order(calls), strict=True):
        before = None if world is None else world.state()
        weft.manual_seed(i)
        got = run(function, calls[i], backward[i], world)
        if got.refused and not want.refused:
            error = want.error
            why = reason(got.message) + (f" (eagerly {error.__name__})" if error else "")
            return Result("refused", why, f"{mode}: {got.message}")
        reference = captured
        if case.growing and want.error is not None and issubclass(want.error, IndexError):
            continue  # in small sizes many are out of range, which is an error only if it is used
        shorter = without_index(case, want) if got.error is None else None
        if shorter is not None:
            reference = load(shorter)
            weft.manual_seed(i)
            want = run(reference, calls[i], backward[i])
        loose = mode != "traced"
        found = difference(want, got, loose=loose, exact=exact, weak=case.effects)
        if found is None and want.error is None:
            again = _interpreted(reference, calls[i], backward[i], i, world, before)
            found = _values(want, got, again)
        if shorter is not None:
            unload(reference)
        if found is not None and found.kind == "undecided":
            state = "undecided"
        elif found is not None:
            return _found(mode, i, found)
    if mode == "native" and case.seed % 8 == 3 and world is None and not _draws(case):
        return _together(function, calls, backward, state)
    return Result(state)


def _draws(case: Case) -> bool:
    words = ("rand", "dropout", "bernoulli", "normal")
    return any(word in line for line in case.body for word in words)


def _together(
    function: Function,
    calls: list[list[Any]],
    backward: list[Backward | None],
    state: str,
) -> Result:
    """The same calls, which have been made one by one, in several Python threads at once."""
    numbers = [i for _ in range(3) for i in range(len(calls))]
    alone = {i: run(function, calls[i], backward[i]) for i in range(len(calls))}
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda i: run(function, calls[i], backward[i]), numbers))
    for i, got in zip(numbers, found, strict=True):
        differs = difference(alone[i], got, loose=False, exact=True)
        same = all(map(almost, alone[i].numbers(), got.numbers())) if differs is None else False
        if not same:
            kind = "value" if differs is None else differs.kind
            text = "it gives other numbers than alone" if differs is None else differs.text
            return _found("in threads", i, Difference(kind, text))
    return Result(state)


def _interpreted(
    captured: Function,
    values: list[Any],
    backward: Backward | None,
    seed: int,
    world: World | None,
    before: dict[str, Any] | None,
) -> Again:
    """Runs a program's graph with noise on its ops, from the state `before` of its world."""
    function = weft.compile(captured, backend="interpret")

    def again(number: int | None, choices: Choices) -> Sequence[Any] | None:
        after = None if world is None else world.state()
        if world is not None and before is not None:
            world.put_back(before)
        weft.manual_seed(seed)
        with noise(number, choices):
            got = run(function, values, backward, world)
        if world is not None and after is not None:
            world.put_back(after)
        return None if got.error is not None else got.numbers()

    return again


def has_branches(case: Case, mode: str) -> bool:
    """Whether data may decide which way the graph of a program goes.

    Those of a trace go one way, but for what asks for a branch by name.
    """
    text = "\n".join(case.body)
    if "weft.cond(" in text or "weft.while_loop(" in text:
        return True
    if mode == "traced":
        return False
    if "items.append(" in text and "grad" in text:  # a list that a loop fills has one history
        return True
    if any(f"{name}(" in text for name in FUNCTIONS):  # which have branches or loops of their own
        return True
    tree = ast.parse("def program():\n" + "\n".join(f"    {line}" for line in text.splitlines()))
    kinds = (ast.If, ast.While, ast.IfExp, ast.BoolOp, ast.Assert)
    if any(isinstance(node, kinds) for node in ast.walk(tree)):
        return True
    loops = [node for node in ast.walk(tree) if isinstance(node, ast.For)]
    # A tensor, and what the body of a loop assigns to, which the graph holds: also a number.
    bodies = [part for loop in loops for part in loop.body]
    held = {"k"}.union(*[_names(part, ast.Store) for part in bodies])
    return any(held & _names(loop.iter, ast.Load) for loop in loops)


def _names(tree: ast.AST, context: type[ast.expr_context]) -> set[str]:
    """The names that are read (`ast.Load`) or assigned to (`ast.Store`) in a tree."""
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    return {node.id for node in found if isinstance(node.ctx, context)}
