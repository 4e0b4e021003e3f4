"""Every rule of the tables, for every dtype it names, bit by bit over special values."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from bitwise import Array, difference, ordinary, results, some, special

import weft
from weft.base.device import CPU
from weft.base.dtypes import KINDS, DType
from weft.ir.graph import Graph, Value
from weft.ir.literal import CONSTANT, constant_attrs
from weft.ir.op import OPS, Op, Trait
from weft.ir.types import TensorType
from weft.ops.cards import LOGICAL_NOT, POW, WHERE
from weft.passes import facts
from weft.passes.algebra import RULES, SECTIONS, Algebra
from weft.passes.casts import Casts, can_skip
from weft.passes.contract import Notes
from weft.passes.facts import commutes_exactly, spelled
from weft.passes.patterns import Call, Letter, Number, Pattern, Rule, letters, read
from weft.passes.strength import Strength

#: Those that Weft itself has, whatever other tests register.
STANDARD = sorted(facts.STANDARD, key=lambda dtype: dtype.name)

FORMS = ("0-d", "full", "swapped")


class Instance:
    """The graph of a rule's left side for one dtype, and inputs with all pairs of special values.

    form   how numbers are written: as 0-d constants, or as arrays that make x broadcast; or with
           the operands of commutative ops exchanged
    """

    def __init__(self, rule: Rule, dtype: DType, form: str) -> None:
        self.graph = Graph("rule")
        self.dtype, self.form = dtype, form
        before = read(rule.before)
        names = letters(before)
        free = [name for name in names if name[0] != "k"]
        pairs = np.meshgrid(*[_points(name, dtype) for name in free])
        more = [ordinary(weft.bool if name == "c" else dtype, 500, ord(name)) for name in free]
        joined = zip(pairs, more, strict=True)
        self.inputs: list[Array] = [np.concatenate([a.reshape(-1), b]) for a, b in joined]
        self.values: dict[str, Value] = {}
        given = iter(self.inputs)
        for name in names:
            if name[0] == "k":
                self.values[name] = self.constant(_constant(name, dtype, form))
                continue
            array = next(given)
            kind = TensorType(weft.bool if name == "c" else dtype, array.shape)
            self.values[name] = self.graph.add_input(kind, name)
        self.graph.outputs = (self.value(before, dtype),)

    def constant(self, array: Array) -> Value:
        return self.graph.add(CONSTANT, **constant_attrs(array, CPU)).out

    def value(self, pattern: Pattern, dtype: DType) -> Value:
        if isinstance(pattern, Letter):
            return self.values[pattern.name]
        if isinstance(pattern, Number):
            number = spelled(pattern.text, dtype)
            if number is None:
                raise LookupError(f"{dtype.name} has no {pattern.text}")
            if self.form != "full":
                return self.constant(number)
            shape = (2, *self.inputs[0].shape) if self.inputs else (2, 3)
            attrs = {"value": number.item(), "dtype": dtype, "device": CPU}
            return self.graph.add(OPS["full"], shape=shape, **attrs).out
        parts = list(pattern.parts)
        dtypes = [weft.bool, dtype, dtype] if pattern.op is WHERE else [dtype] * len(parts)
        if pattern.op is LOGICAL_NOT and not isinstance(parts[0], Call):
            dtypes = [weft.bool if parts[0] == Letter("c") else dtype]
        inputs = [self.value(part, kind) for part, kind in zip(parts, dtypes, strict=True)]
        if self.form == "swapped" and pattern.op.commutative:
            inputs.reverse()
        return self.graph.add(pattern.op, *inputs).out


def _constant(name: str, dtype: DType, form: str) -> Array:
    """3 and 2, or 3 and a number at the end of the range."""
    number = special(dtype)[-1] if form == "full" else 2
    return np.asarray(3 if name == "k1" else number).astype(dtype.numpy)


def _points(name: str, dtype: DType) -> Array:
    if name == "c":
        return special(weft.bool)
    points = special(dtype)
    return points[::7] if dtype.kind == "complex" else points


def _instances(rule: Rule, form: str) -> Iterator[Instance]:
    for dtype in STANDARD:
        if dtype.name in STANDARD_NAMES and dtype.kind in KINDS[rule.kinds]:
            try:
                yield Instance(rule, dtype, form)
            except (LookupError, weft.errors.DTypeError):
                continue  # a number that the dtype has not, an op that does not take it


STANDARD_NAMES = frozenset(dtype.name for dtype in STANDARD)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("rule", RULES, ids=str)
def test_a_rule_is_exact(rule: Rule, form: str) -> None:
    fired = count = 0
    for instance in _instances(rule, form):
        notes = Notes()
        new = Algebra().run(instance.graph, notes)
        assert new is not instance.graph, f"nothing was done for {instance.dtype.name}"
        new.verify()
        before = results(instance.graph, instance.inputs)
        assert not difference(before, results(new, instance.inputs)), instance.dtype.name
        fired += f"× {rule}" in notes.counts
        count += 1
    assert count, "no dtype has an instance of the rule"
    assert fired, "other rules are always taken first"


def test_no_rule_stands_there_twice() -> None:
    rows = [(rule.before, kind) for rule in RULES for kind in KINDS[rule.kinds]]
    twice = {row for row in rows if rows.count(row) > 1}
    assert not twice


#: What looks like a rule and is none: for these dtypes there is a value at which it is wrong.
WRONG = [
    ("add(x, 0)", "x", "real floating"),
    ("subtract(0, x)", "negative(x)", "real floating"),
    ("multiply(x, 0)", "0", "real floating"),
    ("multiply(x, 1)", "x", "complex floating"),
    ("subtract(x, x)", "0", "real floating"),
    ("negative(subtract(x, y))", "subtract(y, x)", "real floating"),
    ("equal(x, x)", "True", "real floating"),
    ("less_equal(x, x)", "True", "real floating"),
    ("logical_not(less(x, y))", "less_equal(y, x)", "real floating"),
    ("maximum(x, y)", "maximum(y, x)", "real floating"),
    ("maximum(x, MAX)", "MAX", "real floating"),
    ("abs(square(x))", "square(x)", "integral"),
    ("abs(negative(x))", "abs(x)", "unsigned integer"),
    ("logical_and(x, x)", "x", "integral"),
    ("add(add(x, y), z)", "add(x, add(y, z))", "real floating"),
    ("floor_divide(x, x)", "1", "integral"),
]


@pytest.mark.parametrize(("before", "after", "kinds"), WRONG, ids=lambda part: str(part))
def test_what_is_no_rule_is_really_wrong_and_not_done(before: str, after: str, kinds: str) -> None:
    differs = False
    for instance in _instances(Rule(before, after, kinds), "0-d"):
        graph = instance.graph
        expected = results(graph, instance.inputs)
        for step in (Algebra(), Strength()):
            assert not difference(expected, results(step.run(graph), instance.inputs))
        right = read(after)
        if isinstance(right, Number):
            number = spelled(right.text, graph.outputs[0].tensor_type.dtype)
            wrong = np.broadcast_to(number, expected[0].shape)
        else:
            graph.outputs = (instance.value(right, instance.dtype),)
            (wrong,) = results(graph, instance.inputs)
        differs |= bool(difference(expected, [np.ascontiguousarray(wrong)]))
    assert differs


# --- strength reduction ------------------------------------------------------------------------


def _all_points(dtype: DType) -> Array:
    return np.concatenate([special(dtype), ordinary(dtype, 4000)])


def _reduced(op: str, dtype: DType, number: Array) -> tuple[list[str], str]:
    """What becomes of op(x, number): the ops afterwards, and what differs."""
    graph = Graph()
    x = _all_points(dtype)
    value = graph.add_input(TensorType(dtype, x.shape), "x")
    constant = graph.add(CONSTANT, **constant_attrs(number, CPU)).out
    graph.outputs = (graph.add(OPS[op], value, constant).out,)
    new = weft.optimize(graph, [Strength(), "dead_code"], verify=True)
    return [n.op.name for n in new.nodes], difference(results(graph, [x]), results(new, [x]))


FLOATS = [weft.float16, weft.bfloat16, weft.float32, weft.float64]
INTEGERS = [d for d in STANDARD if d.kind in ("int", "uint")]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_division_by_a_power_of_two(dtype: DType) -> None:
    for number in (2.0, 0.5, -4.0, 1024.0, 2.0**-13):
        ops, wrong = _reduced("divide", dtype, np.asarray(number).astype(dtype.numpy))
        assert ops == ["constant", "multiply"]
        assert not wrong, number
    several = np.resize([2.0, 0.25, -8.0], _all_points(dtype).shape).astype(dtype.numpy)
    assert _reduced("divide", dtype, several) == (["constant", "multiply"], "")


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_other_divisions_stay(dtype: DType) -> None:
    info = weft.finfo(dtype)
    numbers = (3.0, 0.0, -0.0, np.inf, np.nan, info.smallest_normal / 2, info.max)
    for number in numbers:
        assert _reduced("divide", dtype, np.asarray(number).astype(dtype.numpy))[0][-1] == "divide"
    exponent = {15: 15, 127: 127, 1023: 1023}[int(np.frexp(info.max)[1]) - 1]
    large = np.asarray(2.0**exponent).astype(dtype.numpy)  # its inverse is denormal
    assert _reduced("divide", dtype, large)[0][-1] == "divide"


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS], ids=str)
def test_powers(dtype: DType) -> None:
    narrow = dtype in (weft.float16, weft.bfloat16)
    whole = dtype in INTEGERS
    cubed = ["pow"] if narrow else ["multiply", "multiply"]
    for number, ops in ((1, ["pow"] if whole else []), (2, ["square"]), (3, cubed)):
        found, wrong = _reduced("pow", dtype, np.asarray(number).astype(dtype.numpy))
        assert [name for name in found if name != "constant"] == ops
        assert not wrong
    every = np.full(_all_points(dtype).shape, 3).astype(dtype.numpy)
    every[0] = 2
    assert "pow" in _reduced("pow", dtype, every)[0]


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integers_divided_by_a_power_of_two(dtype: DType) -> None:
    for power in (1, 3, 6):
        number = np.asarray(2**power, dtype.numpy)
        for op, new in (
            ("floor_divide", "bitwise_right_shift"),
            ("remainder", "bitwise_and"),
        ):
            assert _reduced(op, dtype, number) == (["constant", new], "")
    for other in (3, 0, 1):
        for op in ("floor_divide", "remainder"):
            assert op in _reduced(op, dtype, np.asarray(other, dtype.numpy))[0]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_inverse(dtype: DType) -> None:
    graph = weft.make_graph(lambda x: 1 / x, weft.spec(_all_points(dtype).shape, dtype))
    new = weft.optimize(graph, verify=True)
    assert [node.op.name for node in new.nodes] == ["reciprocal"]
    x = [_all_points(dtype)]
    assert not difference(results(graph, x), results(new, x))


# --- casts -------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", STANDARD, ids=str)
def test_casts_of_casts(source: DType) -> None:
    """Every chain of two casts, exact where it is made one; and the chains are really different
    where it is not."""
    x = _all_points(source)
    for through, target in itertools.product(STANDARD, repeat=2):
        graph = Graph()
        value = graph.add_input(TensorType(source, x.shape))
        try:
            first = graph.add(OPS["astype"], value, dtype=through).out
            graph.outputs = (graph.add(OPS["astype"], first, dtype=target).out,)
        except weft.errors.DTypeError:
            continue  # complex to real
        new = Casts().run(graph)
        new.verify()
        wrong = difference(results(graph, [x]), results(new, [x]))
        assert not wrong, f"{source} {through} {target}"
        if can_skip(source, through, target):
            assert new is not graph


# --- what the facts claim of kernels -----------------------------------------------------------

ELEMENTWISE = [op for op in OPS.values() if op.elementwise and not op.attrs]


@pytest.mark.parametrize("op", ELEMENTWISE, ids=lambda op: op.name)
def test_elementwise_kernels_see_elements_only(op: Op) -> None:
    """What `sink` relies on: repeated or alone, an element has the same result."""
    for dtype in STANDARD:
        if dtype.kind not in KINDS[op.kinds] or (op is POW and dtype.kind in KINDS["floating"]):
            continue
        kinds = [dtype] * len(op.inputs)
        if op.inputs[0] == "condition":
            kinds[0] = weft.bool
        arrays = [
            np.concatenate([some(d, (67,), i), ordinary(d, 67, i)]) for i, d in enumerate(kinds)
        ]
        count = len(arrays[0])
        shaped = [[a[:, None].repeat(5, axis=1) for a in arrays]]
        shaped.append([np.broadcast_to(a[:, None], (count, 5)) for a in arrays])
        alone = _called(op, arrays)
        for many in shaped:
            wrong = difference([alone[:, None].repeat(5, axis=1)], [_called(op, many)])
            assert not wrong, dtype.name
        by_one = [_called(op, [np.asarray(a[i]) for a in arrays]) for i in range(count)]
        assert not difference([alone], [np.stack(by_one)]), dtype.name


COMMUTATIVE = [
    op for op in OPS.values() if Trait.COMMUTATIVE in op.traits and Trait.STACK not in op.traits
]


@pytest.mark.parametrize("op", COMMUTATIVE, ids=lambda op: op.name)
def test_commutative_kernels(op: Op) -> None:
    """What `canonical` and `cse` rely on."""
    for dtype in STANDARD:
        if dtype.kind not in KINDS[op.kinds] or not commutes_exactly(op, dtype):
            continue
        x, y = (np.ascontiguousarray(a).reshape(-1) for a in np.meshgrid(*[special(dtype)] * 2))
        assert not difference([_called(op, [x, y])], [_called(op, [y, x])]), dtype.name


def _called(op: Op, arrays: list[Array]) -> Array:
    graph = Graph()
    for array in arrays:
        graph.add_input(TensorType(weft.asarray(array).dtype, array.shape))
    graph.outputs = (graph.add(op, *graph.inputs).out,)
    (out,) = results(graph, arrays)
    return out


def test_the_document_lists_every_rule() -> None:
    """The tables of docs/passes.md are those of the code, row by row."""
    text = (Path(__file__).parents[2] / "docs" / "passes.md").read_text()
    for title, rules in SECTIONS.items():
        rows = [f"| `{r.before}` | `{r.after}` | {r.kinds} | {r.why} |" for r in rules]
        table = "\n".join(row.replace("|  |", "| |") for row in rows)
        assert table in text, f"the table of {title} should be:\n{table}"
