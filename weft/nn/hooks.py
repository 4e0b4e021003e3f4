"""Hooks on modules: functions of the user's that are called before and after forward and backward.

Gradients are caught at two gates around forward: identities, of which the one on the results meets
the gradients first, and the one on the arguments last.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from weft.autodiff.function import Function
from weft.base.errors import GradientError
from weft.core.structure import changed
from weft.core.tensor import Tensor


@dataclass(eq=False)
class HookEntry:
    """A registered hook. One function may be registered twice: entries compare by identity."""

    hook: Callable[..., Any]
    with_kwargs: bool = False
    always: bool = False


@dataclass(eq=False)
class ModuleHooks:
    """The hooks of one module, in the order in which they are called."""

    forward_pre: list[HookEntry] = field(default_factory=list)
    forward: list[HookEntry] = field(default_factory=list)
    backward_pre: list[HookEntry] = field(default_factory=list)
    backward: list[HookEntry] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.forward_pre or self.forward or self.backward_pre or self.backward)


class HookHandle:
    """Takes a hook away again: `handle.remove()`, or leaving it as a context."""

    def __init__(
        self,
        module: Any,
        kind: str,
        hook: Callable[..., Any],
        *,
        prepend: bool = False,
        with_kwargs: bool = False,
        always: bool = False,
    ) -> None:
        if module._module_hooks is None:
            module._module_hooks = ModuleHooks()
        self._module = module
        self._hooks: list[HookEntry] = getattr(module._module_hooks, kind)
        self._entry = HookEntry(hook, with_kwargs, always)
        self._hooks.insert(0 if prepend else len(self._hooks), self._entry)
        changed()

    def remove(self) -> None:
        """Take the hook away; a second time changes nothing."""
        self._hooks[:] = [kept for kept in self._hooks if kept is not self._entry]
        if not self._module._module_hooks:
            self._module._module_hooks = None
        changed()

    def __enter__(self) -> HookHandle:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.remove()


def call_with_hooks(
    module: Any, hooks: ModuleHooks, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Call a module that has hooks."""
    for entry in tuple(hooks.forward_pre):
        if entry.with_kwargs:
            changed_to = entry.hook(module, args, kwargs)
            if changed_to is not None:
                args, kwargs = changed_to
        else:
            changed_to = entry.hook(module, args)
            if changed_to is not None:
                args = changed_to if isinstance(changed_to, tuple) else (changed_to,)
    gates = _Gates(module, hooks) if hooks.backward or hooks.backward_pre else None
    pending = list(hooks.forward)
    try:
        result = module.forward(*(gates.enter(args) if gates else args), **kwargs)
        while pending:
            result = _after_forward(pending.pop(0), module, args, kwargs, result)
    except Exception:
        for entry in pending:
            if entry.always:
                _after_forward(entry, module, args, kwargs, None)
        raise
    return gates.leave(result) if gates else result


def _after_forward(
    entry: HookEntry, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
) -> Any:
    given = (args, kwargs) if entry.with_kwargs else (args,)
    changed_to = entry.hook(module, *given, result)
    return result if changed_to is None else changed_to


# --- backward ----------------------------------------------------------------------------------


class _Gate(Function):
    """An identity whose backward asks `passing` what becomes of the gradients."""

    @staticmethod
    def forward(ctx: Any, passing: Callable[..., Any], *tensors: Tensor) -> Any:
        ctx.passing = passing
        ctx.set_materialize_grads(False)
        return tensors

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return (None, *ctx.passing(grads))


class _Gates:
    """The two gates of one call of a module, and what they have seen."""

    def __init__(self, module: Any, hooks: ModuleHooks) -> None:
        self.module = module
        self.pre = tuple(hooks.backward_pre)
        self.hooks = tuple(hooks.backward)
        self.grad_output: tuple[Any, ...] | None = None  # while a gradient is inside
        self.guarded: list[int] = []  # which arguments pass the gate
        self.arguments = 0

    def enter(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        self.arguments = len(args)
        self.guarded = _wanting(args)
        return _through(args, self.guarded, self._pass_inputs)

    def leave(self, result: Any) -> Any:
        several = isinstance(result, (tuple, list))
        parts = tuple(result) if several else (result,)
        guarded = _wanting(parts)
        if not guarded:
            return result

        def passing(grads: tuple[Any, ...]) -> Any:
            return _picked(self._pass_outputs(_spread(grads, guarded, len(parts))), guarded)

        parts = _through(parts, guarded, passing)
        if not several:
            return parts[0]
        if hasattr(result, "_fields"):  # a named tuple
            return type(result)(*parts)
        return type(result)(parts)

    def _pass_outputs(self, grads: tuple[Any, ...]) -> tuple[Any, ...]:
        for entry in self.pre:
            grads = _replaced(grads, entry.hook(self.module, grads), "grad_output")
        if self.guarded:
            self.grad_output = grads
        else:  # no argument wants a gradient: nothing will come by the other gate
            for entry in self.hooks:
                entry.hook(self.module, (None,) * self.arguments, grads)
        return grads

    def _pass_inputs(self, grads: tuple[Any, ...]) -> Any:
        passed, self.grad_output = self.grad_output, None
        if passed is None:  # a second derivative, which did not come in by the results
            return grads
        whole = _spread(grads, self.guarded, self.arguments)
        for entry in self.hooks:
            told = entry.hook(self.module, whole, passed)
            whole = _replaced(whole, told, "grad_input")
        return _picked(whole, self.guarded)


def _wanting(values: tuple[Any, ...]) -> list[int]:
    return [i for i, v in enumerate(values) if isinstance(v, Tensor) and v._node is not None]


def _through(
    values: tuple[Any, ...], guarded: list[int], passing: Callable[..., Any]
) -> tuple[Any, ...]:
    """`values` with those numbered in `guarded` on the far side of a gate."""
    if not guarded:
        return values
    beyond = _Gate.apply(passing, *_picked(values, guarded))
    return tuple(
        beyond[guarded.index(i)] if i in guarded else value for i, value in enumerate(values)
    )


def _picked(values: tuple[Any, ...], numbers: list[int]) -> tuple[Any, ...]:
    return tuple(values[i] for i in numbers)


def _spread(grads: tuple[Any, ...], numbers: list[int], size: int) -> tuple[Any, ...]:
    whole: list[Any] = [None] * size
    for number, grad in zip(numbers, grads, strict=True):
        whole[number] = grad
    return tuple(whole)


def _replaced(old: tuple[Any, ...], new: Any, what: str) -> tuple[Any, ...]:
    if new is None:
        return old
    parts = new if isinstance(new, tuple) else (new,)
    if len(parts) != len(old):
        raise GradientError(f"a hook returned {len(parts)} parts of {what}, not {len(old)}")
    return parts
