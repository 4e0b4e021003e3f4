"""Forward mode: `jvp` and `linearize`.

`jvp` carries tangents along with values, one op at a time: no history of the function is kept.
`linearize` runs the function once and keeps the linear maps of its op calls, to apply them to as
many tangents as are given.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from weft.autodiff.transforms.custom import (
    CustomCall,
    MaybeTensors,
    Tensors,
    call_custom,
)
from weft.autodiff.transforms.history import seed, twin
from weft.autodiff.transforms.levels import Level, LevelArray, register_level
from weft.autodiff.transforms.reverse import with_aux
from weft.autodiff.transforms.tangents import Tangent, active, is_float, push, transpose
from weft.autodiff.transforms.trees import (
    FLOATS,
    Function,
    check_callable,
    check_like,
    check_same,
    name_of,
    tensors_of,
)
from weft.base.dtypes import default_float
from weft.base.errors import DTypeError, RangeError
from weft.base.pytree import TreeSpec, tree_flatten, tree_map, tree_unflatten
from weft.core.bind import bind, recording
from weft.core.grad_mode import enable_grad, mode
from weft.core.operands import cast, is_strong, number_kind
from weft.core.tensor import Tensor, wrap
from weft.ir.op import Op
from weft.ops.creation import zeros, zeros_like

__all__ = ["jvp", "linearize"]


class DualArray(LevelArray):
    """A value (`tensor`) and its tangent; None stands for a tangent of zero."""

    __slots__ = ("tangent",)

    word = "differentiated"

    def __init__(self, tensor: Tensor, tangent: Any, level: Level) -> None:
        super().__init__(tensor, level, tensor.shape)
        self.tangent = tangent


register_level(DualArray, "jvp")


class ForwardLevel(Level):
    """Carries a tangent with each value."""

    function = "jvp"
    _paused = False

    def dual(self, tensor: Tensor, tangent: Any = None) -> Tensor:
        return wrap(DualArray(tensor, tangent, self), tensor)

    lifted = dual

    def tangent(self, tensor: Tensor) -> Any:
        data = tensor._data
        return data.tangent if data.__class__ is DualArray and data.level is self else None

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Compute with tensors of this level, but no tangents."""
        before, self._paused = self._paused, True
        try:
            with recording(self):
                yield
        finally:
            self._paused = before

    def compute(
        self, op: Op, inputs: tuple[Tensor, ...], attrs: dict[str, Any], enabled: bool
    ) -> Any:
        values = [self.below(x) for x in inputs]
        out = bind(op, *values, **attrs)
        results = out if isinstance(out, tuple) else (out,)
        moved: Sequence[Any] = (None,) * len(results)
        if enabled and not self._paused:
            tangents = [self.tangent(x) for x in inputs]
            if active(op, values, [t is not None for t in tangents], out):
                moved = self.push(op, values, tangents, attrs, out)
        made = tuple(map(self.dual, results, moved))
        return made if isinstance(out, tuple) else made[0]

    def push(
        self,
        op: Op,
        values: Sequence[Tensor],
        tangents: Sequence[Any],
        attrs: dict[str, Any],
        out: Any,
    ) -> Sequence[Any]:
        """The tangents of the results of an op call."""
        return push(op, values, tangents, attrs, out)

    # --- calls with a derivative of their own --------------------------------------------------

    def custom(self, call: CustomCall) -> list[Tensor]:
        made: list[Tensor] = []
        saved: list[Tensor | None] = []

        def forward() -> tuple[list[Tensor], list[Tensor | None]]:
            with recording(self):
                results, kept = call.forward()
            made.extend(results)
            saved.extend(kept)
            below = [None if x is None else self.below(x) for x in kept]
            return [self.below(out) for out in results], below

        def backward(kept: MaybeTensors, cotangents: Tensors) -> list[Tangent]:
            with self.paused():
                given = [None if x is None else self.dual(x) for x in kept]
                found = call.backward(given, [self.dual(g) for g in cotangents])
            return [None if g is None else self.below(g) for g in found]

        values = [self.below(x) for x in call.inputs]
        tangents = [self.tangent(x) for x in call.inputs]
        outs = call_custom(CustomCall(call.name, values, forward, backward, call.constant))
        for out, below in zip(made, outs, strict=True):  # what was saved may be a result
            out._data = DualArray(below, None, self)
        if mode.enabled and not self._paused and any(t is not None for t in tangents):
            kept = [None if x is None else twin(x) for x in saved]
            moved = self.push_custom(call, tangents, outs, kept)
            for out, below, tangent in zip(made, outs, moved, strict=True):
                out._data = DualArray(below, tangent, self)
        call.link(made, saved)
        return made

    def push_custom(
        self,
        call: CustomCall,
        tangents: Sequence[Any],
        outs: Sequence[Tensor],
        saved: MaybeTensors,
    ) -> Sequence[Any]:
        """By the transpose of the backward that its author wrote."""
        with self.paused(), enable_grad():
            zero = [zeros_like(self.dual(out)) for out in outs]
            seeds = [None if call.passes_nothing(i, z) else seed(z) for i, z in enumerate(zero)]
            given = [z if s is None else s for s, z in zip(seeds, zero, strict=True)]
            pulled = call.backward(saved, given)
            starts = [
                (p, self.dual(t)) for p, t in zip(pulled, tangents, strict=True) if t is not None
            ]
            found = transpose(seeds, starts, create=True)
        return [None if g is None else self.below(g) for g in found]


# --- jvp ---------------------------------------------------------------------------------------


def jvp(fn: Function, primals: Any, tangents: Any, has_aux: bool = False) -> Any:
    """`fn(*primals)`, and its derivative in the direction of the tangents: (value, tangent).

    Both are tuples with one entry for each argument; a tangent has the structure, shapes and
    dtypes of its primal. With `has_aux`, `fn` returns (value, aux), and the result is (value,
    tangent, aux).

    >>> weft.jvp(lambda x, y: x * y, (weft.tensor([1.0, 2.0]), 3.0), (weft.tensor([1.0, 0.0]), 1.0))
    (tensor([3., 6.]), tensor([4., 2.]))
    """
    check_callable(fn, "jvp")
    for what, tree in (("primals", primals), ("tangents", tangents)):
        if not isinstance(tree, (tuple, list)):
            raise DTypeError(
                f"{what} must be a tuple with one entry for each argument, "
                f"not {type(tree).__name__}",
                op="jvp",
                hint="write weft.jvp(f, (x,), (t,))",
            )
    values, spec = _primals(tuple(primals), "jvp")
    given = tangent_leaves(tuple(tangents), values, spec, "jvp")
    directions = [None if t is None else t.clone() for t in given]
    level = ForwardLevel()
    outputs, out_spec, aux = _run(level, fn, values, spec, directions, has_aux, "jvp")
    out = tree_unflatten(out_spec, [outward(level, x) for x in outputs])
    moved = [twin(_nonzero(level.below(x), level.tangent(x)), x) for x in outputs]
    result = (out, tree_unflatten(out_spec, moved))
    return (*result, _outward_tree(level, aux)) if has_aux else result


def _primals(primals: tuple[Any, ...], op: str) -> tuple[list[Tensor], TreeSpec]:
    if not primals:
        raise RangeError(
            "there is nothing to differentiate: no primals are given",
            op=op,
            hint=f"weft.{op} takes the arguments of the function",
        )
    leaves, spec = tensors_of(primals, op, "primals")
    return [leaf.clone() for leaf in leaves], spec


def tangent_leaves(
    tangents: Any, values: Sequence[Tensor], spec: TreeSpec, op: str
) -> list[Tangent]:
    """The leaves of tangents that fit the values; None for those of integers."""
    _, given = tree_flatten(tangents)
    check_same(given, spec, ("the tangents", "the primals"), op)
    plain = tree_flatten(tangents)[0]
    leaves, _ = tensors_of(tangents, op, "tangents")
    fitting = [
        cast(t, x.dtype) if number_kind(raw) is not None or x.dtype.kind not in FLOATS else t
        for raw, t, x in zip(plain, leaves, values, strict=True)
    ]
    check_like(fitting, values, spec, "tangents", "primals", op)
    return [t if x.dtype.kind in FLOATS else None for t, x in zip(fitting, values, strict=True)]


def _run(
    level: ForwardLevel,
    fn: Function,
    values: Sequence[Tensor],
    spec: TreeSpec,
    tangents: Sequence[Any],
    has_aux: bool,
    op: str,
) -> tuple[list[Tensor], TreeSpec, Any]:
    """The leaves of the function's result, their structure, and what it returned beside them."""
    with level.opened(), enable_grad():
        args = tree_unflatten(spec, list(map(level.dual, values, tangents)))
        value, aux = with_aux(level.run(lambda: fn(*args)), has_aux, fn, op)
        outputs, out_spec = tensors_of(value, op, f"the result of {name_of(fn)}")
    return outputs, out_spec, aux


def outward(level: Level, tensor: Tensor) -> Tensor:
    """A result of a function for those outside; one that is theirs, as a tensor of its own."""
    return level.below(tensor) if level.has(tensor) else tensor.clone()


def _outward_tree(level: Level, tree: Any) -> Any:
    return tree_map(lambda x: outward(level, x) if is_strong(x) else x, tree)


def _nonzero(value: Tensor, tangent: Tangent) -> Tensor:
    """The tangent of a result: zeros where there is none, and for integers."""
    if not is_float(value):
        return zeros(value.shape, dtype=default_float(), device=value.device)
    return zeros_like(value) if tangent is None else tangent


# --- linearize ---------------------------------------------------------------------------------

#: A linear map from tangents of inputs to those of results.
LinearMap = Callable[[Sequence[Tangent]], Sequence[Tangent]]


class LinearLevel(ForwardLevel):
    """Notes the linear map of each op call. A tangent is the number of a place."""

    function = "linearize"

    def __init__(self) -> None:
        super().__init__()
        self.places = 0
        self.steps: list[tuple[LinearMap, list[int | None], range]] = []

    def take(self, count: int) -> range:
        """New places."""
        self.places += count
        return range(self.places - count, self.places)

    def push(
        self,
        op: Op,
        values: Sequence[Tensor],
        tangents: Sequence[Any],
        attrs: dict[str, Any],
        out: Any,
    ) -> Sequence[Any]:
        results = out if isinstance(out, tuple) else (out,)
        return self.note(
            lambda given: push(op, values, given, attrs, out),
            tangents,
            list(map(is_float, results)),
        )

    def push_custom(
        self,
        call: CustomCall,
        tangents: Sequence[Any],
        outs: Sequence[Tensor],
        saved: MaybeTensors,
    ) -> Sequence[Any]:
        def apply(given: Sequence[Tangent]) -> Sequence[Tangent]:
            return ForwardLevel.push_custom(self, call, given, outs, saved)

        return self.note(apply, tangents, list(map(is_float, outs)))

    def note(self, step: LinearMap, tangents: Sequence[Any], floats: list[bool]) -> list[Any]:
        """Keep the linear map of a call: the places of the tangents of its results."""
        places = self.take(len(floats))
        self.steps.append((step, list(tangents), places))
        return [place if f else None for place, f in zip(places, floats, strict=True)]

    def prune(self, wanted: Sequence[int | None]) -> None:
        """Forget the steps that lead to nothing of what is wanted."""
        needed = set(wanted)
        kept = []
        for step in reversed(self.steps):
            if not needed.isdisjoint(step[2]):
                needed.update(step[1])
                kept.append(step)
        self.steps = kept[::-1]

    def apply(self, tangents: Sequence[Tangent], wanted: Sequence[int | None]) -> list[Tangent]:
        """The tangents at the wanted places, from those of the arguments, the first places."""
        known: dict[int | None, Tangent] = dict(enumerate(tangents))
        for step, inputs, places in self.steps:
            given = [known.get(place) for place in inputs]
            if any(t is not None for t in given):
                known.update(zip(places, step(given), strict=True))
        return [known.get(place) for place in wanted]


class Linearized:
    """A run of a function, and the linear map that is its derivative there."""

    def __init__(
        self,
        fn: Function,
        values: Sequence[Tensor],
        spec: TreeSpec,
        op: str,
        has_aux: bool = False,
    ) -> None:
        self.level = level = LinearLevel()
        places = level.take(len(values))
        given = [
            place if x.dtype.kind in FLOATS else None
            for place, x in zip(places, values, strict=True)
        ]
        outputs, self.spec, aux = _run(level, fn, values, spec, given, has_aux, op)
        self.aux = _outward_tree(level, aux)
        self.outputs = [outward(level, x) for x in outputs]
        self.wanted = [level.tangent(x) for x in outputs]
        level.prune(self.wanted)

    def push(self, tangents: Sequence[Tangent]) -> list[Tensor]:
        """The tangents of the results."""
        found = self.level.apply(tangents, self.wanted)
        return [twin(_nonzero(out, t), out) for out, t in zip(self.outputs, found, strict=True)]


def linearize(fn: Function, *primals: Any) -> tuple[Any, Callable[..., Any]]:
    """`fn(*primals)`, and its derivative there: a linear function of tangents.

    The function runs once; `jvp_fn(*tangents)` then costs no more than the linear maps of its op
    calls, and keeps alive what these use.

    >>> out, jvp_fn = weft.linearize(lambda x: x * x, weft.tensor([1.0, 2.0]))
    >>> out, jvp_fn(weft.tensor([1.0, 0.0])), jvp_fn(weft.tensor([0.0, 1.0]))
    (tensor([1., 4.]), tensor([2., 0.]), tensor([0., 4.]))
    """
    check_callable(fn, "linearize")
    values, spec = _primals(primals, "linearize")
    made = Linearized(fn, values, spec, "linearize")

    def jvp_fn(*tangents: Any) -> Any:
        """The tangent of the result from those of the arguments."""
        given = tangent_leaves(tangents, values, spec, "jvp_fn")
        return tree_unflatten(made.spec, made.push(given))

    return tree_unflatten(made.spec, made.outputs), jvp_fn
