"""Op calls on raw arrays: what `bind` does, without tensors, tapes and recorders."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft.core.bind import bind
from weft.core.call_errors import cause, explained
from weft.core.quiet import give_quiet, take_quiet
from weft.core.tensor import Tensor, wrap
from weft.ir.dispatch import family_for
from weft.ir.op import Op
from weft.ops.stacks import is_stack

ndarray = np.ndarray
generic = np.generic
asarray = np.asarray


class Env:
    """What a thread that runs nodes has at hand.

    quiet   calls a kernel without floating-point warnings: `quiet(kernel, *arrays)`
    sizes   the symbolic sizes that the inputs of this run tell
    """

    __slots__ = ("quiet", "sizes")

    def __init__(self, sizes: dict[str, int]) -> None:
        self.quiet: Callable[..., Any] = take_quiet()
        self.sizes = sizes

    def close(self) -> None:
        give_quiet(self.quiet)


def call_op(op: Op, arrays: list[Any], attrs: dict[str, Any], quiet: Callable[..., Any]) -> Any:
    """The result of an op on raw arrays; a tuple if it has several."""
    try:
        if not arrays:
            family = family_for(attrs["device"])
            out = quiet(op.kernels[family.array_type][attrs["dtype"].numpy], **attrs)
        else:
            for array in arrays:
                if array.__class__ is not ndarray:  # other devices: `bind` checks and moves
                    return unwrapped(bind(op, *map(wrap, arrays), **attrs))
            kernel = op.kernels[ndarray][arrays[op.dispatch_on].dtype]
            out = quiet(kernel, *arrays, **attrs)
    except Exception as error:
        if arrays and not all(isinstance(array, ndarray) for array in arrays):
            raise  # `bind` has explained it
        raise explained(op, tuple(map(wrap, arrays)), attrs, error) from cause(error)
    if out.__class__ is ndarray:
        return out
    if isinstance(out, generic):
        return asarray(out)
    if isinstance(out, tuple):
        return tuple([asarray(part) if isinstance(part, generic) else part for part in out])
    return out


def unwrapped(out: Any) -> Any:
    """Tensors as their arrays; stacks and tokens as they are."""
    if isinstance(out, Tensor):
        return out._data
    if isinstance(out, (tuple, list)):
        return tuple([part._data if isinstance(part, Tensor) else part for part in out])
    return out


def outside(value: Any) -> Any:
    """A value as the rest of Weft has it: a tensor for an array; stacks, tokens and counts stay."""
    if is_stack(value) or value.__class__ in (int, bool, Tensor):
        return value
    return wrap(value)
