"""Nodes of the dynamic graph: what made a tensor, and how a gradient passes back through it.

    x ──AccumulateGrad──┐
                        ├── OpNode (MulBackward) ── … ── loss
    w ──AccumulateGrad──┘

An edge leads from a node to the nodes of its inputs. Every node has a number, higher than those of
all the nodes it depends on, by which the engine orders its work.
"""

from __future__ import annotations

import copy
import itertools
import sys
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from weft.autodiff.backward_events import followed
from weft.autodiff.save_plan import ARRAY, SavePlan
from weft.base.dtypes import NARROW_FLOATS
from weft.base.errors import GradientError
from weft.base.locks import process_lock
from weft.base.shapes import Shape
from weft.base.source import SourceLocation, user_location
from weft.core.bind import recorder, set_grad, update
from weft.core.grad_mode import enable_grad, no_grad
from weft.core.large import large
from weft.core.operands import cast
from weft.core.structure import changed
from weft.core.tensor import Tensor, labelled, wrap
from weft.ir.op import Op
from weft.ops.cards import ADD
from weft.ops.identity import detached
from weft.ops.rules import sum_to

count = itertools.count(1)
ndarray = np.ndarray
_NARROW = frozenset(dtype.numpy for dtype in NARROW_FLOATS)
#: Stands in a node for what it kept, once that is freed.
FREED: Any = ("freed",)

Hook = Callable[..., Any]

#: Threads that go backward to one leaf add to its gradient one after the other.
accumulating = process_lock()


class Dropped:
    """Stands in a node for what it did not keep: it can be computed again."""

    __slots__ = ("number", "region")

    def __init__(self, region: Any, number: int) -> None:
        self.region = region
        self.number = number

    def restored(self) -> tuple[Any, ...]:
        kept: tuple[Any, ...] = self.region.kept(self.number)
        return kept


class LeafHooks:
    """Whether any leaf ever had a hook: most programs put none, and guards ask this first."""

    registered = False


leaf_hooks = LeafHooks()


class RemovableHandle:
    """Takes a hook away again: `handle.remove()`, or leaving it as a context."""

    def __init__(self, hooks: list[Any], entry: Any, tells: bool = False) -> None:
        self._hooks = hooks
        self._entry = entry
        self._tells = tells  # guards look at these hooks only when they are told of a change
        if tells:
            leaf_hooks.registered = True
            changed()

    def remove(self) -> None:
        if self._tells:
            changed()
        self._hooks[:] = [kept for kept in self._hooks if kept is not self._entry]

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.remove()


class Extra:
    """What few nodes have: hooks and notes."""

    __slots__ = ("hooks", "metadata", "prehooks")

    def __init__(self) -> None:
        self.prehooks: list[Hook] = []  # before the node runs: hook(grad) -> None or another
        self.hooks: list[Hook] = []  # after: hook(grad_inputs, grad_outputs)
        self.metadata: dict[str, Any] = {}


class Node:
    """What all nodes have. `edges` lead to the inputs' nodes; None where no gradient is wanted."""

    __slots__ = ("__weakref__", "edges", "extra", "number", "shape", "where")

    is_leaf = False
    outputs = 1
    #: Whether its inputs are mostly leaves: of what compiled functions return.
    only_leaves = False
    #: Of nodes that choose, after `apply`: for each edge when its gradient is there; None: always.
    doubts: Any = None
    edges: tuple[Node | None, ...]
    number: int
    shape: Shape  # of the result
    extra: Extra | None
    where: SourceLocation  # of the forward call; most nodes have none, and spend no time on it

    def name(self) -> str:
        """The name of the backward step, e.g. MulBackward."""
        return type(self).__name__

    def forward_name(self) -> str:
        """What the forward call was, e.g. multiply."""
        return self.name()

    def frees(self) -> bool:
        """Whether a backward pass that keeps nothing frees something in it."""
        return False

    def apply(
        self, g: Any, create: bool, keep: bool, wanted: tuple[bool, ...] | None
    ) -> Sequence[Any]:
        """The gradients of the inputs, one per edge, from that of the result.

        create    compute with tensors on the tape
        keep      do not free what the node kept
        wanted    which edges' gradients to compute; None for all
        """
        raise NotImplementedError

    def arriving(self, doubts: dict[int, Tensor]) -> None:
        """Told before `apply`, if that differs: when the gradients of some results are there."""

    @property
    def next_functions(self) -> tuple[tuple[Node | None, int], ...]:
        """The nodes that this one passes gradients to, each with the number of its result."""
        return tuple(_target(edge) for edge in self.edges)

    def _more(self) -> Extra:
        if self.extra is None:
            self.extra = Extra()
        return self.extra

    @property
    def metadata(self) -> dict[str, Any]:
        """A dictionary of your own for notes on this node."""
        return self._more().metadata

    @property
    def location(self) -> SourceLocation | None:
        """The line of the forward call, where a recording or `detect_anomaly` noted it."""
        try:
            return self.where
        except AttributeError:
            return None

    def register_prehook(self, hook: Hook) -> RemovableHandle:
        """Call `hook(grad_outputs)` before the node runs; what it returns replaces them."""
        return self.hook_gradient(lambda g: _tuple_hook(hook, g))

    def register_hook(self, hook: Hook) -> RemovableHandle:
        """Call `hook(grad_inputs, grad_outputs)` after the node ran; may replace grad_inputs."""
        return add_hook(self._more().hooks, hook, self.is_leaf)

    def hook_gradient(self, hook: Hook, cls: type[Tensor] = Tensor) -> RemovableHandle:
        """Call `hook(grad)` with the gradient of this node's result, a tensor of that class; may
        replace it."""
        return add_hook(self._more().prehooks, hook, self.is_leaf, cls)

    def __repr__(self) -> str:
        return f"<{self.name()}>"


def hook_result(replaced: Any, shape: Shape) -> Tensor | None:
    """What a hook returned for a gradient of this shape, checked; None: the gradient stays."""
    if replaced is None or (isinstance(replaced, Tensor) and replaced.shape == shape):
        return replaced
    raise GradientError(
        f"a hook returned {replaced!r:.60} for a gradient of shape {shape}",
        hint="return None, or a tensor of the same shape",
    )


def hooks_of(node: Node) -> tuple[Any, ...]:
    """All hooks on a node, by kind, each as it was registered; () if there are none."""
    extra, after = node.extra, getattr(node, "after", None)
    before, later = ((), ()) if extra is None else (tuple(extra.prehooks), tuple(extra.hooks))
    return (before, later, tuple(after or ())) if before or later or after else ()


def add_hook(
    hooks: list[Any], hook: Hook, tells: bool, cls: type[Tensor] = Tensor
) -> RemovableHandle:
    """Register a hook in a list of them; `tells` is for those of leaves, `cls` is the class of the
    tensors that it gets."""
    entry = _Entry(hook, cls)
    hooks.append(entry)
    return RemovableHandle(hooks, entry, tells)


class _Entry:
    """A registered hook: an object of its own, so that the same function can be hooked twice."""

    __slots__ = ("cls", "hook")

    def __init__(self, hook: Hook, cls: type[Tensor]) -> None:
        self.hook = hook
        self.cls = cls

    def __call__(self, *args: Any) -> Any:
        if self.cls is not Tensor:
            args = tuple([of_class(x, self.cls) for x in args])
        return followed(self.hook)(*args)


def of_class(x: Any, cls: type[Tensor]) -> Any:
    """A gradient, if it is one, as a tensor of a class of results."""
    if x.__class__ is not Tensor or cls is Tensor:
        return x
    return labelled(tensor_of(x._data, x._node), cls)


def _tuple_hook(hook: Hook, g: Any) -> Any:
    replaced = followed(hook)((g,))
    return replaced[0] if isinstance(replaced, tuple) else replaced


def _target(edge: Node | None) -> tuple[Node | None, int]:
    return (edge.parent, edge.index) if isinstance(edge, PartNode) else (edge, 0)


def tensor_of(data: Any, node: Node | None) -> Tensor:
    tensor = wrap(data)
    tensor._node = node
    return tensor


def locate(node: Node, where: SourceLocation | None = None) -> None:
    """Note the line of the forward call: the given one, or the current one."""
    found = user_location() if where is None else where
    if found is not None:
        node.where = found


def data_of(value: Any) -> Any:
    return value._data if isinstance(value, Tensor) else value


def given_data(value: Any) -> Any:
    """The array of a tensor that came from the user's code; while someone records, a symbolic one,
    so that all that is computed of it is recorded too."""
    if isinstance(value, Tensor) and value._data.__class__ is ndarray and recorder() is not None:
        value = value.clone()
    return data_of(value)


class Barrier(Node):
    """Where a backward must not pass; subclasses say why, and what to do instead."""

    __slots__ = ()

    message: str
    hint: str

    def __init__(self, shape: Shape, edges: Iterable[Node] = ()) -> None:
        self.shape = shape
        self.edges = tuple(edges)
        self.number = next(count)
        self.extra = None

    def apply(
        self, g: Any, create: bool, keep: bool, wanted: tuple[bool, ...] | None
    ) -> Sequence[Any]:
        raise GradientError(self.message, op="backward", hint=self.hint)


class OpNode(Node):
    """An op call. Keeps the arrays that its derivative rules use, and nothing else."""

    __slots__ = ("attrs", "kept", "plan")

    plan: SavePlan
    attrs: dict[str, Any]
    kept: Any  # of the result and of each input: the array, its type, or None; or Dropped

    @property
    def op(self) -> Op:
        return self.plan.op

    @property
    def outputs(self) -> int:  # type: ignore[override]
        return self.plan.op.outputs

    def name(self) -> str:
        return backward_name(self.op)

    def forward_name(self) -> str:
        return self.op.name

    def frees(self) -> bool:
        return bool(self.plan.keeps)

    def apply(
        self, g: Any, create: bool, keep: bool, wanted: tuple[bool, ...] | None
    ) -> Sequence[Any]:
        kept, plan, edges = self.kept, self.plan, self.edges
        if kept is FREED:
            raise freed(self.name())
        while kept.__class__ is Dropped:
            kept = self.kept = kept.restored()
        if create or not ((g.__class__ is ndarray and g.itemsize > 2) or _raw(g)):
            grads = self._apply_to_tensors(g, create, wanted)
            if plan.keeps and not keep:
                self.kept = FREED
            return grads
        if plan.keeps and not keep:
            self.kept = FREED
        if wanted is not None:
            return self._gradients(np, g, kept, wanted)
        if plan.single is not None:
            return (plan.single(np, g, *kept),)
        if plan.pair is not None:
            first, second = plan.pair
            out, x, y = kept
            a = b = None
            if first is not None:
                a = first(np, g, out, x, y)
                if a.shape != edges[0].shape:  # type: ignore[union-attr]
                    a = sum_to(np, a, edges[0].shape)  # type: ignore[union-attr]
            if second is not None:
                b = second(np, g, out, x, y)
                if b.shape != edges[1].shape:  # type: ignore[union-attr]
                    b = sum_to(np, b, edges[1].shape)  # type: ignore[union-attr]
            return (a, b)
        return self._gradients(np, g, kept, None)

    def _gradients(
        self, xp: Any, g: Any, kept: Sequence[Any], wanted: tuple[bool, ...] | None
    ) -> list[Any]:
        """One gradient per edge, by the rules; ELEMENTWISE ones are summed to the input's shape."""
        plan, edges, attrs = self.plan, self.edges, self.attrs
        if not plan.rules:
            raise GradientError(
                f"{self.op.name} has no derivative",
                op=self.name(),
                hint="use x.detach() or weft.stop_gradient where no gradient is meant",
            )
        grads: list[Any] = [None] * len(edges)
        for number, rule, numbered in plan.rules:
            if wanted is not None and not wanted[number]:
                continue
            first = (number, xp) if numbered else (xp,)
            part = rule(*first, g, *kept, **attrs)
            # Of symbolic sizes nothing is asked: `sum_to` compares them as they are written.
            if plan.elementwise and (xp is not np or part.shape != edges[number].shape):  # type: ignore[union-attr]
                part = sum_to(xp, part, edges[number].shape)  # type: ignore[union-attr]
            grads[number] = part
        return grads

    def _apply_to_tensors(self, g: Any, create: bool, wanted: tuple[bool, ...] | None) -> list[Any]:
        """By ops on tensors: for gradients of gradients, other devices and narrow floats."""
        plan, (out, *inputs) = self.plan, self.kept
        kept = [_linked(out, self if create else None) if plan.out == ARRAY else out]
        for data, edge, need in zip(inputs, self.edges, plan.inputs, strict=True):
            kept.append(tensor_of(data, edge if create else None) if need == ARRAY else data)
        with enable_grad() if create else no_grad():
            grads = self._gradients(weft_namespace(), _tensors(g), kept, wanted)
        return grads if create else [data_of(part) for part in grads]


class LargeOpNode(OpNode):
    """A call on large arrays, whose gradients have kernels of their own: see `weft.core.large`."""

    __slots__ = ()

    def apply(
        self, g: Any, create: bool, keep: bool, wanted: tuple[bool, ...] | None
    ) -> Sequence[Any]:
        kept = self.kept
        if create or kept is FREED or recorder() is not None:
            return super().apply(g, create, keep, wanted)
        while kept.__class__ is Dropped:
            kept = self.kept = kept.restored()
        shapes = [None if edge is None else edge.shape for edge in self.edges]
        grads = large.gradients(self.plan, self.attrs, shapes, g, kept, wanted)
        if grads is None:
            return super().apply(g, create, keep, wanted)
        if self.plan.keeps and not keep:
            self.kept = FREED
        return grads


def _raw(g: Any) -> bool:
    """Whether NumPy can compute with the gradient directly: dense on the CPU, and not narrow."""
    if isinstance(g, tuple):
        return all(part is None or _raw(part) for part in g)
    kind = g.__class__
    return (kind is ndarray or isinstance(g, np.generic)) and g.dtype not in _NARROW


def _tensors(g: Any) -> Any:
    if isinstance(g, tuple):
        return tuple(_tensors(part) for part in g)
    return g if g is None or isinstance(g, Tensor) else wrap(as_array(g))


def as_array(value: Any) -> Any:
    return np.asarray(value) if isinstance(value, np.generic) else value


def _linked(out: Any, node: Node | None) -> Any:
    """The kept result as tensors; those that lead back to the node have gradients themselves."""
    if isinstance(out, tuple):
        if node is None:
            return tuple([wrap(data) for data in out])
        parts = [part_of(node, i, part.shape) for i, part in enumerate(out)]
        return tuple(tensor_of(data, part) for data, part in zip(out, parts, strict=True))
    return tensor_of(out, node)


class FreedError(GradientError):
    """Backward through a graph that was freed."""


def freed(name: str) -> FreedError:
    return FreedError(
        "backward went through this graph before, and what it kept was freed",
        op=name,
        hint="say backward(retain_graph=True) the first time, or compute the loss again",
    )


class PartNode(Node):
    """One of several results of a node."""

    __slots__ = ("index", "parent")

    parent: Node
    index: int

    def name(self) -> str:
        return self.parent.name()


def part_of(parent: Node, index: int, shape: Shape) -> PartNode:
    node = PartNode()
    node.shape = shape
    node.parent = parent
    node.index = index
    node.edges = (parent,)
    node.number = next(count)
    node.extra = None
    return node


def with_shape(node: Node, shape: Shape) -> Node:
    """The same node for a result of another shape."""
    made = copy.copy(node)
    made.shape = shape
    return made


class AccumulateGrad(Node):
    """A leaf: adds what arrives to the tensor's `.grad`."""

    __slots__ = ("after", "variable_")

    is_leaf = True
    after: list[Hook] | None  # post-accumulate hooks

    def __init__(self, tensor: Tensor) -> None:
        self.variable_ = weakref.ref(tensor)
        self.shape = tensor.shape
        self.edges = ()
        self.number = next(count)
        self.extra = self.after = None

    @property
    def variable(self) -> Tensor | None:
        """The tensor, or None when it is gone."""
        return self.variable_()

    def apply(
        self, g: Any, create: bool, keep: bool, wanted: tuple[bool, ...] | None
    ) -> Sequence[Any]:
        tensor = self.variable_()
        if tensor is None:
            return ()
        own = g.__class__ is ndarray and recorder() is None  # a tensor of its own is made here
        if not isinstance(g, Tensor):
            g = wrap(np.asarray(g) if isinstance(g, np.generic) else g)
        if g._data.dtype is not tensor._data.dtype:
            g = cast(g, tensor.dtype)
        with accumulating:
            before = tensor.grad
            if before is None:
                set_grad(tensor, g if create or own else detached(g))
            elif own and before.__class__ is Tensor and before._node is None:
                update(ADD, before, g)
            elif create or before._node is not None:
                set_grad(tensor, before + g)
            else:
                with no_grad():
                    before += g
        for hook in self.after or ():
            hook(tensor)
        return ()


def backward_name(op: Op) -> str:
    """multiply -> MulBackward"""
    short = op.short or "".join(part.capitalize() for part in op.name.split("_"))
    return f"{short}Backward"


def weft_namespace() -> Any:
    """Weft as the `xp` of a rule."""
    return sys.modules["weft"]
