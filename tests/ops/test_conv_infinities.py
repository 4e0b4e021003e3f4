"""Infinities and NaN in convolutions: the padding is zeros that are multiplied like any number, and
a gradient of the input is the sum of just the terms that there are. In every mode."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from conv_cases import NONE, ONE, SHAPES
from emitted import Case, build_cases, eager, narrower
from peer import figures

import weft
import weft.nn.functional as F
from weft.codegen.conv import EMITTERS
from weft.codegen.machine import host
from weft.ir.op import OPS

Array = np.ndarray[Any, Any]

#: As in `SHAPES`: batch, channels, sizes, outputs, kernel, stride, padding, dilation, groups.
CASES: dict[str, tuple[Any, ...]] = {
    **{
        label: SHAPES[label]
        for label in (
            *("valid", "1x1", "by 2", "by 3 and 2, dilated", "by 4", "longer strides than kernels"),
            *("depthwise", "depthwise, two each", "asymmetric", "skipped", "much padding"),
            *("one axis", "three axes", "one result"),
        )
    },
    "same": (2, 3, (6, 7), 4, (3, 3), (1, 1), ONE, (1, 1), 1),
    "same, few outputs": (2, 8, (6, 7), 2, (3, 3), (1, 1), ONE, (1, 1), 1),
    "same, many outputs": (1, 2, (5, 6), 32, (3, 3), (1, 1), ONE, (1, 1), 1),
    "dilated": (1, 4, (9, 8), 3, (3, 3), (1, 1), ((2, 2), (2, 2)), (2, 2), 1),
    "groups": (2, 4, (6, 5), 6, (3, 2), (1, 1), ONE, (1, 1), 2),
    "1x1, padded": (1, 3, (4, 5), 4, (1, 1), (1, 1), ONE, (1, 1), 1),
    "1x1, padded, by 2": (1, 3, (4, 5), 4, (1, 1), (2, 2), ONE, (1, 1), 1),
    "few rows": (1, 5, (2, 9), 2, (3, 3), (1, 1), ONE, (1, 1), 1),
    "windows of padding only": (1, 6, (3, 4), 2, (2, 2), (1, 1), ((3, 3), (3, 3)), (1, 1), 1),
    "no padding": (2, 6, (6, 5), 2, (3, 3), (1, 1), NONE, (1, 1), 1),
}  # fmt: skip
#: Which of the two operands has numbers that are not finite.
WHERE = {"first": (True, False), "second": (False, True), "both": (True, True)}


def _counts(label: str) -> tuple[int, ...]:
    """How many windows there are along each axis."""
    _, _, sizes, _, kernel, stride, padding, dilation, _ = CASES[label]
    return tuple(
        (size + sum(pad) - d * (k - 1) - 1) // s + 1
        for size, k, s, pad, d in zip(sizes, kernel, stride, padding, dilation, strict=True)
    )


def oracle(op: str, one: Array, two: Array, label: str) -> Array:
    """Tap by tap, in float64, with a padding that is part of x."""
    batch, channels, sizes, outputs, kernel, stride, padding, dilation, groups = CASES[label]
    one, two = one.astype(np.float64), two.astype(np.float64)
    each, per, axes = channels // groups, outputs // groups, len(sizes)
    added = [(max(low, 0), max(high, 0)) for low, high in padding]
    # Where x lies in what is padded, and which part of x does: not all, where it is less than 0.
    inner = tuple(
        slice(low, size + low + min(high, 0) + min(pad[0], 0))
        for size, (low, _), high, pad in zip(
            sizes, added, (pad[1] for pad in padding), padding, strict=True
        )
    )
    taken = tuple(
        slice(max(-low, 0), size + min(high, 0))
        for size, (low, high) in zip(sizes, padding, strict=True)
    )
    spatial = tuple(size + sum(pad) for size, pad in zip(sizes, padding, strict=True))
    padded = np.zeros((batch, channels, *spatial))
    shapes = {"conv": (batch, outputs, *_counts(label)), "conv_weight": (outputs, each, *kernel)}
    out = np.zeros(shapes.get(op, padded.shape))
    if op != "conv_input":
        padded[(..., *inner)] = one[(..., *taken)]
    ones = (1,) * axes
    with np.errstate(all="ignore"):
        for g, tap in itertools.product(range(groups), np.ndindex(*kernel)):
            read = (
                slice(k * d, k * d + (count - 1) * s + 1, s)
                for k, d, s, count in zip(tap, dilation, stride, _counts(label), strict=True)
            )
            xs = (slice(None), slice(g * each, (g + 1) * each), *read)
            own = slice(g * per, (g + 1) * per)
            if op == "conv_weight":
                terms = two[:, own, None] * padded[xs][:, None]
                out[(own, slice(None), *tap)] = terms.sum((0, *range(3, 3 + axes)))
                continue
            w = two[(own, slice(None), *tap)].reshape(1, per, each, *ones)
            if op == "conv":
                out[:, own] += (padded[xs][:, None] * w).sum(2)
            else:
                out[xs] += (one[:, own, None] * w).sum(1)
    if op != "conv_input":
        return out
    x = np.zeros((batch, channels, *sizes))
    x[(..., *taken)] = out[(..., *inner)]
    return x


def _case(op: str, label: str, where: str) -> tuple[list[Array], dict[str, Any]]:
    batch, channels, sizes, outputs, kernel, stride, padding, dilation, groups = CASES[label]
    rng = np.random.default_rng([len(label), len(where)])
    attrs: dict[str, Any] = {
        "stride": stride, "padding": padding, "dilation": dilation, "groups": groups
    }  # fmt: skip
    shapes = {
        "x": (batch, channels, *sizes),
        "w": (outputs, channels // groups, *kernel),
        "y": (batch, outputs, *_counts(label)),
    }
    first, second = {"conv": "xw", "conv_input": "yw", "conv_weight": "xy"}[op]
    if op != "conv":
        attrs["size"] = sizes if op == "conv_input" else kernel
    arrays = [rng.standard_normal(shapes[name]).astype(np.float32) for name in (first, second)]
    for array, spoiled in zip(arrays, WHERE[where], strict=True):
        if spoiled:
            flat = array.reshape(-1)
            places = {0, flat.size - 1, *rng.integers(0, flat.size, 2).tolist()}
            for place in places:
                flat[place] = rng.choice([np.inf, -np.inf, np.nan])
    return arrays, attrs


def check(found: Array, wanted: Array, what: str) -> None:
    for kind in (np.isnan, np.isposinf, np.isneginf):
        np.testing.assert_array_equal(kind(found), kind(wanted), err_msg=f"{what}: {kind.__name__}")
    finite = np.isfinite(wanted)
    np.testing.assert_allclose(found[finite], wanted[finite], rtol=1e-4, atol=1e-4, err_msg=what)


OPERATORS = ("conv", "conv_input", "conv_weight")


@pytest.mark.parametrize("op", OPERATORS)
@pytest.mark.parametrize("label", CASES)
def test_kernels_and_rules(op: str, label: str) -> None:
    for where in WHERE:
        arrays, attrs = _case(op, label, where)
        with np.errstate(all="ignore"):
            (found,) = eager(op, arrays, attrs)
            by_rule = OPS[op].eval(np, *arrays, **attrs)
        wanted = oracle(op, *arrays, label)
        check(found, wanted, f"{where}, eager")
        check(by_rule, wanted, f"{where}, by the rule")


@pytest.mark.parametrize("width", [64, 16])
@pytest.mark.parametrize("op", OPERATORS)
def test_generated_code(op: str, width: int) -> None:
    if host().vector_bytes < width:
        pytest.skip(f"vectors of {host().vector_bytes} bytes are all there are here")
    built = {label: Case(op, *_case(op, label, "both")) for label in CASES}
    build_cases(list(built.values()), EMITTERS, narrower(width))
    for label, where in itertools.product(CASES, WHERE):
        case = built[label].on(*_case(op, label, where)[0])
        status, (found,) = case.run()
        assert status == 0
        wanted = oracle(op, *case.arrays, label)
        check(found, wanted, f"{label}, {where}")
        assert case.run(3)[1][0].tobytes() == found.tobytes()


def _spoiled() -> tuple[Array, Array]:
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((2, 4, 7, 6)), rng.standard_normal((6, 2, 3, 3))
    w[0, 0, 0, 0], w[3, 1, 2, 2], x[0, 1, 0, 3] = np.inf, np.nan, -np.inf
    return x.astype(np.float32), w.astype(np.float32)


def _grads(library: Any, conv: Any, x: Array, w: Array) -> list[Array]:
    given = [library.tensor(part, requires_grad=True) for part in (x, w)]
    y = conv(*given, stride=(1, 2), padding=1, groups=2)
    scale = library.tensor(np.arange(1, y.shape[-1] + 1, dtype=np.float32))
    grads = library.autograd.grad((y * scale).sum(), given)
    return [part.detach().numpy() for part in (y, *grads)]


def test_as_in_pytorch() -> None:
    x, w = _spoiled()
    names = ("y", "dx", "dw")

    def work(torch: Any) -> dict[str, Any]:
        found = _grads(torch, torch.nn.functional.conv2d, x, w)
        return dict(zip(names, found, strict=True))

    theirs = figures("conv_infinities", work)
    for name, mine in zip(names, _grads(weft, F.conv2d, x, w), strict=True):
        check(mine, theirs[name], name)


@pytest.mark.parametrize("backend", ["interpret", "native"])
def test_compiled_with_what_follows(backend: str) -> None:
    """Ops on the results in registers, bias, gradients: as eagerly."""
    x, w = (weft.asarray(part) for part in _spoiled())

    def loss(x: Any, w: Any) -> Any:
        y = F.conv2d(x, w, weft.arange(6) * 1.0, stride=1, padding=1, groups=2)
        return weft.tanh(y).sum() + weft.relu(F.conv_transpose2d(y, w, padding=1, groups=2)).sum()

    grads = weft.grad(loss, argnums=(0, 1))
    compiled = weft.compile(grads, backend=backend)
    for found, wanted in zip(compiled(x, w), grads(x, w), strict=True):
        check(found.numpy(), wanted.numpy(), backend)
