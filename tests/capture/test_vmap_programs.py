"""vmap over control flow does what a Python loop over the elements does: values, gradients, errors.

Elements that take no part in a branch or an iteration have no part in anything.
"""

from __future__ import annotations

import contextlib
import io
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from control_flow_rows import ROWS as TABLE
from control_programs import PROGRAMS as FUNCTIONAL
from programs import PROGRAMS
from programs.table import SOURCE

import weft
from weft import Tensor, compile, grad, vmap
from weft.errors import CaptureError, ShapeError

Function = Callable[..., Any]
Array = np.ndarray[Any, Any]


def arrays(tree: Any) -> list[Array]:
    return [
        np.array(x.detach().numpy()) if isinstance(x, Tensor) else np.asarray(x)
        for x in weft.tree_leaves(tree)
    ]


def one_by_one(f: Function, *xs: Tensor) -> list[Array]:
    found = [arrays(f(*row)) for row in zip(*xs, strict=True)]
    return [np.stack(column) for column in zip(*found, strict=True)]


def same(found: Any, want: Sequence[Array]) -> None:
    got = arrays(found)
    assert len(got) == len(want)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-9)


def summed(f: Function) -> Function:
    return lambda *xs: vmap(f)(*xs).sum()


# --- what was seen to go wrong -------------------------------------------------------------------

TABLE_OF_THREE = weft.asarray([1.0, 2.0, 3.0], dtype="f8")
NUMBERS = weft.asarray([0.5, 3.0, 7.0, -2.0, 100.0], dtype="f8")
PLACES = weft.asarray([0, 3, 1, 7, 2])
MATRICES = weft.asarray([[[1.0, 2.0], [3.0, 4.0]], [[0.0, 0.0], [0.0, 0.0]]], dtype="f8")


def roots(x: Any) -> Any:
    while x > 1:
        x = weft.sqrt(x - 1)
    return x


def guarded_root(x: Any) -> Any:
    if x > 0:
        return weft.sqrt(x)
    return x * 0 - 1


def root_of_shared(x: Any) -> Any:
    """A tensor that is the same for all elements has no gradient from those that do not use it."""
    y = x * 1
    if x > 0:
        y = weft.sqrt(x) * TABLE_OF_THREE.sum() / x
    return y


def passed_on(x: Any) -> Any:
    """y goes through a choice unchanged, in a branch that small x do not take."""
    y = x * 1
    if x < 3:
        return x * 2
    if x > 50:
        y = y * 2
    for _ in range(3):
        if y < 6:
            y = y + 0.5
    return weft.sqrt(y - 2.5)


def functional_roots(x: Any) -> Any:
    return weft.while_loop(lambda x: x > 1, lambda x: weft.sqrt(x - 1), x)


def functional_root(x: Any) -> Any:
    return weft.cond(x > 0, lambda: weft.sqrt(x), lambda: x * 0 - 1)


def functional_switch(x: Any) -> Any:
    kind = weft.where(x > 5, 2, weft.where(x > 0, 1, 0))
    return weft.switch(kind, [lambda: x, lambda: weft.sqrt(x), lambda: 1 / (x - 3) ** 0.5])


SMOOTH = [
    roots,
    guarded_root,
    root_of_shared,
    passed_on,
    functional_roots,
    functional_root,
    functional_switch,
]
EAGER = [f for f in SMOOTH if f.__name__.startswith("functional")]


def gradients_of(f: Function) -> dict[str, Function]:
    """The gradient for each element, in all orders."""
    ways = {
        "compile(vmap(grad))": compile(vmap(grad(f))),
        "vmap(compile(grad))": vmap(compile(grad(f))),
        "vmap(grad(compile))": vmap(grad(compile(f))),
        "compile(grad(vmap))": compile(grad(summed(f))),
        "grad(vmap(compile))": grad(summed(compile(f))),
    }
    if f in EAGER:
        ways |= {
            "vmap(grad)": vmap(grad(f)),
            "grad(vmap)": grad(summed(f)),
            "trace(vmap(grad))": weft.trace(vmap(grad(f))),
            "graph(grad(vmap))": lambda xs: weft.make_graph(grad(summed(f)), xs)(xs),
        }
    return ways


@pytest.mark.parametrize("f", SMOOTH, ids=lambda f: f.__name__)
def test_gradients_of_elements_that_take_no_part(f: Function) -> None:
    for way, derivative in gradients_of(f).items():
        for xs in (NUMBERS, NUMBERS[3:], NUMBERS[1:3], -NUMBERS):
            want = one_by_one(grad(f), xs)
            np.testing.assert_allclose(derivative(xs).numpy(), want[0], err_msg=way)


@pytest.mark.parametrize("f", [roots, functional_roots, functional_root], ids=lambda f: f.__name__)
def test_second_derivatives_and_tangents(f: Function) -> None:
    want = one_by_one(grad(grad(f)), NUMBERS)[0]
    ways = {
        "compile(vmap(grad(grad)))": compile(vmap(grad(grad(f)))),
        "vmap(grad(grad(compile)))": vmap(grad(grad(compile(f)))),
        "grad(vmap(grad(compile)))": grad(summed(grad(compile(f)))),
        "compile(grad(vmap(grad)))": compile(grad(summed(grad(f)))),
    }
    if f in EAGER:
        ways |= {"vmap(grad(grad))": vmap(grad(grad(f))), "grad(vmap(grad))": grad(summed(grad(f)))}
    for way, derivative in ways.items():
        np.testing.assert_allclose(derivative(NUMBERS).numpy(), want, err_msg=way)
    one = weft.asarray(1.0, dtype="f8")

    def tangent(g: Function) -> Function:
        return lambda x: weft.jvp(g, (x,), (weft.ones_like(x) * one,))[1]

    want = one_by_one(tangent(f), NUMBERS)[0]
    for way, pushed in {
        "compile(vmap(jvp))": compile(vmap(tangent(f))),
        "vmap(jvp(compile))": vmap(tangent(compile(f))),
        "compile(jvp(vmap))": compile(tangent(vmap(f))),
        "jvp(vmap(compile))": tangent(vmap(compile(f))),
    }.items():
        np.testing.assert_allclose(pushed(NUMBERS).numpy(), want, err_msg=way)


@pytest.mark.parametrize("f", [roots, functional_roots, functional_root], ids=lambda f: f.__name__)
def test_mapped_twice(f: Function) -> None:
    """Also where of some rows no element takes a branch."""
    both = weft.stack([NUMBERS, -weft.abs(NUMBERS), NUMBERS * 2])
    want = np.stack([one_by_one(f, xs)[0] for xs in both])
    slopes = np.stack([one_by_one(grad(f), xs)[0] for xs in both])
    np.testing.assert_allclose(compile(vmap(vmap(f)))(both).numpy(), want)
    np.testing.assert_allclose(vmap(vmap(compile(f)))(both).numpy(), want)
    np.testing.assert_allclose(vmap(vmap(grad(compile(f))))(both).numpy(), slopes)
    np.testing.assert_allclose(compile(grad(summed(vmap(f))))(both).numpy(), slopes)
    if f in EAGER:
        np.testing.assert_allclose(vmap(vmap(f))(both).numpy(), want)
        np.testing.assert_allclose(vmap(vmap(grad(f)))(both).numpy(), slopes)


def from_the_table(i: Any) -> Any:
    s = TABLE_OF_THREE.sum() * 0
    while i < 3:
        s = s + TABLE_OF_THREE[i]
        i = i + 1
    return s


def guarded_item(i: Any) -> Any:
    if i < 3:
        return TABLE_OF_THREE[i]
    return TABLE_OF_THREE[0] * 0 - 1


def functional_table(i: Any) -> Any:
    start = (i, TABLE_OF_THREE[0] * 0)
    return weft.while_loop(
        lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] + TABLE_OF_THREE[c[0]]), start
    )[1]


def functional_item(i: Any) -> Any:
    return weft.cond(i < 3, lambda: TABLE_OF_THREE[i], lambda: TABLE_OF_THREE[0] * 0 - 1)


@pytest.mark.parametrize(
    "f", [from_the_table, guarded_item, functional_table, functional_item], ids=lambda f: f.__name__
)
def test_elements_that_take_no_part_do_not_fail(f: Function) -> None:
    ways = [compile(vmap(f)), vmap(compile(f))]
    if f.__name__.startswith("functional"):
        ways += [vmap(f), lambda xs: weft.make_graph(vmap(f), xs)(xs)]
    for way, xs in itertools.product(ways, (PLACES, PLACES[1::2], PLACES[::2])):
        same(way(xs), one_by_one(f, xs))


def inverse(m: Any) -> Any:
    if m.sum() > 0:
        return weft.linalg.inv(m).sum()
    return m.sum()


def test_matrices_that_have_no_inverse() -> None:
    for xs in (MATRICES, MATRICES[1:], MATRICES[:1]):
        same(compile(vmap(inverse))(xs), one_by_one(inverse, xs))
        same(vmap(compile(inverse))(xs), one_by_one(inverse, xs))
        same(compile(vmap(grad(inverse)))(xs), one_by_one(grad(inverse), xs))
        same(compile(grad(summed(inverse)))(xs), one_by_one(grad(inverse), xs))


def test_errors_of_elements_that_take_part_are_raised() -> None:
    def item(i: Any) -> Any:
        if i > 2:
            return TABLE_OF_THREE[i]
        return TABLE_OF_THREE[0] * 0

    def checked(x: Any) -> Any:
        if x > 0:
            assert x < 50, "too large"
            if x > 6:
                raise ValueError("between")
        return x * 2

    for way in (compile(vmap(item)), vmap(compile(item))):
        same(way(PLACES[::2]), one_by_one(item, PLACES[::2]))
        with pytest.raises(IndexError):
            way(PLACES)
    for way in (compile(vmap(checked)), vmap(compile(checked))):
        fine = weft.asarray([1.0, -100.0, 5.0])
        same(way(fine), one_by_one(checked, fine))
        with pytest.raises(AssertionError, match="too large"):
            way(weft.asarray([1.0, 100.0, 7.0]))
        with pytest.raises(ValueError, match="between"):
            way(weft.asarray([1.0, 7.0, 100.0]))


def returned_early(x: Any) -> Any:
    y = x * 2
    if x > 0:
        return y
    return y


def shared(x: Any, w: Any, n: Any) -> Any:
    """w and n are the same for all elements."""
    for _ in range(3):
        x = w @ x if x.sum() > n else x + w[0]
    return x


def test_a_way_that_does_not_matter() -> None:
    same(compile(vmap(returned_early))(NUMBERS), one_by_one(returned_early, NUMBERS))
    same(vmap(compile(returned_early))(NUMBERS), one_by_one(returned_early, NUMBERS))


def test_what_is_the_same_for_all() -> None:
    xs = weft.asarray([[1.0, 2.0], [-3.0, 0.5], [0.0, -1.0]], dtype="f8")
    w = weft.asarray([[0.5, -1.0], [0.25, 1.5]], dtype="f8")
    n = weft.asarray(0.5, dtype="f8")
    axes = (0, None, None)
    want = np.stack([shared(x, w, n).numpy() for x in xs])
    for way in (compile(vmap(shared, axes)), vmap(compile(shared), axes)):
        np.testing.assert_allclose(way(xs, w, n).numpy(), want)
    want = sum(grad(lambda w, x=x: shared(x, w, n).sum())(w).numpy() for x in xs)
    for captured in (
        compile(grad(lambda w: vmap(shared, axes)(xs, w, n).sum())),
        grad(lambda w: vmap(compile(shared), axes)(xs, w, n).sum()),
    ):
        np.testing.assert_allclose(captured(w).numpy(), want)


def test_a_loop_without_choices_is_one_node() -> None:
    def sums(x: Any) -> Any:
        for i in range(50):
            x = x * 0.9 + i
        return x

    captured = compile(vmap(sums))
    same(captured(NUMBERS), one_by_one(sums, NUMBERS))
    assert len(captured.recordings) == 1
    (graph,) = captured.paths()
    assert [node.op.name for node in graph.nodes].count("scan") == 1


def test_results_whose_sizes_differ_are_refused() -> None:
    def halves(x: Any) -> Any:
        found = [x]
        while x > 1:
            x = x / 2
            found.append(x)
        return weft.stack(found)

    for way in (compile(vmap(halves)), vmap(compile(halves))):
        with pytest.raises(ShapeError, match="its size depends on values"):
            way(NUMBERS)


def test_python_is_told_what_to_do() -> None:
    """Not captured, Python's own `if` cannot go two ways; a function that writes cannot, either."""
    with pytest.raises(CaptureError, match=r"weft\.compile\(weft\.vmap\(f\)\)"):
        vmap(guarded_root)(NUMBERS)
    seen: list[int] = []

    def noted(x: Any) -> Any:
        if x > 0:
            x = x * 2
        seen.append(1)
        return x

    def as_int(x: Any) -> Any:
        return x * int(x)

    rows = {noted: "return what it writes instead", as_int: "keep to tensors"}
    for function, match in rows.items():
        for way in (compile(vmap(function)), vmap(compile(function))):
            with pytest.raises(CaptureError, match=match):
                way(NUMBERS)
    assert not seen


# --- random numbers ------------------------------------------------------------------------------


def walk(x: Any) -> Any:
    n = x * 0
    while n < x:
        n = n + x * weft.rand((), dtype="f8") / 4
    return n


def functional_walk(x: Any) -> Any:
    return weft.while_loop(lambda n: n < x, lambda n: n + x * weft.rand((), dtype="f8") / 4, x * 0)


def drawn(f: Function, xs: Any) -> tuple[list[Array], list[int]]:
    weft.manual_seed(3)
    return arrays(f(xs)), weft.get_rng_state().tolist()


def test_draws_of_python_loops_come_element_by_element() -> None:
    """As a Python loop over the elements draws; a backward draws nothing."""

    def twice(x: Any) -> Any:
        return grad(walk)(x) * grad(walk)(x)

    for f in (walk, grad(walk), grad(grad(walk)), twice):
        want = drawn(lambda xs, f=f: one_by_one(f, xs), NUMBERS)
        for way in (compile(vmap(f)), vmap(compile(f))):
            found = drawn(way, NUMBERS)
            same(found[0], want[0])
            assert found[1] == want[1]
    want = drawn(lambda xs: one_by_one(grad(walk), xs), NUMBERS)
    for way in (
        vmap(grad(compile(walk))),
        grad(summed(compile(walk))),
        compile(grad(summed(walk))),
    ):
        found = drawn(way, NUMBERS)
        same(found[0], want[0])
        assert found[1] == want[1]


def test_draws_of_functional_loops_come_step_by_step() -> None:
    """In all modes alike: a step draws for all elements, also for those that are done."""
    want = drawn(vmap(functional_walk), NUMBERS)
    alone = drawn(vmap(functional_walk), weft.asarray([0.5, 0.0, 0.0, 0.0, 0.0], dtype="f8"))
    assert alone[0][0][0] == want[0][0][0]  # nobody's numbers depend on what others do
    graph = weft.make_graph(vmap(functional_walk), NUMBERS)
    for way in (graph, weft.trace(vmap(functional_walk)), compile(vmap(functional_walk))):
        found = drawn(way, NUMBERS)
        same(found[0], want[0])
        assert found[1] == want[1]
    want = drawn(vmap(grad(functional_walk)), NUMBERS)
    for way in (compile(vmap(grad(functional_walk))), compile(grad(summed(functional_walk)))):
        found = drawn(way, NUMBERS)
        same(found[0], want[0])
        assert found[1] == want[1]


# --- all programs --------------------------------------------------------------------------------


class Case:
    """One program, and calls of one form, which are the elements."""

    def __init__(self, name: str, function: Function, rows: list[list[Any]], spec: Any) -> None:
        self.name = name
        self.function = function
        self.spec = spec
        self.first = rows[0]
        self.places = [i for i, x in enumerate(self.first) if isinstance(x, Tensor)]
        self.xs = [weft.stack([row[i] for row in rows]) for i in self.places]
        floats = [self.first[i].dtype.kind == "float" for i in self.places]
        self.floats = tuple(n for n, is_float in enumerate(floats) if is_float)

    def call(self, *tensors: Tensor) -> Any:
        leaves = list(self.first)
        for i, x in zip(self.places, tensors, strict=True):
            leaves[i] = x
        args, kwargs = weft.tree_unflatten(self.spec, leaves)
        return self.function(*args, **kwargs)

    def loss(self, *tensors: Tensor) -> Any:
        leaves = weft.tree_leaves(self.call(*tensors))
        parts = [x for x in leaves if isinstance(x, Tensor) and x.dtype.kind == "float"]
        total = tensors[self.floats[0]].sum() * 0
        for i, x in enumerate(parts):
            weights = np.cos(np.arange(x.size) * 1.7 + i).reshape(x.shape)
            total = total + (x * weft.asarray(weights, dtype=x.dtype)).sum()
        return total


def forms(name: str, function: Function, calls: Sequence[Any]) -> Iterator[Case]:
    """The calls of a program by their form: those that can be elements of one vmap."""
    found: dict[Any, tuple[list[list[Any]], Any]] = {}
    for args, kwargs in calls:
        leaves, spec = weft.tree_flatten((args, kwargs))
        key = [str(x.type) if isinstance(x, Tensor) else repr(x) for x in leaves]
        found.setdefault((str(spec), *key), ([], spec))[0].append(leaves)
    for rows, spec in found.values():
        if len(rows) > 1 and any(isinstance(x, Tensor) for x in rows[0]):
            yield Case(name, function, rows, spec)


def cases() -> Iterator[Case]:
    for program in PROGRAMS:
        if SOURCE in program.supports and program.build is None:
            calls = [(call.args, call.kwargs) for call in program.calls()]
            yield from forms(program.name, program.make(), calls)
    for name, (function, inputs) in FUNCTIONAL.items():
        given = [
            [weft.asarray(x) if isinstance(x, int) else weft.asarray(x, dtype="f8") for x in row]
            for row in inputs
        ]
        yield from forms(name, function, [(tuple(row), {}) for row in given])
    for name, (function, rows) in TABLE.items():
        calls = [((weft.asarray(row, dtype="f8"),), {}) for row in rows]
        yield from forms(name, function, calls)


#: What cannot be mapped, and how the error says so.
IMPOSSIBLE = {
    "writes to an attribute in one branch": (CaptureError, "return what it writes instead"),
}
#: Whose gradient inside of vmap is another thing, as `requires_grad` is of one element there.
ASKS_FOR_HISTORY = {"gradient_inside", "through a line search"}
CASES = {f"{i}-{case.name}": case for i, case in enumerate(cases())}


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    weft.manual_seed(5)
    with contextlib.redirect_stdout(io.StringIO()):
        yield


def outcome(function: Function, *xs: Tensor) -> Any:
    try:
        with quiet():
            return arrays(function(*xs))
    except Exception as error:
        return error


def check(way: Function, each: Function, *xs: Tensor) -> bool:
    """Compare with a Python loop; False where that raises an error."""
    want = outcome(lambda *xs: one_by_one(each, *xs), *xs)
    got = outcome(way, *xs)
    if isinstance(want, Exception):
        assert type(got) is type(want), (want, got)
        return False
    assert not isinstance(got, Exception), got
    same(got, want)
    return True


@pytest.mark.parametrize("name", CASES)
def test_a_program_for_all_elements(name: str) -> None:
    case = CASES[name]
    number = list(CASES).index(name)
    values = (compile(vmap(case.call)), vmap(compile(case.call)))[number % 2]
    if case.name in IMPOSSIBLE:
        kind, match = IMPOSSIBLE[case.name]
        with pytest.raises(kind, match=match):
            values(*case.xs)
        return
    if not check(values, case.call, *case.xs) or not case.floats:
        return
    each = grad(case.loss, case.floats)
    ways = [lambda: compile(vmap(each)), lambda: vmap(compile(each))]
    if case.name not in ASKS_FOR_HISTORY:
        ways += [
            lambda: compile(grad(summed(case.loss), case.floats)),
            lambda: grad(summed(compile(case.loss)), case.floats),
            lambda: vmap(grad(compile(case.loss), case.floats)),
        ]
    check(ways[number % len(ways)](), each, *case.xs)
