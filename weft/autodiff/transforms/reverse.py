"""Reverse mode: `vjp`, `grad` and `value_and_grad`.

They run the function with the tape on, on arguments with nodes of their own, and the engine back to
those nodes. Nothing of the arguments is touched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from weft.autodiff import engine
from weft.autodiff.api import _start
from weft.autodiff.node import Node, as_array
from weft.autodiff.transforms.history import Outside, Primal, primal, twin
from weft.autodiff.transforms.levels import level_active
from weft.autodiff.transforms.trees import (
    FLOATS,
    Function,
    argument_numbers,
    check_callable,
    check_like,
    check_same,
    chosen,
    is_value,
    name_of,
    tensors_of,
    transformed,
)
from weft.base.dtypes import default_float
from weft.base.errors import DTypeError, GradientError, RangeError
from weft.base.pytree import TreeSpec, tree_flatten, tree_map, tree_unflatten
from weft.base.shapes import size_of
from weft.core.grad_mode import enable_grad, mode, no_grad
from weft.core.operands import as_tensor, cast, is_strong, number_kind
from weft.core.tensor import Tensor, wrap
from weft.ops.creation import zeros, zeros_like
from weft.ops.identity import detached

__all__ = ["grad", "value_and_grad", "vjp"]


class ReverseRun:
    """One run of a function on arguments that are differentiated.

    primals   their leaves, as the function got them
    nodes     the nodes of those that have a gradient
    linked    whether results are to be differentiable by those outside
    """

    def __init__(
        self,
        trees: Sequence[Any],
        op: str,
        names: Sequence[str],
        allow_int: bool,
        tracked: bool = True,
    ) -> None:
        self.linked = mode.enabled
        self.inside = level_active()
        self.primals: list[Tensor] = []
        self.specs: list[TreeSpec] = []
        self.trees: list[Any] = []
        for tree, name in zip(trees, names, strict=True):
            leaves, spec = tensors_of(tree, op, name)
            for leaf, path in zip(leaves, spec.paths(), strict=True):
                if leaf.dtype.kind not in FLOATS and not allow_int:
                    raise _integers(leaf, f"{name}{path}", op)
            given = [
                primal(leaf, self.linked) if tracked and leaf.dtype.kind in FLOATS else leaf.clone()
                for leaf in leaves
            ]
            self.primals += map(twin, given)  # the function may write to its arguments
            self.specs.append(spec)
            self.trees.append(tree_unflatten(spec, given))
        self.own: list[Primal] = [p._node for p in self.primals if isinstance(p._node, Primal)]
        self.outside = Outside(self.own)

    def call(self, function: Function, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        try:
            with enable_grad():
                return function(*args, **kwargs)
        finally:
            self.end()

    def end(self) -> None:
        """The function has run: from here on only this run asks for gradients by its arguments."""
        for node in self.own:
            node.ended = True

    def out(self, tensor: Tensor) -> Tensor:
        """A tensor of the run for those outside."""
        return self.outside.released(tensor) if self.linked else detached(tensor)

    def out_tree(self, tree: Any) -> Any:
        return tree_map(lambda leaf: self.out(leaf) if is_strong(leaf) else leaf, tree)

    def pull(
        self, outputs: Sequence[Tensor], cotangents: Sequence[Tensor | None], keep: bool
    ) -> list[Any]:
        """The gradients of the arguments, one tree each."""
        left = iter(self.pull_leaves(outputs, cotangents, keep))
        return [
            tree_unflatten(spec, [next(left) for _ in range(spec.leaves)]) for spec in self.specs
        ]

    def pull_leaves(
        self,
        outputs: Sequence[Tensor],
        cotangents: Sequence[Tensor | None],
        keep: bool,
        constant: bool = False,
    ) -> list[Tensor]:
        """The gradients of all leaves; `constant`: nobody differentiates by the cotangents."""
        starts = [
            (out, g)
            for out, g in zip(outputs, cotangents, strict=True)
            if out._node is not None and out.dtype.kind in FLOATS
        ]
        create = mode.enabled and (
            self.inside
            or any(self.outside.reached_by(out._node) for out, _ in starts)
            or not (constant or _has_no_history(g for _, g in starts))
        )
        with enable_grad() if create else no_grad():
            roots = [_start(out, g, create) for out, g in starts]
            found = engine.run(roots, keep=keep or create, create=create, targets=self.own)
            grads = [self._gradient(p, found) for p in self.primals]
        return list(map(self.out, grads))

    def _gradient(self, p: Tensor, found: dict[Node, Any]) -> Tensor:
        if p.dtype.kind not in FLOATS:
            return twin(zeros(p.shape, dtype=default_float(), device=p.device), p)
        g = found.get(p._node)
        if g is None:
            return zeros_like(wrap(p._data, p))
        tensor = g if isinstance(g, Tensor) else wrap(as_array(g))
        return cast(twin(tensor, p), p.dtype)


def _has_no_history(cotangents: Iterable[Tensor | None]) -> bool:
    return not level_active() and all(g is None or g._node is None for g in cotangents)


def _integers(leaf: Tensor, name: str, op: str) -> GradientError:
    return GradientError(
        f"{name} is {leaf.type}: only floats have a gradient",
        op=op,
        operands=[leaf.type],
        hint="cast it, x.astype(weft.float32), choose other arguments with argnums, "
        "or say allow_int=True to get zeros for it",
    )


def with_aux(result: Any, has_aux: bool, function: Function, op: str) -> tuple[Any, Any]:
    """What a function returned, as its value and what it returned beside it."""
    if not has_aux:
        return result, None
    if not isinstance(result, (tuple, list)) or len(result) != 2:
        raise DTypeError(
            f"with has_aux=True, {name_of(function)} must return a pair (value, aux), "
            f"not {type(result).__name__} {result!r:.60}",
            op=op,
        )
    return result[0], result[1]


# --- vjp ---------------------------------------------------------------------------------------


def vjp(fn: Function, *primals: Any, has_aux: bool = False) -> Any:
    """`fn(*primals)`, and the function from a cotangent of its result to those of the primals.

    With `has_aux`, `fn` returns (value, aux), and so does this: (value, vjp_fn, aux).

    >>> out, vjp_fn = weft.vjp(lambda x, y: x * y, weft.tensor([1.0, 2.0]), weft.tensor(3.0))
    >>> out, vjp_fn(weft.tensor([1.0, 10.0]))
    (tensor([3., 6.]), (tensor([ 3., 30.]), tensor(21.)))
    """
    check_callable(fn, "vjp")
    if not primals:
        raise RangeError(
            "there is nothing to differentiate: no primals are given",
            op="vjp",
            hint="weft.vjp(f, x, y) takes the arguments of f",
        )
    names = [f"primals[{i}]" for i in range(len(primals))]
    run = ReverseRun(primals, "vjp", names, allow_int=True)
    value, aux = with_aux(run.call(fn, run.trees, {}), has_aux, fn, "vjp")
    outputs, spec = tensors_of(value, "vjp", f"the result of {name_of(fn)}")
    outputs = [twin(out) for out in outputs]

    def vjp_fn(cotangents: Any) -> tuple[Any, ...]:
        """The cotangents of the primals, a tuple, from that of the result."""
        return tuple(run.pull(outputs, _cotangents(cotangents, outputs, spec), keep=True))

    out = tree_unflatten(spec, list(map(run.out, outputs)))
    return (out, vjp_fn, run.out_tree(aux)) if has_aux else (out, vjp_fn)


def pullback(fn: Function, *primals: Any) -> tuple[list[Tensor], Any, Any]:
    """As `vjp` with `has_aux`, of a function that gives a list of tensors. What is returned takes a
    list of cotangents, too; None for a result that has none."""
    names = [f"primals[{i}]" for i in range(len(primals))]
    run = ReverseRun(primals, "vjp", names, allow_int=True)
    value, aux = run.call(fn, run.trees, {})
    outputs = [twin(out) for out in value]

    def pull(cotangents: Sequence[Tensor | None]) -> tuple[Any, ...]:
        given = [(out, g) for out, g in zip(outputs, cotangents, strict=True) if g is not None]
        return tuple(run.pull([out for out, _ in given], [g for _, g in given], keep=True))

    return list(map(run.out, outputs)), pull, run.out_tree(aux)


def _cotangents(tree: Any, outputs: Sequence[Tensor], spec: TreeSpec) -> list[Tensor]:
    leaves, given = tree_flatten(tree)
    check_same(given, spec, ("the cotangent", "the result"), "vjp_fn")
    for leaf, path in zip(leaves, spec.paths(), strict=True):
        if not is_value(leaf):
            raise DTypeError(f"the cotangent{path} is {leaf!r:.40}, not a tensor", op="vjp_fn")
    tensors = [
        cast(as_tensor(leaf, "vjp_fn"), out.dtype)
        if number_kind(leaf) is not None or out.dtype.kind not in FLOATS
        else as_tensor(leaf, "vjp_fn")
        for leaf, out in zip(leaves, outputs, strict=True)
    ]
    check_like(tensors, outputs, spec, "the cotangent", "the result", "vjp_fn")
    return tensors


# --- grad --------------------------------------------------------------------------------------


def value_and_grad(
    fn: Function,
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    allow_int: bool = False,
) -> Callable[..., Any]:
    """A function that gives `fn`'s value and its gradient: (value, gradient).

    The arguments are as in `grad`; with `has_aux` the result is ((value, aux), gradient).

    >>> weft.value_and_grad(lambda x: (x * x).sum())(weft.tensor([1.0, 2.0]))
    (tensor(5.), tensor([2., 4.]))
    """
    return _transformed(fn, argnums, has_aux, allow_int, "value_and_grad")


def grad(
    fn: Function,
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    allow_int: bool = False,
) -> Callable[..., Any]:
    """A function that gives the gradient of `fn`, which returns one real number.

    argnums     which positional arguments to differentiate by; for a tuple, the gradients are one.
                An argument may be any tree of tensors: its gradient is the same tree.
    has_aux     `fn` returns (value, aux); the result is then (gradient, aux)
    allow_int   integers among the arguments have a gradient of zeros; else they are an error

    >>> weft.grad(lambda p, x: (p["w"] * x + p["b"]).sum())(
    ...     {"w": weft.tensor(2.0), "b": weft.tensor(1.0)}, weft.tensor([1.0, 3.0])
    ... )
    {'w': tensor(4.), 'b': tensor(2.)}
    >>> weft.grad(weft.grad(lambda x: x**3))(2.0)
    tensor(12.)
    """
    both = _transformed(fn, argnums, has_aux, allow_int, "grad")

    def call(*args: Any, **kwargs: Any) -> Any:
        value, gradient = both(*args, **kwargs)
        return (gradient, value[1]) if has_aux else gradient

    return transformed(call, fn, "grad", lambda f: grad(f, argnums, has_aux, allow_int))


def _transformed(
    fn: Function, argnums: Any, has_aux: bool, allow_int: bool, op: str
) -> Callable[..., Any]:
    check_callable(fn, op)
    numbers, single = argument_numbers(argnums, op)

    def call(*args: Any, **kwargs: Any) -> Any:
        which = chosen(numbers, len(args), fn, op)
        names = [f"argument {i}" for i in which]
        run = ReverseRun([args[i] for i in which], op, names, allow_int)
        given = list(args)
        for i, tree in zip(which, run.trees, strict=True):
            given[i] = tree
        value, aux = with_aux(run.call(fn, given, kwargs), has_aux, fn, op)
        total = twin(_one_number(value, fn, op))
        grads = run.pull([total], [None], keep=False)
        result = run.out(total)
        return (result, run.out_tree(aux)) if has_aux else result, (
            grads[0] if single else tuple(grads)
        )

    return transformed(call, fn, op, lambda f: _transformed(f, argnums, has_aux, allow_int, op))


def _one_number(value: Any, function: Function, op: str) -> Tensor:
    """The value of a function as a tensor, if a gradient can start from it."""
    name = name_of(function)
    if not is_value(value):
        leaves, _ = tree_flatten(value)
        aux = isinstance(value, (tuple, list)) and len(leaves) > 1
        raise GradientError(
            f"{name} returns {type(value).__name__} {value!r:.60}, not one number",
            op=op,
            hint="return the number first and say has_aux=True"
            if aux
            else "let it return the loss",
        )
    out = as_tensor(value, op)
    kind = out.dtype.kind
    if size_of(out.shape) != 1 or kind != "float":
        what, hint = "one number", "reduce it, y.sum(), or use weft.jacobian or weft.vjp"
        if kind == "complex":
            what, hint = "a real number", "make it real: weft.abs, weft.real"
        elif kind != "float":
            what, hint = "a float", "integers and bools have no gradient: compute with floats"
        raise GradientError(
            f"{name} returns {out.type}: a gradient can start from {what} only",
            op=op,
            operands=[out.type],
            hint=hint,
        )
    return out
