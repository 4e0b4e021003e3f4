"""Watch: runs a function so that its reads from outside become guards and its writes are known.

The function runs on the user's real objects, rewritten by `convert`, and reports here through
`Hooks`. A value that was read is noted with its origin: a plain value becomes a guard at once;
containers and objects are remembered, and later reads of their contents become guards. Objects that
the run made are not known here and need no guards.
"""

from __future__ import annotations

import contextlib
import os
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.autodiff.node import Node, hooks_of
from weft.base import dtypes
from weft.base.dataclass import dataclass
from weft.base.dims import has_dims
from weft.base.errors import CaptureError
from weft.base.recursion import raised_limit
from weft.base.source import user_frame
from weft.capture.notes import CaptureNotes
from weft.capture.outside_numbers import ChangingNumbers, is_number, stands_for
from weft.capture.watch import origin as origins
from weft.capture.watch.deferred_calls import DeferredCalls
from weft.capture.watch.effects import Effect, Unstorable
from weft.capture.watch.guards import Guard, call_of
from weft.capture.watch.origin import Origin, calculation
from weft.capture.watch.read_back import Outputs
from weft.capture.watch.refusals import NotKept
from weft.capture.watch.stores import Store, instance_dict, is_written
from weft.capture.watch.unseen_changes import UnseenChanges
from weft.capture.watch.values import (
    CONTAINERS,
    TensorFacts,
    content_of,
    is_plain,
    may_be_alike,
    size_of,
    tensor_facts,
)
from weft.core.counted import CONTAINERS as COUNTED
from weft.core.counted import NUMBERS, Counted
from weft.core.grad_mode import mode
from weft.core.number import Number
from weft.core.structure import changed
from weft.core.tensor import Tensor
from weft.ops.generator import default_generator
from weft.record.control.nested import in_nested_graph

if TYPE_CHECKING:
    from weft.capture.from_source.run import Flow
    from weft.capture.hooks import Hooks
    from weft.capture.trace.recorder import TraceRecorder

#: Objects that are guarded by identity when they are read; their contents are not.
BY_IDENTITY = (type, types.ModuleType, types.BuiltinFunctionType, np.ufunc, types.CodeType)


@dataclass(eq=False, slots=True)
class Known:
    """An object from outside that the run has seen."""

    obj: Any  # kept alive, so that its id stays valid
    origin: Origin
    pinned: bool  # its identity is guarded
    grouped: bool = False  # its contents belong to the structure of a module
    in_group: bool = False  # it is itself an attribute of a module
    root: Origin | None = None  # the module from the arguments that it belongs to
    store: Store | None = None
    owner: Known | None = None  # the instance, if this is its dict
    prefix: str = ""  # the text before names, if this is the dict of a module
    named: Origin | None = None  # its origin in a module, for its name


class Watch:
    """One run of one function.

    records   the policy if a tensor decides the path: control flow becomes part of the graph, or
              Python asks the tensor
    """

    def __init__(self, tensors: TraceRecorder | None = None, records: bool = False) -> None:
        self.tensors = tensors
        self.records = records
        self.flow: Flow | None = None  # of the run, as soon as it begins
        self.notes = CaptureNotes()  # for `weft.explain`
        self.uncacheable: list[str] = []
        self.active = False
        self.inside_classes: dict[int, type] = {}
        self._effects: list[Effect] = []
        self._guards: list[Guard] = []
        self._noted: set[tuple[str, int]] = set()  # guards that exist: kind and id of the origin
        self._read: set[int] = set()  # origins whose value was noted
        self._known: dict[int, Known] = {}
        self._pins: dict[int, Origin] = {}
        self._roots: list[Origin] = []
        self._undo: list[Callable[[], None]] = []
        self.unseen = UnseenChanges()
        self.outputs = Outputs()
        self._alike: dict[Any, list[Known]] = {}  # objects that other guards cannot tell apart
        self._alike_new: dict[Any, None] = {}
        self._unhooked: list[Origin] = []  # leaves that must stay without hooks
        self.written: set[tuple[int, str]] = set()  # written attributes without a dict: slots
        self._finished = True
        self.parameters: Sequence[str] = ()  # names of positional arguments, if known
        self.defers_calls = True  # whether calls are deferred to replays if possible
        self.deferred: DeferredCalls | None = None
        self.on_error: list[Callable[[], Any]] = []  # undoes what was made before the recording
        self.numbers = False  # whether there are numbers that are no Python numbers of this call
        self.changing = ChangingNumbers()  # numbers that are no guards, as far as known before

    # --- the run ------------------------------------------------------------------------------

    def run(self, hooks: Hooks, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call `fn` with the hooks of this run; see `weft.capture.hooks.run_watched`."""
        self.active = True
        self.outputs = Outputs()
        self._finished = False
        self.note(mode.enabled, self.pin(mode, "").attr("enabled", "grad mode"))
        self.note(mode.autocast, self.pin(mode, "").attr("autocast", "autocast"))
        default = self.pin(vars(dtypes), "default dtype").item("_default_float", "default dtype")
        self.note(dtypes.get_default_dtype(), default)
        self._remember(default_generator, self.pin(default_generator, "default generator"), True)
        self.guard("call", None, call_of(args, kwargs))
        names = [*self.parameters, *[""] * len(args)]
        read = [
            self.read(value, self._root(origins.argument(i, names[i])))
            for i, value in enumerate(args)
        ]
        for name, value in kwargs.items():
            origin = self._root(origins.keyword(name, name if self.parameters else ""))
            kwargs = {**kwargs, name: self.read(value, origin)}
        target = getattr(fn, "__self__", fn) if isinstance(fn, types.MethodType) else fn
        name = fn.__name__ if isinstance(fn, (types.FunctionType, type)) else "self"
        self._structure(self._remember(target, self.pin(target, name), True), None)
        before = mode.enabled, mode.autocast, dtypes.get_default_dtype()
        try:
            with raised_limit(3):  # hooks stand between the user's frames
                return hooks.call(fn, *read, **kwargs)
        finally:
            if (mode.enabled, mode.autocast, dtypes.get_default_dtype()) != before:
                self._refuse("the grad mode, autocast or the default dtype is left changed", "")
            self.finish()

    def finish(self) -> None:
        """End the run: finish its effects, and disable hooks that outlive it."""
        if self._finished:
            return
        self._finished = True
        for effect in self._effects:
            try:
                effect.finish(self.origin_of)
            except Unstorable as reason:
                self._refuse(f"{effect.description} stores {reason}", effect.location)
        self.active = False

    @contextlib.contextmanager
    def reopened(self) -> Iterator[list[Effect]]:
        """Watch hooks that a backward after the run calls; gives their writes to objects."""
        before, self._effects, self.active = self._effects, [], True
        try:
            yield self._effects
        finally:
            self._effects, self.active = before, False

    def _root(self, origin: Origin) -> Origin:
        self._roots.append(origin)  # kept alive: origins are compared by their ids
        return origin

    @property
    def effects(self) -> list[Effect]:
        """Writes to objects from outside, in order."""
        return self._effects

    def undo_first_calls(self) -> None:
        """The call fails: take away what was made before it was recorded."""
        for undo in self.on_error:
            undo()

    def rollback(self) -> None:
        """Restore everything to its state before the run."""
        for undo in reversed(self._undo):
            undo()
        if self._undo:
            changed()  # restored modules have changed once more
        self._undo.clear()

    # --- what is known ------------------------------------------------------------------------

    def known(self, obj: Any) -> Known | None:
        """What the run knows about an object; None for those that it made."""
        return self._known.get(id(obj))

    def origin_of(self, obj: Any) -> Origin | None:
        """The origin by which a later call finds an outside object of this run."""
        known = self._known.get(id(obj))
        if known is not None:
            return known.origin
        if obj is default_generator._state:
            return self.pin(default_generator, "default generator").attr("_state")
        if self.is_outside_object(obj):
            named = isinstance(obj, (type, types.FunctionType, types.BuiltinFunctionType))
            return self.pin(obj, obj.__qualname__ if named else type(obj).__name__)
        return None

    def names(self) -> dict[int, Origin]:
        """Origins in modules, of objects first found elsewhere; by the id of that origin."""
        return {id(known.origin): known.named for known in self._known.values() if known.named}

    def is_outside_object(self, obj: Any) -> bool:
        """What is known about a class, module or builtin: from outside unless the run made it."""
        return isinstance(obj, BY_IDENTITY) and id(obj) not in self.inside_classes

    def pin(self, obj: Any, text: str) -> Origin:
        """The origin of an object whose identity is guarded, or needs no guard."""
        found = self._pins.get(id(obj))
        if found is None:
            found = self._pins[id(obj)] = origins.pinned(obj, text)
        return found

    def _remember(self, obj: Any, origin: Origin, pinned: bool) -> Known:
        found = self._known.get(id(obj))
        if found is None:
            found = self._known[id(obj)] = Known(obj, origin, pinned)
        return found

    def attributes(self, known: Known) -> Known | None:
        """What is known about the attribute dict of an outside object."""
        own = instance_dict(known.obj)
        if own is None:
            return None
        found = self._known.get(id(own))
        if found is None:
            found = self._remember(own, known.origin.attr("__dict__"), False)
            found.owner, found.grouped, found.root = known, known.grouped, known.root
        return found

    def namespace(self, names: dict[str, Any], prefix: str) -> Known:
        """What is known about the global variables of a module."""
        found = self._known.get(id(names))
        if found is None or (found.owner is not None and not found.prefix):
            found = self._known[id(names)] = Known(names, self.pin(names, "globals"), True)
            found.prefix = prefix
        return found

    # --- guards -------------------------------------------------------------------------------

    def guard(
        self,
        kind: str,
        origin: Origin | None,
        expected: Any,
        others: tuple[Origin, ...] = (),
        holder: Known | None = None,
    ) -> None:
        """Add a guard. `holder` is the container or module that holds the value, if any."""
        if self.deferred is not None:
            self.deferred.read(holder)
        key = (kind, id(origin))
        if origin is not None and not others:
            if key in self._noted:
                return
            self._noted.add(key)
        if not self.active:
            return
        grouped = holder is not None and holder.grouped
        if grouped and holder is not None and kind == "value" and type(expected) in NUMBERS:
            grouped = not is_counted((holder.owner or holder).obj)  # numbers change there
        root = holder.root if grouped and holder is not None else None
        self._guards.append(Guard(kind, origin, expected, others, grouped, here(), root))

    def add_guard(self, guard: Guard) -> None:
        """Add a guard that is about several places, perhaps after the run: of its backward."""
        self._guards.append(guard)

    @property
    def guard_count(self) -> int:
        return len(self._guards)

    def forget_numbers(self, since: int) -> None:
        """Take back guards on numbers that change: what asked for them was undone."""
        kept = self._guards[:since]
        for guard in self._guards[since:]:
            origin = guard.origin
            if guard.kind == "value" and origin is not None and self._is_changing(origin):
                self._noted.discard((guard.kind, id(origin)))
            else:
                kept.append(guard)
        self._guards = kept

    def _is_changing(self, origin: Origin) -> bool:
        return origin.kind == origins.CALC or origin in self.changing

    def take_guards(self) -> list[Guard]:
        """The guards since the last call of this."""
        for name in self._alike_new:
            members = self._alike[name]
            if len(members) > 1 and not all(known.pinned for known in members):
                places = tuple(known.origin for known in members)
                grouped = all(known.in_group for known in members)
                root = next((known.root for known in members if known.root is not None), None)
                guard = Guard("distinct", None, None, places, grouped, here(), root)
                self._guards.append(guard)
        if self._alike_new:
            for name in self._alike:
                if isinstance(name, TensorFacts) and has_dims(name.shape):
                    self._tell_apart_sizes(name)
        self._alike_new.clear()
        if self._unhooked:
            self._guards.append(Guard("unhooked", None, None, tuple(self._unhooked), False, here()))
            self._unhooked = []
        taken, self._guards = self._guards, []
        return taken

    def _tell_apart(self, name: Any, known: Known) -> None:
        """Guard that objects of the same type stay distinct: other guards would not notice."""
        self._alike.setdefault(name, []).append(known)
        self._alike_new[name] = None

    def _tell_apart_sizes(self, facts: TensorFacts) -> None:
        """The same for a tensor with symbolic sizes: others may have its sizes in a later call."""
        others = [
            known
            for other, members in self._alike.items()
            if other.__class__ is TensorFacts and (other is facts or may_be_alike(facts, other))
            for known in members
        ]
        if len(others) > 1:
            places = tuple([known.origin for known in others])
            self._guards.append(Guard("distinct", None, None, places, False, here()))

    def note(self, value: Any, origin: Origin, holder: Known | None = None) -> Any:
        """A value was read: guard it, or remember where it was found. Returns the value."""
        if self.deferred is not None:
            self.deferred.read(holder)
        if id(origin) in self._read or not self.active or value.__class__ is Number:
            return value  # numbers of the graph are the run's own
        self._read.add(id(origin))
        if is_plain(value):
            self.guard("value", origin, value, holder=holder)
            return value
        known = self._known.get(id(value))
        if known is not None and not (known.pinned or origin is known.origin):
            # It holds until a module changes only if both origins are in modules.
            both = holder if known.in_group else None
            in_module = holder is not None and is_module((holder.owner or holder).obj)
            if in_module and known.named is None:
                known.named, known.origin.text = origin, origin.text
            self.guard("same", origin, None, (known.origin,), holder=both)
            return value
        if value is os.environ:
            self.refuse("os.environ is read")
        if isinstance(value, Tensor):
            self._note_tensor(value, origin, holder)
        elif isinstance(value, np.ndarray):
            self.guard("array", origin, (type(value), value.dtype, value.shape), holder=holder)
            self._tell_apart(
                ("array", value.dtype, value.shape), self._remember(value, origin, False)
            )
        elif isinstance(value, CONTAINERS):
            self._note_container(value, origin, holder)
        elif isinstance(value, (types.MethodType, types.MethodWrapperType)) or (
            isinstance(value, types.BuiltinMethodType)
            and not isinstance(value.__self__, (types.ModuleType, type(None)))
        ):
            # A new object at each access: guard what it binds.
            self.guard("class", origin, type(value), holder=holder)
            self.note(value.__self__, origin.attr("__self__"))
            member = "__func__" if isinstance(value, types.MethodType) else "__name__"
            self.note(getattr(value, member), origin.attr(member))
            self._remember(value, origin, False)
        elif isinstance(value, BY_IDENTITY) or not (
            origin.from_args or self.changing.is_replaced(origin)
        ):
            self.guard("identity", origin, value, holder=holder)
            self._pinned(value, origin, holder)
        elif isinstance(value, types.FunctionType):
            # Functions that are created for each call are equal if their code and cells are.
            self.guard("class", origin, types.FunctionType)
            self.guard("code", origin, value.__code__)
            self.guard("identity", origin.attr("__globals__"), value.__globals__)
            self._remember(value, origin, False)
        else:
            self.guard("class", origin, type(value), holder=holder)
            self._structure(self._remember(value, origin, False), holder)
            self._tell_apart(type(value), self._known[id(value)])
        return value

    def _pinned(self, value: Any, origin: Origin, holder: Known | None) -> None:
        known = self._remember(value, self.pin(value, origin.text), True)
        self._structure(known, holder)
        if not isinstance(value, BY_IDENTITY):
            self._tell_apart(type(value), known)

    def _structure(self, known: Known, holder: Known | None) -> None:
        """Mark objects whose reads are covered by the version counter of all modules."""
        if is_module(known.obj) or is_counted(known.obj):
            known.grouped = True
            if not known.pinned:
                outer = holder.root if holder is not None and holder.grouped else None
                known.root = outer or known.origin

    def _note_tensor(self, value: Tensor, origin: Origin, holder: Known | None) -> None:
        facts = tensor_facts(value)
        in_module = holder is not None and holder.grouped
        shape = self.tensors and self.tensors.sized(value, origin, facts, in_module)
        if shape:
            assert self.tensors is not None
            assert self.tensors.sizes is not None
            facts, holder = replace(facts, shape=shape), None
            self.guard("tensor", origin, facts)
            self.tensors.sizes.guard_axes(origin, shape)
        grouped = holder if facts.leaf is not False else None
        self.guard("tensor", origin, facts, holder=grouped)
        if facts.leaf is None and holder is not None and holder.grouped:
            # An in-place write may give it a history without a change of the version; parameters
            # that require gradients refuse such writes.
            self.guard("bare", origin, None, holder=holder)
        known = self._remember(value, origin, False)
        known.in_group = grouped is not None and grouped.grouped
        known.root = grouped.root if known.in_group and grouped is not None else None
        self._tell_apart(facts, known)

    def read(self, value: Any, origin: Origin, holder: Known | None = None) -> Any:
        """The same where the reader takes what is returned: a number that changes from call to call
        becomes one that stands for that of each call, see `outside_numbers`."""
        free = self.active and self.tensors is not None and bool(self.changing.places)
        if free and is_number(value) and origin in self.changing:
            self.guard("class", origin, type(value), holder=holder)
            self.numbers = True
            return stands_for(self, origin, value)
        return self.note(value, origin, holder)

    def is_growing(self, origin: Origin) -> bool:
        """Whether a container has another length from call to call, as far as known before."""
        return self.active and self.tensors is not None and self.changing.grows(origin)

    def length(self, value: int, origin: Origin) -> Any:
        """The length of such a container, as a number that each call finds."""
        self.numbers = True
        return stands_for(self, calculation(size_of, (origin,)), value)

    def hold(self, value: Any, origin: Origin) -> None:
        """Guard a number that counts as it is, though it changes from call to call."""
        if is_number(value) and self.changing.places and origin in self.changing:
            self.guard("value", origin, value)

    def hooks(self, tensor: Tensor, node: Node) -> bool:
        """Guard the hooks on a tensor with this history. False if the tensor is not known."""
        known = self._known.get(id(tensor))
        if known is None:
            return False
        if self.active and ("hooks", id(known.origin)) not in self._noted:
            self._noted.add(("hooks", id(known.origin)))
            found, grouped = hooks_of(node), known.in_group and node.is_leaf
            if node.is_leaf and not found and not grouped:
                self._unhooked.append(known.origin)
                return True
            root = known.root if grouped else None
            self._guards.append(Guard("hooks", known.origin, found, (), grouped, here(), root))
        return True

    def _note_container(self, value: Any, origin: Origin, holder: Known | None) -> None:
        self.guard("class", origin, type(value), holder=holder)
        known = self._remember(value, origin, False)
        # The contents of a tuple change only with the attribute; internal records of modules
        # change with their structure.
        fixed = type(value) is tuple or origin.key == "_member_kinds"
        if holder is not None and holder.grouped and (fixed or is_counted(value)):
            known.grouped, known.in_group, known.root = True, True, holder.root
        else:
            self._structure(known, None)
        if not isinstance(value, (tuple, frozenset)):
            self._tell_apart(type(value), known)

    def know_again(self, value: Any) -> Known:
        """What is known about a function, class or module; a new one is pinned."""
        known = self._known.get(id(value))
        if known is None:
            text = str(getattr(value, "__qualname__", None) or getattr(value, "__name__", "?"))
            known = self._remember(value, self.pin(value, text), True)
        return known

    def identity(self, obj: Any) -> None:
        """Guard the identity of an object that was used by id(), hash() or as a key."""
        known = self._known.get(id(obj))
        if known is not None and not known.pinned:
            self.guard("identity", known.origin, obj)

    def content(self, known: Known) -> None:
        """Guard the elements of an outside array."""
        array = self.original_array(known)
        if array.dtype == object:
            self.refuse(f"the array of objects {known.origin.text} is read")
        else:
            self.guard("content", known.origin, content_of(array))

    def original_array(self, known: Known) -> Any:
        return known.store.original if known.store and is_written(known) else known.obj

    # --- writes -------------------------------------------------------------------------------

    def effect(
        self, text: str, action: Callable[..., Any], target: Origin | None, *values: Any
    ) -> Effect:
        effect = Effect(text, here(), action, target, values)
        if self.active:
            self._effects.append(effect)
        return effect

    def save(self, obj: Any) -> None:
        """Save the attributes of an object before they change."""
        if isinstance(obj, (type, types.ModuleType)):
            if in_nested_graph():
                self.refuse(f"an attribute of {obj.__name__} is set")
        elif self.flow is not None and not isinstance(obj, Tensor):
            self.flow.save(obj)

    def created(self, obj: Any) -> None:
        """Note an object that the run made."""
        if self.flow is not None:
            self.flow.created(obj)

    def undo(self, action: Callable[[], None]) -> None:
        if self.active:
            self._undo.append(action)

    # --- refusals -----------------------------------------------------------------------------

    def refuse(self, reason: str) -> None:
        """End the recording, before what cannot be undone is done; a run without a recorder only
        notes it, once for each line."""
        if self.active and in_nested_graph():  # perhaps on a side that is not taken
            raise NotKept(f"{reason} ({here()})")
        self._refuse(reason, here())
        if self.active and self.tensors is not None:
            raise NotKept(self.uncacheable[-1])

    def unconvertible(self, name: str, reason: Exception) -> None:
        """Refuse a function without source, or with a construct that cannot be converted."""
        if self.records:
            raise CaptureError(
                f"{name} cannot be converted: {reason}",
                hint="define it in a file, in plain Python; or call it through weft.py_call",
            )
        self.refuse(f"{name} cannot be watched: {reason}")

    def _refuse(self, reason: str, where: str) -> None:
        if not self.active:
            return
        text = f"{reason} ({where})" if where else reason
        if text not in self.uncacheable:
            self.uncacheable.append(text)


def is_module(obj: Any) -> bool:
    """Whether an object is a module of `weft.nn`, which is a layer above this one."""
    own = instance_dict(obj)
    return own is not None and "_member_kinds" in own and "_transient_buffers" in own


def is_counted(obj: Any) -> bool:
    """Whether changes of an object also increase the version counter of all modules."""
    return isinstance(obj, Counted) or type(obj) in COUNTED


def here() -> str:
    """The user's line that is running, as `file:line`."""
    frame = user_frame()
    return "" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"
