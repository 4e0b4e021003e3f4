"""Calls that are made at another time: after each run of the graph, or before the recording.

Deferred calls are not followed, but made after each run of the graph, as effects.

A learning rate schedule computes in Python with a count that changes at every call. Following it
would mean a new recording for each step. So the call becomes an effect, in order with the others.
That is right if the rest of the run does not depend on what the call changes. If it does, the run
is recorded again, and such calls are followed (`DeferredCalls.clash`).

What a first call makes and later ones find is made before the recording, so that there is one: the
moments of an optimizer are made in its first step. If the recording did that, it would be of no use
afterwards.
"""

from __future__ import annotations

import types
from dataclasses import field
from typing import TYPE_CHECKING, Any

from weft.base.dataclass import dataclass
from weft.base.source import is_own
from weft.capture.watch.follow import FOLLOW, policy
from weft.capture.watch.stores import instance_dict
from weft.core.bind import recorder
from weft.core.changing_numbers import unrecorded
from weft.core.counted import Counted
from weft.core.grad_mode import no_grad
from weft.core.tensor import Tensor
from weft.record.control.nested import graph_recorder

if TYPE_CHECKING:
    from weft.capture.hooks import Hooks
    from weft.capture.trace.recorder import TraceRecorder
    from weft.capture.watch.watch import Known


@dataclass(eq=False)
class DeferredCalls:
    """What the deferred calls of a run may change.

    containers  by id: a later read of one is a clash
    tensors     by id: a later op on one is a clash
    anything    whether they run user code, which may change anything
    clash       whether the rest of the run depends on what they change
    """

    containers: dict[int, Any] = field(default_factory=dict)
    tensors: dict[int, Tensor] = field(default_factory=dict)
    anything: bool = False
    clash: bool = False
    _since: int = 0
    _written: dict[int, Any] = field(default_factory=dict)

    def read(self, holder: Known | None) -> None:
        """Note a read from outside; of an element of `holder`, if that is a container."""
        if self.anything or (holder is not None and id(holder.obj) in self.containers):
            self.clash = True

    def begin(self, tensors: TraceRecorder) -> None:
        """Begin to defer calls; `tensors` is the recorder of the run."""
        if not self._since:
            self._since = len(tensors.graph.nodes)
            self._written = {id(e.tensor): e.tensor._data for e in tensors.written.values()}

    def end(self, tensors: TraceRecorder) -> None:
        """At the end of the run: note a clash if an op used a tensor that such a call changes."""
        if self.anything or self.tensors:
            for entry in tensors.written.values():
                self.clash |= self._written.get(id(entry.tensor)) is not entry.tensor._data
        later = {value for node in tensors.graph.nodes[self._since :] for value in node.inputs}
        inputs = [tensors.input_of(tensor) for tensor in self.tensors.values()]
        self.clash |= any(value in later for value in inputs if value is not None)

    def add(self, obj: Any) -> None:
        """Note everything reachable from an object as changed: containers, numbers, tensors."""
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
    """Defer a call of a method to each replay, if possible."""
    watch = hooks.watch
    tensors = watch.tensors
    if not watch.defers_calls or kwargs or not watch.active or tensors is None:
        return False
    known = watch.known(args[0])
    if known is None or recorder() is not tensors:  # of the run's own, or in a branch
        return False
    if not str(type(args[0]).__module__).startswith("weft.optim"):
        return False  # a user's schedule is followed
    found = watch.deferred = watch.deferred or DeferredCalls()
    found.begin(tensors)
    found.add(args[0])
    for container in found.containers.values():
        seen = watch.known(container)
        if seen is not None and seen.store is not None:
            seen.store.complete = False  # earlier reads no longer tell its contents
    watch.effect(f"{known.origin.text}.{function.__name__}(…)", function, known.origin, *args[1:])
    return True


# --- what first calls make ------------------------------------------------------------------------


def is_unprepared(function: Any) -> bool:
    """Whether nothing is made before calls of a function."""
    return "prepared_by" not in function.__dict__


def prepare(hooks: Hooks, function: Any, args: tuple[Any, ...]) -> None:
    """Before a method that is marked by `prepared_by` is followed."""
    watch, obj = hooks.watch, args[0]
    if not watch.active or watch.tensors is None or watch.known(obj) is None:
        return
    state = watch.known(obj.state)
    if graph_recorder() is None or (state is not None and state.store is not None):
        return  # what is in there was read already
    made = unrecorded(_made, getattr(obj, function.prepared_by))
    if made:
        watch.on_error.append(lambda: [obj.state.pop(key, None) for key in made])


def _made(method: Any) -> Any:
    with no_grad():
        return method()
