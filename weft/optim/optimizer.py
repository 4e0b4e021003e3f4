"""Optimizer: parameters in groups, their state, and the loop over them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from weft.base.errors import DTypeError, WeftError
from weft.base.source import with_role
from weft.core.bind import recorder
from weft.core.changing_numbers import prepared_by
from weft.core.counted import Counted, CountedDict, CountedList, CountedState
from weft.core.grad_mode import enable_grad, no_grad
from weft.core.operands import as_number
from weft.core.parts import Parts, lying_as
from weft.core.quiet import quietly
from weft.core.symbolic import SymbolicArray
from weft.core.tensor import Tensor, labelled, wrap
from weft.ops.creation import asarray, zeros, zeros_like
from weft.ops.update_rules import SCALARS

Group = dict[str, Any]
Params = Iterable[Tensor] | Iterable[Group] | Iterable[tuple[str, Tensor]]


class OptimizerError(WeftError, ValueError):
    """Parameters, options or a state that an optimizer cannot work with."""


def new_count(p: Tensor) -> Tensor:
    """The number of steps of a parameter, before the first."""
    count = zeros((), dtype="float32", device=p.device)
    return labelled(count, p._result_class)


class Optimizer(Counted):
    """Base of all optimizers. `weft.optim.SGD` and its like are the ones to use.

    params      tensors, (name, tensor) pairs, or groups: dicts with "params" and options that
                differ from the defaults
    defaults    the options of groups that do not say otherwise

    An optimizer of your own overrides `update`, which is called for each parameter that has a
    gradient, with gradients off; or `step` as a whole.

    Its lists and dicts tell when they are changed, so that a captured step need not look at them
    at each call.
    """

    def __init__(self, params: Params, defaults: dict[str, Any]) -> None:
        self.defaults = defaults
        self.state: dict[Tensor, dict[str, Any]] = CountedState()
        self.param_groups: list[Group] = CountedList()
        if isinstance(params, Tensor):
            raise DTypeError(
                "parameters are given as an iterable, not as one tensor",
                op=self._name,
                hint="write [x] in place of x",
            )
        if hasattr(params, "parameters"):
            raise DTypeError(
                f"parameters are given as an iterable, not as a module ({type(params).__name__})",
                op=self._name,
                hint="pass model.parameters()",
            )
        given = list(params)
        if not given:
            raise OptimizerError(
                "there are no parameters",
                op=self._name,
                hint="pass model.parameters(); a generator that was used before is empty",
            )
        groups: list[Any] = list(given) if isinstance(given[0], dict) else [{"params": given}]
        for group in groups:
            self.add_param_group(group)

    @property
    def _name(self) -> str:
        return type(self).__name__

    # --- parameters ---------------------------------------------------------------------------

    def add_param_group(self, group: Group) -> None:
        """Optimize more parameters, with options of their own: {"params": …, "lr": 0.1}."""
        if not isinstance(group, dict) or "params" not in group:
            raise DTypeError(
                f"a parameter group is a dict with the key 'params', not {group!r:.60}",
                op=self._name,
            )
        params = group["params"]
        if isinstance(params, (set, frozenset)):
            raise DTypeError(
                "the order of a set changes from run to run", op=self._name, hint="use a list"
            )
        listed = [params] if isinstance(params, Tensor) else list(params)
        names = [entry[0] for entry in listed if isinstance(entry, tuple)]
        if names and len(names) != len(listed):
            raise OptimizerError("some parameters have names and some have none", op=self._name)
        tensors = [entry[1] if isinstance(entry, tuple) else entry for entry in listed]
        self._check_params(tensors)
        added = CountedDict({**self.defaults, **group, "params": CountedList(tensors)})
        if names:
            added["param_names"] = names
        self._check_options(added)
        self.param_groups.append(added)

    def _check_params(self, tensors: list[Any]) -> None:
        known = {id(p) for group in self.param_groups for p in group["params"]}
        for number, p in enumerate(tensors):
            if not isinstance(p, Tensor):
                raise DTypeError(
                    f"parameters are tensors, and number {number} is {type(p).__name__} {p!r:.60}",
                    op=self._name,
                )
            if not p.is_leaf:
                raise OptimizerError(
                    f"parameter {number} ({p.type}) is the result of an op: it has no gradient of "
                    "its own, and a new value would be lost",
                    op=self._name,
                    hint="optimize the tensors that it was computed from, or x.detach()",
                )
            if id(p) in known:
                raise OptimizerError(
                    f"parameter {number} ({p.type}) is given twice: it would be updated twice",
                    op=self._name,
                    hint="list a shared parameter once",
                )
            known.add(id(p))

    def _check_options(self, group: Group) -> None:
        """Raise an error where an option of a group is out of its range."""

    def _at_least_zero(self, group: Group, *options: str) -> None:
        for option in options:
            if not as_number(group[option], self._name) >= 0:
                raise OptimizerError(
                    f"{option} must not be negative: {group[option]}", op=self._name
                )

    def _below_one(self, group: Group, option: str) -> None:
        for number in group[option]:
            if not 0 <= number < 1:
                raise OptimizerError(
                    f"{option} are numbers from 0 up and below 1: {group[option]}", op=self._name
                )

    # --- steps --------------------------------------------------------------------------------

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget all gradients, or set them to zeros."""
        for group in self.param_groups:
            for p in group["params"]:
                if set_to_none:
                    p.grad = None
                elif p.grad is not None:
                    p.grad = zeros_like(p.grad)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update all parameters that have a gradient. `closure`, if given, computes the loss."""
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        with no_grad():
            if recorder() is None:
                quietly(self._update_all)
            else:
                with with_role("update"):  # what is recorded says what it is for
                    quietly(self._update_all)
        return loss

    @prepared_by("_first_states")
    def _update_all(self) -> None:
        for group in self.param_groups:
            keeps = self.keeps_state(group)
            for p in group["params"]:
                grad = p.grad
                if grad is not None:
                    self.update(p, grad, self.state[p] if keeps else {}, group)

    def _first_states(self, *, always: bool = False) -> list[Tensor]:
        """Make what is kept for the parameters that have a gradient (or `always`) and were never
        updated, which come back. Where a step is recorded, it is made before, so that the first
        step is as all."""
        made: list[Tensor] = []
        for group in self.param_groups:
            if not self.keeps_state(group):
                continue
            for p in group["params"]:
                if (always or p.grad is not None) and not self.state.get(p):
                    first: dict[str, Any] = CountedDict()
                    known = p._data.__class__ is not SymbolicArray
                    like = p if known else _zeros_like(p)
                    self.first_state(like, first, group)
                    if first:
                        self.state[p] = first
                        made.append(p)
        return made

    def first_state(self, p: Tensor, state: dict[str, Any], group: Group) -> None:
        """Fill `state` with what is kept for a parameter before its first step, as far as that is
        known without its gradient."""

    def keeps_state(self, group: Group) -> bool:
        """Whether the rule of a group keeps something for each parameter."""
        return True

    def update(self, p: Tensor, grad: Tensor, state: dict[str, Any], group: Group) -> None:
        """Give one parameter and its state new values. `state` is empty the first time."""
        raise NotImplementedError(f"{self._name} has no update rule")

    # --- the state as a dict ------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """The state and the options, with a number for each parameter: {"state", "param_groups"}.

        Its tensors keep their values whatever the optimizer does next.
        """
        numbers = {
            id(p): number
            for number, p in enumerate(p for group in self.param_groups for p in group["params"])
        }
        state = {
            numbers[id(p)]: {key: _copy(value) for key, value in kept.items()}
            for p, kept in self.state.items()
            if id(p) in numbers
        }
        groups = [
            {key: _copy(value) for key, value in group.items() if key != "params"}
            | {"params": [numbers[id(p)] for p in group["params"]]}
            for group in self.param_groups
        ]
        return {"state": state, "param_groups": groups}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from what `state_dict` gave, here or in PyTorch."""
        saved = _checked(state_dict, self._name)
        if len(saved) != len(self.param_groups):
            raise OptimizerError(
                f"the state dict has {len(saved)} parameter groups, "
                f"the optimizer {len(self.param_groups)}",
                op=self._name,
            )
        by_number: dict[Any, Tensor] = {}
        for i, (group, theirs) in enumerate(zip(self.param_groups, saved, strict=True)):
            if len(theirs["params"]) != len(group["params"]):
                raise OptimizerError(
                    f"group {i} of the state dict has {len(theirs['params'])} parameters, "
                    f"the optimizer's {len(group['params'])}",
                    op=self._name,
                    hint="make the optimizer of the same parameters in the same order",
                )
            by_number.update(zip(theirs["params"], group["params"], strict=True))
        state = CountedState()
        for number, kept in state_dict["state"].items():
            if number not in by_number:
                raise OptimizerError(
                    f"the state dict has state for parameter {number}, which no group names",
                    op=self._name,
                )
            p = by_number[number]
            restored = {key: _restored(value, p, key, self._name) for key, value in kept.items()}
            state[p] = CountedDict(restored)
        for group, theirs in zip(self.param_groups, saved, strict=True):
            group |= {key: _copy(value) for key, value in theirs.items() if key != "params"}
        self.state = state

    def __repr__(self) -> str:
        lines = [f"{self._name} ("]
        for i, group in enumerate(self.param_groups):
            sizes = sum(p.size for p in group["params"])
            lines.append(f"Parameter Group {i}: {len(group['params'])} tensors, {sizes} numbers")
            options = {k: v for k, v in sorted(group.items()) if k not in ("params", "param_names")}
            lines += [f"    {option}: {value}" for option, value in options.items()]
        return "\n".join([*lines, ")"])


def _zeros_like(p: Tensor) -> Tensor:
    """Numbers for a parameter whose own are not known."""
    made = zeros(p.shape, dtype=p.dtype, device=p.device)
    return labelled(made, p._result_class)


def _checked(state_dict: Any, name: str) -> list[Group]:
    """The groups of a state dict, which must look like one."""
    if not isinstance(state_dict, dict) or not {"state", "param_groups"} <= set(state_dict):
        raise OptimizerError(
            "a state dict of an optimizer has the keys 'state' and 'param_groups'",
            op=name,
            hint="give what optimizer.state_dict() returned; a model has a state dict of its own",
        )
    groups: list[Group] = state_dict["param_groups"]
    return groups


def _copy(value: Any) -> Any:
    """A value that later changes of the original do not reach."""
    if isinstance(value, Tensor):
        data = value._data  # ops refuse a part of this rank
        return wrap(data.copy()) if data.__class__ is Parts else value.clone()
    return [_copy(part) for part in value] if isinstance(value, list) else value


def _restored(value: Any, p: Tensor, key: str, name: str) -> Any:
    """A saved value of a parameter's state: tensors take the dtype and device of the parameter."""
    if isinstance(value, list):
        return [_restored(part, p, key, name) for part in value]
    if isinstance(value, Tensor) or hasattr(value, "__array__"):
        tensor = _copy(value) if isinstance(value, Tensor) else asarray(np.asarray(value))
        if p._data.__class__ is Parts or tensor._data.__class__ is Parts:
            return wrap(lying_as(tensor._data, p._data))
        if key not in SCALARS and tensor.dtype.kind == "float":
            tensor = tensor.astype(p.dtype, copy=False)
        if tensor.ndim and tensor.size == p.size and tensor.shape != p.shape:
            raise OptimizerError(
                f"the saved {key} has shape {tensor.shape}, its parameter {p.shape}", op=name
            )
        return tensor.to_device(p.device)
    return value
