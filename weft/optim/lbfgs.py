"""L-BFGS: a quasi-Newton method for functions that are evaluated as a whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.core.grad_mode import enable_grad, no_grad
from weft.core.operands import as_number, assign, cast
from weft.core.tensor import Tensor
from weft.ops.creation import zeros
from weft.ops.elementwise import abs as absolute
from weft.ops.elementwise import negative
from weft.ops.reduce import max as largest
from weft.ops.shape import concat, reshape
from weft.optim.line_search import Point, strong_wolfe
from weft.optim.optimizer import Group, Optimizer, OptimizerError, Params


def _dot(x: Tensor, y: Tensor) -> float:
    return float(x @ y)


def _reach(x: Tensor) -> float:
    return float(largest(absolute(x)))


class LBFGS(Optimizer):
    """L-BFGS (Liu and Nocedal, 1989): `step(closure)` makes up to `max_iter` iterations.

    The closure computes the loss and its gradients, as often as it is asked. The last
    `history_size` changes of the gradient stand in for the second derivative. It stops where no
    gradient exceeds `tolerance_grad` or nothing changes by more than `tolerance_change`.
    `line_search_fn="strong_wolfe"` chooses the length of each step; otherwise it is `lr`.

    >>> x = weft.tensor([2.0, 2.0], requires_grad=True)
    >>> optimizer = weft.optim.LBFGS([x], line_search_fn="strong_wolfe")
    >>> def closure():
    ...     optimizer.zero_grad()
    ...     loss = ((x - 3) ** 2).sum()
    ...     loss.backward()
    ...     return loss
    >>> float(optimizer.step(closure)), x.tolist()
    (2.0, [3.0, 3.0])
    """

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search_fn: str | None = None,
    ) -> None:
        options = {
            "lr": lr,
            "max_iter": max_iter,
            "max_eval": max_iter * 5 // 4 if max_eval is None else max_eval,
            "tolerance_grad": tolerance_grad,
            "tolerance_change": tolerance_change,
            "history_size": history_size,
            "line_search_fn": line_search_fn,
        }
        super().__init__(params, options)

    def _check_options(self, group: Group) -> None:
        self._at_least_zero(group, "lr")
        if self.param_groups:
            raise OptimizerError("LBFGS has one group of parameters", op="LBFGS")
        if group["line_search_fn"] not in (None, "strong_wolfe"):
            raise OptimizerError(
                f"there is no line search {group['line_search_fn']!r}",
                op="LBFGS",
                hint='say line_search_fn="strong_wolfe", or None for steps of length lr',
            )
        if any(p.dtype.kind != "float" for p in group["params"]):
            raise OptimizerError("LBFGS optimizes real floating tensors", op="LBFGS")

    @property
    def _params(self) -> list[Tensor]:
        params: list[Tensor] = self.param_groups[0]["params"]
        return params

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Make up to `max_iter` iterations; returns the loss before the first."""
        if closure is None:
            raise OptimizerError(
                "LBFGS evaluates the loss several times a step",
                op="LBFGS",
                hint="optimizer.step(closure), where closure() computes the loss and its gradients",
            )
        with no_grad():
            return self._minimize(enable_grad()(closure))

    def _minimize(self, closure: Callable[[], Any]) -> Any:
        group = self.param_groups[0]
        state = self.state[self._params[0]]
        state.setdefault("func_evals", 0)
        state.setdefault("n_iter", 0)
        first_loss = closure()
        loss, grad = float(first_loss), self._gradient()
        state["func_evals"] += 1
        evaluations = 1
        if _reach(grad) <= group["tolerance_grad"]:
            return first_loss
        tolerance = group["tolerance_change"]
        lr = as_number(group["lr"], "LBFGS")
        for iteration in range(1, group["max_iter"] + 1):
            state["n_iter"] += 1
            d = self._direction(state, grad, group["history_size"])
            first = state["n_iter"] == 1
            t = min(1.0, 1.0 / float(absolute(grad).sum())) * lr if first else lr
            state |= {"d": d, "t": t, "prev_flat_grad": grad, "prev_loss": loss}
            slope = _dot(grad, d)
            if slope > -tolerance:
                break
            last = iteration == group["max_iter"]
            before, count = loss, 0
            if group["line_search_fn"] is not None:
                start = Point(0.0, loss, grad, slope)
                most = group["max_eval"] - evaluations
                found, count = strong_wolfe(self._along(closure, d), start, t, _reach(d), most)
                t, loss, grad = found.t, found.loss, found.grad
                self._move(t, d)
            else:
                self._move(t, d)
                if not last:  # nobody would use it
                    loss, count = float(closure()), 1
                    grad = self._gradient()
            state["t"] = t
            evaluations += count
            state["func_evals"] += count
            if (
                last
                or evaluations >= group["max_eval"]
                or _reach(grad) <= group["tolerance_grad"]
                or _reach(d * t) <= tolerance
                or abs(loss - before) < tolerance
            ):
                break
        return first_loss

    def _direction(self, state: dict[str, Any], grad: Tensor, history_size: int) -> Tensor:
        """Minus the approximate inverse of the second derivative times the gradient."""
        if state["n_iter"] == 1:
            state |= {"old_dirs": [], "old_stps": [], "ro": [], "H_diag": 1.0}
            return negative(grad)
        ys, ss, ro = state["old_dirs"], state["old_stps"], state["ro"]
        y = grad - state["prev_flat_grad"]
        s = state["d"] * state["t"]
        product = _dot(y, s)
        if product > 1e-10:
            if len(ys) == history_size:
                for memory in (ys, ss, ro):
                    memory.pop(0)
            ys.append(y)
            ss.append(s)
            ro.append(1.0 / product)
            state["H_diag"] = product / _dot(y, y)
        q: Tensor = negative(grad)
        weights: list[float] = []
        for y, s, r in zip(reversed(ys), reversed(ss), reversed(ro), strict=True):
            weights.append(_dot(s, q) * r)
            q = q - y * weights[-1]
        q = q * state["H_diag"]
        for y, s, r, weight in zip(ys, ss, ro, reversed(weights), strict=True):
            q = q + s * (weight - _dot(y, q) * r)
        return q

    def _along(self, closure: Callable[[], Any], d: Tensor) -> Callable[[float], Point]:
        """The function along a direction; the parameters are put back after each evaluation."""
        saved = [p.clone() for p in self._params]

        def evaluate(t: float) -> Point:
            self._move(t, d)
            loss, grad = float(closure()), self._gradient()
            for p, value in zip(self._params, saved, strict=True):
                assign(p, value, "LBFGS")
            return Point(t, loss, grad, _dot(grad, d))

        return evaluate

    def _gradient(self) -> Tensor:
        """All gradients in one row; zeros for parameters that have none."""
        parts = [
            zeros(p.size, dtype=p.dtype, device=p.device)
            if p.grad is None
            else reshape(p.grad, (-1,))
            for p in self._params
        ]
        return concat(parts)

    def _move(self, t: float, d: Tensor) -> None:
        """p += t * d for each parameter and its part of d."""
        start = 0
        for p in self._params:
            part = cast(reshape(d[start : start + p.size], p.shape), p.dtype)
            assign(p, p + part * t, "LBFGS")
            start += p.size
