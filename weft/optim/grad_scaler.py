"""GradScaler: a scaled loss, so that gradients in float16 do not vanish; steps that overflow are
skipped."""

from __future__ import annotations

from typing import Any

from weft.base.errors import DTypeError, RangeError
from weft.base.pytree import tree_map
from weft.core.counted import Counted
from weft.core.grad_mode import no_grad
from weft.core.tensor import Tensor
from weft.ops.creation import full, zeros
from weft.ops.elementwise import isfinite, logical_and, logical_not
from weft.ops.reduce import all
from weft.ops.select import where
from weft.optim.optimizer import Optimizer, OptimizerError

#: An optimizer whose gradients were unscaled since the last update, whether they were finite, and
#: whether its step was taken.
Unscaled = tuple[Optimizer, Tensor, bool]


class GradScaler(Counted):
    """Scales losses up and gradients down again; skips steps whose gradients are inf or NaN.

    Small gradients are zeros in float16. So the loss is multiplied by a scale before its backward,
    and gradients are divided by it before the step. Where a gradient overflows, the scale is too
    large: the step is skipped, and the scale made smaller. After `growth_interval` steps without
    that it grows. With bfloat16 none of this is needed.

    In a compiled step all of it is part of the graph; whether to skip is decided by the data.

    >>> w = weft.tensor([1.0, 2.0], requires_grad=True)
    >>> optimizer = weft.optim.SGD([w], lr=0.5)
    >>> scaler = weft.amp.GradScaler(init_scale=4.0)
    >>> for factor in (1.0, float("inf")):
    ...     optimizer.zero_grad()
    ...     scaler.scale((w * factor).sum()).backward()
    ...     scaler.step(optimizer)
    ...     scaler.update()
    ...     print(w.tolist(), scaler.get_scale())
    [0.5, 1.5] 4.0
    [0.5, 1.5] 2.0
    """

    def __init__(
        self,
        device: Any = None,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        if not growth_factor > 1.0:
            raise RangeError(
                f"the scale grows by a factor above 1, not {growth_factor}", op="GradScaler"
            )
        if not 0.0 < backoff_factor < 1.0:
            raise RangeError(
                f"the scale shrinks by a factor between 0 and 1, not {backoff_factor}",
                op="GradScaler",
            )
        self._enabled = bool(enabled)
        self._growth_factor = float(growth_factor)
        self._backoff_factor = float(backoff_factor)
        self._growth_interval = int(growth_interval)
        self._scale = full((), float(init_scale), dtype="float32")
        self._growth_tracker = zeros((), dtype="int32")
        self._unscaled: list[Unscaled] = []

    def scale(self, outputs: Any) -> Any:
        """A loss, or a list, tuple or dict of them, multiplied by the scale."""
        if not self._enabled:
            return outputs
        return tree_map(lambda x: x * self._scale, outputs)

    def unscale_(self, optimizer: Optimizer) -> None:
        """Divide the gradients of an optimizer by the scale: before they are clipped, say.

        `step` does it where it was not done before.
        """
        if not self._enabled:
            return
        if optimizer in [found[0] for found in self._unscaled]:
            raise OptimizerError(
                "the gradients of this optimizer were unscaled already since the last update()",
                op="GradScaler.unscale_",
                hint="call unscale_() once for each step, before step(), and update() at the end",
            )
        with no_grad():
            finite = full((), True, dtype="bool")
            factor = 1.0 / self._scale
            for group in optimizer.param_groups:
                for p in group["params"]:
                    if p.grad is not None:
                        grad = p.grad * factor.astype(p.grad.dtype)
                        finite = logical_and(finite, all(isfinite(grad)))
                        p.grad = grad
        self._unscaled = [*self._unscaled, (optimizer, finite, False)]

    def step(self, optimizer: Optimizer, *args: Any, **kwargs: Any) -> Any:
        """The optimizer's step, if all gradients are finite."""
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if "closure" in kwargs or (args and args[0] is not None):
            raise DTypeError(
                "a closure computes gradients that are not scaled",
                op="GradScaler.step",
                hint="call backward() and step(optimizer) without one",
            )
        if optimizer not in [found[0] for found in self._unscaled]:
            self.unscale_(optimizer)
        number = [found[0] for found in self._unscaled].index(optimizer)
        _, finite, stepped = self._unscaled[number]
        if stepped:
            raise OptimizerError(
                "step() was called already for this optimizer since the last update()",
                op="GradScaler.step",
                hint="call update() after the steps of an iteration",
            )
        self._unscaled = [
            (*found[:2], i == number or found[2]) for i, found in enumerate(self._unscaled)
        ]
        if finite:
            optimizer.step()
        return None

    def update(self, new_scale: float | Tensor | None = None) -> None:
        """Adapt the scale to what the steps since the last update saw; or set it."""
        if not self._enabled:
            return
        if new_scale is not None:
            value = new_scale if isinstance(new_scale, Tensor) else full((), float(new_scale))
            self._scale = value.detach().astype("float32")
        else:
            self._adapt()
        self._unscaled = []

    def _adapt(self) -> None:
        if not self._unscaled:
            raise OptimizerError(
                "no gradients were unscaled since the last update()",
                op="GradScaler.update",
                hint="call step(optimizer), or unscale_(optimizer), before update()",
            )
        with no_grad():
            finite = full((), True, dtype="bool")
            for _, one, _ in self._unscaled:
                finite = logical_and(finite, one)
            steps = self._growth_tracker + 1
            grows = logical_and(finite, steps == self._growth_interval)
            grown = self._scale * self._growth_factor
            larger = where(logical_and(grows, isfinite(grown)), grown, self._scale)
            self._scale = where(finite, larger, self._scale * self._backoff_factor)
            self._growth_tracker = where(logical_and(finite, logical_not(grows)), steps, 0)

    # --- what it is ---------------------------------------------------------------------------

    def get_scale(self) -> float:
        """The scale as a number; 1 if the scaler is off."""
        return float(self._scale.item()) if self._enabled else 1.0

    def is_enabled(self) -> bool:
        return self._enabled

    def get_growth_factor(self) -> float:
        return self._growth_factor

    def set_growth_factor(self, new_factor: float) -> None:
        self._growth_factor = float(new_factor)

    def get_backoff_factor(self) -> float:
        return self._backoff_factor

    def set_backoff_factor(self, new_factor: float) -> None:
        self._backoff_factor = float(new_factor)

    def get_growth_interval(self) -> int:
        return self._growth_interval

    def set_growth_interval(self, new_interval: int) -> None:
        self._growth_interval = int(new_interval)

    def state_dict(self) -> dict[str, Any]:
        """The scale and how it changes, as numbers; empty if the scaler is off."""
        if not self._enabled:
            return {}
        return {
            "scale": self.get_scale(),
            "growth_factor": self._growth_factor,
            "backoff_factor": self._backoff_factor,
            "growth_interval": self._growth_interval,
            "_growth_tracker": int(self._growth_tracker.item()),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from what `state_dict` gave, here or in PyTorch."""
        if not self._enabled:
            return
        if not state_dict:
            raise OptimizerError(
                "the state dict is empty: it was made by a scaler that is off",
                op="GradScaler.load_state_dict",
            )
        self._scale = full((), float(state_dict["scale"]), dtype="float32")
        self._growth_factor = float(state_dict["growth_factor"])
        self._backoff_factor = float(state_dict["backoff_factor"])
        self._growth_interval = int(state_dict["growth_interval"])
        self._growth_tracker = full((), int(state_dict["_growth_tracker"]), dtype="int32")

    def __repr__(self) -> str:
        state = f"scale={self.get_scale()}" if self._enabled else "enabled=False"
        return f"GradScaler({state})"
