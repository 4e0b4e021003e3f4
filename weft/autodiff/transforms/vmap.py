"""`vmap`: a function of one element as a function of all elements along an axis.

Inside, a tensor shows the shape that it has for one element. What it stands for has the mapped axis
in front, if it differs from element to element. Each op call becomes one call for all elements, by
the batching rule of its card (`weft.ops.batching`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from weft.autodiff.transforms.axes import axes_of, checked_axis, mapped_size
from weft.autodiff.transforms.custom import CustomCall, MaybeTensors, Tensors, call_custom
from weft.autodiff.transforms.history import twin
from weft.autodiff.transforms.levels import Level, LevelArray, Stays, register_level
from weft.autodiff.transforms.trees import (
    Function,
    check_callable,
    name_of,
    tensors_of,
    transformed,
)
from weft.base.errors import CaptureError, RangeError, ShapeError, WeftError
from weft.base.pytree import tree_flatten, tree_unflatten
from weft.base.source import warn_user
from weft.core.bind import bind, recording
from weft.core.operands import as_tensor, is_strong
from weft.core.tensor import Tensor, wrap
from weft.ir.op import Op, Trait
from weft.ops.batch_random import advance_rule, draw_rule
from weft.ops.batching import (
    BatchRule,
    Same,
    elementwise,
    everywhere,
    example_types,
    looped,
    moved,
)

if TYPE_CHECKING:
    from weft.autodiff.transforms.regions import MaskedRegion

__all__ = ["vmap"]

#: The rules of ops that differ from element to element though no input does.
DRAWING = (advance_rule, draw_rule)


class MappedArray(LevelArray):
    """What a tensor is for one element; for all it is `tensor`, if mapped with one axis more.

    region   where it was made: there, elements that take no part have the values of one that does
    """

    __slots__ = ("mapped", "region")

    word = "mapped"

    def __init__(self, tensor: Tensor, mapped: bool, level: MapLevel) -> None:
        super().__init__(tensor, level, tensor.shape[1:] if mapped else tensor.shape)
        self.mapped = mapped
        self.region = level.region


register_level(MappedArray, "vmap")


class MapLevel(Level):
    """Does each op call for all elements of an axis at once."""

    function = "vmap"

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size
        self.region: MaskedRegion | None = None  # the branch, or iteration, that is being run

    def mapped(self, tensor: Tensor) -> bool:
        """Whether a tensor differs from element to element."""
        data = tensor._data
        return data.__class__ is MappedArray and data.level is self and data.mapped

    def element(self, tensor: Tensor, mapped: bool) -> Tensor:
        """A tensor of this level."""
        return wrap(MappedArray(tensor, mapped, self), tensor)

    def lifted(self, tensor: Tensor) -> Tensor:
        return self.element(tensor, False)

    def entered(self, tensor: Tensor) -> Tensor:
        """A tensor as it is in the region that is being run; called with the level off."""
        return tensor if self.region is None else self.region.entered(tensor)

    def whole(self, tensor: Tensor) -> Tensor:
        """What a tensor of this level is for all elements, with the mapped axis in front."""
        return everywhere(self.below(tensor), self.mapped(tensor), self.size)

    # --- op calls -----------------------------------------------------------------------------

    def call(self, op: Op, inputs: tuple[Tensor, ...], attrs: dict[str, Any]) -> Any:
        region = self.region
        if region is None:
            return super().call(op, inputs, attrs)
        out = super().call(op, tuple([region.entered(x) for x in inputs]), attrs)
        if op.batch is draw_rule:  # also what is drawn is that of an element that takes part
            out._data.region = None
            out = region.entered(out)
        return out

    def compute(
        self, op: Op, inputs: tuple[Tensor, ...], attrs: dict[str, Any], enabled: bool
    ) -> Any:
        given = [self.below(x) for x in inputs]
        mapped = [self.mapped(x) for x in inputs]
        if not any(mapped) and op.batch not in DRAWING:
            out = bind(op, *given, **attrs)
            if isinstance(out, tuple):
                return tuple([self.element(part, False) for part in out])
            return self.element(out, False)
        try:
            out = rule_of(op)(op, self.size, mapped, given, attrs)
        except WeftError as error:
            if Trait.STACK in op.traits:
                raise
            raise _as_for_one(op, mapped, given, attrs, error) from None
        if isinstance(out, tuple):
            return tuple([self._result(part) for part in out])
        return self._result(out)

    def _result(self, part: Any) -> Tensor:
        if part.__class__ is Same:
            return self.element(part.tensor, False)
        return self.element(part, True)

    # --- what leaves the function, and what Python asks ----------------------------------------

    def leaving(self, tensor: Tensor, what: str) -> Tensor:
        if self.mapped(tensor):
            raise Stays(f"{what} ({tensor.type}) is given a value that differs")
        return self.below(tensor)

    def asked(self, tensor: Tensor, question: str) -> Tensor:
        if self.mapped(tensor):
            raise CaptureError(
                f"Python asks a mapped tensor ({tensor.type}, for each of {self.size} elements) "
                f"for its value ({question})",
                op="vmap",
                hint="elements may answer differently: compile it, weft.compile(weft.vmap(f)); or "
                "use weft.where(condition, a, b) or weft.cond(condition, f, g, x) instead of if, "
                "and weft.while_loop instead of while",
            )
        return self.below(tensor)

    # --- calls with a derivative of their own --------------------------------------------------

    def custom(self, call: CustomCall) -> list[Tensor]:
        call.inputs = [self.entered(x) for x in call.inputs]
        made: list[Tensor] = []
        saved: list[Tensor | None] = []
        mapped: list[bool] = []

        def forward() -> tuple[list[Tensor], list[Tensor | None]]:
            with recording(self):
                results, kept = call.forward()
            made.extend(results)
            saved.extend(kept)
            whole = [self.whole(out) for out in results]
            below: list[Tensor | None] = []
            for x in kept:
                number = next((i for i, out in enumerate(results) if out is x), None)
                mapped.append(number is not None or (x is not None and self.mapped(x)))
                below.append(
                    None if x is None else self.below(x) if number is None else whole[number]
                )
            return whole, below

        def backward(kept: MaybeTensors, cotangents: Tensors) -> list[Tensor | None]:
            with recording(self):
                given = [
                    None if x is None else self.element(x, m)
                    for x, m in zip(kept, mapped, strict=True)
                ]
                found = call.backward(given, [self.element(g, True) for g in cotangents])
            return [
                None if g is None else self._pulled(g, self.mapped(x))
                for g, x in zip(found, call.inputs, strict=True)
            ]

        inputs = [self.below(x) for x in call.inputs]
        outs = call_custom(CustomCall(call.name, inputs, forward, backward, call.constant))
        for out, below in zip(made, outs, strict=True):
            out._data = MappedArray(below, True, self)
        call.link(made, saved)
        return made

    def _pulled(self, g: Tensor, mapped: bool) -> Tensor:
        """The gradient of an input from those for each element."""
        each = self.whole(g)
        return each if mapped else each.sum(axis=0)


def rule_of(op: Op) -> BatchRule:
    """What does an op call for all elements."""
    if op.batch is not None:
        rule: BatchRule = op.batch
        return rule
    if op.elementwise:
        return elementwise
    if op.data_shape:
        return _varying
    if op.nested or Trait.STACK in op.traits or op.effect:
        return _unmappable
    warn_user(
        f"vmap calls {op.name} once for each element: its card has no batching rule. "
        "Give it one: weft.custom_op(..., batch=rule), see docs/transforms.md",
    )
    return looped


def _varying(op: Op, size: int, mapped: Any, inputs: Any, attrs: Any) -> Any:
    raise ShapeError(
        "the size of the result depends on values, so it would differ from element to element",
        op=op.name,
        hint="mask instead: weft.where(condition, x, 0) keeps the shape",
    )


def _unmappable(op: Op, size: int, mapped: Any, inputs: Any, attrs: Any) -> Any:
    raise CaptureError(f"{op.name} cannot be mapped over an axis", op=op.name)


def _as_for_one(
    op: Op, mapped: Sequence[bool], inputs: Sequence[Tensor], attrs: Any, error: WeftError
) -> WeftError:
    """The error as it would be for one element, where there is one for that."""
    types = example_types(mapped, inputs)
    if not op.data_shape:
        try:
            op.infer(*types, **attrs)
        except WeftError as clear:
            return clear.about(op.name, types)
    error.operands = tuple(map(str, types))
    return error.about(op.name, types)


# --- vmap --------------------------------------------------------------------------------------


def vmap(
    fn: Function, in_axes: Any = 0, out_axes: Any = 0, axis_size: int | None = None
) -> Function:
    """`fn`, which is written for one element, for all elements along an axis at once.

    in_axes     which axis of the arguments is mapped: an int, None for arguments that are the same
                for all elements, or a tree of them that fits the tuple of arguments
    out_axes    where the axis of elements is in the results; None for one that is the same for all
    axis_size   how many elements there are, where no argument says so

    Arguments by keyword are mapped over their first axis. Random numbers differ from element to
    element.

    >>> a, b = weft.tensor([[1.0, 2.0], [3.0, 4.0]]), weft.tensor([10.0, 1.0])
    >>> weft.vmap(lambda x, y: (x * y).sum(), in_axes=(0, None))(a, b)
    tensor([12., 34.])
    >>> weft.vmap(weft.grad(lambda x: (x**3).sum()))(a)
    tensor([[ 3., 12.],
            [27., 48.]])
    """
    check_callable(fn, "vmap")
    if axis_size is not None and axis_size < 0:
        raise RangeError(f"axis_size is {axis_size}", op="vmap")
    ways = tuple(in_axes) if isinstance(in_axes, list) else in_axes

    def call(*args: Any, **kwargs: Any) -> Any:
        leaves, spec = tree_flatten((args, kwargs))
        positional, named = spec.children
        axes = axes_of(ways, positional, "in_axes", "the arguments") + [0] * named.leaves
        paths = [f"args{path}" for path in positional.paths()]
        paths += [f"kwargs{path}" for path in named.paths()]
        size = mapped_size(leaves, axes, paths, axis_size)
        level = MapLevel(size)
        given = [
            _argument(level, leaf, axis, path)
            for leaf, axis, path in zip(leaves, axes, paths, strict=True)
        ]
        with level.opened():
            inner, options = tree_unflatten(spec, given)
            result = fn(*inner, **options)
            outputs, out_spec = tensors_of(result, "vmap", f"the result of {name_of(fn)}")
        if level.refusal:
            raise CaptureError(
                f"in {name_of(fn)}, {level.refusal} from element to element",
                op="vmap",
                hint="let the function return the value; of layers that keep statistics, use "
                "eval() or turn them off",
            )
        places = axes_of(out_axes, out_spec, "out_axes", "the result")
        found = [
            _result(level, out, axis, path)
            for out, axis, path in zip(outputs, places, out_spec.paths(), strict=True)
        ]
        return tree_unflatten(out_spec, found)

    return transformed(call, fn, "vmap", lambda f: vmap(f, in_axes, out_axes, axis_size))


def _argument(level: MapLevel, leaf: Any, axis: Any, path: str) -> Any:
    """A leaf of the arguments as the function gets it."""
    if axis is None:
        return level.element(leaf.clone(), False) if is_strong(leaf) else leaf
    tensor = as_tensor(leaf, "vmap")
    at = checked_axis(axis, tensor.ndim, path)
    return level.element(moved(tensor, at, 0) if at else tensor.clone(), True)


def _result(level: MapLevel, out: Tensor, axis: Any, path: str) -> Tensor:
    if axis is None:
        if level.mapped(out):
            raise ShapeError(
                f"the result{path} differs from element to element, and out_axes says None for it",
                op="vmap",
                hint="say which axis of the result the elements lie along: out_axes=0",
            )
        return twin(level.below(out), out) if level.has(out) else out.clone()
    ndim = out.ndim + 1
    whole = twin(level.whole(out), out)
    at = checked_axis(axis, ndim, f"the result{path}, with the mapped axis,")
    return moved(whole, 0, at)


def is_mapped(value: Any) -> bool:
    """Whether a value differs from element to element of a `vmap` that is running.

    For control flow: on such a condition, both branches run, and a loop runs until all are done.
    """
    while isinstance(value, Tensor):
        data = value._data
        if not isinstance(data, LevelArray):
            break
        if data.__class__ is MappedArray and data.mapped:
            return True
        value = data.tensor
    return False
