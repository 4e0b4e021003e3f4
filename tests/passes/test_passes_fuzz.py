"""Random graphs: what they give before and after each pass, alone and in any order, is the same."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
from bitwise import Array, contiguous, difference, ordinary, results, special
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from weft.base.device import CPU
from weft.base.dims import substitute
from weft.base.dtypes import KINDS, DType
from weft.base.errors import WeftError
from weft.core.bind import bind
from weft.ir.graph import Graph, Value
from weft.ir.literal import CONSTANT, constant_attrs
from weft.ir.op import OPS
from weft.ir.text import graph_text
from weft.passes import DropStopGradient, optimize
from weft.passes.pipeline import DEFAULT

#: Of signbit and copysign the results depend on the sign of a NaN, which is free.
SEES_NAN = {"signbit", "copysign"}
_PLAIN = [op for op in OPS.values() if op.elementwise and not op.attrs and op.name not in SEES_NAN]
UNARY = sorted(op.name for op in _PLAIN if len(op.inputs) == 1)
BINARY = sorted(op.name for op in _PLAIN if len(op.inputs) == 2)
COMMON = ["add", "subtract", "multiply", "divide", "maximum", "less", "greater", "equal", "pow"]
COMMON += ["floor_divide", "remainder", "bitwise_and", "bitwise_xor", "logical_or"]
REDUCTIONS = ["sum", "prod", "max", "min", "any", "all"]
DTYPES = [weft.float32, weft.float32, weft.float64, weft.float16, weft.bfloat16, weft.complex64]
DTYPES += [weft.int32, weft.int8, weft.int64, weft.uint8, weft.uint64, weft.bool]
SHAPES: list[tuple[Any, ...]] = [(), (5,), (5,), (2, 5), (1, 5), (2, 1), (0, 5), (1,), (2, 1, 5)]
SYMBOLIC = [*SHAPES, ("B", 5), ("B",), ("B", 1), (2, "B")]

#: Ops whose kernels give the same bits however their operands lie in memory: IEEE's own, integers,
#: comparisons, and those that only move elements.
ANY_LAYOUT = {
    *("add", "subtract", "multiply", "divide", "negative", "positive", "abs", "square", "sqrt"),
    *("floor", "ceil", "trunc", "round", "where", "astype", "reciprocal", "equal", "not_equal"),
    *("less", "less_equal", "greater", "greater_equal", "logical_and", "logical_or", "full"),
    *("logical_not", "logical_xor", "isnan", "isinf", "isfinite", "reshape", "permute_dims"),
    *("broadcast_to", "getitem", "concat", "identity", "stop_gradient", "constant", "any", "all"),
    *("arange", "eye", "setitem", "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_invert"),
}


class Random:
    """Draws graphs from numbers that hypothesis chooses."""

    def __init__(self, seed: list[int], symbolic: bool) -> None:
        self.rng = np.random.default_rng(seed)
        self.graph = Graph("fuzz")
        shapes = SYMBOLIC if symbolic else SHAPES
        dtypes = self.pick(DTYPES), self.pick(DTYPES)
        types = [weft.spec(self.pick(shapes), dtypes[i % 2]) for i in range(4)]
        types.append(weft.spec(self.pick(shapes), weft.bool))
        self.graph.set_inputs(types, [f"x{i}" for i in range(len(types))])
        self.values: list[Value] = list(self.graph.inputs)
        # Each graph is made of a few kinds of steps, so that these meet one another.
        self.binaries = [self.pick([*COMMON, *BINARY]) for _ in range(4)]
        self.unaries = [self.pick(UNARY) for _ in range(5)]
        self.steps = [self.pick(STEPS) for _ in range(6)]
        self.numbers = [float(self.pick([0, 1, 2, 3, 4, 8, -1, -0.0, 0.5, np.inf])) for _ in "012"]

    # --- choices ------------------------------------------------------------------------------

    def pick(self, choices: Any) -> Any:
        return choices[int(self.rng.integers(len(choices)))]

    def value(self) -> Value:
        """Any value, the later the likelier, and bools not too often."""
        for _ in range(3):
            place = int(self.rng.integers(len(self.values)) * self.rng.uniform())
            found = self.values[-1 - place]
            if found.tensor_type.dtype is not weft.bool:
                break
        return found

    def fitting(self, few: list[str], many: list[str], x: Value) -> str:
        """An op that takes values of this dtype: one of a few, if one of them does."""
        kind = x.tensor_type.dtype.kind
        chosen = [name for name in few if kind in KINDS[OPS[name].kinds]]
        return self.pick(chosen or [name for name in many if kind in KINDS[OPS[name].kinds]])

    def number(self, dtype: DType) -> Array:
        number = self.pick(self.numbers)
        if self.rng.uniform() < 0.3 or (dtype.kind != "float" and not 0 <= number < 9):
            return np.asarray(self.pick(special(dtype)))
        return np.asarray(number).astype(dtype.numpy)

    def like(self, value: Value) -> Value:
        """A value of the same dtype: an old one, or a constant."""
        kind = value.tensor_type
        same = [v for v in self.values if v.tensor_type.dtype is kind.dtype]
        how = self.rng.uniform()
        if how < 0.5:
            return self.pick(same)
        if how < 0.75:
            return self.call(CONSTANT.name, **constant_attrs(self.number(kind.dtype), CPU))
        if how < 0.9:
            number = self.number(kind.dtype).item()
            made = {"value": number, "dtype": kind.dtype, "device": CPU}
            return self.call("full", shape=kind.shape, **made)
        shape = tuple(n if isinstance(n, int) else 1 for n in kind.shape)
        array = self.rng.choice(special(kind.dtype), shape)
        return self.call(CONSTANT.name, **constant_attrs(np.asarray(array, kind.dtype.numpy), CPU))

    def call(self, op: str, *inputs: Value, **attrs: Any) -> Value:
        """A call in the graph; a WeftError if the op does not take it."""
        made = self.graph.add(OPS[op], *inputs, **attrs).out
        self.values.append(made)
        return made

    # --- steps --------------------------------------------------------------------------------

    def unary(self) -> None:
        x = self.value()
        self.call(self.fitting(self.unaries, UNARY, x), x)

    def binary(self) -> None:
        x = self.value()
        y = x if self.rng.uniform() < 0.2 else self.like(x)
        x, y = self.pick([(x, y), (y, x)])
        self.call(self.fitting(self.binaries, COMMON, x), x, y)

    def again(self) -> None:
        """A call that is already there, its operands perhaps exchanged."""
        if self.graph.nodes:
            node = self.pick(self.graph.nodes)
            inputs = node.inputs if self.rng.uniform() < 0.5 else node.inputs[::-1]
            self.call(node.op.name, *inputs, **node.attrs)

    def choose(self) -> None:
        bools = [v for v in self.values if v.tensor_type.dtype is weft.bool]
        x = self.value()
        self.call("where", self.pick(bools), x, x if self.rng.uniform() < 0.2 else self.like(x))

    def cast(self) -> None:
        self.call("astype", self.value(), dtype=self.pick(DTYPES))

    def cast_twice(self) -> None:
        x = self.value()
        back = self.pick([x.tensor_type.dtype, self.pick(DTYPES)])
        self.call("astype", self.call("astype", x, dtype=self.pick(DTYPES)), dtype=back)

    def reshape(self) -> None:
        x = self.value()
        shape = list(x.tensor_type.shape)
        how = self.rng.uniform()
        if how < 0.4:
            shape.insert(int(self.rng.integers(len(shape) + 1)), 1)
        elif how < 0.7:
            shape = [n for n in shape if n != 1]
        elif how < 0.85:
            shape = [x.tensor_type.size]
        else:
            shape = shape[::-1]
        self.call("reshape", x, shape=tuple(shape))

    def permute(self) -> None:
        x = self.value()
        axes = tuple(int(i) for i in self.rng.permutation(x.tensor_type.ndim))
        self.call("permute_dims", x, axes=axes)

    def broadcast(self) -> None:
        x = self.value()
        shape = [self.pick([2, 1, 3]) if n == 1 else n for n in x.tensor_type.shape]
        front = self.pick([[], [1], [2]])
        self.call("broadcast_to", x, shape=tuple(front + shape))

    def part(self) -> None:
        x = self.value()
        parts: list[Any] = []
        for size in x.tensor_type.shape:
            if self.rng.uniform() < 0.2:
                parts.append(None)
            fixed = [slice(None), slice(None, None, -1), slice(1, None), slice(None, -1)]
            more = [slice(None, None, 2), slice(0, 2), slice(-2, None), slice(5, 1, -2)]
            parts.append(self.pick([slice(None)] if not isinstance(size, int) else fixed + more))
            if isinstance(size, int) and size and self.rng.uniform() < 0.2:
                parts[-1] = self.pick([0, -1])
        if self.rng.uniform() < 0.3:
            parts = [..., *parts[len(parts) // 2 :]]
        self.call("getitem", x, index=tuple(parts))

    def write(self) -> None:
        x = self.value()
        if x.tensor_type.ndim:
            written = self.call("setitem", x, self.like(x), index=self.pick([slice(1, None), ...]))
            if self.rng.uniform() < 0.5 and written.node is not None:
                self.call("getitem", written, index=written.node.attrs["index"])

    def concat(self) -> None:
        x = self.value()
        if x.tensor_type.ndim:
            parts = [x, self.like(x)] if self.rng.uniform() < 0.8 else [x]
            self.call("concat", *parts, axis=int(self.rng.integers(x.tensor_type.ndim)))

    def reduce(self) -> None:
        x = self.value()
        shape = x.tensor_type.shape
        axes = tuple(i for i, n in enumerate(shape) if n == 1 or self.rng.uniform() < 0.3)
        attrs = {"axis": axes, "keepdims": bool(self.rng.uniform() < 0.5)}
        self.call(self.pick(REDUCTIONS), x, **attrs)

    def product(self) -> None:
        x = self.value()
        if x.tensor_type.ndim == 2:
            turned = self.call("permute_dims", x, axes=(1, 0))
            self.call("matmul", x, turned)

    def create(self) -> None:
        dtype = self.pick(DTYPES)
        place = {"dtype": dtype, "device": CPU}
        kind = self.pick(["arange", "eye", "full"])
        if kind == "arange" and dtype is not weft.bool:
            self.call("arange", start=1, step=2, length=3, **place)
        elif kind == "eye":
            self.call("eye", rows=2, columns=3, k=0, **place)
        else:
            self.call("full", shape=(2, 3), value=self.number(dtype).item(), **place)

    def draw(self) -> None:
        state = np.asarray([7, self.rng.integers(2)], np.uint64)
        seed = self.call(CONSTANT.name, **constant_attrs(state, CPU))
        self.call("random_uniform", seed, shape=(3,), dtype=weft.float32)

    def mark(self) -> None:
        self.call(self.pick(["identity", "stop_gradient"]), self.value())

    def grow(self, steps: int) -> Graph:
        """The graph after some steps; those that do not fit are left out."""
        for _ in range(5 * steps):
            if len(self.graph.nodes) >= steps:
                break
            with contextlib.suppress(WeftError):
                self.pick(self.steps)(self)
        # Most values are outputs, so that what is wrong is seen; the others may be dead code.
        kept = self.rng.uniform(size=len(self.values)) < self.pick([0.2, 0.8])
        chosen = [value for value, is_output in zip(self.values, kept, strict=True) if is_output]
        self.graph.outputs = (*chosen, self.values[-1])
        return self.graph


STEPS: list[Callable[[Random], None]] = [
    *[Random.binary] * 6,
    *(Random.unary, Random.unary, Random.again, Random.again),
    *(Random.choose, Random.cast, Random.cast_twice, Random.reshape, Random.reshape),
    *(Random.permute, Random.permute, Random.broadcast, Random.broadcast, Random.part, Random.part),
    *(Random.write, Random.concat, Random.reduce, Random.product, Random.create, Random.draw),
    Random.mark,
]

PASSES = [*DEFAULT, DropStopGradient()]


def inputs_of(graph: Graph, size: int, seed: list[int]) -> list[Array]:
    rng = np.random.default_rng(seed)
    arrays = []
    for value in graph.inputs:
        kind = value.tensor_type
        shape = substitute(kind.shape, {"B": size})
        edges = [0.0, -0.0, np.inf, np.nan] * 5 if kind.dtype.kind in ("float", "complex") else []
        few = [special(kind.dtype), ordinary(kind.dtype, 8, seed[0])]
        few.append(np.asarray(edges).astype(kind.dtype.numpy))
        arrays.append(np.asarray(rng.choice(np.concatenate(few), shape), kind.dtype.numpy))
    return arrays


def _text(graph: Graph) -> str:
    return graph_text(graph, history=False)


@settings(max_examples=500, deadline=None, derandomize=True)
@given(
    seed=st.lists(st.integers(0, 2**32 - 1), min_size=4, max_size=4),
    steps=st.integers(20, 60),
    size=st.sampled_from([None, None, 0, 1, 2]),
    order=st.lists(st.integers(0, len(PASSES) - 1), min_size=2, max_size=12),
)
def test_random_graphs(seed: list[int], steps: int, size: int | None, order: list[int]) -> None:
    graph = Random([*seed, *order], symbolic=size is not None).grow(steps)
    graph.verify()
    arrays = inputs_of(graph, size or 0, seed)
    try:
        expected = results(graph, arrays)
    except ValueError:
        return  # the largest of no elements, say: known only where sizes are
    text = _text(graph)
    ways = [[step] for step in PASSES]
    ways += [[PASSES[i] for i in order], [PASSES[i] for i in reversed(order)]]
    for way in ways:
        new = graph
        for step in way:
            new = step.run(new)
            new.verify()
        wrong = difference(expected, results(new, arrays))
        assert not wrong, f"{[step.name for step in way]}: {wrong}\n{text}\n{_text(new)}"
    new = optimize(graph, verify=True)
    wrong = difference(expected, results(new, arrays))
    assert not wrong, f"{wrong}\n{text}\n{new}"
    assert optimize(new) is new, f"not finished:\n{text}\n{new}\n{optimize(new)}"
    assert _text(graph) == text
    if {node.op.name for node in graph.nodes} <= ANY_LAYOUT:
        wrong = difference(results(graph, arrays, bind), results(new, arrays, bind))
        assert not wrong, f"{wrong}\n{text}\n{new}"


def test_most_kinds_of_changes_happen() -> None:
    """The random graphs give every pass something to do, but those for control flow."""
    names = ["dead_code", "canonical", "cse", "fold", "algebra", "strength", "casts", "views"]
    names += ["slices", "sink", "drop_stop_gradient"]
    busy = dict.fromkeys(names, 0)
    for seed in range(400):
        graph = Random([seed], symbolic=seed % 2 == 0).grow(20)
        for step in PASSES:
            if step.name in busy:
                busy[step.name] += step.run(graph) is not graph
    assert min(busy.values()) >= 5, busy


def test_plain_arrays_are_what_the_interpreter_runs_on() -> None:
    graph = weft.make_graph(lambda x: weft.exp(x.T), weft.spec((2, 3)))
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    (out,) = results(graph, [x], contiguous)
    np.testing.assert_array_equal(out, np.exp(x.T))
