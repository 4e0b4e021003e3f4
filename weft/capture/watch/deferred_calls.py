"""Calls that are deferred: not followed, but made again after each run of the graph.

A schedule of learning rates computes in Python, with a count that is another one in each call: to
follow it would be to record each step anew. It is done as an effect instead, in its turn among the
effects. That is right as long as the rest of the run sees nothing of what it does; where the run
does, it is recorded once more, and such calls are followed (`DeferredCalls.clash`).
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

from weft.base.source import is_own
from weft.capture.watch.follow import FOLLOW, policy
from weft.capture.watch.stores import instance_dict
from weft.core.bind import recorder
from weft.core.counted import Counted
from weft.core.tensor import Tensor

if TYPE_CHECKING:
    from weft.capture.hooks import Hooks
    from weft.capture.watch.watch import Known


class DeferredCalls:
    """What calls that were deferred in a run may change.

    containers  by id: reading of them afterwards is a clash
    tensors     by id: computing with them afterwards is one
    anything    they run code of the user's, which may change whatever there is
    clash       whether the rest of the run saw what they change
    """

    def __init__(self) -> None:
        self.containers: dict[int, Any] = {}
        self.tensors: dict[int, Tensor] = {}
        self.anything = False
        self.clash = False
        self._since = 0
        self._written: dict[int, Any] = {}

    def read(self, holder: Known | None) -> None:
        """Something from outside is read: an element of `holder`, if that is a container."""
        if self.anything or (holder is not None and id(holder.obj) in self.containers):
            self.clash = True

    def begin(self, tensors: Any) -> None:
        """A call is deferred now; `tensors` records the run."""
        if not self._since:
            self._since = len(tensors.graph.nodes)
            self._written = {id(e.tensor): e.tensor._data for e in tensors.written.values()}

    def end(self, tensors: Any) -> None:
        """The run is over: whether it computed with what such a call changes."""
        if self.anything or self.tensors:
            for entry in tensors.written.values():
                self.clash |= self._written.get(id(entry.tensor)) is not entry.tensor._data
        later = {value for node in tensors.graph.nodes[self._since :] for value in node.inputs}
        inputs = [tensors.input_of(tensor) for tensor in self.tensors.values()]
        self.clash |= any(value in later for value in inputs if value is not None)

    def add(self, obj: Any) -> None:
        """Everything reachable from an object may change: containers, their numbers, tensors."""
        if id(obj) in self.containers:
            return
        if isinstance(obj, Tensor):
            self.tensors[id(obj)] = obj
        elif isinstance(obj, types.FunctionType):
            code = obj.__code__
            self.anything |= policy(code.co_filename) == FOLLOW and not is_own(code.co_filename)
        elif isinstance(obj, dict):
            self.containers[id(obj)] = obj
            for key, value in obj.items():
                if key != "params":  # the parameters of an optimizer's group are left alone
                    self.add(value)
        elif isinstance(obj, (list, tuple)):
            self.containers[id(obj)] = obj
            for value in obj:
                self.add(value)
        elif isinstance(obj, Counted):
            self.add(vars(obj).get("param_groups"))
        elif str(type(obj).__module__).startswith("weft.optim"):
            self.add(instance_dict(obj))
        elif callable(obj):
            self.anything = True


def defer(hooks: Hooks, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Leave a call of a method to each replay, if that can be done."""
    watch = hooks.watch
    tensors: Any = watch.tensors
    if not watch.defers_calls or kwargs or not watch.active or tensors is None:
        return False
    known = watch.known(args[0])
    if known is None or recorder() is not tensors:  # of the run's own, or in a branch
        return False
    if not str(type(args[0]).__module__).startswith("weft.optim"):
        return False  # a schedule of the user's is followed
    found = watch.deferred = watch.deferred or DeferredCalls()
    found.begin(tensors)
    found.add(args[0])
    for container in found.containers.values():
        seen = watch.known(container)
        if seen is not None and seen.store is not None:
            seen.store.complete = False  # what was read of it tells no more what it holds
    watch.effect(f"{known.origin.text}.{function.__name__}(…)", function, known.origin, *args[1:])
    return True
