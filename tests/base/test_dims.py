"""Named dimensions: arithmetic, order, text, solving."""

from __future__ import annotations

import copy
import operator
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import weft
from weft.base.dim_algebra import Dim, dim_max, dim_min, known_less
from weft.base.dims import (
    as_dim,
    bind_all,
    bind_dims,
    ceil_div,
    dims_in,
    has_dims,
    parse_dim,
    parse_shape,
    substitute,
)
from weft.base.shapes import as_shape, broadcast_shapes, broadcasts_to, new_shape, size_of
from weft.errors import DTypeError, RangeError, ShapeError
from weft.ir.types import TensorType

B, C = weft.dim("B"), weft.dim("C", min=1)
SIZES = {"B": st.integers(0, 40), "C": st.integers(1, 40), "D": st.integers(2, 9)}
NAMES = {"B": B, "C": C, "D": weft.dim("D", min=2, max=9)}

# --- arithmetic --------------------------------------------------------------------------------

#: An expression as a function of what its names stand for: Dims, or numbers.
Expression = Any


def name(text: str) -> Expression:
    return lambda sizes: sizes[text]


def number(value: int) -> Expression:
    return lambda sizes: value


def binary(function: Any, a: Expression, b: Expression) -> Expression:
    return lambda sizes: function(a(sizes), b(sizes))


def divide(function: Any, a: Expression, b: int) -> Expression:
    return lambda sizes: function(a(sizes), b)


EXPRESSIONS = st.recursive(
    st.sampled_from([name(n) for n in NAMES]) | st.integers(-6, 6).map(number),
    lambda parts: (
        st.builds(
            binary,
            st.sampled_from([operator.add, operator.sub, operator.mul, dim_max, dim_min]),
            parts,
            parts,
        )
        | st.builds(
            divide,
            st.sampled_from([operator.floordiv, operator.mod]),
            parts,
            st.integers(-5, 5).filter(bool),
        )
    ),
    max_leaves=8,
)


@given(EXPRESSIONS, st.fixed_dictionaries(SIZES))
def test_an_expression_has_the_value_of_the_same_expression_of_numbers(
    expression: Expression, sizes: dict[str, int]
) -> None:
    made = expression(NAMES)
    assert substitute(made, sizes) == expression(sizes)
    assert type(substitute(made, sizes)) is int


@given(EXPRESSIONS, st.fixed_dictionaries(SIZES))
def test_bounds_hold(expression: Expression, sizes: dict[str, int]) -> None:
    made = expression(NAMES)
    if isinstance(made, Dim):
        low, high = made.bounds
        assert low is None or low <= expression(sizes)
        assert high is None or high >= expression(sizes)


@given(EXPRESSIONS, EXPRESSIONS, st.fixed_dictionaries(SIZES))
def test_what_is_decided_is_right(a: Expression, b: Expression, sizes: dict[str, int]) -> None:
    for compare in (operator.lt, operator.le, operator.gt, operator.ge, operator.eq):
        try:
            decided = compare(a(NAMES), b(NAMES))
        except ShapeError:
            continue
        if compare is not operator.eq or decided:
            assert decided == compare(a(sizes), b(sizes))


@given(EXPRESSIONS)
def test_what_prints_parses_back_equal(expression: Expression) -> None:
    made = expression(NAMES)
    text = str(made)
    assert " " not in text
    assert parse_dim(text, NAMES) == made
    assert parse_shape(f"{text},4", NAMES) == (made, 4)


@given(EXPRESSIONS, EXPRESSIONS, EXPRESSIONS)
def test_laws(a: Expression, b: Expression, c: Expression) -> None:
    x, y, z = (part(NAMES) for part in (a, b, c))
    assert x + y == y + x
    assert x * (y + z) == x * y + x * z
    assert (x + y) - y == x
    assert x - x == 0
    assert type(x - x) is int
    assert hash(x + y) == hash(y + x)
    assert (x * 3) // 3 == x
    assert (x * 6) % 3 == 0
    assert dim_max(x, y) == dim_max(y, x)
    assert dim_max(x + 2, y + 2) == dim_max(x, y) + 2


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (B, "B"),
        (2 * B + 1, "2*B+1"),
        (1 - B, "-B+1"),
        (B * C - 3 * C, "B*C-3*C"),
        ((B + 3) // 2, "(B+3)//2"),
        ((B + 3) // 2 * 2, "2*B-2*(B//2)+2"),
        ((B + 4) // 3 * 2, "2*((B+1)//3)+2"),
        (B // 2 + (B + 1) // 2, "B"),
        (B // C, "B//C"),
        ((B - 1) % 4, "(B+3)%4"),
        (dim_max(B, C), "max(B,C)"),
        (dim_max(B - 1, 0), "max(B-1,0)"),
        (dim_min(B, 4) * 2 + C, "2*B+C-2*max(B-4,0)"),
        (-(-B // 2), "(B+1)//2"),
        ((2 * B) // 2, "B"),
        ((2 * B) // 4, "B//2"),
        ((B // 2) // 3, "B//6"),
        ((4 * B) % 6, "2*((2*B)%3)"),
        ((B * 4) % 2, "0"),
        (B // 1, "B"),
        (B - B, "0"),
        ((B * C + B) // (C + 1), "B"),
        ((6 * B * C) // (2 * C), "3*B"),
        ((B % 4) // 4, "0"),
        (dim_max(B, 0), "B"),
        (dim_max(2 * B, B), "2*B"),
        (B**2, "B*B"),
        (abs(-C), "C"),
        (dim_min(B, 3) + dim_max(B - 3, 0), "B"),
        (dim_min(B, 3) + C, "min(B+C,C+3)"),
        (dim_min(B, 3) * C, "B*C-C*max(B-3,0)"),
        (divmod(2 * B + 1, 2), "(B, 1)"),
    ],
)
def test_normal_form(made: Any, text: str) -> None:
    assert str(made) == text


def test_a_dim_is_a_value() -> None:
    assert weft.dim("B") == B
    assert weft.dim("B", min=5) == B  # bounds belong to the object
    assert B != C
    assert B != 4
    assert B != "B"
    assert len({B, weft.dim("B"), 2 * B, B + B}) == 2
    assert pickle.loads(pickle.dumps(2 * C + 1)) == copy.deepcopy(2 * C + 1) == 2 * C + 1
    assert pickle.loads(pickle.dumps(C)).bounds == (1, None)
    assert np.int64(3) * B == 3 * B
    assert B + np.int64(3) == B + 3
    assert (B * C).names == ("B", "C")
    assert f"{B:>3}|{B!r}" == "  B|B"


def test_order_is_decided_by_bounds() -> None:
    assert C > 0
    assert B + 1 > B
    assert B >= 0
    assert not B < 0
    assert C * C >= C
    assert B // 2 <= B
    assert B - B // 2 >= 0
    assert dim_max(B, C) >= C
    assert dim_min(B, C) <= C
    assert bool(C)
    assert float("inf") > C
    assert known_less(B, B + 1)
    assert not known_less(B, C)
    assert known_less(2, 3)
    assert weft.dim("F", min=2, max=4) < 5


@pytest.mark.parametrize(
    ("ask", "says"),
    [
        (lambda: B > 0, r"whether B > 0 depends on sizes that are not known: B\b"),
        (lambda: B < C, "whether B < C depends on sizes that are not known: B, C"),
        (lambda: bool(B), "whether B is 0 depends"),
        (lambda: max(B, C), "whether C > B depends"),
        (lambda: int(B), "the size B is not known as a number"),
        (lambda: float(B + 1), r"the size B\+1 is not known as a number"),
        (lambda: range(B), "the size B is not known as a number"),
        (lambda: operator.index(B), "the size B is not known as a number"),
        (lambda: np.zeros((2, B)), "the size B is not known as a number"),
        (lambda: 1 / B, "the size B is not known as a number"),
        (lambda: [0] * B, "the size B is not known as a number"),
        (lambda: (B + C).evaluate({"B": 1}), "the size of C is not given"),
    ],
)
def test_what_depends_on_the_size_is_an_error(ask: Any, says: str) -> None:
    with pytest.raises(ShapeError, match=says):
        ask()


def test_the_error_says_the_way_out() -> None:
    with pytest.raises(ShapeError, match=r'weft.dim\("B", min=1\)'):
        bool(B)


@pytest.mark.parametrize("wrong", ["", "2B", "a b", "if", "B*2", "é", 3])
def test_names(wrong: Any) -> None:
    with pytest.raises(DTypeError, match="is not a valid name"):
        weft.dim(wrong)
    with pytest.raises(RangeError):
        weft.dim("B", min=3, max=2)


@pytest.mark.parametrize("wrong", ["", "B+", "B C", "f(B)", "2.5", "B/2", "'B'", "B//0", "max(B)"])
def test_text_that_is_no_size(wrong: str) -> None:
    with pytest.raises(ShapeError, match="is not a size"):
        parse_dim(wrong)


def test_as_dim() -> None:
    assert as_dim("B") == B
    assert as_dim("2*B") == 2 * B
    assert as_dim(B) is B
    assert as_dim(np.int64(3)) == 3
    assert as_dim("C", names=NAMES).bounds == (1, None)  # type: ignore[attr-defined]
    with pytest.raises(DTypeError, match="is not a size"):
        as_dim(2.5)


# --- numbers in their place --------------------------------------------------------------------


def test_bind_dims() -> None:
    bindings: dict[str, int] = {}
    bind_dims((B, 4, 2 * C + 1), (0, 4, 7), bindings)
    assert bindings == {"B": 0, "C": 3}
    bind_dims((B * C, B // 2), (0, 0), bindings)  # all is known: checked
    bindings = {}
    bind_dims((B + C, C), (7, 2), bindings)  # solved once C is known
    assert bindings == {"B": 5, "C": 2}
    bindings = {}
    bind_all([((B * C,), (6,), "x"), ((C, B), (2, 3), "y")], bindings)
    assert bindings == {"B": 3, "C": 2}


@pytest.mark.parametrize(
    ("pattern", "actual", "says"),
    [
        ((B, B), (3, 4), r"axis 1 of x has size 4, but B is 3 here \(B=3\)"),
        ((B, 2 * B), (3, 5), r"axis 1 of x has size 5, but 2\*B is 6 here \(B=3\)"),
        ((2 * B + 1,), (4,), r"axis 0 of x has size 4, which 2\*B\+1 is for no whole B"),
        ((C,), (0,), "axis 0 of x has size 0, where C is expected; C must be at least 1"),
        ((B + 2,), (1,), r"where B\+2 is expected: B = -1; B must be at least 0"),
        ((NAMES["D"],), (10,), "D must be from 2 to 9"),
        ((B, 4), (3, 5), "axis 1 of x has size 5, not 4"),
        ((B, 4), (3,), r"the shape of x is \(3,\), with 1 axes; \[B,4\] has 2"),
        ((B * C,), (4,), r"axis 0 of x has size 4, from which B\*C cannot be solved"),
        ((B // 2,), (4,), "cannot be solved"),
    ],
)
def test_shapes_that_contradict(pattern: Any, actual: Any, says: str) -> None:
    with pytest.raises(ShapeError, match=says):
        bind_dims(pattern, actual, {}, name="x")


def test_substitute() -> None:
    sizes = {"B": 3, "C": 2}
    tree = {"shape": (B, 4), "index": (slice(1, B), [B + C, None]), "name": "x"}
    assert substitute(tree, sizes) == {
        "shape": (3, 4),
        "index": (slice(1, 3), [5, None]),
        "name": "x",
    }
    plain = {"shape": (3, 4), "index": (slice(1, 3), [5, None])}
    assert substitute(plain, sizes) is plain
    assert list(dims_in(tree)) == [B, B, B + C]


# --- shapes and types --------------------------------------------------------------------------


def test_shapes_hold_dims() -> None:
    assert as_shape(B, "op") == (B,)
    assert as_shape([B, 4], "op") == (B, 4)
    assert new_shape((B, B - 1), "op") == (B, B - 1)  # checked where it is made
    assert size_of((B, 4, C)) == 4 * B * C
    assert has_dims((1, B))
    assert not has_dims((1, 2))
    assert ceil_div(B, 2) == (B + 1) // 2
    with pytest.raises(ShapeError, match="negative size"):
        new_shape((2, -B - 1), "op")


def test_types_hold_dims() -> None:
    kind = TensorType(weft.float32, (B, 4))
    assert str(kind) == "f32[B,4]"
    assert kind.size == 4 * B
    assert kind.nbytes == 16 * B
    assert kind == TensorType(weft.float32, (weft.dim("B"), 4))
    assert hash(kind) == hash(TensorType(weft.float32, (weft.dim("B"), 4)))


def test_broadcast() -> None:
    assert broadcast_shapes((B, 4), (4,)) == (B, 4)
    assert broadcast_shapes((B, 1), (1, C)) == (B, C)
    assert broadcast_shapes((B,), (1,), (B,)) == (B,)
    assert broadcasts_to((1, B), (C, B))
    assert not broadcasts_to((B,), (4,))
    with pytest.raises(ShapeError, match="sizes B and 4: it cannot be shown that they are equal"):
        broadcast_shapes((B,), (4,))
    with pytest.raises(ShapeError, match="sizes B and C: it cannot be shown that they are equal"):
        broadcast_shapes((B,), (C,))
    with pytest.raises(ShapeError, match="sizes 3 and 4\n"):
        broadcast_shapes((3,), (4,))
