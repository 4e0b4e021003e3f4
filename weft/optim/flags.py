"""Flags of PyTorch's optimizers that say how to run, not what to compute."""

from __future__ import annotations

from typing import Any

from weft.optim.optimizer import OptimizerError

#: Each step is one op call per parameter, and a compiled step one program: nothing to choose.
_MEANINGLESS = ("foreach", "fused", "capturable")


def accept(flags: dict[str, Any], optimizer: str) -> None:
    """Pass over flags that have no meaning here; refuse others."""
    for name, value in flags.items():
        if name == "differentiable":
            if value:
                raise OptimizerError(
                    "steps are not differentiated",
                    op=optimizer,
                    hint="compute the new parameters by hand, with weft.grad and functional_call",
                )
        elif name not in _MEANINGLESS:
            raise TypeError(f"{optimizer} has no option {name!r}")
