"""The numbers of a group of parameters that schedules change, as update rules take them."""

from __future__ import annotations

from typing import Any

from weft.core.changing_numbers import number_in
from weft.core.operands import cast, paired
from weft.core.tensor import Tensor


def option_of(group: dict[str, Any], name: str) -> Any:
    """An option of a group; of a pair, each number is read by itself: a schedule may change one."""
    if name != "betas":
        return group[name]
    first, second = group[name]
    return first, second


def rate_of(p: Tensor, group: dict[str, Any]) -> Tensor:
    """A learning rate as a 0-d tensor of a parameter's dtype: an operand of the rule."""
    number = number_in(group, "lr")
    if isinstance(number, Tensor):
        return cast(number, p.dtype).to_device(p.device)
    found = paired(p, number)
    assert found is not None  # every floating dtype holds Python's floats
    return found
