"""All first and second derivatives of a function: `jacobian`, `hessian`, and products with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from weft.autodiff.transforms.forward import Linearized, jvp
from weft.autodiff.transforms.reverse import ReverseRun, grad, with_aux
from weft.autodiff.transforms.trees import (
    FLOATS,
    Function,
    argument_numbers,
    as_run_by,
    check_callable,
    chosen,
    name_of,
    tensors_of,
    transformed,
)
from weft.autodiff.transforms.vmap import vmap
from weft.base.dim_algebra import known_less
from weft.base.errors import DTypeError, GradientError
from weft.base.pytree import TreeSpec, tree_unflatten
from weft.base.shapes import size_of
from weft.core.tensor import Tensor
from weft.ops.batching import moved
from weft.ops.creation import eye
from weft.ops.elementwise import conj
from weft.ops.shape import reshape, stack
from weft.ops.stacks import SharedStack

__all__ = ["hessian", "hvp", "jacfwd", "jacobian", "jacrev"]

Mode = Literal["forward", "reverse"] | None


def jacobian(
    fn: Function,
    argnums: int | Sequence[int] = 0,
    mode: Mode = None,
    has_aux: bool = False,
    holomorphic: bool = False,
) -> Function:
    """A function that gives all derivatives of `fn`: of each element by each of the arguments'.

    For a result of shape R and an argument of shape A the Jacobian has the shape R + A; for trees
    of results it is such a tree, with the tree of the arguments at each leaf.

    mode          "forward" takes a pass for each element of the arguments, "reverse" for each
                  element of the result, all passes at once; None takes what needs fewer
    has_aux       `fn` returns (value, aux); the result is then (jacobian, aux)
    holomorphic   says that `fn` is holomorphic, which complex arguments need

    >>> weft.jacobian(lambda x: x[:2] * x[2])(weft.tensor([1.0, 2.0, 3.0]))
    tensor([[3., 0., 1.],
            [0., 3., 2.]])
    """
    if mode not in (None, "forward", "reverse"):
        raise DTypeError(f"mode is 'forward', 'reverse' or None, not {mode!r}", op="jacobian")
    return _jacobian(fn, argnums, mode, has_aux, holomorphic, "jacobian")


def jacfwd(
    fn: Function,
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
) -> Function:
    """`jacobian` in forward mode: for results that are larger than the arguments."""
    return _jacobian(fn, argnums, "forward", has_aux, holomorphic, "jacfwd")


def jacrev(
    fn: Function,
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
) -> Function:
    """`jacobian` in reverse mode: for results that are smaller than the arguments."""
    return _jacobian(fn, argnums, "reverse", has_aux, holomorphic, "jacrev")


def hessian(
    fn: Function,
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
) -> Function:
    """A function that gives all second derivatives of `fn`, forward over reverse.

    For a result of shape R and an argument of shape A they have the shape R + A + A.

    >>> weft.hessian(lambda x: x[0] ** 2 * x[1])(weft.tensor([1.0, 2.0]))
    tensor([[4., 2.],
            [2., 0.]])
    """
    first = _jacobian(fn, argnums, "reverse", has_aux, holomorphic, "hessian")
    second = _jacobian(as_run_by(fn, first), argnums, "forward", has_aux, holomorphic, "hessian")
    return transformed(second, fn, "hessian", lambda f: hessian(f, argnums, has_aux, holomorphic))


def hvp(fn: Function, primals: Any, tangents: Any) -> Any:
    """The product of the Hessian of `fn`, which returns one number, with a vector.

    `primals` and `tangents` are tuples, as for `jvp`. It costs a few calls of `fn`; the Hessian
    itself is not made. For one primal the result is the product; for more, a tuple of one each.

    >>> f = lambda x: (x**3).sum()
    >>> weft.hvp(f, (weft.tensor([1.0, 2.0]),), (weft.tensor([1.0, 10.0]),))
    tensor([  6., 120.])
    """
    check_callable(fn, "hvp")
    if not isinstance(primals, (tuple, list)) or not primals:
        raise DTypeError(
            "primals must be a tuple with one entry for each argument",
            op="hvp",
            hint="write weft.hvp(f, (x,), (t,))",
        )
    gradient = grad(fn, argnums=tuple(range(len(primals))))
    _, product = jvp(as_run_by(fn, gradient), primals, tangents)
    return product[0] if len(primals) == 1 else product


# --- how ---------------------------------------------------------------------------------------


def _jacobian(
    fn: Function, argnums: Any, mode: Mode, has_aux: bool, holomorphic: bool, op: str
) -> Function:
    check_callable(fn, op)
    numbers, single = argument_numbers(argnums, op)

    def call(*args: Any, **kwargs: Any) -> Any:
        which = chosen(numbers, len(args), fn, op)

        def of_chosen(*given: Any) -> Any:
            filled = list(args)
            for i, tree in zip(which, given, strict=True):
                filled[i] = tree
            return fn(*filled, **kwargs)

        of_chosen.__name__ = name_of(fn)
        names = [f"argument {i}" for i in which]
        made = _Derivatives(of_chosen, [args[i] for i in which], names, mode, has_aux, op)
        made.check(holomorphic)
        rows = made.rows(holomorphic)
        trees = [_per_argument(row, made.specs, single) for row in rows]
        result = tree_unflatten(made.out_spec, trees)
        return (result, made.aux) if has_aux else result

    return transformed(
        call, fn, op, lambda f: _jacobian(f, argnums, mode, has_aux, holomorphic, op)
    )


def _per_argument(row: list[Tensor], specs: Sequence[TreeSpec], single: bool) -> Any:
    """Derivatives by all leaves of the arguments, as trees of the arguments."""
    left = iter(row)
    trees = [tree_unflatten(spec, [next(left) for _ in range(spec.leaves)]) for spec in specs]
    return trees[0] if single else tuple(trees)


class _Derivatives:
    """One run of a function, ready to be differentiated forward, in reverse, or either way."""

    def __init__(
        self, fn: Function, trees: Sequence[Any], names: list[str], mode: Mode, aux: bool, op: str
    ) -> None:
        self.op = op
        self.mode = mode
        self.name = name_of(fn)
        self.run: ReverseRun | None = None
        self.linear: Linearized | None = None
        run = ReverseRun(trees, op, names, allow_int=False, tracked=mode != "forward")
        self.specs = run.specs
        self.inputs = run.primals
        if mode == "reverse":
            value, found = with_aux(run.call(fn, run.trees, {}), aux, fn, op)
            self.outputs, self.out_spec = tensors_of(value, op, f"the result of {self.name}")
        else:
            for node in run.own:
                node.hidden = True
            leaves, spec = tensors_of(tuple(run.trees), op, "primals")
            self.linear = Linearized(fn, leaves, spec, op, aux)
            run.end()
            self.outputs, self.out_spec = self.linear.outputs, self.linear.spec
            found = self.linear.aux
        self.aux = run.out_tree(found)
        if mode != "forward":
            self.run = run

    def check(self, holomorphic: bool) -> None:
        for x in self.inputs:
            if x.dtype.kind == "complex" and not holomorphic:
                raise GradientError(
                    f"an argument is {x.type}: only a holomorphic function has one complex "
                    "derivative",
                    op=self.op,
                    operands=[x.type],
                    hint="say holomorphic=True if it is; else differentiate by the real and the "
                    "imaginary part, as two arguments",
                )
        for out in self.outputs:
            if out.dtype.kind not in FLOATS:
                raise GradientError(
                    f"{self.name} returns {out.type}: only floats have a derivative",
                    op=self.op,
                    operands=[out.type],
                    hint="return it beside the value, with has_aux=True",
                )
            if self.mode == "reverse" and out.dtype.kind == "complex" and not holomorphic:
                raise GradientError(
                    f"{self.name} returns {out.type}, of which reverse mode gives half only",
                    op=self.op,
                    operands=[out.type],
                    hint='use weft.jacfwd, or mode="forward"',
                )

    def rows(self, holomorphic: bool) -> list[list[Tensor]]:
        """For each leaf of the result its derivatives by each leaf of the arguments."""
        mode = self.mode
        if mode is None:
            size = sum(x.size for x in self.inputs)
            total = sum(out.size for out in self.outputs)
            real = all(out.dtype.kind == "float" for out in self.outputs)
            mode = "forward" if known_less(size, total + 1) or not real else "reverse"
        rows = self._forward() if mode == "forward" else self._reverse(holomorphic)
        run = self.run
        if run is None:
            return rows
        return [[run.out(derivative) for derivative in row] for row in rows]

    def _forward(self) -> list[list[Tensor]]:
        linear = self.linear
        assert linear is not None
        columns: list[list[Tensor]] = []
        for number, x in enumerate(self.inputs):

            def push(direction: Tensor, number: int = number) -> list[Tensor]:
                given: list[Tensor | None] = [None] * len(self.inputs)
                given[number] = direction
                return linear.push(given)

            found = _at_once(push, _unit_vectors(x))
            columns.append([_shaped(moved(c, 0, c.ndim - 1), c.shape[1:], x) for c in found])
        return [list(row) for row in zip(*columns, strict=True)]

    def _reverse(self, holomorphic: bool) -> list[list[Tensor]]:
        run = self.run
        assert run is not None
        rows: list[list[Tensor]] = []
        for out in self.outputs:

            def pull(direction: Tensor, out: Tensor = out) -> list[Tensor]:
                return run.pull_leaves([out], [direction], keep=True, constant=True)

            found = _at_once(pull, _unit_vectors(out))
            if holomorphic:
                found = [conj(row) for row in found]
            shape = tuple(out.shape)
            rows.append([reshape(r, (*shape, *r.shape[1:])) for r in found])
        return rows


def _at_once(linear: Callable[[Tensor], list[Tensor]], directions: Tensor) -> list[Tensor]:
    """A linear map of all directions: all at once, or, where they cannot, one after the other."""
    try:
        found: list[Tensor] = vmap(linear)(directions)
        return found
    except SharedStack:
        rows = [linear(directions[i]) for i in range(directions.shape[0])]
        return [stack(column) for column in zip(*rows, strict=True)]


def _unit_vectors(x: Tensor) -> Tensor:
    """For each element of x a tensor like x with a 1 there, along the first axis."""
    size = size_of(x.shape)
    return reshape(eye(size, dtype=x.dtype, device=x.device), (size, *x.shape))


def _shaped(columns: Tensor, shape: Any, x: Tensor) -> Tensor:
    return reshape(columns, (*shape, *x.shape))
