"""What users ask of the dynamic graph: gradients on tensors, and the methods for them."""

from __future__ import annotations

from collections.abc import Sequence
from sys import getrefcount
from typing import Any

import numpy as np

from weft.autodiff import engine
from weft.autodiff.backward_events import asked_for
from weft.autodiff.conditional_gradients import Doubts
from weft.autodiff.node import (
    AccumulateGrad,
    Node,
    PartNode,
    RemovableHandle,
    accumulating,
    add_hook,
    of_class,
)
from weft.autodiff.tape import anomaly
from weft.autodiff.transforms.history import is_unseen, outer_histories
from weft.base.errors import DTypeError, GradientError, ShapeError
from weft.base.shapes import size_of
from weft.core.bind import decide, get_grad, leaf_before, recorder, set_grad, written
from weft.core.operands import cast
from weft.core.public import attach, attach_properties, public
from weft.core.structure import changed
from weft.core.temporaries import METHOD_OF_TEMPORARY, lost_method
from weft.core.tensor import Tensor
from weft.ops.creation import ones_like, zeros_like
from weft.ops.identity import detached

__all__ = ["backward", "detect_anomaly", "grad", "stop_gradient"]


def _many(values: Any) -> list[Any]:
    return list(values) if isinstance(values, (list, tuple)) else [values]


def _no_history(tensor: Tensor) -> GradientError:
    otherwise = "make an input with requires_grad=True, and compute outside of no_grad()"
    return GradientError(
        "this tensor has no history: nothing it was computed from requires a gradient",
        op="backward",
        operands=[tensor.type],
        hint=_hint(tensor, otherwise),
    )


def _start(tensor: Tensor, gradient: Any, create: bool) -> tuple[Node, Any]:
    """A root of the backward pass with the gradient that it starts from."""
    node = tensor._node
    if node is None:
        raise _no_history(tensor)
    data = tensor._data
    if (
        gradient is None
        and not create
        and data.__class__ is np.ndarray
        and data.dtype.kind == "f"
        and data.size == 1
        and recorder() is None
    ):
        one = np.empty(data.shape, data.dtype)
        one.fill(1)
        return node, one
    if gradient is None:
        if tensor.dtype.kind == "complex":
            raise GradientError(
                "a gradient can start from a real number only",
                op="backward",
                operands=[tensor.type],
                hint="make it real first (weft.abs, weft.real), or say y.backward(gradient)",
            )
        if size_of(tensor.shape) != 1:
            raise GradientError(
                f"a gradient can start from one number, not from {size_of(tensor.shape)} elements",
                op="backward",
                operands=[tensor.type],
                hint="reduce first (y.sum().backward()), or say y.backward(gradient)",
            )
        gradient = ones_like(tensor)
    elif not isinstance(gradient, Tensor):
        raise DTypeError(f"the gradient must be a tensor, not {gradient!r:.40}", op="backward")
    if gradient.shape != tensor.shape:
        raise ShapeError(
            f"the gradient has shape {gradient.shape} and the tensor {tensor.shape}",
            op="backward",
        )
    gradient = cast(gradient, tensor.dtype)
    if recorder() is not None:
        gradient = gradient.clone()  # as a value of the graph: then all that follows is one too
    return node, gradient if create else gradient._data


def backward(
    tensors: Tensor | Sequence[Tensor],
    grad_tensors: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Tensor | Sequence[Tensor] | None = None,
) -> None:
    """Add the gradients of `tensors` to the `.grad` of the leaves (or of `inputs`)."""
    outputs = _many(tensors)
    starts = _many(grad_tensors) if grad_tensors is not None else [None] * len(outputs)
    keep = create_graph if retain_graph is None else retain_graph
    roots = [_start(t, g, create_graph) for t, g in zip(outputs, starts, strict=True)]
    if inputs is None:
        here = recorder()
        if here is not None and here.marks_all:
            for tensor in outputs:
                if is_unseen(tensor._node):
                    raise _no_history(tensor)
        engine.run(roots, keep=keep, create=create_graph)
        return
    chosen = _many(inputs)
    found = _gradients(roots, chosen, keep, create_graph, False)
    for tensor, g in zip(chosen, found, strict=True):
        if g is not None:
            _accumulate(tensor, g)


def _accumulate(tensor: Tensor, g: Tensor) -> None:
    with accumulating:
        set_grad(tensor, g if tensor.grad is None else tensor.grad + g)


def grad(
    outputs: Tensor | Sequence[Tensor],
    inputs: Tensor | Sequence[Tensor],
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    allow_unused: bool = False,
    materialize_grads: bool = False,
) -> tuple[Any, ...]:
    """The gradients of the sum of `outputs` with respect to `inputs`; no `.grad` is touched.

    >>> x = weft.tensor(3.0, requires_grad=True)
    >>> weft.autograd.grad(x**2, x)
    (tensor(6.),)
    """
    results, asked = _many(outputs), _many(inputs)
    starts = _many(grad_outputs) if grad_outputs is not None else [None] * len(results)
    keep = create_graph if retain_graph is None else retain_graph
    roots = [_start(t, g, create_graph) for t, g in zip(results, starts, strict=True)]
    found = _gradients(roots, asked, keep, create_graph, materialize_grads)
    for number, (tensor, g) in enumerate(zip(asked, found, strict=True)):
        if g is not None:
            continue
        if materialize_grads:
            found[number] = zeros_like(tensor)
        elif not allow_unused:
            raise GradientError(
                f"input {number} is not used to compute the outputs",
                op="grad",
                operands=[tensor.type],
                hint="say allow_unused=True to get None for it",
            )
    return tuple(found)


def _gradients(
    roots: list[tuple[Node, Any]],
    inputs: list[Tensor],
    keep: bool,
    create: bool,
    zeros_do: bool,
) -> list[Any]:
    for number, tensor in enumerate(inputs):
        if tensor._node is None:
            raise GradientError(
                f"input {number} does not require a gradient",
                op="grad",
                operands=[tensor.type],
                hint=_hint(tensor, "set requires_grad before it is used"),
            )
    targets = [tensor._node for tensor in inputs]
    doubts: Doubts | None = None if zeros_do else {}
    caught = engine.run(roots, keep=keep, create=create, targets=targets, doubts=doubts)
    missing = [node for node, doubt in (doubts or {}).items() if not decide(doubt)]
    if len(missing) < len(caught):  # else there is no history at all: the gradients are zeros
        for node in missing:
            del caught[node]
    found = [caught.get(node) for node in targets]
    tensors = [g if g is None or isinstance(g, Tensor) else engine._as_tensor(g) for g in found]
    return [of_class(g, x._result_class) for g, x in zip(tensors, inputs, strict=True)]


@public("stop_gradient")
def stop_gradient(x: Tensor, /) -> Tensor:
    """x as a constant: no gradient passes through."""
    return detached(x)


class detect_anomaly:
    """In it, a NaN born in a backward pass is an error that names the forward line it stems from.

    Each op notes its line, which costs a few microseconds: for finding a fault, not for training.
    """

    def __enter__(self) -> None:
        self._before = anomaly.on
        anomaly.on = True

    def __exit__(self, *_exc: object) -> None:
        anomaly.on = self._before


# --- on Tensor ---------------------------------------------------------------------------------


def _get_requires_grad(self: Tensor) -> bool:
    """Whether gradients with respect to this tensor are computed."""
    nodes = _histories(self)
    asked_for(nodes)
    return bool(nodes)


def _histories(tensor: Tensor) -> list[Node]:
    """What says that a tensor has a history: its own, or those outside of `vmap` and `jvp`."""
    return outer_histories(tensor) if tensor._node is None else [tensor._node]


_BY_GRAD = (
    "inside of {} the history of its arguments is not seen: take the gradient there by "
    "weft.grad(f)(x), or of x = x.detach().requires_grad_(), or outside of it"
)


def _hint(tensor: Tensor, otherwise: str) -> str:
    """What to do about a tensor without a history on its level."""
    if not outer_histories(tensor):
        return otherwise
    return _BY_GRAD.format(tensor._data.level.function)


def _set_requires_grad(self: Tensor, wanted: bool) -> None:
    node = self._node
    if (node is not None and not node.is_leaf) or (not wanted and outer_histories(self)):
        if wanted:
            return
        raise GradientError(
            "only leaves can change requires_grad; this tensor was computed",
            op="requires_grad",
            hint="use x.detach() for a copy without history",
        )
    if wanted is not (node is not None) and (type(self) is not self._result_class or not wanted):
        # Guards on the parameters of modules and optimizers look at them only when this is told.
        # That any other tensor begins to learn happens all the time; they see that by themselves.
        changed()
    if not wanted:
        if node is not None:
            written(self)
            self._node = None
    elif node is None:
        written(self)
        if self.dtype.kind not in ("float", "complex"):
            raise DTypeError(
                f"only floating tensors can require a gradient, not {self.dtype.name}",
                op="requires_grad",
                hint="cast it first: x.astype(weft.float32)",
            )
        self._grad = get_grad(self)  # set from now on: asking for it is then cheap
        self._node = leaf_before(self) or AccumulateGrad(self)


def _set_grad(self: Tensor, value: Tensor | None) -> None:
    if value is not None:
        if not isinstance(value, Tensor):
            raise DTypeError(f".grad is a tensor or None, not {value!r:.40}", op="grad")
        if value.shape != self.shape or value.dtype is not self.dtype:
            raise ShapeError(
                f"a gradient of {self.type} cannot be {value.type}", op="grad", operands=[self.type]
            )
    set_grad(self, value)


def _backward_method(
    self: Tensor,
    gradient: Tensor | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Any = None,
) -> None:
    """Add the gradients of this tensor to the `.grad` of the leaves it was computed from."""
    backward(self, gradient, retain_graph, create_graph, inputs)


def _grad_fn(self: Tensor) -> Node | None:
    """The node that made this tensor; None for leaves."""
    asked_for(_histories(self), of_leaves=True)
    node: Node | None = self._node
    if node is None or node.is_leaf:
        return None
    return node.parent if isinstance(node, PartNode) else node


def _output_nr(self: Tensor) -> int:
    node = self._node
    return node.index if isinstance(node, PartNode) else 0


def _is_leaf(self: Tensor) -> bool:
    """Whether the tensor was made by the user, not computed from one that requires a gradient."""
    nodes = _histories(self)
    asked_for(nodes, of_leaves=True)
    return not nodes if self._node is None else self._node.is_leaf


def _requires_grad_(self: Tensor, requires_grad: bool = True) -> Tensor:
    """Set requires_grad and return the tensor itself."""
    lost = getrefcount(self) <= METHOD_OF_TEMPORARY
    _set_requires_grad(self, requires_grad)
    if lost:
        lost_method()
    return self


def _retain_grad(self: Tensor) -> None:
    """Have backward leave this tensor's gradient in `.grad`, though it is not a leaf."""
    node = self._node
    if node is None:
        why = _hint(self, "make an input with requires_grad=True")
        raise GradientError("this tensor does not require a gradient", op="retain_grad", hint=why)
    if not node.is_leaf and not node.metadata.get("retains"):
        node.metadata["retains"] = True
        node.hook_gradient(lambda g: _accumulate(self, g))


def _retains_grad(self: Tensor) -> bool:
    node = self._node
    return node is not None and not node.is_leaf and bool(node.metadata.get("retains"))


def _register_hook(self: Tensor, hook: Any) -> RemovableHandle:
    """Call `hook(grad)` when this tensor's gradient is known; what it returns replaces it."""
    if self._node is None:
        why = _hint(self, "make an input with requires_grad=True")
        raise GradientError("this tensor does not require a gradient", op="register_hook", hint=why)
    here = recorder()
    handle: RemovableHandle | None = None if here is None else here.hook(self, hook)
    return self._node.hook_gradient(hook, self._result_class) if handle is None else handle


def _register_post_accumulate_grad_hook(self: Tensor, hook: Any) -> RemovableHandle:
    """Call `hook(tensor)` after this leaf's `.grad` has been added to."""
    node = self._node
    if node is None or not node.is_leaf:
        raise GradientError(
            "only leaves that require a gradient accumulate one",
            op="register_post_accumulate_grad_hook",
        )
    if node.after is None:
        node.after = []
    return add_hook(node.after, hook, True)


attach(
    {
        "backward": _backward_method,
        "requires_grad_": _requires_grad_,
        "retain_grad": _retain_grad,
        "register_hook": _register_hook,
        "register_post_accumulate_grad_hook": _register_post_accumulate_grad_hook,
    }
)
attach_properties({"grad_fn": _grad_fn, "output_nr": _output_nr})
attach_properties({"is_leaf": _is_leaf, "retains_grad": _retains_grad})
attach_properties({"requires_grad": _get_requires_grad}, {"requires_grad": _set_requires_grad})
attach_properties({"grad": get_grad}, {"grad": _set_grad})
