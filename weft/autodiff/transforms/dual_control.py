"""Control flow inside of `jvp` where a graph is recorded.

Nobody knows there which way a condition goes, so the node is recorded on the level below: each
branch gives its results and their tangents, and a loop carries both. Its functions run on the level
of the `jvp` as always, inside of the nested recording.

What a node on the level below cannot hold is `Unlowered`: a history that began on the level itself,
as in jvp(grad(f)), and writes to tensors from outside. Then Python is asked which way it goes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from weft.autodiff.node import Barrier, Node
from weft.autodiff.transforms.forward import Forward
from weft.autodiff.transforms.history import Primal
from weft.autodiff.transforms.levels import Held, Journal, all_elements, left
from weft.autodiff.transforms.tangents import is_float
from weft.base.pytree import tree_flatten, tree_unflatten
from weft.core.bind import recorder, recording
from weft.core.grad_mode import mode
from weft.core.operands import cast
from weft.core.symbolic import SymbolicArray
from weft.core.tensor import Tensor, wrap
from weft.ops.creation import zeros_like

__all__ = ["Attempt", "dual_cond", "dual_scan", "dual_while"]

Function = Callable[..., Any]
Pairs = tuple[list[Any], list[Any]]  # values and their tangents


class Unlowered(Exception):
    """What the level below cannot record."""


class Attempt:
    """Lets `Unlowered` pass out of all nested recordings of a level, and ends it there."""

    def __init__(self, level: Forward) -> None:
        self.level = level

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        return kind is Unlowered and not self.level.lowered


class _Cut(Barrier):
    """Where a history on the level would pass through a node on the level below."""

    __slots__ = ()

    message = "a backward inside of jvp passes through control flow of a recorded graph"
    hint = "differentiate outside: grad(jvp(f))"


class _Lowering:
    """Takes trees of one level to the level below, as values and tangents, and back."""

    def __init__(self, level: Forward) -> None:
        self.level = level
        self.enabled = mode.enabled
        self.outside: dict[Node, None] = {}  # from outside, in histories of the level

    def _look(self, histories: list[Node | None]) -> None:
        """Note where histories of the level come from; none may begin on it."""
        stack, seen = list(histories), set[Node]()
        while stack:
            node = stack.pop()
            if node is None or node in seen:
                continue
            seen.add(node)
            if node.number < self.level.start:
                self.outside[node] = None
            elif isinstance(node, Primal) or not node.edges:
                raise Unlowered
            else:
                stack.extend(node.edges)

    @contextlib.contextmanager
    def below(self) -> Iterator[None]:
        with left(self.level), _gradients(self.enabled and self.level.linked):
            yield

    @contextlib.contextmanager
    def above(self) -> Iterator[None]:
        """Run a function of the level in a nested recording."""
        here = recorder()
        journal = Journal()
        self.level.lowered += 1
        try:
            with recording(self.level), _gradients(self.enabled), self.level.journal(journal):
                yield
        finally:
            self.level.lowered -= 1
        if not all(_made_in(here, held) for held in journal.entries.values()):
            journal.restore()
            raise Unlowered

    def pairs(self, tree: Any) -> tuple[Pairs, Any]:
        """The leaves of a tree of the level, and its structure; to be called below."""
        leaves, spec = tree_flatten(tree)
        self._look([x._node for x in leaves if isinstance(x, Tensor) and self.level.has(x)])
        values = [self.level.below(x) if isinstance(x, Tensor) else x for x in leaves]
        return (values, [self._tangent(x) for x in leaves]), spec

    def _tangent(self, leaf: Any) -> Any:
        """A tangent that can be carried; 0 for what has none, which is no tensor."""
        if not isinstance(leaf, Tensor) or not is_float(leaf):
            return 0.0
        found = self.level.tangent(leaf)
        return zeros_like(self.level.below(leaf)) if found is None else found

    def tree(self, pairs: Pairs, spec: Any) -> Any:
        """The tree of the level; to be called below."""
        return tree_unflatten(spec, list(map(self._dual, *pairs)))

    def result(self, pairs: Pairs, spec: Any) -> Any:
        """What a node gives, as a tree of the level."""
        leaves = list(map(self._dual, *pairs))
        for leaf in leaves:
            if self.enabled and self.outside and isinstance(leaf, Tensor) and is_float(leaf):
                leaf._node = _Cut(leaf.shape, self.outside)
        return tree_unflatten(spec, leaves)

    def _dual(self, value: Any, tangent: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        moves = isinstance(tangent, Tensor) and is_float(value)
        return self.level.dual(value, cast(tangent, value.dtype) if moves else None)


@contextlib.contextmanager
def _gradients(on: bool) -> Iterator[None]:
    before, mode.enabled = mode.enabled, on
    try:
        yield
    finally:
        mode.enabled = before


def _made_in(here: Any, held: Held) -> bool:
    """Whether a tensor that was written to was made inside of a nested recording."""
    data = all_elements(wrap(held.data))._data
    return data.__class__ is SymbolicArray and data.recorder is here


def dual_cond(
    level: Forward, choose: Function, chosen: Tensor, branches: Sequence[Function], operands: Any
) -> Any:
    """A choice by a value of the level; `choose(chosen, branches)` records it below."""
    lowering = _Lowering(level)
    specs: list[Any] = []

    def lowered(branch: Function) -> Function:
        def run() -> Any:
            with lowering.above():
                result = branch(*operands)
            pairs, spec = lowering.pairs(result)
            specs.append(spec)
            return tree_unflatten(spec, pairs[0]), pairs[1]

        return run

    with lowering.below():
        found, tangents = choose(level.below(chosen), [lowered(branch) for branch in branches])
        return lowering.result((tree_flatten(found)[0], tangents), specs[0])


def dual_while(
    level: Forward, loop: Function, cond_fn: Function, body_fn: Function, init: Any
) -> Any:
    """A loop that carries tangents; `loop` is `weft.while_loop`, which records it below."""
    lowering = _Lowering(level)

    def test(pairs: Pairs) -> Any:
        carry = lowering.tree(pairs, spec)
        with lowering.above():
            going = cond_fn(carry)
        return level.below(going) if isinstance(going, Tensor) else going

    def step(pairs: Pairs) -> Any:
        carry = lowering.tree(pairs, spec)
        with lowering.above():
            result = body_fn(carry)
        return _like(spec, *lowering.pairs(result))

    with lowering.below():
        start, spec = lowering.pairs(init)
        return lowering.result(loop(test, step, start), spec)


def dual_scan(
    level: Forward, loop: Function, f: Function, init: Any, xs: Sequence[Tensor], structure: Any
) -> tuple[Any, Any]:
    """A scan that carries tangents; `loop(f, init, xs)` is `weft.scan`, which records it below."""
    lowering = _Lowering(level)
    specs: list[Any] = []

    def step(pairs: Pairs, slices: Pairs) -> Any:
        carry, x = lowering.tree(pairs, spec), lowering.tree(slices, structure)
        with lowering.above():
            given = f(carry, x)
        if not isinstance(given, tuple) or len(given) != 2:
            return given  # an error that the loop words
        ys, shape = lowering.pairs(given[1])
        specs.append(shape)
        return _like(spec, *lowering.pairs(given[0])), ys

    with lowering.below():
        start, spec = lowering.pairs(init)
        values, tangents = lowering.pairs(list(xs))[0]
        moving = [t if isinstance(t, Tensor) else x for x, t in zip(values, tangents, strict=True)]
        last, ys = loop(step, start, (values, moving))
        return lowering.result(last, spec), lowering.result(ys, specs[-1])


def _like(spec: Any, pairs: Pairs, found: Any) -> Any:
    """What a body gives; where its structure is another, a tree whose error says so."""
    return pairs if found == spec else (tree_unflatten(found, pairs[0]), pairs[1])
