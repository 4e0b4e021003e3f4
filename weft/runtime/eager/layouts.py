"""How the elements of an array lie: as a dense array, whose axes are in another order or repeated.

    x.T                     a dense array, and its axes in the order (1, 0)
    np.broadcast_to(b, s)   b, and its axes repeated

Machine code reads dense arrays. A kernel for such an array reads the dense one, and its graph
begins with the views. Any other array (rows of a larger one, negative strides) is copied first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]


class Layout(NamedTuple):
    """
    order     the axes of the dense array, as axes of the array; None: as they are
    repeated  the axes along which the array repeats one element
    """

    order: tuple[int, ...] | None = None
    repeated: tuple[int, ...] = ()

    def dense(self, array: Array) -> Array:
        """The dense array that has the elements."""
        if self.repeated:
            array = array[
                tuple(
                    [slice(0, 1) if i in self.repeated else slice(None) for i in range(array.ndim)]
                )
            ]
        return array if self.order is None else array.transpose(self.order)

    def dense_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of the dense array for a shape of the array."""
        sizes = [1 if i in self.repeated else size for i, size in enumerate(shape)]
        return tuple(sizes) if self.order is None else tuple([sizes[i] for i in self.order])

    def array(self, xp: Any, dense: Any, shape: tuple[int, ...]) -> Any:
        """The array of this shape from the dense one, by ops of `xp`."""
        if self.order is not None:
            back = sorted(range(len(self.order)), key=self.order.__getitem__)
            dense = xp.permute_dims(dense, tuple(back))
        return xp.broadcast_to(dense, shape) if self.repeated else dense


DENSE = Layout()


def layout_of(array: Array) -> Layout | None:
    """The layout of an array; None if it must be copied."""
    if array.flags.c_contiguous and array.flags.aligned:
        return DENSE
    steps, sizes = array.strides, array.shape
    repeated = tuple([i for i, n in enumerate(sizes) if n > 1 and steps[i] == 0])
    axes = [i for i, n in enumerate(sizes) if n > 1 and steps[i]]
    axes.sort(key=lambda i: -steps[i])
    order = iter(axes)
    whole = tuple([next(order) if i in axes else i for i in range(array.ndim)])
    found = Layout(None if whole == tuple(range(array.ndim)) else whole, repeated)
    dense = found.dense(array)
    return found if dense.flags.c_contiguous and dense.flags.aligned else None


def dense_of(layout: Layout | None) -> Callable[[Array], Array] | None:
    """What makes dense arrays from arrays of this layout; None if they are dense."""
    if layout is None:
        return _copied
    return None if layout == DENSE else layout.dense


def _copied(array: Array) -> Array:
    return np.require(array, None, ["C_CONTIGUOUS", "ALIGNED"])
