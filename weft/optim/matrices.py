"""Optimizers that look at a weight as a matrix: Muon and Adafactor.

Their rules are plain ops on tensors, not cards: a compiled step fuses them like any other code.
"""

from __future__ import annotations

import math
from typing import Any

from weft.base.dtypes import NARROW_FLOATS, float32
from weft.core.operands import assign, cast
from weft.core.tensor import Tensor
from weft.ops.creation import zeros, zeros_like
from weft.ops.dtype_functions import finfo
from weft.ops.elementwise import maximum, minimum, sqrt
from weft.ops.matmul import matmul
from weft.ops.reduce import mean, sum
from weft.ops.shape import permute_dims
from weft.optim.optimizer import Group, OptimizerError, Params, new_count
from weft.optim.rate import rate_of
from weft.optim.rule_optimizer import RuleOptimizer


def _wide(x: Tensor) -> Tensor:
    return cast(x, float32) if x.dtype in NARROW_FLOATS else x


def _norm(x: Tensor) -> Tensor:
    return sqrt(sum(x * x))


def orthogonalized(
    x: Tensor, coefficients: tuple[float, float, float], steps: int, eps: float
) -> Tensor:
    """A matrix with the same singular vectors, and singular values near 1: Newton and Schulz."""
    a, b, c = coefficients
    tall = x.shape[0] > x.shape[1]
    q = permute_dims(x, (1, 0)) if tall else x
    q = q / maximum(_norm(q), eps)
    for _ in range(steps):
        gram = matmul(q, permute_dims(q, (1, 0)))
        q = a * q + matmul(b * gram + c * matmul(gram, gram), q)
    return permute_dims(q, (1, 0)) if tall else q


_ADJUST = {
    "original": lambda rows, columns: math.sqrt(max(1.0, rows / columns)),
    "match_rms_adamw": lambda rows, columns: 0.2 * math.sqrt(max(rows, columns)),
}


class Muon(RuleOptimizer):
    """Muon (Jordan and others, 2024): momentum, made orthogonal. For matrices only.

    Give biases, norms and embeddings to AdamW. The orthogonal matrix is found in the dtype of the
    parameter (float32 for narrower ones), where PyTorch computes in bfloat16: steps differ by
    about a hundredth. `adjust_lr_fn` is "original" or "match_rms_adamw".

    >>> w = weft.tensor([[3.0, 0.0], [0.0, 0.1]], requires_grad=True)
    >>> optimizer = weft.optim.Muon([w], lr=0.1, weight_decay=0.0)
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> bool(abs(w - weft.tensor([[2.9, 0.0], [0.0, 0.0]])).max() < 0.05)
    True
    """

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.775, 2.0315),
        eps: float = 1e-7,
        ns_steps: int = 5,
        adjust_lr_fn: str | None = None,
        **flags: Any,
    ) -> None:
        super().__init__(
            params,
            flags,
            lr=lr,
            weight_decay=weight_decay,
            momentum=momentum,
            nesterov=nesterov,
            ns_coefficients=tuple(ns_coefficients),
            eps=eps,
            ns_steps=ns_steps,
            adjust_lr_fn=adjust_lr_fn,
        )

    def _check_options(self, group: Group) -> None:
        self._at_least_zero(group, "lr", "weight_decay", "momentum")
        if (group["adjust_lr_fn"] or "original") not in _ADJUST:
            raise OptimizerError(
                f"adjust_lr_fn is one of {', '.join(_ADJUST)}, not {group['adjust_lr_fn']!r}",
                op="Muon",
            )
        for number, p in enumerate(group["params"]):
            if p.ndim != 2:
                raise OptimizerError(
                    f"parameter {number} ({p.type}) is no matrix",
                    op="Muon",
                    hint="give what has not 2 axes to another optimizer, such as AdamW",
                )

    def first_state(self, p: Tensor, state: dict[str, Any], group: Group) -> None:
        state["momentum_buffer"] = zeros_like(p)

    def update(self, p: Tensor, grad: Tensor, state: dict[str, Any], group: Group) -> None:
        if "momentum_buffer" not in state:
            self.first_state(p, state, group)
        momentum = group["momentum"]
        buffer = state["momentum_buffer"] + (1 - momentum) * (grad - state["momentum_buffer"])
        assign(state["momentum_buffer"], buffer, "Muon")
        ahead = grad + momentum * (buffer - grad) if group["nesterov"] else buffer
        turned = orthogonalized(
            _wide(ahead), group["ns_coefficients"], group["ns_steps"], group["eps"]
        )
        adjust = _ADJUST[group["adjust_lr_fn"] or "original"](*p.shape)
        rate = rate_of(p, group)
        value = p.detach() * (1 - rate * group["weight_decay"])
        assign(p, value - rate * adjust * cast(turned, p.dtype), "Muon")


class Adafactor(RuleOptimizer):
    """Adafactor (Shazeer and Stern, 2018): mean squares of a matrix as one row and one column.

    Its state is as small as the sides of the matrix. Steps are relative to the size of the weights
    (at least eps[1]) and limited to d times their root mean square.
    """

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-2,
        beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0,
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
        **flags: Any,
    ) -> None:
        super().__init__(
            params,
            flags,
            lr=lr,
            beta2_decay=beta2_decay,
            eps=tuple(eps),
            d=d,
            weight_decay=weight_decay,
            maximize=maximize,
        )

    def _check_options(self, group: Group) -> None:
        self._at_least_zero(group, "lr", "weight_decay")
        if group["d"] < 1 or group["beta2_decay"] > 0:
            raise OptimizerError(
                f"d is at least 1 and beta2_decay at most 0, not {group['d']} and "
                f"{group['beta2_decay']}",
                op="Adafactor",
            )

    def first_state(self, p: Tensor, state: dict[str, Any], group: Group) -> None:
        state["step"] = new_count(p)
        place = {"dtype": p.dtype, "device": p.device}
        if p.ndim > 1:
            state["row_var"] = zeros((*p.shape[:-1], 1), **place)
            state["col_var"] = zeros((*p.shape[:-2], 1, p.shape[-1]), **place)
        else:
            state["variance"] = zeros_like(p)

    def update(self, p: Tensor, grad: Tensor, state: dict[str, Any], group: Group) -> None:
        if "step" not in state:
            self.first_state(p, state, group)
        assign(state["step"], state["step"] + 1, "Adafactor")
        t = cast(state["step"], p.dtype)
        rate, root = rate_of(p, group), math.sqrt(p.size)
        tiny, least = group["eps"]
        tiny = finfo(p.dtype).eps if tiny is None else tiny
        share = t ** group["beta2_decay"]
        value = p.detach()
        relative = maximum(_norm(value) / root, least) * minimum(rate, 1 / sqrt(t))
        if group["weight_decay"]:
            value = value * (1 - rate * group["weight_decay"])
        d = -grad if group["maximize"] else grad
        spread = self._spread(d * d, state, share, tiny)
        direction = d / sqrt(maximum(spread, tiny * tiny))
        limit = maximum(_norm(direction) / (root * group["d"]), 1.0)
        assign(p, value - direction * (relative / limit), "Adafactor")

    def _spread(self, squares: Tensor, state: dict[str, Any], share: Tensor, tiny: float) -> Tensor:
        """The running mean of the squares of the gradient, from its row and its column."""
        if squares.ndim < 2:
            variance: Tensor = state["variance"] + share * (squares - state["variance"])
            assign(state["variance"], variance, "Adafactor")
            return variance
        row, col = (
            state[name] + share * (mean(squares, axis=axis, keepdims=True) - state[name])
            for name, axis in (("row_var", -1), ("col_var", -2))
        )
        assign(state["row_var"], row, "Adafactor")
        assign(state["col_var"], col, "Adafactor")
        return matmul(row, col) / maximum(mean(row, axis=-2, keepdims=True), tiny)
