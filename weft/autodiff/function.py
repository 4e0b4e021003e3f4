"""Steps of your own: `Function`, with a backward in Python, and `custom_op`, a new primitive."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.autodiff.node import (
    FREED,
    Node,
    RemovableHandle,
    as_array,
    count,
    freed,
    given_data,
    hook_result,
    locate,
    part_of,
    tensor_of,
)
from weft.autodiff.recorded_function import record_call
from weft.autodiff.tape import anomaly
from weft.autodiff.transforms.custom import CustomCall, call_custom
from weft.autodiff.transforms.levels import innermost_level
from weft.autodiff.transforms.trees import FLOATS
from weft.base.errors import ShapeError
from weft.core.bind import recorder
from weft.core.grad_mode import enable_grad, is_grad_enabled, no_grad
from weft.core.tensor import Tensor, labelled, result_class_of, wrap
from weft.ops.creation import zeros
from weft.ops.effects import Same, value_key

__all__ = ["Function"]


class Context:
    """What `forward` hands to `backward`: saved tensors, and any attribute you set."""

    def __init__(self, needs_input_grad: tuple[bool, ...]) -> None:
        self.needs_input_grad = needs_input_grad
        self._saved: tuple[Any, ...] = ()
        self._given: tuple[Any, ...] = ()
        self._constant: list[Tensor] = []
        self._materialize = True
        self._class = Tensor  # of which class tensors are that backward is given
        self._name = ""  # of the node; the node itself would be a cycle that only the GC breaks

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Keep tensors for the backward, as `ctx.saved_tensors`."""
        self._given = tensors

    def mark_non_differentiable(self, *tensors: Tensor) -> None:
        """Say that these results pass no gradient."""
        self._constant.extend(tensors)

    def set_materialize_grads(self, value: bool) -> None:
        """With False, results that got no gradient are None in backward instead of zeros."""
        self._materialize = value

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        if self._saved is FREED:
            raise freed(self._name)
        made = tuple(None if s is None else tensor_of(*s) for s in self._saved)
        return labelled(made, self._class)


class FunctionNode(Node):
    """A call of a Function."""

    __slots__ = ("context", "function", "types")

    context: Context
    function: type[Function]
    types: list[Any]

    @property
    def outputs(self) -> int:  # type: ignore[override]
        return len(self.types)

    def name(self) -> str:
        return f"{self.function.__name__}Backward"

    def frees(self) -> bool:
        return bool(self.context._saved)

    def apply(
        self, g: Any, create: bool, keep: bool, wanted: tuple[bool, ...] | None
    ) -> Sequence[Any]:
        given = g if isinstance(g, tuple) else (g,)
        with enable_grad() if create else no_grad():
            grads = [
                self._materialized(part, kind) for part, kind in zip(given, self.types, strict=True)
            ]
            results = self.function.backward(self.context, *grads)
        if self.context._saved and not keep:
            self.context._saved = FREED
        parts = _one_each(results, len(self.edges), self.name())
        return [part if create else given_data(part) for part in parts]

    def _materialized(self, part: Any, kind: Any) -> Any:
        if part is not None:
            made = part if isinstance(part, Tensor) else wrap(as_array(part))
            return labelled(made, self.context._class)
        if not self.context._materialize:
            return None
        return zeros(kind.shape, dtype=kind.dtype, device=kind.device)


def _one_each(results: Any, count: int, name: str) -> list[Any]:
    """What a backward returned: one gradient for each argument."""
    parts = list(results) if isinstance(results, (tuple, list)) else [results]
    if len(parts) != count:
        raise ShapeError(
            f"backward returned {len(parts)} gradients for {count} inputs",
            op=name,
            hint="return one for each argument of forward; None for those without",
        )
    return parts


class Function:
    """A step with a backward of your own. Subclass it, and call `apply`.

    >>> class Square(weft.Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         ctx.save_for_backward(x)
    ...         return x * x
    ...     @staticmethod
    ...     def backward(ctx, grad):
    ...         (x,) = ctx.saved_tensors
    ...         return 2 * x * grad
    >>> x = weft.tensor(3.0, requires_grad=True)
    >>> y = Square.apply(x)
    >>> y.backward()
    >>> y, x.grad
    (tensor(9., grad_fn=<SquareBackward>), tensor(6.))
    """

    @staticmethod
    def forward(ctx: Any, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError("a Function needs a static method forward(ctx, ...)")

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise NotImplementedError("this Function has no static method backward(ctx, *grads)")

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """Call `forward`, and have `backward` called when the gradient comes back."""
        if innermost_level() is not None:
            return _apply_on_level(cls, args, kwargs)
        edges = tuple(arg._node if isinstance(arg, Tensor) else None for arg in args)
        needs = tuple(edge is not None for edge in edges)
        here = recorder()
        if here is not None and here.marks_all:  # gradients may come that are not seen here
            needs = tuple(isinstance(arg, Tensor) and arg.dtype.kind in FLOATS for arg in args)
        context = Context(needs)
        context._class = result_class_of(arg for arg in args if isinstance(arg, Tensor))
        with no_grad():
            results = cls.forward(context, *args, **kwargs)
        if not is_grad_enabled() or not any(needs):
            return results
        outputs = results if isinstance(results, tuple) else (results,)
        # A result that is an argument itself gets a tensor of its own, with a history of its own.
        outputs = tuple(out.detach() if any(out is arg for arg in args) else out for out in outputs)
        if here is not None:
            outputs = record_call(cls.__name__, cls.backward, context, args, outputs)
            return outputs if isinstance(results, tuple) else outputs[0]
        node = FunctionNode()
        node.function, node.context, node.edges = cls, context, edges
        node.types = [out.type for out in outputs if isinstance(out, Tensor)]
        node.extra = None
        node.shape = outputs[0].shape
        if anomaly.on:
            locate(node)
        node.number = next(count)
        context._name = node.name()
        single = len(node.types) == 1
        for index, out in enumerate(out for out in outputs if isinstance(out, Tensor)):
            constant = any(out is marked for marked in context._constant)
            if not constant and out.dtype.kind in ("float", "complex"):
                out._node = node if single else part_of(node, index, out.shape)
        context._saved = tuple(None if t is None else _saved(t) for t in context._given)
        context._given = ()
        return outputs if isinstance(results, tuple) else outputs[0]


def _saved(tensor: Tensor) -> tuple[Any, Any]:
    """What is kept of a tensor: while someone records, the value of the graph, not its numbers."""
    return given_data(tensor), tensor._node


def _apply_on_level(function: type[Function], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`apply` inside of a transform, for which `backward` is the derivative as well."""
    places = [i for i, arg in enumerate(args) if isinstance(arg, Tensor)]
    context = Context(tuple(isinstance(arg, Tensor) for arg in args))
    outputs: list[Any] = []
    several: list[bool] = []

    def forward() -> tuple[list[Tensor], list[Tensor | None]]:
        with no_grad():
            found = function.forward(context, *args, **kwargs)
        several.append(isinstance(found, tuple))
        for out in found if isinstance(found, tuple) else (found,):
            given = isinstance(out, Tensor) and any(out is arg for arg in args)
            outputs.append(wrap(out._data, out) if given else out)
        return [out for out in outputs if isinstance(out, Tensor)], list(context._given)

    def backward(saved: Sequence[Any], cotangents: Sequence[Tensor]) -> list[Any]:
        results = function.backward(_Reading(context, saved), *cotangents)
        parts = _one_each(results, len(args), f"{function.__name__}Backward")
        return [parts[i] for i in places]

    def constant(number: int) -> bool:
        results = [out for out in outputs if isinstance(out, Tensor)]
        return any(results[number] is marked for marked in context._constant)

    inputs = [args[i] for i in places]
    call_custom(CustomCall(function.__name__, inputs, forward, backward, constant))
    return tuple(outputs) if several[0] else outputs[0]


class _Hooked(Same):
    """The backward of a step that only hooks the gradient."""

    def __init__(self, hook: Callable[[Tensor], Any]) -> None:
        super().__init__(value_key(hook))
        self.hooks = [hook]

    def __call__(self, _context: Any, g: Tensor) -> Tensor:
        for hook in self.hooks:
            other = hook_result(hook(g), g.shape)
            g = g if other is None else other
        return g


def with_hook(tensor: Tensor, hook: Callable[[Tensor], Any]) -> tuple[Tensor, RemovableHandle]:
    """The same value as a step of the graph that is recorded, which hooks the gradient."""
    backward = _Hooked(hook)
    results = (wrap(tensor._data, tensor),)
    (made,) = record_call("Hook", backward, Context((True,)), (tensor,), results)
    return made, RemovableHandle(backward.hooks, hook)


class _Reading:
    """A context as a backward reads it."""

    def __init__(self, context: Context, saved: Sequence[Any]) -> None:
        self.__dict__.update(vars(context))
        self.saved_tensors = tuple(saved)
