"""Update rules of optimizers: one op call per parameter.

A rule is a card that gives new values to its first `outputs` operands: the parameter and its state.
In eager mode it writes into their buffers, in few passes over memory. A recorder sees an ordinary
op, whose results are then assigned.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from inspect import Parameter, Signature
from typing import Any

import numpy as np

from weft.base.dtypes import NARROW_FLOATS
from weft.base.errors import ShapeError, WeftError
from weft.core.bind import bind, recorder, update
from weft.core.number import Number
from weft.core.operands import assign
from weft.core.tensor import Tensor, type_of
from weft.ir.op import Op, Trait
from weft.ir.types import TensorType
from weft.ir.ways import Way
from weft.ops.batching import Attrs, Inputs, Mapped, Same, everywhere, looped
from weft.ops.rules import check_kind, check_same
from weft.ops.ways import same_axes

Array = np.ndarray[Any, Any]

#: Kernels work in place on float32 and float64. Other dtypes use the evaluation rule of the card.
IN_PLACE = "fd"
NARROW = frozenset(dtype.numpy for dtype in NARROW_FLOATS)
#: Elements per chunk of a kernel with several passes: a chunk stays in the cache between them.
CHUNK = 65536


#: Operands that are 0-d: the number of steps, the learning rate, and what else is one number.
SCALARS = frozenset({"step", "lr", "mu_product", "eta", "mu"})


def rule(
    name: str,
    operands: str,
    attrs: str,
    evaluate: Callable[..., Any],
    in_place: Callable[..., None],
    *,
    outputs: int,
    kinds: str = "real floating",
) -> Op:
    """The card of an update rule.

    operands    names: the parameter, its state, its gradient, the learning rate
    outputs     the number of operands, from the first, that get new values
    """
    inputs = operands.split()

    def infer(*types: TensorType, **_attrs: Any) -> Any:
        p = types[0]
        check_kind(p, kinds)
        for operand, given in zip(inputs, types, strict=True):
            if operand not in SCALARS:
                check_same(p, given)
            if given.shape != (() if operand in SCALARS else p.shape):
                raise ShapeError(
                    f"{operand} has shape {given.shape}, and the parameter {p.shape}",
                    hint="a gradient and the optimizer's state have the shape of their parameter",
                )
        return types[:outputs] if outputs > 1 else p

    positional, named = Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY
    infer.__signature__ = Signature(  # type: ignore[attr-defined]  # read by the card
        [Parameter(operand, positional) for operand in inputs]
        + [Parameter(attr, named) for attr in attrs.split()]
    )
    return Op(
        name,
        infer,
        evaluate,
        numpy=partial(_widened, evaluate),
        in_place=in_place,
        kinds=kinds,
        traits=Trait.COMPOSITE,
        outputs=outputs,
        batch=_batch_rule,
        ways=_ways,
    )


def _ways(inputs: tuple[TensorType, ...], outputs: tuple[TensorType, ...], **_: Any) -> Any:
    """All axes of the parameter, its gradient and its state; scalars are whole."""
    p = inputs[0]
    for way in same_axes(inputs, outputs):
        axis = way.inputs[0]
        states = tuple(axis if kind.shape == p.shape else None for kind in outputs)
        yield Way(way.inputs, states, way.parts)


def _batch_rule(op: Op, size: int, mapped: Mapped, inputs: Inputs, attrs: Attrs) -> Any:
    """Element by element, except for 0-d operands: if these are mapped, one call per element."""
    scalar = [operand in SCALARS for operand in op.inputs]
    if any(m and s for m, s in zip(mapped, scalar, strict=True)):
        return looped(op, size, mapped, inputs, attrs)
    given = [
        x if s else everywhere(x, m, size) for x, m, s in zip(inputs, mapped, scalar, strict=True)
    ]
    out = bind(op, *given, **attrs)
    if op.outputs == 1:
        return out
    return tuple(Same(new) if s else new for new, s in zip(out, scalar, strict=False))


def descent(p: Any, g: Any, weight_decay: float, maximize: bool) -> Any:
    """The direction of a step against which to move: the gradient with weight decay, for rules."""
    d = -g if maximize else g
    return d + weight_decay * p if weight_decay else d


def number(xp: Any, value: Any, dtype: Any) -> Any:
    """A 0-d value in another dtype, for rules.

    They compute with the number of steps in float64: in float32, 1 - 0.999 ** step is wrong in its
    fifth digit.
    """
    return xp.astype(xp.asarray(value), dtype)


def _widened(evaluate: Callable[..., Any], *arrays: Array, **attrs: Any) -> Any:
    """The evaluation rule on NumPy arrays: narrow floats in float32, each result rounded once."""
    wide = np.float32 if arrays[0].dtype in NARROW else arrays[0].dtype
    out = evaluate(np, *(a.astype(wide) if a.dtype in NARROW else a for a in arrays), **attrs)
    if not isinstance(out, tuple):
        return out.astype(arrays[0].dtype)
    return tuple(new.astype(old.dtype) for new, old in zip(out, arrays, strict=False))


def apply(op: Op, *operands: Tensor, **attrs: Any) -> None:
    """Give the first `op.outputs` operands the new values that the rule computes."""
    if recorder() is not None and any(map(_is_unknown, attrs.values())):
        _apply_by_ops(op, operands, attrs)
        return
    p, g = operands[0]._data, operands[op.outputs]._data
    if p.dtype is g.dtype and p.shape == g.shape and p.dtype.char in IN_PLACE:
        del p, g  # so that only their tensors hold them
        update(op, *operands, **attrs)
        return
    _check(op, operands, attrs)
    out = bind(op, *operands, **attrs)
    for target, value in zip(operands, out if op.outputs > 1 else (out,), strict=False):
        assign(target, value, op.name)


def _is_unknown(option: Any) -> bool:
    """Whether an option is a number, or a tuple of numbers, that a graph reads in each call."""
    parts = option if option.__class__ is tuple else (option,)
    return any(part.__class__ is Number for part in parts)


def _apply_by_ops(op: Op, operands: tuple[Tensor, ...], attrs: dict[str, Any]) -> None:
    """The same by the ops that the rule consists of: cards know the options as attributes only."""
    wide = [x.astype("float32") if x.dtype in NARROW_FLOATS else x for x in operands]
    evaluate: Any = op.eval
    out = evaluate(sys.modules["weft"], *wide, **attrs)  # Weft as the `xp` of the rule
    for target, value in zip(operands, out if op.outputs > 1 else (out,), strict=False):
        assign(target, value.astype(target.dtype, copy=False), op.name)


def _check(op: Op, operands: tuple[Tensor, ...], attrs: dict[str, Any]) -> None:
    types = [type_of(tensor) for tensor in operands]
    try:
        op.infer(*types, **attrs)
    except WeftError as error:
        raise error.about(op.name, types) from None


def by_evaluation(operands: str, outputs: int, evaluate: Callable[..., Any]) -> Callable[..., None]:
    """An in-place kernel that is the evaluation rule of the card, chunk by chunk."""
    wide = [i for i, name in enumerate(operands.split()) if name not in SCALARS]

    def in_place(*arrays: Array, **attrs: Any) -> None:
        new: tuple[Any, ...] = ()
        for pieces in chunks(*(arrays[i] for i in wide)):
            given = list(arrays)
            for i, piece in zip(wide, pieces, strict=True):
                given[i] = piece
            new = evaluate(np, *given, **attrs)
            for i in wide:
                if i < outputs:
                    given[i][...] = new[i]
        for i in range(outputs):
            if i not in wide:
                arrays[i][...] = new[i]

    return in_place


def chunks(*arrays: Array) -> Iterator[tuple[Array, ...]]:
    """Corresponding pieces of arrays of one shape, each small enough for the cache.

    They are never 0-d: NumPy's operators turn such arrays into scalars, which cannot be written.
    """
    if not arrays[0].ndim:
        yield tuple(array.reshape(1) for array in arrays)
        return
    if arrays[0].size <= CHUNK or not all(array.flags.c_contiguous for array in arrays):
        yield arrays
        return
    flat = [array.reshape(-1) for array in arrays]
    for start in range(0, flat[0].size, CHUNK):
        yield tuple(array[start : start + CHUNK] for array in flat)
