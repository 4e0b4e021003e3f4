"""`weft.checkpoint`: trades time for memory. Intermediate results are recomputed instead of kept.

The function runs on the tape as always, but its nodes drop what they would keep. The first node
that needs it in a backward pass runs the function again on the same inputs, and all nodes take
their values from that run. So everything that autograd can do works through a checkpoint, too.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Any

from weft.autodiff.node import Dropped, Node, OpNode, PartNode, count
from weft.autodiff.transforms.levels import left, open_levels
from weft.autodiff.transforms.trees import transformed
from weft.base.errors import DTypeError, GradientError
from weft.core.autocast import autocasting
from weft.core.bind import Recorder, bind, computes_again, recording, taped
from weft.core.grad_mode import enable_grad, mode
from weft.core.tensor import Tensor, wrap
from weft.ir.op import Op, Trait
from weft.ops.identity import NAMED

__all__ = ["checkpoint", "checkpoint_name"]

#: (op, attributes) -> whether its result is kept although it lies in a checkpoint.
Policy = Callable[[Op, dict[str, Any]], bool]


def checkpoint(function: Callable[..., Any], *, save: Any = "nothing") -> Callable[..., Any]:
    """`function`, whose intermediate results are computed again in backward instead of kept.

    save    what is kept all the same: "nothing", "products" (of matrices, and convolutions), the
            name or names given by `weft.checkpoint_name`, or a function of an op's name

    Random numbers come out the same the second time, and what the function writes (the statistics
    of a batch norm) is written once.

    >>> w = weft.tensor([2.0, 3.0], requires_grad=True)
    >>> block = weft.checkpoint(lambda x: weft.tanh(x * w).exp())
    >>> block(weft.ones(2)).sum().backward()
    >>> w.grad
    tensor([0.18526314, 0.02668627])
    """
    policy = _policy(save)

    def call(*args: Any, **kwargs: Any) -> Any:
        if not mode.enabled:
            return function(*args, **kwargs)
        return Region(function, args, kwargs, policy).run()

    return transformed(call, function, "checkpoint", lambda f: checkpoint(f, save=save))


def checkpoint_name(x: Tensor, name: str, /) -> Tensor:
    """x itself, under a name that `weft.checkpoint(..., save=name)` can keep."""
    out: Tensor = bind(NAMED, x, name=str(name))
    return out


def _policy(save: Any) -> Policy:
    if callable(save):
        return lambda op, _attrs: bool(save(op.name))
    if save == "nothing":
        return lambda _op, _attrs: False
    if save == "products":
        return lambda op, _attrs: Trait.PRODUCT in op.traits
    names = {save} if isinstance(save, str) else set(save) if isinstance(save, Iterable) else None
    if names is None or not all(isinstance(name, str) for name in names):
        raise DTypeError(
            f"{save!r:.60} does not say what a checkpoint keeps",
            op="checkpoint",
            hint='"nothing", "products", names given by weft.checkpoint_name, or a function',
        )
    return lambda op, attrs: op is NAMED and attrs["name"] in names


class Region(Recorder):
    """One call of such a function: sees the ops of its first run, and of the second."""

    def __init__(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        policy: Policy,
    ) -> None:
        self.function = function
        self.args = args
        self.kwargs = kwargs
        self.policy = policy
        self.saved: dict[int, Any] = {}  # results that are kept, by the number of the call
        #: Tensors from outside that were read: their values and histories.
        self.read: dict[int, tuple[Tensor, Any, Any]] = {}
        self._kept: list[Any] | None = None
        self._expected: list[str] = []  # the ops whose nodes dropped something
        self._autocast = mode.autocast
        self._levels = open_levels()
        self._start(again=False)

    def _start(self, *, again: bool) -> None:
        self._repeats = again
        self._calls = 0
        self._first = next(count)
        self._nodes: list[OpNode] = []
        self._seen: set[int] = set()
        self._inside: dict[int, weakref.ref[Tensor]] = {}
        self._undo: dict[int, tuple[Tensor, Any, Any]] = {}

    # --- the first run ------------------------------------------------------------------------

    def run(self) -> Any:
        with recording(self):
            result = self.function(*self.args, **self.kwargs)
        for number, node in enumerate(self._nodes):
            node.kept = Dropped(self, number)
        self._expected = [node.op.name for node in self._nodes]
        self._nodes = []  # the nodes refer to this: break the cycle
        return result

    def call(self, op: Op, inputs: tuple[Tensor, ...], attrs: dict[str, Any]) -> Any:
        number = self._calls
        self._calls += 1
        if not self._repeats:
            for x in inputs:
                self._note(x)
        if self._repeats and number in self.saved:
            kept = self.saved[number]
            several = isinstance(kept, tuple)
            out = tuple(map(wrap, kept)) if several else wrap(kept)
            out = taped(op, inputs, attrs, out)
        else:
            out = bind(op, *inputs, **attrs)
            if not self._repeats and self.policy(op, attrs):
                several = isinstance(out, tuple)
                self.saved[number] = tuple(o._data for o in out) if several else out._data
        for part in out if isinstance(out, tuple) else (out,):
            self._inside[id(part)] = weakref.ref(part)
            self._collect(part._node)
        return out

    def _note(self, tensor: Tensor) -> None:
        mine = self._inside.get(id(tensor))
        if (mine is None or mine() is not tensor) and id(tensor) not in self.read:
            self.read[id(tensor)] = (tensor, tensor._data, tensor._node)

    def _collect(self, node: Node | None) -> None:
        made = node.parent if isinstance(node, PartNode) else node
        if not isinstance(made, OpNode) or made.number < self._first or made.number in self._seen:
            return
        self._seen.add(made.number)
        if made.plan.keeps:
            self._nodes.append(made)

    def write(self, target: Tensor) -> None:
        mine = self._inside.get(id(target))
        outside = mine is None or mine() is not target
        if self._repeats and outside and id(target) not in self._undo:
            self._undo[id(target)] = (target, target._data, target._node)
        super().write(target)

    # --- the second ---------------------------------------------------------------------------

    def kept(self, number: int) -> Any:
        """What node `number` would have kept."""
        if self._kept is None or self._kept[number] is None:
            self._kept = self._again()
        kept, self._kept[number] = self._kept[number], None
        return kept

    def _again(self) -> list[Any]:
        """Run the function again on the same inputs, without effects outside."""
        self._start(again=True)
        now = [(tensor, tensor._data, tensor._node) for tensor, _, _ in self.read.values()]
        for tensor, data, node in self.read.values():
            tensor._data, tensor._node = data, node
        computes_again(True)
        try:
            with ExitStack() as stack:
                # The levels of transforms that the backward pass opened know nothing of this.
                newer = [level for level in open_levels() if level not in self._levels]
                if newer:
                    stack.enter_context(left(newer[0]))
                stack.enter_context(enable_grad())
                stack.enter_context(autocasting(self._autocast))
                stack.enter_context(recording(self))
                self.function(*self.args, **self.kwargs)
        finally:
            computes_again(False)
            for tensor, data, node in [*self._undo.values(), *now]:
                tensor._data, tensor._node = data, node
        names = [node.op.name for node in self._nodes]
        if names != self._expected:
            raise GradientError(
                f"the function of a checkpoint did not repeat itself: {len(self._expected)} steps "
                f"the first time, {len(names)} the second",
                op="checkpoint",
                hint="it must compute the same when called again with the same arguments",
            )
        kept = [node.kept for node in self._nodes]
        self._nodes = []
        return kept
