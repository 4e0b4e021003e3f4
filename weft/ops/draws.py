"""The cards of the random primitives, and `draw`, which calls one with a generator's next state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.base import dtypes
from weft.base.asked_sizes import is_less
from weft.base.dims import ceil_div
from weft.base.dtypes import DType, int_info
from weft.base.errors import DTypeError, RangeError, ShapeError
from weft.base.shapes import Shape, broadcast_shapes, new_shape, size_of
from weft.core.bind import bind
from weft.core.call_errors import out_of_memory
from weft.core.tensor import Tensor
from weft.ir.op import Cost, Op, Trait
from weft.ir.types import TensorType
from weft.ops import philox
from weft.ops.batch_random import draw_rule
from weft.ops.draw_parts import drawn_in_parts
from weft.ops.generator import Generator, check_state, default_generator

#: What each family of primitives draws.
BITS = frozenset({dtypes.uint32, dtypes.uint64})
FLOATS = frozenset(philox.UNIFORM_BITS)
NORMALS = FLOATS | {dtypes.complex64, dtypes.complex128}

BLOCK_FLOPS = 100  # integer operations of ten rounds

# --- type rules --------------------------------------------------------------------------------


def drawn_type(state: TensorType, shape: Shape, dtype: DType) -> TensorType:
    check_state(state)
    return state.like(shape=new_shape(shape, ""), dtype=dtype)


def _bits_type(state: TensorType, *, shape: Shape, dtype: DType) -> TensorType:
    check_dtype(dtype, BITS, "random_bits")
    return drawn_type(state, shape, dtype)


def _uniform_type(state: TensorType, *, shape: Shape, dtype: DType) -> TensorType:
    check_dtype(dtype, FLOATS, "random_uniform")
    return drawn_type(state, shape, dtype)


def _normal_type(state: TensorType, *, shape: Shape, dtype: DType) -> TensorType:
    check_dtype(dtype, NORMALS, "random_normal")
    return drawn_type(state, shape, dtype)


def _integers_type(
    state: TensorType, *, shape: Shape, dtype: DType, low: int, high: int
) -> TensorType:
    info = int_info(dtype)
    if not info.min <= low < high <= info.max + 1:
        raise RangeError(f"[{low}, {high}) is no range of {dtype.name}")
    return drawn_type(state, shape, dtype)


def _bernoulli_type(state: TensorType, p: TensorType, *, shape: Shape, dtype: DType) -> TensorType:
    check_dtype(p.dtype, FLOATS, "random_bernoulli")
    check_fits(p.shape, shape, "random_bernoulli")
    return drawn_type(state, shape, dtype)


def check_dtype(dtype: DType, known: frozenset[DType], op: str) -> None:
    if dtype not in known:
        names = ", ".join(sorted(d.name for d in known))
        integers = dtype.kind in ("int", "uint", "bool")
        raise DTypeError(
            f"{dtype.name} is not among the dtypes it draws: {names}",
            op=op,
            hint="weft.randint draws integers" if integers else "draw one of them and cast it",
        )


def check_fits(operand: Shape, shape: Shape, op: str) -> None:
    """Whether `operand` broadcasts to `shape` and not beyond."""
    try:
        fits = broadcast_shapes(operand, shape) == shape
    except ShapeError:
        fits = False
    if not fits:
        raise ShapeError(f"an operand of shape {operand} does not broadcast to {shape}", op=op)


# --- cards -------------------------------------------------------------------------------------


def _bernoulli_values(xp: Any, state: Any, p: Any, *, shape: Shape, dtype: DType) -> Any:
    if not xp.all((p >= 0) & (p <= 1)):  # NaN is not a probability either
        raise no_probability("p holds a number that is not a probability")
    return philox.bernoulli(xp, state, p, shape=shape, dtype=dtype)


def no_probability(message: str) -> RangeError:
    return RangeError(message, op="bernoulli", hint="probabilities are numbers from 0 to 1")


def _cost(per_element: int) -> Any:
    def cost(inputs: Sequence[TensorType], outputs: Sequence[TensorType], **_: Any) -> Cost:
        (out,) = outputs
        blocks = ceil_div(out.size, philox.elements_per_block(out.dtype))
        moved = sum(t.nbytes for t in inputs) + out.nbytes
        return Cost(blocks * BLOCK_FLOPS + out.size * per_element, moved)

    return cost


def _card(
    name: str, infer: Any, evaluate: Any, per_element: int, inputs: int = 1, may_fail: bool = False
) -> Op:
    return Op(
        name,
        infer,
        evaluate,
        kinds="unsigned integer",  # of the state
        traits=Trait.RANDOM,
        vjp=(None,) * inputs,
        batch=draw_rule,
        cost=_cost(per_element),
        may_fail=may_fail,
        ways=drawn_in_parts(name),
    )


random_bits = _card("random_bits", _bits_type, philox.bits, 0)
random_uniform = _card("random_uniform", _uniform_type, philox.uniform, 3)
random_normal = _card("random_normal", _normal_type, philox.normal, 45)
random_integers = _card("random_integers", _integers_type, philox.integers, 10)
random_bernoulli = _card(
    "random_bernoulli", _bernoulli_type, _bernoulli_values, 3, inputs=2, may_fail=True
)


# --- drawing -----------------------------------------------------------------------------------


def source_of(generator: Any, op: str) -> Generator:
    """The generator to draw from."""
    if generator is None:
        return default_generator
    if isinstance(generator, Generator):
        return generator
    raise DTypeError(f"generator must be a weft.Generator, not {generator!r:.60}", op=op)


def draw(
    op: Op,
    shape: Shape,
    dtype: DType,
    device: Any,
    generator: Any,
    *inputs: Tensor,
    per_block: int = 0,
    **attrs: Any,
) -> Tensor:
    """Call a random primitive with the generator's state, and advance that past the blocks used."""
    source = source_of(generator, op.name)
    size = size_of(shape)
    if is_less(2**60 - 1, size):  # more than the address space
        raise out_of_memory(op.name, shape, dtype.itemsize)
    state = source.advance(ceil_div(size, per_block or philox.elements_per_block(dtype)))
    if device is not None:
        state = state.to_device(device)
    out: Tensor = bind(op, state, *inputs, shape=shape, dtype=dtype, **attrs)
    return out
