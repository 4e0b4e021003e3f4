"""Indexing, convolutions, layers and random numbers with sizes that are not known.

What the tables in `support/samples` do not hold; and each op's type rule is reached by one of all.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from nn_samples.table import values
from numpy_indices import INDICES, X
from op_calls import flat
from samples import ROWS
from symbolic import Concolic, check_derivatives, close, is_symbolic, mapped, numbers, symbolic
from symbolic_rows import AMBIGUOUS_DERIVATIVES, outcome

import weft
import weft.nn.functional as F
from weft.autodiff.custom_op import _CUSTOM
from weft.base.dims import as_dim, substitute
from weft.core.bind import bind, recording
from weft.errors import IndexError, ShapeError
from weft.ir.op import OPS, Trait
from weft.ir.types import TensorType
from weft.ops.generator import default_generator

B, H = weft.dim("B"), weft.dim("H")

# --- indexing ----------------------------------------------------------------------------------


#: The number of True elements of a mask, or its size, only happens to be what it has to be.
FITS_BY_CHANCE = {"(array([ True,  True]), array([0, 2]))", "[True, False]"}


@pytest.mark.parametrize("names", [{2: "P"}, {3: "Q"}, {4: "R"}, {2: "P", 3: "Q", 4: "R"}], ids=str)
@pytest.mark.parametrize("index", INDICES, ids=str)
def test_reading_and_writing_parts(index: Any, names: dict[int, str]) -> None:
    shape = tuple(weft.dim(names[n]) if n in names else n for n in X.shape)
    x = weft.asarray(X.astype(np.float64))
    recorder = Concolic({name: size for size, name in names.items()})
    plain = mapped(index, lambda p: weft.asarray(p) if isinstance(p, np.ndarray) else p)

    def tensor(part: Any) -> Any:
        if not isinstance(part, np.ndarray):
            return part
        fit = part.dtype == bool  # masks have the sizes of the axes they index
        sizes = tuple(weft.dim(names[n]) if fit and n in names else n for n in part.shape)
        return symbolic(weft.asarray(part), sizes)

    given = mapped(index, tensor)
    if str(index) in FITS_BY_CHANCE:
        pytest.skip("a mask of fixed size for an unknown one")
    with recording(recorder):
        read = symbolic(x, shape)[given]
        written = symbolic(x, shape)
        written[given] = 7.0
    close(read, x[plain])
    x[plain] = 7.0
    close(written, x)
    for call in recorder.calls:
        check_derivatives(recorder, call, {})


@pytest.mark.parametrize(
    ("index", "shape"),
    [
        (slice(1, None), "max(B-1,0)"),
        (slice(None, -1), "max(B-1,0)"),
        (slice(1, -1), "max(B-2,0)"),
        (slice(None, 3), "min(B,3)"),
        (slice(-2, None), "min(B,2)"),
        (slice(None, None, 2), "(B+1)//2"),
        (slice(None, None, -1), "B"),
        (slice(None, None, -3), "(B+2)//3"),
        (slice(B, None), "0"),
        (slice(0, B), "B"),
        (slice(None, B // 2), "B//2"),
        (slice(B // 2, None), "(B+1)//2"),
        (slice(None, H), "min(B,H)"),
        (slice(2, 1), "0"),
    ],
)
def test_lengths_of_slices(index: slice, shape: str) -> None:
    getitem = OPS["getitem"].infer(TensorType(weft.float32, (B,)), index=index)
    assert str(getitem) == f"f32[{shape}]"


def test_parts_that_add_up() -> None:
    kind = TensorType(weft.float32, (B, 4))
    for cut in (3, -2, B // 3, H):
        parts = [OPS["getitem"].infer(kind, index=s) for s in (slice(cut), slice(cut, None))]
        assert OPS["concat"].infer(*parts, axis=0) == kind


def test_indices_out_of_range() -> None:
    getitem = OPS["getitem"].infer
    short = TensorType(weft.float32, (weft.dim("S", max=3),))
    assert getitem(short, index=2).shape == ()  # it may be in range: the kernel will see
    assert getitem(short, index=weft.dim("S") - 1).shape == ()
    with pytest.raises(IndexError, match="index 3 is out of range for an axis of size S"):
        getitem(short, index=3)
    with pytest.raises(ShapeError, match="the length of the slice B-H: is not known"):
        getitem(TensorType(weft.float32, (B,)), index=slice(B - H, None))


# --- layers ------------------------------------------------------------------------------------

SIZES = {"B": 5, "H": 9, "W": 8, "C": 3, "T": 2}


def max_pool_backward(x: weft.Tensor) -> Any:
    """What the gradient of a pooling is made of: a function with derivatives of its own."""
    attrs = {"kernel": (2,), "stride": (2,), "padding": ((0, 0),), "dilation": (1,)}
    out = bind(OPS["max_pool"], x, **attrs)
    return bind(OPS["max_pool_input"], out, x, out, **attrs)


#: (label, function, shapes of its operands)
CALLS: list[tuple[Any, ...]] = [
    ("linear", F.linear, ("B", "T", "C"), ("W", "C"), ("W",)),
    ("bilinear", F.bilinear, ("B", 2), ("B", 3), (4, 2, 3)),
    ("conv1d", F.conv1d, ("B", "C", "W"), (4, "C", 3)),
    ("conv1d of one", F.conv1d, ("C", "W"), (4, "C", 3), (4,)),
    ("conv2d", lambda x, w: F.conv2d(x, w, stride=2, padding=1), ("B", 4, "H", "W"), (2, 4, 3, 3)),
    ("conv2d same", lambda x, w: F.conv2d(x, w, padding="same"), ("B", 1, "H", "W"), (2, 1, 4, 3)),
    (
        "conv2d in groups",
        lambda x, w, b: F.conv2d(x, w, b, groups=2, dilation=2, stride=(1, 3)),
        *(("B", 4, "H", "W"), (6, 2, 2, 2), (6,)),
    ),
    (
        "conv_transpose2d",
        lambda x, w: F.conv_transpose2d(x, w, stride=2, padding=1, output_padding=1),
        *(("B", "C", "H", "W"), ("C", 2, 3, 3)),
    ),
    ("max_pool2d", lambda x: F.max_pool2d(x, 2), ("B", "C", "H", "W")),
    ("max_pool2d ceil", lambda x: F.max_pool2d(x, 3, 2, 1, ceil_mode=True), ("B", 1, "H", "W")),
    ("max_pool1d far", lambda x: F.max_pool1d(x, 2, 5, ceil_mode=True), ("B", 1, "H")),
    ("max_pool1d at", lambda x: F.max_pool1d(x, 2, return_indices=True), ("B", "C", "W")),
    ("max_pool backward", max_pool_backward, ("B", "C", "2*W")),
    ("avg_pool2d", lambda x: F.avg_pool2d(x, 2), ("B", "C", "H", "W")),
    ("avg_pool2d padded", lambda x: F.avg_pool2d(x, 3, 2, 1), ("B", "C", "H", "W")),
    (
        "avg_pool2d without padding",
        lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False),
        ("B", "C", "H", "W"),
    ),
    ("adaptive_avg_pool2d", lambda x: F.adaptive_avg_pool2d(x, 1), ("B", "C", "H", "W")),
    ("adaptive_avg_pool2d mixed", lambda x: F.adaptive_avg_pool2d(x, (1, 3)), ("B", "C", "H", 7)),
    ("adaptive_avg_pool1d", lambda x: F.adaptive_avg_pool1d(x, 3), ("B", "C", "H")),
    ("adaptive_max_pool2d", lambda x: F.adaptive_max_pool2d(x, (None, 1)), ("B", "C", "H", "W")),
    ("softplus", F.softplus, ("B", "C")),
    ("layer_norm", lambda x, w: F.layer_norm(x, (4,), w), ("B", "T", 4), (4,)),
    ("rms_norm", lambda x, w: F.rms_norm(x, (4,), w), ("B", "T", 4), (4,)),
    ("group_norm", lambda x: F.group_norm(x, 2), ("B", 4, "H")),
    ("instance_norm", F.instance_norm, ("B", "C", "H")),
    ("batch_norm", lambda x: F.batch_norm(x, None, None, training=True), ("B", "C", "H")),
    ("mse_loss", F.mse_loss, ("B", "C"), ("B", "C")),
    ("cross_entropy soft", F.cross_entropy, ("B", "C"), ("B", "C")),
    ("kl_div", lambda x, y: F.kl_div(x, y, reduction="batchmean"), ("B", "C"), ("B", "C")),
    ("binary_cross_entropy", lambda x, y: F.binary_cross_entropy(F.sigmoid(x), F.sigmoid(y)),
     ("B", "C"), ("B", "C")),
    ("cosine_similarity", F.cosine_similarity, ("B", "C"), ("B", "C")),
    ("glu", F.glu, ("B", 6)),
    ("attention", F.scaled_dot_product_attention, ("B", "H", 4), ("B", "W", 4), ("B", "W", 3)),
    (
        "attention causal",
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        *(("B", "T", "H", 4),) * 3,
    ),
    ("pad", lambda x: F.pad(x, (1, 2, 0, 1)), ("B", "H", "W")),
    ("pad cropped", lambda x: F.pad(x, (-1, 2)), ("B", "H")),
    ("pad circular", lambda x: F.pad(x, (1, 2), mode="circular"), ("B", "C", 5)),
    ("lstm_gates", lambda g, c: bind(OPS["lstm_gates"], g, c)[0], ("B", "4*C"), ("B", "C")),
    ("gru_gates", lambda *all: bind(OPS["gru_gates"], *all), *(("B", "3*C"),) * 2, ("B", "C")),
    ("divided by a size", lambda x: x / x.shape[0] + x.shape[1] - 2, ("B", "C")),
    ("size first", lambda x: x.shape[0] - x.shape[1] * x, ("B", "C")),
    ("full of a size", lambda x: weft.full(2, x.shape[0]) * weft.asarray(x.shape[1]), ("B", "C")),
]  # fmt: skip


#: The same with targets or indices from 0 to 2 as their last operand.
CALLS += [
    ("cross_entropy", F.cross_entropy, ("B", "C"), ("classes", "B")),
    ("cross_entropy each", lambda x, y: F.cross_entropy(x, y, reduction="none"), ("B", "C", "H"),
     ("classes", "B", "H")),
    ("nll_loss", F.nll_loss, ("B", "C"), ("classes", "B")),
    ("embedding", lambda w, i: F.embedding(i, w), ("C", "T"), ("classes", "B", "H")),
    ("embedding padded", lambda w, i: F.embedding(i, w, padding_idx=1), (3, "T"), ("classes", "B")),
]  # fmt: skip


def operand(shape: tuple[Any, ...], seed: int) -> tuple[weft.Tensor, tuple[Any, ...]]:
    """A tensor of numbers, and its shape in symbols."""
    whole = shape[:1] == ("classes",)
    sizes = tuple(as_dim(size) for size in shape[whole:])
    known = substitute(sizes, SIZES)
    array = values(*known, seed=seed)
    if whole:
        array = np.abs(array * 17).astype(np.int64) % 3
    return weft.asarray(array), sizes


def traced(function: Any, shapes: tuple[Any, ...]) -> Concolic:
    """The function on symbolic sizes and on numbers, with the derivatives of all op calls."""
    recorder = Concolic(dict(SIZES))
    operands = [operand(shape, seed) for seed, shape in enumerate(shapes)]
    with recording(recorder):
        got = function(*(symbolic(x, shape) for x, shape in operands))
    want = function(*(x for x, _ in operands))
    for mine, theirs in zip(flat(got), flat(want), strict=True):
        close(mine, theirs)
    for call in list(recorder.calls):
        if is_symbolic(call):
            check_derivatives(recorder, call, {})
    return recorder


@pytest.mark.parametrize("row", CALLS, ids=lambda row: row[0])
def test_call(row: Any) -> None:
    _, function, *shapes = row
    traced(function, tuple(shapes))


@pytest.mark.parametrize(
    ("function", "shapes", "says"),
    [
        (lambda x, y: x + y, (("B",), ("H",)), "cannot be shown that they are equal"),
        (lambda x, y: x @ y, (("B", "C"), ("H", 2)), "the inner sizes differ: C and H: it cannot"),
        (lambda x: x.reshape(-1, 3), (("B",),), "no size for -1"),
        (lambda x: list(x), (("B",),), "the size B is not known as a number"),
        (lambda x: x.squeeze(0), (("B",),), "axis 0 has size B, not 1"),
        (lambda x: weft.unstack(x), (("B",),), "not known how many tensors"),
        (lambda x, w: F.conv1d(x, w, groups=2), (("B", "C", 4), (2, 3, 3)), "do not divide"),
        (lambda x: x[:: x.shape[0] - 4], (("B",),), "the length of the slice"),
        (lambda x: x + 0.5 * x.shape[0], (("B",),), "the size B is not known as a number"),
    ],
)
def test_what_cannot_be_said(function: Any, shapes: Any, says: str) -> None:
    operands = [operand(shape, 0) for shape in shapes]
    with recording(Concolic(dict(SIZES))), pytest.raises(ShapeError, match=says):
        function(*(symbolic(x, shape) for x, shape in operands))


# --- random numbers and optimizers -------------------------------------------------------------


@pytest.fixture
def _seeded() -> Iterator[None]:
    """The default generator gets its own state back after a recording wrote to it."""
    saved = default_generator._state._data
    weft.manual_seed(0)
    yield
    default_generator._state._data = saved


DRAWS = [
    lambda b: weft.rand(b, 3),
    lambda b: weft.randn((3, b)),
    lambda b: weft.randint(0, 10, (b, b)),
    lambda b: weft.bernoulli(0.5, (b,)),
    lambda b: weft.permutation(b),
    lambda b: weft.permutation(weft.zeros((2, b)), axis=1),
    lambda b: weft.normal(weft.zeros(b), 1.0),
    lambda b: weft.uniform(0, 2, (b,)),
    lambda b: F.dropout(weft.ones((b, 4))),
    lambda b: weft.poisson(2.0, (b,)),
    lambda b: weft.random.binomial(10, 0.5, (b,)),
    lambda b: weft.random.gamma(weft.ones(b)),
]


@pytest.mark.usefixtures("_seeded")
@pytest.mark.parametrize("draw", DRAWS)
def test_random_numbers(draw: Any) -> None:
    want = draw(5)
    used = default_generator._state.tolist()
    weft.manual_seed(0)
    recorder = Concolic({"B": 5})
    with recording(recorder):
        got = draw(B)
    close(got, want)
    assert numbers(default_generator._state).tolist() == used


UPDATES = [op for name, op in OPS.items() if name.endswith("_update")]


@pytest.mark.parametrize("op", UPDATES, ids=lambda op: op.name)
def test_update_rules(op: Any) -> None:
    kind = TensorType(weft.float32, (B, 2 * H))
    numbers = ("step", "lr", "mu_product", "eta", "mu")
    types = [kind.like(shape=()) if name in numbers else kind for name in op.inputs]
    out = op.infer(*types, **dict.fromkeys(op.attrs))
    made = out if isinstance(out, tuple) else (out,)
    assert made == tuple(types[: op.outputs])
    assert op.estimate(tuple(types), made).bytes > 0


# --- completeness ------------------------------------------------------------------------------

#: Ops without sizes that could be symbolic, or that only a recording makes.
NO_SIZES = {
    *("constant", "random_advance", "assume_shape", "token", "function_1", "fence", "named"),
    "sent",
    # of two equal shapes, or of the rule of where
    *("with_gradient_of", "fits_int64", "python_defined", "choose", "only_where"),
}
TESTED_ELSEWHERE = {
    "choice_weights",  # test_multinomial.py
    "to_device",  # test_registration.py
    "log_gamma_slope",  # of two operands, by the rule of all such ops
}


@pytest.mark.usefixtures("_seeded")
def test_every_type_rule_is_asked_about_symbolic_sizes() -> None:
    seen = {op.name for op in UPDATES}
    for row in ROWS:
        for recorder, call in outcome(row).calls:
            check_derivatives(recorder, call, AMBIGUOUS_DERIVATIVES)
            seen |= {call[0].name} | recorder.derived
    recorders = [traced(function, tuple(shapes)) for _, function, *shapes in CALLS]
    for draw in DRAWS:
        recorders.append(Concolic({"B": 5}))
        with recording(recorders[-1]):
            draw(B)
    written = Concolic({"B": 5})
    with recording(written):
        x = symbolic(weft.zeros(5), (B,))
        x[weft.asarray([0, 1])] = 1.0
        x.detach()
    for recorder in (*recorders, written):
        seen |= {call[0].name for call in recorder.calls if is_symbolic(call)} | recorder.derived
    more = Trait.EFFECT | Trait.COLLECTIVE  # the latter: tests/distributed/test_ranks.py
    ours = [op for op in OPS.values() if op.infer.__module__.startswith("weft.")]
    ours = [op for op in ours if op.name not in _CUSTOM]  # other tests may have made some
    asked = {op.name for op in ours if not op.nested and not op.traits & more}
    stacks = {op.name for op in OPS.values() if Trait.STACK in op.traits}
    missing = asked - seen - stacks - NO_SIZES - TESTED_ELSEWHERE
    assert not missing, f"no symbolic size reaches the type rules of {sorted(missing)}"
