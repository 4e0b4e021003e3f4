"""Layouts: how tensors lie over a mesh, for programs that are written for one machine.

A layout has one entry for each axis of a tensor: the name of the mesh axis that cuts it, several
names, or None. What the user does not say, the compiler works out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeVar

import numpy as np

from weft.base.errors import DistributedError, RangeError
from weft.base.shapes import Shape
from weft.base.world import Axes, current_world
from weft.core.bind import bind
from weft.core.operands import as_tensor
from weft.core.parts import Parts
from weft.core.tensor import Tensor, wrap
from weft.distributed.mesh import Mesh, current_mesh
from weft.ir.cuts import Cuts
from weft.ops.layout import LAYOUT
from weft.passes.layouts.convert import steps
from weft.passes.layouts.states import of_cuts, whole

__all__ = ["from_local", "full", "layout", "local", "split"]

Entry = str | Sequence[str] | None
Uneven = Literal["refuse", "pad"]
T = TypeVar("T")


def cuts_of(
    x: Any, entries: Sequence[Entry], mesh: Mesh, op: str, uneven: Uneven = "refuse"
) -> Cuts:
    """The cuts that entries name; too few are followed by None."""
    if uneven not in ("refuse", "pad"):
        raise RangeError(f"{op}: uneven is {uneven!r}", hint='one of "refuse", "pad"')
    if len(entries) > len(x.shape):
        raise DistributedError(
            f"{len(entries)} entries for a tensor of {len(x.shape)} axes",
            op=op,
            hint="one for each axis: the name of a mesh axis, several names, or None",
        )
    axes = [mesh.names(entry) if entry is not None else () for entry in entries]
    axes += [()] * (len(x.shape) - len(axes))
    for name in (names := [name for each in axes for name in each]):
        if names.count(name) > 1:
            raise DistributedError(
                f"the mesh axis {name!r} cuts two axes of one tensor",
                op=op,
                hint="each mesh axis can cut one of them",
            )
    cuts = Cuts(tuple(axes))
    if op != "from_local" and uneven == "refuse":
        cuts.check(x.shape, mesh.axes)
    return cuts


def layout(
    x: Tensor, *entries: Entry, mesh: Mesh | None = None, uneven: Uneven = "refuse"
) -> Tensor:
    """x, which lies so over the mesh from here on; its gradient does, too.

    In a compiled function it decides how the compiler splits the program; the value stays the same.

    >>> from weft import distributed
    >>> def largest(x):
    ...     return weft.max(distributed.layout(x, "ranks") ** 2)
    >>> distributed.run_virtual(2, weft.compile(largest), weft.tensor([1.0, -3.0, 2.0, 0.0]))
    [tensor(9.), tensor(9.)]
    """
    on = mesh or current_mesh()
    tensor = as_tensor(x, "layout")
    cuts = cuts_of(tensor, entries, on, "layout", uneven)
    if tensor._data.__class__ is Parts:
        return _relaid(tensor, cuts, on.axes)
    out: Tensor = bind(LAYOUT, tensor, mesh=on.axes, axes=cuts.axes, terms=())
    return out


def split(
    x: Tensor, *entries: Entry, mesh: Mesh | None = None, uneven: Uneven = "refuse"
) -> Tensor:
    """The part of this rank of x, which all ranks have alike; a tensor with the shape of the whole.

    A size that the ranks do not divide is an error, unless `uneven="pad"`: then the last parts are
    filled up, with copies of the last element, which no result counts.

    >>> from weft import distributed
    >>> def part():
    ...     return distributed.local(distributed.split(weft.arange(4), "ranks"))
    >>> distributed.run_virtual(2, part)
    [tensor([0, 1]), tensor([2, 3])]
    """
    on = mesh or current_mesh()
    tensor = as_tensor(x, "split")
    return _relaid(tensor, cuts_of(tensor, entries, on, "split", uneven), on.axes)


def from_local(x: Tensor, *entries: Entry, mesh: Mesh | None = None) -> Tensor:
    """The tensor of which x is the part of this rank; parts have one shape. All ranks call it."""
    on = mesh or current_mesh()
    tensor = as_tensor(x, "from_local")
    cuts = cuts_of(tensor, entries, on, "from_local")
    shape = cuts.whole(tensor._data.shape, on.axes)
    _check_alike(tensor, on.axes)
    return _made(tensor._data, cuts, on.axes, tensor, shape)


def _check_alike(x: Tensor, mesh: Axes) -> None:
    """Parts of one tensor have one shape and dtype on all ranks."""
    if current_world().size == 1:
        return
    group = current_world().group(mesh, tuple(name for name, _ in mesh))
    mine = np.frombuffer(str(x.type).encode().ljust(128)[:128], np.uint8)
    texts = [row.tobytes().decode().strip() for row in group.all_gather(mine)]
    if len(set(texts)) > 1:
        raise DistributedError(
            f"the parts of ranks differ: {', '.join(dict.fromkeys(texts))}",
            op="from_local",
            hint="parts have one shape and dtype; distributed.split cuts a whole tensor",
        )


def full(x: Tensor) -> Tensor:
    """All of x, on each rank: all ranks call it together.

    >>> from weft import distributed
    >>> def back():
    ...     return distributed.full(distributed.split(weft.arange(4), "ranks"))
    >>> distributed.run_virtual(2, back)
    [tensor([0, 1, 2, 3]), tensor([0, 1, 2, 3])]
    """
    data = x._data
    if data.__class__ is not Parts:
        return x
    return _relaid(x, Cuts(((),) * len(data.shape)), data.mesh)


def local(x: Tensor) -> Tensor:
    """What this rank has of x."""
    data = x._data
    return wrap(data.own) if data.__class__ is Parts else x


def _made(array: Any, cuts: Cuts, mesh: Axes, like: Tensor, shape: Shape) -> Tensor:
    made = like.__class__()
    made._data = Parts(array, shape, cuts, mesh) if cuts else array
    made._node = None
    if like.requires_grad and like.is_leaf:
        made.requires_grad = True
    return made


def _relaid(x: Tensor, cuts: Cuts, mesh: Axes) -> Tensor:
    """The same value in another layout."""
    return _made(relaid_array(x, cuts, mesh), cuts, mesh, x, x.shape)


def relaid_array(x: Tensor, cuts: Cuts, mesh: Axes) -> Any:
    """The array of this rank for another layout of a tensor."""
    data = x._data
    cuts.local(data.shape, mesh)  # a size that ranks do not divide is an error here
    before = whole(mesh)
    if data.__class__ is Parts:
        if data.mesh != mesh:
            raise DistributedError(f"this tensor lies over {data.mesh}, not over {mesh}")
        before, data = of_cuts(data.cuts, mesh), data.local
    elif not isinstance(data, np.ndarray):
        raise DistributedError("only tensors on the CPU can be split", op="split")
    found = wrap(data)
    for step in steps(before, of_cuts(cuts, mesh), found.ndim, mesh):
        found, _ = step.run(bind, found, found.shape, x.shape)
    return found._data
