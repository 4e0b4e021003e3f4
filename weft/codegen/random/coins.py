"""bernoulli: 1 where a random number is below a probability, compared exactly."""

from __future__ import annotations

from collections.abc import Callable

from weft.base.dtypes import DType, float32, float64
from weft.base.shapes import Shape
from weft.codegen.index import Index, offset, unravel
from weft.codegen.indexing.access import copy_bytes, fail_if
from weft.codegen.indexing.plan import dense_steps, merged
from weft.codegen.kernel import PARAMS, Kernel, argument, each_item
from weft.codegen.random.draws import word_vector
from weft.codegen.random.words import Chunk, draw_kernel
from weft.codegen.scalar.forms import compute_kind, load, memory_type, splat, store, supported
from weft.codegen.scalar.vec import Vec
from weft.codegen.text import Function, Module
from weft.ir.graph import Node
from weft.ir.types import TensorType
from weft.ops.philox import elements_per_block

__all__ = ["bernoulli"]


def bernoulli(module: Module, name: str, node: Node) -> list[Kernel] | None:
    chance, out = node.inputs[1].tensor_type, node.out.tensor_type
    if not supported(out.dtype) or not supported(chance.dtype):
        return None
    wide = chance.dtype is float64
    lanes = module.machine.lanes(8)

    def fill(f: Function, chunk: Chunk) -> None:
        chances = _chances(f, chunk, chance, out.shape, lanes)
        with f.loop(0, chunk.size, lanes) as i:
            word = word_vector(f, chunk, i, 64 if wide else 32, lanes)
            if wide:
                number = word.op("lshr", 11).convert("sitofp", "double") * 2.0**-53
            else:
                number = word.convert("uitofp", "double") * 2.0**-32
            hit = number < chances(i)
            kind = compute_kind(out.dtype)
            one = Vec(f, kind, lanes, "")
            value = hit if kind == "i1" else hit.pick(one.make(1), one.make(0))
            store(f, out.dtype, chunk.target + i, value.name, lanes)

    per_block = elements_per_block(float64 if wide else float32)
    checking = _check(module, f"{name}.check", chance.dtype, chance.size)
    drawing = draw_kernel(module, name, out.size, out.dtype.itemsize, per_block, 2, fill, 0.3)
    return [checking, drawing]


def _chances(
    f: Function, chunk: Chunk, chance: TensorType, shape: Shape, lanes: int
) -> Callable[[Index], Vec]:
    """A function that returns the probabilities of elements i … i + lanes - 1 of a chunk, as
    doubles."""
    dtype, size = chance.dtype, chance.dtype.itemsize
    given = argument(f, 1, memory_type(dtype))
    if chance.size == 1:
        one = Vec(f, compute_kind(dtype), 1, load(f, dtype, given, 1)).convert("fpext", "double")
        same = Vec(f, "double", lanes, splat(f, float64, one.name, lanes))
        return lambda _: same
    sizes, (steps,) = merged(shape, dense_steps(chance.shape, shape))
    own = f.var(memory_type(dtype), count=chunk.size, align=64)
    if steps == (1,):
        # Whole vectors must not be read beyond the end: the last ones are read from a copy.
        there = given + chunk.start
        partly = f(f"icmp slt i64 {chunk.count}, {chunk.size}")
        with f.when(partly):
            copy_bytes(f, own, there, chunk.count * size)
        source = f.ptr(f(f"select i1 {partly}, ptr {own}, ptr {there}"), own.kind)
    else:
        source = own
        with f.loop(0, chunk.count) as i:
            at = unravel(chunk.start + i, sizes)
            place = offset(0, zip(at, steps, strict=True))
            copied = load(f, dtype, given + place, 1)
            store(f, dtype, own + i, copied, 1)

    def vector(i: Index) -> Vec:
        found = load(f, dtype, source + i, lanes)
        return Vec(f, compute_kind(dtype), lanes, found).convert("fpext", "double")

    return vector


def _check(module: Module, name: str, dtype: DType, size: int) -> Kernel:
    """A kernel that fails if any of them is not a probability, such as NaN."""
    f = module.function(name, "i32", PARAMS)
    pointer = argument(f, 1, memory_type(dtype))
    with each_item(f) as i:
        value = load(f, dtype, pointer + i, 1)
        chance = Vec(f, compute_kind(dtype), 1, value)
        fail_if(f, (chance.compare("ult", 0.0) | chance.compare("ugt", 1.0)).name)
    f.do("ret i32 0")
    return Kernel(name, size, 0.7)
