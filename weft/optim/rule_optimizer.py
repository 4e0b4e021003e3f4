"""Optimizers whose step is one update rule (`weft.ops.update_rules`) for each parameter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.core.tensor import Tensor
from weft.ir.op import Op
from weft.ops.creation import zeros_like
from weft.ops.update_rules import apply
from weft.optim.optimizer import Group, Optimizer, OptimizerError, Params, new_count
from weft.optim.rate import option_of, rate_of

#: Flags of PyTorch's optimizers that say how to run, not what to compute. Each step is one op call
#: per parameter, and a compiled step one program: there is nothing to choose.
_MEANINGLESS = ("foreach", "fused", "capturable")


class RuleOptimizer(Optimizer):
    """Base of Weft's own optimizers.

    _rule    the card of the update; its operands are the parameter, its state (with the number of
             steps last, if it counts them), the gradient and the learning rate
    _state   the names of the state, in the order of these operands, without "step"
    """

    _rule: Op
    _state: Sequence[str] = ()

    def __init__(self, params: Params, flags: dict[str, Any], **options: Any) -> None:
        """`flags` are arguments that only PyTorch's optimizers need; `options` the defaults."""
        for name, value in flags.items():
            if name == "differentiable":
                if value:
                    raise OptimizerError(
                        "steps are not differentiated",
                        op=self._name,
                        hint="compute the new parameters by hand, with weft.grad and "
                        "functional_call",
                    )
            elif name not in _MEANINGLESS:
                raise TypeError(f"{self._name} has no option {name!r}")
        super().__init__(params, options)

    def rule_of(self, group: Group) -> tuple[Op, Sequence[str]]:
        """The rule and the names of the state for the options of a group."""
        return self._rule, self._state

    def first_value(self, name: str, p: Tensor, group: Group) -> Tensor:
        """The value of a state before the first step."""
        return zeros_like(p)

    def attrs_of(self, rule: Op, group: Group) -> dict[str, Any]:
        """The attributes of the rule, from the options of a group."""
        return {name: option_of(group, name) for name in rule.attrs}

    def first_state(self, p: Tensor, state: dict[str, Any], group: Group) -> None:
        rule, names = self.rule_of(group)
        if "step" in rule.inputs and "step" not in state:
            state["step"] = new_count(p)
        for name in names:
            if name not in state:
                state[name] = self.first_value(name, p, group)

    def update(self, p: Tensor, grad: Tensor, state: dict[str, Any], group: Group) -> None:
        rule, names = self.rule_of(group)
        self.first_state(p, state, group)
        operands = [state[name] for name in names]
        if "step" in rule.inputs:
            operands.append(state["step"])
        operands.append(grad)
        if "lr" in rule.inputs:
            operands.append(rate_of(p, group))
        apply(rule, p, *operands, **self.attrs_of(rule, group))
