"""A convolution and the pooling of its result as one kernel, image by image, in the cache.

Both kernels are unchanged. A wrapper has local memory for the result of one image: it calls the
first kernel for the items of an image, with a result address that makes them end up there, and then
the second. The intermediate result is never written to main memory.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from weft.base.dims import typical
from weft.codegen import pool
from weft.codegen.conv.emit import room_of
from weft.codegen.kernel import PARAMS, Kernel, args_table, argument, each_item
from weft.codegen.machine import Machine
from weft.codegen.text import Module
from weft.ir.graph import Node, Value
from weft.ops.cards import CONV, CONV_BIAS, MAX_POOL, SUM_POOL
from weft.schedule.groups import Group

__all__ = ["emit_pooled", "pools"]

#: Images are the items of work: the minimum number, to keep threads busy.
IMAGES = 8


def pools(machine: Machine, conv: Node, node: Node) -> bool:
    """Whether a pooling can be fused with the convolution before it."""
    if conv.op not in (CONV, CONV_BIAS) or node.op not in (MAX_POOL, SUM_POOL):
        return False
    image, own = _image(node), room_of(machine, conv)
    if not 0 < own <= machine.caches.room - image:
        return False
    if typical(node.inputs[0].tensor_type.shape[0]) < IMAGES:
        return False
    return node.inputs[0].tensor_type.ndim == len(node.attrs["kernel"]) + 2


def _image(node: Node) -> int:
    """Bytes of one image that is pooled."""
    kind = node.inputs[0].tensor_type
    return math.prod(kind.shape[1:]) * kind.dtype.itemsize


def emit_pooled(
    module: Module, name: str, group: Group, places: Mapping[Value, int], kernels: list[Kernel]
) -> list[Kernel] | None:
    """The kernels of a convolution, the last fused with the group's pooling."""
    node = group.tail
    assert node is not None
    whole, result = node.inputs[0], node.outputs[0]
    found = pool.EMITTERS[node.op.name](module, f"{name}.pool", node, None)
    if found is None:
        return None
    *before, first = kernels
    (second,) = found
    images, size = whole.tensor_type.shape[0], _image(node)
    count = max(places.values()) + 1
    f = module.function(f"{name}.pooled", "i32", PARAMS)
    room = f.var("i8", count=size, align=64)
    given, pooled = args_table(f, count), args_table(f, 2)
    if module.varies:
        for table in (given, pooled):
            (table + -1).store(f.size_table())
    f.do(f"store [{count} x ptr] {f(f'load [{count} x ptr], ptr %args')}, ptr {given}")
    (pooled + 1).store(argument(f, places[result]))
    slot = given + places[whole]
    with each_item(f) as image:
        # The address that the results would begin at if all images were stored.
        start = room.bytes(image * -size)
        slot.store(start)
        pooled.store(start)
        for kernel, args in ((first, given), (second, pooled)):
            each = kernel.items // images
            begin, end = (i * each for i in (image, image + 1))
            f.do(f"call i32 @{kernel.name}(ptr {args}, i64 {begin}, i64 {end})")
    f.do("ret i32 0")
    cost = (first.nanoseconds + second.nanoseconds) / typical(images)
    return [*before, Kernel(f.name, images, cost, first.scratch)]
