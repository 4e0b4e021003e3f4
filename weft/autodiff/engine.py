"""The backward pass over the dynamic graph.

Nodes are run in falling order of their numbers, from a heap: each once, after all that consume it,
so gradients that arrive over several paths are summed in one fixed order. Nothing recurses, and
each node and edge is touched once: a chain of 200,000 ops is 200,000 steps.
"""

from __future__ import annotations

import contextlib
import contextvars
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from heapq import heappop, heappush
from typing import Any

import numpy as np

from weft.autodiff.backward_events import meets
from weft.autodiff.conditional_gradients import (
    Conditions,
    Doubts,
    Gradients,
    decides,
    gradients_of,
    is_there,
    own_doubts,
)
from weft.autodiff.node import (
    AccumulateGrad,
    Barrier,
    Node,
    PartNode,
    as_array,
    data_of,
    freed,
    given_data,
    hook_result,
)
from weft.autodiff.save_plan import Absent
from weft.autodiff.tape import anomaly
from weft.base.source import with_role, work
from weft.core.autocast import as_recorded
from weft.core.bind import decide, recorder
from weft.core.grad_mode import mode, no_grad
from weft.core.large import large
from weft.core.quiet import quietly
from weft.core.tensor import Tensor, wrap
from weft.ops.identity import detached
from weft.ops.index_cards import Patch


class _Passes:
    """The number of backward passes so far: tells a recorder whether a loop body runs one."""

    count = 0


passes = _Passes()


class _Observer(threading.local):
    """Applies the nodes of backward passes while it is active, such as a profiler."""

    apply: Callable[..., Any] | None = None


observer = _Observer()
_RAW = (np.ndarray, np.generic)


def run(
    roots: Iterable[tuple[Node, Any]],
    *,
    keep: bool,
    create: bool,
    targets: Sequence[Node] | None = None,
    cut: bool = False,
    doubts: Doubts | None = None,
    of_roots: Doubts | None = None,
) -> Gradients:
    """Pass the gradients of `roots` back; those of `targets`, if given, are returned.

    keep      do not free what the nodes kept
    create    compute with tensors, so that the gradients can be differentiated again
    targets   only what leads to these is computed, and no `.grad` is touched
    cut       stop at targets, which count as independent; their hooks are left to the pass that
              continues behind them
    doubts    gets the conditions under which gradients of targets exist, if a graph with branches
              is recorded (`weft.autodiff.conditional_gradients`)
    of_roots  conditions under which the gradients of roots exist; otherwise they are zeros
    """
    passes.count += 1
    here = recorder()
    if here is None and not create and mode.autocast is None and not cut:
        roots = list(roots)
        if len(roots) == 1 and _ends_after(roots[0][0], targets):
            return _only_pass(*roots[0], keep, targets)
    spend = None
    if here is not None and here.keeps_histories:
        spend, keep = partial(here.spend, keep=keep), True
    context = contextvars.copy_context()  # hooks run as the user set things up
    given = (list(roots), keep, create, targets, context, cut, doubts, of_roots, spend)
    found: Gradients
    if here is None and mode.autocast is None:
        found = quietly(_run, *given)
        return found
    with as_recorded(), contextlib.nullcontext() if here is None else with_role("backward"):
        found = quietly(_run, *given)
    return found


def _run(
    roots: list[tuple[Node, Any]],
    keep: bool,
    create: bool,
    targets: Sequence[Node] | None,
    context: contextvars.Context,
    cut: bool,
    of_targets: Doubts | None,
    of_roots: Doubts | None,
    spend: Callable[[Node], bool] | None,
) -> Gradients:
    waiting: Gradients = {}
    heap: list[tuple[int, Node]] = []
    for root, start in roots:
        _add(waiting, heap, root, start, create)
    asked = frozenset(targets or ())
    ends = asked if cut else frozenset()
    needed = None if targets is None else _leading_to(list(waiting), targets, ends)
    caught: Gradients = {}
    wanted: tuple[bool, ...] | None = None
    here = recorder()
    watch = anomaly.on and here is None
    observe = observer.apply if here is None else None
    freeing = None if here is None or keep else here.freeing
    conditions = None if here is None else Conditions(of_roots, create, keep)
    doubts: Doubts | None = None if conditions is None else conditions.of
    doubt: Tensor | None = None
    passed_by: list[tuple[Node, Any]] = []  # leaves without a gradient, and zeros for it
    arrived = False  # whether a leaf got a gradient
    kept: Any = None  # by the node that runs
    following: Node | None = None  # the next node, if nothing on the heap comes before it
    g: Any = None
    while heap or following is not None:
        if following is None:
            node = heappop(heap)[1]
            g = waiting.pop(node)
        else:
            node, following = following, None
        if g.__class__ is Patch:
            g = g.array()
        extra = node.extra
        if doubts is not None:
            doubt = conditions.pop(node)  # type: ignore[union-attr]
            if doubt is not None:
                g = conditions.enter(node, g, doubt, node in asked)  # type: ignore[union-attr]
                may_decide = extra is not None or (needed is None and node.is_leaf)
                if doubt.ndim:  # of elements of a `vmap`: the whole is there
                    pass
                elif may_decide and node not in ends and decides(node):
                    if not decide(is_there(doubt, g)):
                        passed_by.append((node, g))
                        continue
                    doubt = None
                elif node in asked and of_targets is not None:
                    of_targets[node] = doubt
        if doubts is not None and node not in ends:
            meets(node, not node.is_leaf and (needed is None or _goes_on(node, needed)))
        if extra is not None and extra.prehooks and node not in ends:
            g = _hooked(extra.prehooks, g, create, context)
        if needed is not None:
            if node in asked:
                caught[node] = g
            if node not in needed or node.is_leaf or node in ends:
                continue
            wanted = tuple([edge in needed for edge in node.edges])
            if True not in wanted:
                continue
        if node.__class__ is PartNode:
            if conditions is not None:
                conditions.pass_to_whole(node, doubt)
            _add_part(waiting, heap, node, g)
            continue
        if doubts is not None:  # ops recorded from here on belong to this node
            kept = getattr(node, "kept", None)
            if freeing is not None:
                freeing(node)
            if spend is not None and spend(node):
                raise freed(node.name())
            if here is not None:  # whoever records has a role, and takes it back: `with_role`
                work.forward, work.of = node.location, node.forward_name()
                if work.gradient is not None:
                    work.gradient(node.location, work.of, g)
        arrived = arrived or node.is_leaf
        try:
            if doubt is not None and conditions is not None:
                runs, given = conditions.stand_in(node, doubt, g)
                grads = runs.apply(given, create, keep, wanted)
            elif observe is None:
                grads = node.apply(g, create, keep, wanted)
            else:
                grads = observe(node, g, create, keep, wanted)
        except Absent as absent:
            grads = gradients_of(node, absent, create)
            if conditions is None:  # a graph is run op by op; see conditional_gradients
                conditions = Conditions(None, create, keep)
                doubts = conditions.of
            kept = (None, absent.condition)
        if watch or (extra is not None and extra.hooks):
            grads = [part.array() if isinstance(part, Patch) else part for part in grads]
        if extra is not None and extra.hooks:
            grads = _after(extra.hooks, grads, g, create, context)
        if watch:
            (anomaly.look or _check)(node, grads, g)
        if doubts is not None:
            own = own_doubts(node, grads, kept, doubt)
            if doubts or doubt is not None or own is not None:
                grads = conditions.leave(node, grads, doubt, waiting, own)  # type: ignore[union-attr]
        first: Any = None
        for edge, part in zip(node.edges, grads, strict=False):
            if edge is None or part is None:
                continue
            if edge in waiting:
                _add(waiting, heap, edge, part, create)
            elif following is None:
                following, first = edge, part
            elif edge is following:
                first = _sum(first, part, create)
            else:
                waiting[edge] = part
                heappush(heap, (-edge.number, edge))
        if following is not None:
            g = first
            if heap and following.number < -heap[0][0]:
                waiting[following] = g
                heappush(heap, (-following.number, following))
                following = None
    if not arrived:  # eagerly there would be no history: the gradients are zeros
        for node, g in passed_by:
            if node.is_leaf:
                node.apply(g, create, keep, None)
    return caught


def _ends_after(node: Node, targets: Sequence[Node] | None) -> bool:
    """Whether a pass from this node is one call and then leaves, and nobody observes any of it.

    There is nothing to put in order then, and no hook that could ask for more. Targets, if any, are
    such leaves.
    """
    if node.__class__ is PartNode and node.extra is None:
        node = node.parent
    if not node.only_leaves or node.extra is not None or anomaly.on or observer.apply is not None:
        return False
    edges = node.edges
    for edge in edges:
        if edge.__class__ is not AccumulateGrad or edge.extra is not None or edge.after:
            return False
    if targets is not None and not all(target in edges for target in targets):
        return False
    return len(edges) < 2 or len(set(edges)) == len(edges)


def _only_pass(node: Node, g: Any, keep: bool, targets: Sequence[Node] | None) -> Gradients:
    """Such a pass; returns the gradients of targets."""
    if node.__class__ is PartNode:
        parts: list[Any] = [None] * node.parent.outputs
        parts[node.index] = g
        node, g = node.parent, tuple(parts)
    grads = node.apply(g, False, keep, None)
    found: Gradients = {}
    for edge, part in zip(node.edges, grads, strict=True):
        if part is None:
            continue
        if targets is None:
            edge.apply(part, False, keep, None)  # type: ignore[union-attr]
        elif edge in targets:
            found[edge] = part  # type: ignore[index]
    return found


def _sum(a: Any, b: Any, create: bool) -> Any:
    if a.__class__ is Patch:
        return a.plus(b)
    if b.__class__ is Patch:
        return b.plus(a)
    if create or (isinstance(a, _RAW) and isinstance(b, _RAW)):
        return large.add(a, b) if not create and a.size >= large.start else a + b
    with no_grad():  # arrays of another device: by its kernels
        return data_of(wrap(a) + wrap(b))


def _add(
    waiting: Gradients, heap: list[tuple[int, Node]], node: Node, g: Any, create: bool
) -> None:
    """One more gradient for a node; the first puts it on the heap."""
    before = waiting.get(node)
    if before is None:
        waiting[node] = g
        heappush(heap, (-node.number, node))
    else:
        waiting[node] = _sum(before, g, create)


def _add_part(waiting: Gradients, heap: list[tuple[int, Node]], node: Any, g: Any) -> None:
    """The gradient of one of several results: they wait together in a tuple."""
    parent, index = node.parent, node.index
    parts = waiting.get(parent)
    if parts is None:
        parts = (None,) * parent.outputs
        heappush(heap, (-parent.number, parent))
    before = parts[index]
    total = g if before is None else _sum(before, g, isinstance(g, Tensor))
    waiting[parent] = (*parts[:index], total, *parts[index + 1 :])


def _goes_on(node: Node, needed: set[Node | None]) -> bool:
    return node in needed and any(edge in needed for edge in node.edges if edge is not None)


def _leading_to(
    roots: list[Node], targets: Sequence[Node], ends: frozenset[Node]
) -> set[Node | None]:
    """The nodes on a way from a root to a target, found without recursion."""
    lowest = min((node.number for node in targets), default=0)
    reached: set[Node] = set()
    stack = list(roots)
    while stack:
        node = stack.pop()
        if node in reached or (node.number < lowest and not isinstance(node, Barrier)):
            continue  # nodes behind a barrier may have any number
        reached.add(node)
        if node in ends:
            continue
        stack.extend(edge for edge in node.edges if edge is not None)
    here = recorder()
    if here is not None:
        here.looked(reached, targets)
    needed: set[Node | None] = set(targets)
    for node in sorted(reached, key=lambda node: node.number):
        if node not in ends and any(edge in needed for edge in node.edges if edge is not None):
            needed.add(node)
    return needed


# --- hooks and anomalies -----------------------------------------------------------------------


def _as_tensor(g: Any) -> Any:
    if g is None or isinstance(g, (Tensor, tuple)):
        return g
    if g.__class__ is np.ndarray and recorder() is None:
        return wrap(g)
    return detached(wrap(as_array(g)))


def _back(value: Any, create: bool) -> Any:
    """A hook's tensor as what the engine computes with."""
    return value if create else given_data(value)


def _hooked(hooks: list[Any], g: Any, create: bool, context: contextvars.Context) -> Any:
    for hook in list(hooks):
        replaced = hook_result(context.copy().run(hook, _as_tensor(g)), data_of(g).shape)
        if replaced is not None:
            g = _back(replaced, create)
    return g


def _after(
    hooks: list[Any], grads: Sequence[Any], g: Any, create: bool, context: contextvars.Context
) -> Sequence[Any]:
    for hook in list(hooks):
        given = tuple(_as_tensor(part) for part in grads)
        outputs = g if isinstance(g, tuple) else (g,)
        replaced = context.copy().run(hook, given, tuple(_as_tensor(part) for part in outputs))
        if replaced is not None:
            grads = [_back(part, create) for part in replaced]
    return grads


def _check(node: Node, grads: Sequence[Any], g: Any) -> None:
    """With detect_anomaly: a NaN that this node made is an error that names the forward line."""
    came = _worst([g] if not isinstance(g, tuple) else g)
    made = _worst(grads)
    if made == _FINE or came == made or came == "NaN" or (made == "inf" and not anomaly.inf):
        return
    where = f"\n  forward: {node.location}" if node.location else ""
    raise anomaly.error(
        f"the backward of {node.forward_name()} made {_A[made]} out of numbers{where}",
        op=node.name(),
        hint="look at the values at the forward line: a square root or a logarithm of 0, 0/0, …",
    )


_FINE = "numbers"
_A = {"NaN": "a NaN", "inf": "an inf"}


def _worst(values: Sequence[Any]) -> str:
    """Whether there is a NaN among these, or an inf."""
    found = _FINE
    for value in values:
        if value is None:
            continue
        array = np.asarray(value if isinstance(value, Tensor) else wrap(as_array(value)).numpy())
        if array.dtype.kind in "fcV" and not np.isfinite(array).all():
            if np.isnan(array).any():
                return "NaN"
            found = "inf"
    return found
