"""Records `while_loop` and `scan`, which carry one tree of values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.base.errors import CaptureError
from weft.base.pytree import TreeSpec, tree_flatten, tree_unflatten
from weft.base.source import user_location
from weft.core.operands import as_tensor
from weft.core.tensor import Tensor, type_of
from weft.record.control.agree import as_leaf, carry_type, check_structure, line_of
from weft.record.control.branches import truth
from weft.record.control.loop_leaf import CarriedLeaf
from weft.record.control.nested import NestedRecorder, check_effects
from weft.record.control.recorded_loop import RecordedLoop
from weft.record.recorder import GraphRecorder

Function = Callable[..., Any]


class TreeLoop(RecordedLoop):
    """A loop whose only place is `carry`, the user's tree.

    Its leaves are tensors, Python numbers (which become tensors of the dtype that the body gives),
    or other Python values, which must not change.
    """

    def __init__(self, here: GraphRecorder, name: str, init: Any, body: Function) -> None:
        super().__init__(here, name, body)
        leaves, self.structure = tree_flatten(init)
        paths = self.structure.paths()
        self.tree = [
            CarriedLeaf(f"carry{path}" if path else "the carry", as_leaf(leaf, name))
            for leaf, path in zip(leaves, paths, strict=True)
        ]
        for leaf in self.tree:
            leaf.kind = type_of(leaf.initial) if isinstance(leaf.initial, Tensor) else None
        self.carry = init
        where = user_location()
        self.line = f" ({where})" if where else ""

    def leaves(self) -> list[CarriedLeaf]:
        return self.tree

    def enter_values(self, nested: NestedRecorder) -> None:
        shown = self.histories.shown
        leaves = [leaf.initial if shown else leaf.enter(nested) for leaf in self.tree]
        self.carry = tree_unflatten(self.structure, leaves)

    def leave_values(self, nested: NestedRecorder) -> bool:
        outs, structure = tree_flatten(self.carry)
        words = ("before the loop", "after the body")
        lines = (self.line, line_of(None, self.body))
        check_structure(self.name, self.structure, structure, words, lines)
        steady = True
        for leaf, out in zip(self.tree, outs, strict=True):
            before, leaf.out = leaf.kind, as_leaf(out, self.name)
            given = (leaf.initial, leaf.kind)
            leaf.kind = carry_type(self.name, leaf.title, given, leaf.out, self.body, self.line)
            steady &= leaf.kind == before and not leaf.gains()
        return steady

    def finish(self, at_least_once: bool) -> None:
        super().finish(at_least_once)
        self.carry = tree_unflatten(self.structure, [leaf.result() for leaf in self.tree])


def record_while(
    here: GraphRecorder,
    cond_fn: Function,
    body_fn: Function,
    init: Any,
    name: str = "while_loop",
    body: Function | None = None,
) -> Any:
    """A `while_loop` as a node; `body` is the user's function, for the lines in errors."""
    effects = here.python_effects()
    loop = TreeLoop(here, name, init, body or body_fn)

    def step(_nested: NestedRecorder) -> None:
        loop.carry = body_fn(loop.carry)

    def goes_on(carry: Any) -> Tensor:
        return as_tensor(truth(cond_fn(carry), name), name)

    loop.settle(step)
    pure = loop.record_condition(lambda: goes_on(loop.carry))
    check_effects(here, effects, name)
    if pure:
        loop.emit_while()
        return loop.carry

    # The condition writes something, such as a random state: then the body computes it.
    def rotated(pair: Any) -> Any:
        carry = body_fn(pair[0])
        return carry, goes_on(carry)

    start = (init, goes_on(init))
    return record_while(here, lambda pair: pair[1], rotated, start, name, body or body_fn)[0]


def record_scan(
    here: GraphRecorder,
    f: Function,
    init: Any,
    xs: list[Tensor],
    structure: TreeSpec,
    length: int,
    reverse: bool,
) -> tuple[Any, Any]:
    """A `scan` as a node."""
    effects = here.python_effects()
    loop = TreeLoop(here, "scan", init, f)
    rows = [type_of(x).like(shape=x.shape[1:]) for x in xs]
    shape: Any = None

    def step(nested: NestedRecorder) -> None:
        nonlocal shape
        given = f(loop.carry, tree_unflatten(structure, loop.slices(nested, xs, rows)))
        if not isinstance(given, tuple) or len(given) != 2:
            raise CaptureError(
                f"the body gives {given!r:.60}, not (carry, y)", op="scan", hint="y may be None"
            )
        loop.carry = given[0]
        leaves, shape = tree_flatten(given[1])
        loop.ys = [as_tensor(leaf, "scan") for leaf in leaves]

    loop.settle(step)
    check_effects(here, effects, "scan")
    loop.check_sizes(loop.nested, [f"y{path}" for path in shape.paths()], "scan", "")
    ys = loop.emit_scan(xs, length, reverse)
    return loop.carry, tree_unflatten(shape, ys)
