"""gather, scatter, ranks and running functions: values and gradients as PyTorch has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from peer import figures

import weft

RNG = np.random.default_rng(0)
X = RNG.standard_normal((4, 5))
SRC = RNG.standard_normal((3, 5))
SRC[0, 0] = SRC[1, 1] = SRC[1, 3] = 0  # products without a division
INDEX = np.array([[0, 1, 2, 3, 0], [0, 1, 1, 3, 0], [2, 1, 2, 0, 0]])  # with repeated positions
VECTOR = np.array([3, 0, 3])
MASK = np.array([[1, 0, 1, 1, 0], [0, 0, 1, 0, 1], [1, 1, 0, 0, 0], [0, 1, 0, 1, 1]], dtype=bool)
TIES = np.array([[2.0, 1, 2, 1, 0], [1, 1, 1, 1, 1], [3, 2, 1, 2, 3], [0, -0.0, 0, 5, 5]])
WITH_NAN = np.array([[2.0, np.nan, 3, np.nan, 0], [np.inf, -np.inf, 1, np.nan, 1]])

Call = tuple[Callable[..., Any], Callable[[Any], Callable[..., Any]], tuple[Any, ...]]

#: (ours, PyTorch's, the arrays)
CALLS: dict[str, Call] = {
    "gather": (
        lambda x, i: weft.gather(x, 0, i),
        lambda _: lambda x, i: x.gather(0, i),
        (X, INDEX),
    ),
    "scatter_add": (
        lambda x, i, s: weft.scatter_add(x, 0, i, s),
        lambda _: lambda x, i, s: x.scatter_add(0, i, s),
        (X, INDEX, SRC),
    ),
    "index_add": (
        lambda x, i, s: weft.index_add(x, 0, i, s, alpha=2),
        lambda _: lambda x, i, s: x.index_add(0, i, s, alpha=2),
        (X, VECTOR, SRC),
    ),
    "index_put": (
        lambda x, i, s: weft.index_put(x, (i,), s, accumulate=True),
        lambda _: lambda x, i, s: x.index_put((i,), s, accumulate=True),
        (X, VECTOR, SRC),
    ),
    "put": (
        lambda x, i, s: weft.put(x, i, s, accumulate=True),
        lambda _: lambda x, i, s: x.put(i, s, accumulate=True),
        (X, INDEX, SRC),
    ),
    "masked_scatter": (
        lambda x, m, s: weft.masked_scatter(x, m, s),
        lambda _: lambda x, m, s: x.masked_scatter(m, s),
        (X, MASK, SRC),
    ),
    "topk": (lambda x: weft.topk(x, 2), lambda t: lambda x: t.topk(x, 2), (X,)),
    "topk of NaN": (lambda x: weft.topk(x, 3)[0], lambda t: lambda x: t.topk(x, 3)[0], (WITH_NAN,)),
    "kthvalue": (lambda x: weft.kthvalue(x, 2), lambda t: lambda x: t.kthvalue(x, 2), (X,)),
    "mode": (lambda x: weft.mode(x).values, lambda t: lambda x: t.mode(x).values, (TIES,)),
    "quantile": (
        lambda x: weft.quantile(x, [0.3, 0.8], axis=1),
        lambda t: lambda x: t.quantile(x, t.tensor([0.3, 0.8], dtype=t.float64), dim=1),
        (X,),
    ),
    "nanquantile": (
        lambda x: weft.nanquantile(x, 0.6, axis=1),
        lambda t: lambda x: t.nanquantile(x, 0.6, dim=1),
        (np.where(MASK, X, np.nan),),
    ),
    "cummax": (lambda x: weft.cummax(x, 1), lambda t: lambda x: t.cummax(x, 1), (TIES,)),
    "cummin of NaN": (lambda x: weft.cummin(x, 1), lambda t: lambda x: t.cummin(x, 1), (WITH_NAN,)),
    "logcumsumexp": (
        lambda x: weft.logcumsumexp(x, 1),
        lambda t: lambda x: t.logcumsumexp(x, 1),
        (500 * X,),
    ),
    "einsum": (
        lambda x, s: weft.einsum("ij,kj,ij->ki", x, s, x),
        lambda t: lambda x, s: t.einsum("ij,kj,ij->ki", x, s, x),
        (X, SRC),
    ),
    "histc": (
        lambda x: weft.histc(x, 6, -1.5, 1.5),
        lambda t: lambda x: t.histc(x, 6, -1.5, 1.5),
        (X,),
    ),
    "bincount": (
        lambda i, s: weft.bincount(weft.reshape(i, (15,)), weft.reshape(s, (15,)), 6),
        lambda t: lambda i, s: t.bincount(i.reshape(15), s.reshape(15), 6),
        (INDEX, SRC),
    ),
    "unique_consecutive": (
        lambda x: weft.unique_consecutive(x, True, True),
        lambda t: lambda x: t.unique_consecutive(x, return_inverse=True, return_counts=True),
        (TIES,),
    ),
}
for _reduce in ("sum", "prod", "mean", "amax", "amin"):
    for _self in (True, False):
        CALLS[f"scatter_reduce {_reduce} {_self}"] = (
            lambda x, i, s, r=_reduce, own=_self: weft.scatter_reduce(
                x, 0, i, s, r, include_self=own
            ),
            lambda _, r=_reduce, own=_self: (
                lambda x, i, s: x.scatter_reduce(0, i, s, r, include_self=own)
            ),
            # With ties. PyTorch lets x share the gradient of a tie even where it does not count.
            (np.round(X) if _self else X, INDEX, np.round(SRC)),
        )

#: PyTorch has no gradient for these, or raises.
NO_GRADIENT = {"histc", "bincount", "unique_consecutive", "mode"}


def parts(result: Any) -> list[Any]:
    return list(result) if isinstance(result, tuple) else [result]


def peer_work(name: str) -> Callable[[Any], dict[str, Any]]:
    def work(torch: Any) -> dict[str, Any]:
        _, theirs, arrays = CALLS[name]
        wants = name not in NO_GRADIENT
        tensors = [torch.tensor(a, requires_grad=wants and a.dtype.kind == "f") for a in arrays]
        found = parts(theirs(torch)(*tensors))
        out = {f"out{n}": part for n, part in enumerate(found)}
        if wants:
            weights = torch.cos(torch.arange(found[0].numel(), dtype=torch.float64))
            (found[0] * weights.reshape(found[0].shape)).nansum().backward()
            out |= {f"g{n}": t.grad for n, t in enumerate(tensors) if t.grad is not None}
        return out

    return work


@pytest.mark.parametrize("backend", ["eager", "native"])
@pytest.mark.parametrize("name", CALLS)
def test_as_in_pytorch(name: str, backend: str) -> None:
    ours, _, arrays = CALLS[name]
    want = figures(f"scatter_{name.replace(' ', '_')}", peer_work(name))
    given = [weft.asarray(a) for a in arrays]

    def loss(*operands: Any) -> Any:
        first = parts(ours(*operands))[0]
        weights = weft.reshape(weft.cos(weft.arange(first.size, dtype=weft.float64)), first.shape)
        return weft.sum(weft.where(weft.isnan(first), 0, first * weights))

    numbers = tuple(n for n in range(len(arrays)) if f"g{n}" in want)
    gradient = weft.grad(loss, argnums=numbers) if numbers else None
    if backend == "native":
        ours = weft.compile(ours, backend="native")
        gradient = weft.compile(gradient, backend="native") if gradient else None
    for n, part in enumerate(parts(ours(*given))):
        np.testing.assert_allclose(part.numpy(), want[f"out{n}"], rtol=1e-12, atol=1e-12)
    for n, g in zip(numbers, parts(gradient(*given)) if gradient else [], strict=True):
        np.testing.assert_allclose(g.numpy(), want[f"g{n}"], rtol=1e-9, atol=1e-12, err_msg=name)
