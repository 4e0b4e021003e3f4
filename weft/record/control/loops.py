"""Loops as functions: `while_loop`, `fori_loop`, `scan`, `map`.

Eagerly, they run as Python. While a graph is recorded, a scan is always a node; `while_loop` is one
if its condition gives a tensor, and `fori_loop` is a scan if its bounds are known. In the body, a
carried value has a history (`requires_grad`) if it has one in any iteration. If the body asks for
it and iterations differ, the first iterations are peeled, or the loop is refused.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from weft.autodiff.node import tensor_of
from weft.autodiff.transforms.control import is_mapped, mapped_while
from weft.autodiff.transforms.lowering import LowerOrAsk
from weft.autodiff.transforms.mapped_nodes import mapped_scan_node, mapped_while_node
from weft.autodiff.transforms.vmap import MapLevel
from weft.base import dtypes
from weft.base.dim_algebra import Dim, dim_max
from weft.base.errors import DTypeError, ShapeError
from weft.base.pytree import tree_flatten, tree_map, tree_unflatten
from weft.core.bind import recording
from weft.core.grad_mode import is_grad_enabled
from weft.core.operands import as_tensor, cast, constant
from weft.core.symbolic import symbolic
from weft.core.tensor import Tensor, labelled
from weft.ir.graph import Graph
from weft.ops.creation import arange, zeros
from weft.ops.identity import detached
from weft.ops.shape import concat, reshape, stack
from weft.record.control.agree import as_leaf, is_number
from weft.record.control.loop_histories import HistoryDiffers
from weft.record.control.nested import NestedRecorder, graph_recorder, recorded_level, stand_in
from weft.record.control.on_level import on_level
from weft.record.control.tree_loop import record_scan, record_while
from weft.record.make_graph import OnceRecorder
from weft.record.recorder import GraphRecorder

__all__ = ["fori_loop", "map", "scan", "while_loop"]

Function = Callable[..., Any]
#: How many iterations of a scan are peeled, at most, where histories differ.
MOST_PEELS = 4


def makes_graph() -> bool:
    """Whether a loop would become a node here, and not run as Python."""
    return graph_recorder() is not None or recorded_level() is not None


def _own(here: GraphRecorder | None, tree: Any) -> Any:
    """The tree with new tensors, so that writes to carried values do not reach the initial ones."""

    def copied(x: Any) -> Any:
        if not isinstance(x, Tensor):
            return x
        if here is not None:
            return stand_in(here, x)
        return labelled(tensor_of(x._data, x._node), x._result_class)

    return tree_map(copied, tree)


def _finished(tree: Any, op: str) -> Any:
    """The tree with Python numbers as tensors, as a recorded loop gives them."""
    return tree_map(lambda x: as_tensor(x, op) if is_number(x) else x, tree)


# --- while -------------------------------------------------------------------------------------


def while_loop(cond_fn: Function, body_fn: Function, init: Any) -> Any:
    """Repeat `carry = body_fn(carry)`, from `init`, while `cond_fn(carry)` holds.

    In a recorded function the carry keeps its structure, dtypes and shapes; Python numbers in it
    take the dtype that the body gives them. Gradients pass through any number of iterations.

    >>> weft.while_loop(lambda x: x < 100, lambda x: x * 2, weft.asarray(3.0))
    tensor(192.)
    """
    here = graph_recorder()
    level = recorded_level()
    if level is not None and not isinstance(level, MapLevel):
        with LowerOrAsk(level):
            return on_level(lambda: while_loop(cond_fn, body_fn, init))
    carry = _own(here, init)
    while True:
        if here is not None and isinstance(_probed(here, cond_fn, carry), Tensor):
            return record_while(here, cond_fn, body_fn, carry)
        test = cond_fn(carry)
        if isinstance(level, MapLevel) and isinstance(test, Tensor):
            with LowerOrAsk(level):
                return mapped_while_node(level, while_loop, cond_fn, body_fn, carry, test)
            with LowerOrAsk(level):
                return on_level(functools.partial(while_loop, cond_fn, body_fn, carry))
        if is_mapped(test):
            return _finished(mapped_while(cond_fn, body_fn, carry, test), "while_loop")
        if not test:
            return _finished(carry, "while_loop")
        carry = body_fn(carry)


def _probed(here: GraphRecorder, cond_fn: Function, carry: Any) -> Any:
    """The result of a condition: a tensor, or a Python value if the loop can run in Python."""
    nested = NestedRecorder(here, "condition")
    with nested.opened():
        return cond_fn(carry)


# --- for ---------------------------------------------------------------------------------------


def fori_loop(lower: Any, upper: Any, body_fn: Function, init: Any) -> Any:
    """Repeat `carry = body_fn(i, carry)`, from `init`, for each i in `range(lower, upper)`.

    i is a tensor, `int64[]`. Bounds are ints, or integer tensors.

    >>> weft.fori_loop(0, 4, lambda i, total: total + i, 0)
    tensor(6)
    """
    here = graph_recorder()
    level = recorded_level()
    known = not isinstance(lower, Tensor) and not isinstance(upper, Tensor)
    if known and (here is not None or level is not None):
        length = dim_max(upper - lower, 0)
        steps = arange(lower, lower + length, dtype=dtypes.int64)
        return scan(lambda carry, i: (body_fn(i, carry), None), init, steps, length)[0]
    if here is None and level is None and not is_mapped(lower) and not is_mapped(upper):
        carry = _own(here, init)
        for i in range(int(lower), int(upper)):
            carry = body_fn(as_tensor(i, "fori_loop"), carry)
        return _finished(carry, "fori_loop")
    device = next((b.device for b in (lower, upper) if isinstance(b, Tensor)), None)
    first, last = (_bound(bound, device) for bound in (lower, upper))

    def goes_on(carry: Any) -> Any:
        return carry[0] < last

    def step(carry: Any) -> Any:
        return carry[0] + 1, body_fn(carry[0], carry[1])

    if here is None:
        return while_loop(goes_on, step, (first, init))[1]
    start = (first, _own(here, init))
    return record_while(here, goes_on, step, start, name="fori_loop", body=body_fn)[1]


def _bound(bound: Any, device: Any) -> Tensor:
    if not isinstance(bound, Tensor):
        return constant(bound, dtypes.int64, device)
    if bound.dtype.kind not in ("int", "uint") or bound.size != 1:
        raise DTypeError(f"a bound must be one integer, not {bound.type}", op="fori_loop")
    return cast(bound if bound.shape == () else reshape(bound, ()), dtypes.int64)


# --- scan --------------------------------------------------------------------------------------


def scan(
    f: Function,
    init: Any,
    xs: Any = None,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
) -> tuple[Any, Any]:
    """Repeat `carry, y = f(carry, x)`, from `init`, for each x along the first axis of `xs`.

    Gives the last carry, and the ys stacked along a new first axis. `xs` is a tree of tensors of
    equal length, or None: then `length` is the number of iterations. With `reverse` the loop runs
    from the last x to the first; each y still has the position of its x. `unroll` iterations form
    one step of the recorded loop; True unrolls all.

    >>> weft.scan(lambda total, x: (total + x, total), weft.asarray(0.0), weft.ones(3))
    (tensor(3.), tensor([0., 1., 2.]))
    """
    if is_grad_enabled():
        return _scan(f, init, xs, length, reverse, unroll)
    # Under no_grad() neither the rows that are read nor the stacked ys have a history.
    last, ys = _scan(f, init, tree_map(_without_history, xs), length, reverse, unroll)
    return last, tree_map(_without_history, ys)


def _without_history(x: Any) -> Any:
    return detached(x) if isinstance(x, Tensor) and x.dtype.kind in ("float", "complex") else x


def _scan(
    f: Function,
    init: Any,
    xs: Any,
    length: int | None,
    reverse: bool,
    unroll: int | bool,
    peels: int = MOST_PEELS,
) -> tuple[Any, Any]:
    leaves, structure = tree_flatten(xs)
    tensors = [as_leaf(leaf, "scan") for leaf in leaves]
    count = _length(tensors, structure.paths(), length)
    here = graph_recorder()
    known = not isinstance(count, Dim)
    level = recorded_level()
    if level is not None:

        def below(step: Function, start: Any, rows: Any) -> Any:
            return scan(step, start, rows, count, reverse, unroll)

        if isinstance(level, MapLevel):
            with LowerOrAsk(level):
                return mapped_scan_node(level, below, f, init, tensors, structure)
        with LowerOrAsk(level):
            last, ys = on_level(lambda: scan(f, init, xs, length, reverse, unroll))
            return last, ys
    if here is None or (known and count > 0 and (unroll is True or unroll >= count)):
        return _run_scan(f, init, tensors, structure, count, reverse)
    if known and unroll > 1:
        return _chunked(f, init, tensors, structure, count, reverse, int(unroll))
    effects = here.python_effects()
    try:
        return record_scan(here, f, _own(here, init), tensors, structure, count, reverse)
    except HistoryDiffers:
        if not known or count < 2 or not peels or here.python_effects() != effects:
            raise
    return _peeled(f, init, tensors, structure, count, reverse, peels - 1)


def _peeled(
    f: Function,
    init: Any,
    tensors: list[Any],
    structure: Any,
    count: int,
    reverse: bool,
    peels: int,
) -> tuple[Any, Any]:
    """A scan with its first iteration peeled, where carried values have another history."""
    first, rest = (slice(-1, None), slice(-1)) if reverse else (slice(1), slice(1, None))
    carry, y = _run_scan(f, init, [x[first] for x in tensors], structure, 1, reverse)
    rows = tree_unflatten(structure, [x[rest] for x in tensors])
    carry, ys = _scan(f, carry, rows, count - 1, reverse, 1, peels)
    return carry, tree_map(lambda a, b: concat([b, a] if reverse else [a, b]), y, ys)


def map(f: Function, xs: Any) -> Any:
    """`f(x)` for each x along the first axis of `xs`, one after the other; results are stacked.

    >>> weft.map(lambda x: x.sum(), weft.ones((3, 2)))
    tensor([2., 2., 2.])
    """
    return scan(lambda carry, x: (carry, f(x)), None, xs)[1]


def _length(tensors: list[Any], paths: list[str], length: Any) -> Any:
    """The number of iterations; xs and `length` must agree."""
    found = length
    named = "length"
    for x, path in zip(tensors, paths, strict=True):
        if not isinstance(x, Tensor) or not x.ndim:
            what = x.type if isinstance(x, Tensor) else repr(x)
            raise ShapeError(f"xs{path} is {what}, which has no axis to go along", op="scan")
        if found is None:
            found, named = x.shape[0], f"xs{path}"
        elif x.shape[0] != found:
            raise ShapeError(
                f"xs{path} is {x.type}, of length {x.shape[0]}, and {named} says {found}", op="scan"
            )
    if found is None:
        raise ShapeError(
            "the number of iterations is not given", op="scan", hint="give xs, or length=..."
        )
    return found


def _run_scan(
    f: Function, init: Any, tensors: list[Any], structure: Any, count: int, reverse: bool
) -> tuple[Any, Any]:
    """A scan that runs in Python."""
    carry = _own(graph_recorder(), init)
    rows: list[list[Any]] = []
    shape: Any = None
    for i in reversed(range(count)) if reverse else range(count):
        carry, y = f(carry, tree_unflatten(structure, [x[i] for x in tensors]))
        leaves, shape = tree_flatten(y)
        rows.append(leaves)
    if not count:
        return _finished(carry, "scan"), _no_rows(f, init, tensors, structure)
    if reverse:
        rows.reverse()
    columns = [[as_tensor(y, "scan") for y in column] for column in zip(*rows, strict=True)]
    return _finished(carry, "scan"), tree_unflatten(shape, [stack(c) for c in columns])


def _no_rows(f: Function, init: Any, tensors: list[Any], structure: Any) -> Any:
    """The ys of a scan without iterations. The body is recorded only to find their types."""
    root = OnceRecorder(Graph("scan"))
    try:
        with recording(root):
            kinds = [x.type.like(shape=x.shape[1:]) for x in tensors]
            slices = [
                labelled(symbolic(root.graph.add_input(kind), root), x._result_class)
                for kind, x in zip(kinds, tensors, strict=True)
            ]
            _, y = f(_own(root, init), tree_unflatten(structure, slices))
            leaves, shape = tree_flatten(y)
            made = [as_tensor(leaf, "scan") for leaf in leaves]
    finally:
        root.restore()
    rows = [
        labelled(zeros((0, *y.shape), dtype=y.dtype, device=y.device), y._result_class)
        for y in made
    ]
    return tree_unflatten(shape, rows)


def _chunked(
    f: Function, init: Any, tensors: list[Any], structure: Any, count: int, reverse: bool, size: int
) -> tuple[Any, Any]:
    """A scan with `size` steps in each iteration; the remaining steps run after it."""
    chunks, rest = divmod(count, size)
    cut = rest if reverse else chunks * size  # the rest is done last
    order = slice(cut, None) if reverse else slice(0, cut)
    left = slice(0, cut) if reverse else slice(cut, None)

    def chunk(carry: Any, xs: Any) -> tuple[Any, Any]:
        parts, _ = tree_flatten(xs)
        return _run_scan(f, carry, parts, structure, size, reverse)

    folded = [reshape(x[order], (chunks, size, *x.shape[1:])) for x in tensors]
    carry, ys = scan(chunk, init, folded, chunks, reverse)
    ys = tree_map(lambda y: reshape(y, (chunks * size, *y.shape[2:])), ys)
    if not rest:
        return carry, ys
    parts = [x[left] for x in tensors]
    carry, last = _run_scan(f, carry, parts, structure, rest, reverse)
    return carry, tree_map(lambda a, b: concat([b, a] if reverse else [a, b]), ys, last)
