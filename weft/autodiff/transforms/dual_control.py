"""Control flow inside of `jvp` where a graph is recorded.

The node on the level below has tangents beside its values: each branch gives its results and their
tangents, and a loop carries both.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from weft.autodiff.transforms.forward import Forward
from weft.autodiff.transforms.levels import Journal
from weft.autodiff.transforms.lowering import Lowering, Unlowered
from weft.autodiff.transforms.tangents import is_float
from weft.base.pytree import tree_flatten, tree_unflatten
from weft.core.operands import cast
from weft.core.tensor import Tensor
from weft.ops.creation import zeros_like

__all__ = ["dual_cond", "dual_scan", "dual_while"]

Function = Callable[..., Any]
Pairs = tuple[list[Any], list[Any]]  # values and their tangents


class _Lowering(Lowering):
    """Takes trees of one level to the level below, as values and tangents, and back."""

    level: Forward

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        """Run a function of the level in a nested recording."""
        journal = Journal()
        with self.above(journal):
            yield
        if journal.entries:
            journal.restore()
            raise Unlowered

    def pairs(self, tree: Any) -> tuple[Pairs, Any]:
        """The leaves of a tree of the level, and its structure; to be called below."""
        leaves, spec = tree_flatten(tree)
        self.look(leaves)
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
        return tree_unflatten(spec, [self.marked(leaf) for leaf in map(self._dual, *pairs)])

    def _dual(self, value: Any, tangent: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        moves = isinstance(tangent, Tensor) and is_float(value)
        return self.level.dual(value, cast(tangent, value.dtype) if moves else None)


def dual_cond(
    level: Forward, choose: Function, chosen: Tensor, branches: Sequence[Function], operands: Any
) -> Any:
    """A choice by a value of the level; `choose(chosen, branches)` records it below."""
    lowering = _Lowering(level)
    specs: list[Any] = []

    def lowered(branch: Function) -> Function:
        def run() -> Any:
            with lowering.inside():
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
        with lowering.inside():
            going = cond_fn(carry)
        return level.below(going) if isinstance(going, Tensor) else going

    def step(pairs: Pairs) -> Any:
        carry = lowering.tree(pairs, spec)
        with lowering.inside():
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
        with lowering.inside():
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
