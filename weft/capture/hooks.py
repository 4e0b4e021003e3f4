"""Hooks: what rewritten code calls to read, write, call and branch.

Each followed function has its own `Hooks`, which knows the function's globals and closure. All
hooks of a run share its `Watch`, which knows what comes from outside, and its `Flow`, which knows
the branches and loops that are being recorded. After the run, hooks do what plain Python does.

If a tensor decides the path, the policy of the capture applies (`Watch.records`): the control flow
becomes part of the graph, or Python asks the tensor and the answer becomes a guard.
"""

from __future__ import annotations

import contextlib
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from weft.base.asked_sizes import active, numbers_of
from weft.base.dim_algebra import Dim
from weft.base.errors import CaptureError, InternalError
from weft.base.frames import without_parts
from weft.base.source import is_own
from weft.capture import container_methods, names, outside_numbers, result_numbers
from weft.capture.builtin_table import row_of
from weft.capture.from_source import access, conditions, repeat, show
from weft.capture.from_source.branches import record_if
from weft.capture.from_source.dynamic_list import dynamic_list_of
from weft.capture.from_source.endless_recursion import endless_recursion
from weft.capture.from_source.held import Maybe, Split, undefined, use, use_all
from weft.capture.from_source.inner_transforms import leveled
from weft.capture.from_source.run import Flow, Unreachable
from weft.capture.watch import (
    attributes,
    builtin_calls,
    calls,
    counting,
    escaping_values,
    guard_recursively,
    lost_writes,
    operators,
    printing,
)
from weft.capture.watch.deferred_calls import is_unprepared
from weft.capture.watch.follow import needs_numbers, reads_unseen
from weft.capture.watch.origin import Origin
from weft.capture.watch.settled_numbers import settled, settled_call
from weft.capture.watch.texts import TextParts, as_string
from weft.capture.watch.values import CONTAINERS
from weft.capture.watch.watch import Watch
from weft.core.number import (
    Number,
    is_of_numpy,
    is_outside,
    number_attributes,
    python_number,
)
from weft.core.tensor import Tensor
from weft.ops.elementwise import logical_not
from weft.record.control.nested import graph_recorder, known_number
from weft.record.effects import token_of

_NOTHING: dict[str, Any] = {}
#: The code that records branches and loops, to recognise it in tracebacks.
_RECORDS = (record_if.__code__, repeat.record_while.__code__)
_METHODS = (types.BuiltinMethodType, types.MethodWrapperType)
#: What such methods may belong to that have a table of methods.
_HOLDERS = (*CONTAINERS, np.ndarray)
_PURE_KINDS = frozenset({type, types.BuiltinFunctionType, np.ufunc, type(np.clip)})


def run_watched(watch: Watch, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call `fn`, watched. An error of recorded control flow becomes an error of the graph."""
    hooks = Hooks(watch, None)
    try:
        return watch.run(hooks, fn, args, kwargs)
    except Unreachable:
        return None  # the graph always raises before its end
    except (CaptureError, InternalError) as error:
        without_parts(error)
        raise
    except RecursionError as error:
        endless = endless_recursion(error, _RECORDS)
        if endless is None:
            raise
        raise endless from None
    except Exception as error:
        here = graph_recorder() if watch.records else None
        sizes = active()  # with symbolic ones it may be no error of the user's
        if here is None or token_of(here) is None or (sizes is not None and sizes.hints):
            without_parts(error)
            raise
        hooks.flow.fail(error)  # after the effects that come before it
        return None


class Hooks:
    """The hooks of one function in one run."""

    def __init__(self, watch: Watch, function: types.FunctionType | None) -> None:
        self.watch = watch
        self.flow = watch.flow or Flow(watch)
        self.function = function
        self.globals: dict[str, Any] = _NOTHING if function is None else function.__globals__
        self.own = function is not None and is_own(function.__code__.co_filename)
        #: functions that were rebuilt for this run, by id
        self.rebuilt: dict[int, tuple[Any, Any, Any]] = {}
        self._kept: Any = None
        self._kept_right: Any = None
        self.variables: dict[str, tuple[types.CellType, Origin]] = {}

    def of(self, function: types.FunctionType) -> Hooks:
        """The hooks of another function in the same run."""
        made = type(self)(self.watch, function)
        made.rebuilt = self.rebuilt
        place = self.watch.know_again(function)
        names = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        for i, (name, cell) in enumerate(names):
            if place.pinned:
                origin = self.watch.pin(cell, name).contents(name)
            else:
                closure = place.origin.attr("__closure__").item(i)
                origin = closure.contents(f"{name} of {place.origin.text}")
            made.variables[name] = (cell, origin)
        return made

    def records(self) -> bool:
        """Whether control flow on tensors becomes part of the graph that is recorded."""
        return self.watch.records and graph_recorder() is not None

    def asks(self, value: Any) -> bool:
        """Whether a condition becomes part of the graph."""
        if not isinstance(value, Tensor) or is_outside(value):
            return False
        return self.watch.active and self.records()

    def decides(self, value: Any) -> bool:
        """The same for a condition that may be a dynamic list: whether it has elements."""
        dynamic = dynamic_list_of(value)
        return self.asks(value if dynamic is None else dynamic.length())

    def use(self, *objects: Any) -> None:
        """Settle objects that are about to be read or written, if the graph decides about them."""
        if self.flow.undecided:
            for obj in objects:
                use(self.flow, obj)

    def use_items(self, *objects: Any) -> None:
        """The same if Python needs all items of lists: it asks for their lengths."""
        if self.flow.undecided:
            for obj in objects:
                use(self.flow, obj, lists=True)

    # --- names --------------------------------------------------------------------------------

    glob = names.load_global
    watch_global = names.watch_global
    setglobal = names.store_global
    delglobal = names.delete_global
    free = names.load_free
    setfree = names.store_free
    imported = names.imported
    setcell = names.store_cell
    value = names.value
    local = names.load_local
    defined = names.defined
    cells = names.cells_of

    # --- attributes and items -----------------------------------------------------------------

    item = access.load_item
    delitem = access.delete_item
    delattr = attributes.delete
    new_item = lost_writes.load_item
    new_attr = lost_writes.load_attribute
    new_call = lost_writes.call

    def attr(self, obj: Any, name: str) -> Any:
        self.use(obj)
        if obj.__class__ is Dim:
            obj = numbers_of(obj)  # which has the attributes of an int
        if obj.__class__ is Number and (name in number_attributes(obj.kind) or is_of_numpy(obj)):
            obj = python_number(obj)
        elif obj.__class__ is TextParts:
            obj = str(obj)
        found = attributes.load(self, obj, name)
        if found.__class__ is Maybe:
            raise undefined(f"the attribute {name!r}", found.why)
        if found.__class__ is Split:  # of an object that was merged as a tree
            self.flow.split_objects[id(obj)] = obj
            return self.attr(obj, name)
        return found

    def setattr(self, value: Any, obj: Any, name: str) -> None:
        attributes.store(self, obj, name, value)

    def slice(self, lower: Any, upper: Any, step: Any) -> slice:
        return slice(lower, upper, step)

    def setitem(self, value: Any, obj: Any, key: Any) -> None:
        access.store_item(self, obj, key, value)

    old_attr = counting.old_attribute
    old_item = counting.old_item
    augment = counting.augment

    # --- calls --------------------------------------------------------------------------------

    #: A function for library code to call: the followed one instead of the original.
    callback = calls.followed

    def call(self, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        # Followed functions are called directly from here: every frame counts in recursions.
        row = row_of(function)
        unseen = self.flow.undecided and reads_unseen(function)
        if unseen:
            use_all(self.flow, [args, kwargs], lists=False)
        if row is not None and row.graph is not None and (self.watch.records or row.always):
            try:
                made = row.graph(self, *args, **kwargs)
                if made is not NotImplemented:
                    return made
            except TypeError as error:
                if not _is_wrong_call(error):
                    raise
        if type(function) is types.BuiltinMethodType and type(function.__self__) is str:
            made = escaping_values.method_of_text(self, function, args, kwargs)
            if made is not NotImplemented:
                return made
        if isinstance(function, _METHODS) and isinstance(function.__self__, _HOLDERS):
            stores = function.__name__ in container_methods.STORING and not self.flow.depth
            texts, named = settled_call(() if stores else args, kwargs, as_string)
            texts = args if stores else texts
            if isinstance(function.__self__, (dict, set, frozenset)):
                texts = numbers_of(texts)
            made = container_methods.call(self, function, function.__self__, texts, named)
            if made is not NotImplemented:
                return made
        if unseen:
            use_all(self.flow, [args, kwargs], lists=True)
        if type(function) in _PURE_KINDS and any(map(is_outside, args)):
            made = outside_numbers.of_numbers(function, args, kwargs)
            if made is not NotImplemented:
                return made
        if needs_numbers(function):
            if not self.flow.depth:
                args, kwargs = settled_call(args, kwargs)
            if self.watch.records and any(map(self.asks, (*args, *kwargs.values()))):
                return access.call_foreign(self, function, args, kwargs)
        logs = row is None and printing.is_logging(function, args)
        if logs and self.watch.records:
            made = show.log(self, function, args, kwargs)
            if made is not NotImplemented:
                return made
        if not (logs or calls.takes_texts(function) if row is None else row.shows):
            args, kwargs = settled_call(args, kwargs, as_string)
        if row is not None and row.call is not None:
            try:
                return row.call(self, *args, **kwargs)
            except TypeError as error:
                if not _is_wrong_call(error):
                    raise
            return function(*args, **kwargs)  # for its own error
        if function.__class__ is types.MethodType:
            args = (function.__self__, *args)
            function = function.__func__
            if function is Tensor.item and len(args) == 1 and not kwargs:
                made = result_numbers.of_tensor(self, args[0])
                if made is not NotImplemented:
                    return made
        known = self.rebuilt.get(id(function))
        if known is not None and known[2] is known[0].__code__ and is_unprepared(function):
            return known[1](*args, **kwargs)
        return calls.call(self, function, args, kwargs)

    def for_transform(self, function: Any) -> Any:
        """A followed function as a transform must run it."""
        return leveled(self, function) if self.watch.records and callable(function) else function

    def decorator(self, function: Any) -> Callable[[Any], Any]:
        return lambda target: self.call(function, target)

    def made_class(self, cls: type) -> type:
        """Note a class that a class statement of the followed function made."""
        self.watch.inside_classes[id(cls)] = cls
        if type(cls) is not type and operators.special(type(cls), "__new__") is not None:
            self.watch.refuse(f"the metaclass of {cls.__name__} is not watched")
        return cls

    def of_frame(self, name: str, result: Any) -> Any:
        if name in ("locals", "vars"):
            return {key: value for key, value in result.items() if not key.startswith("__weft")}
        if name == "dir":
            return [key for key in result if not key.startswith("__weft")]
        self.watch.refuse(f"{name}() is called, and what it reads is not watched")
        return result

    def not_watched(self, what: str) -> None:
        self.watch.refuse(f"{what} is not watched")

    def context(self, manager: Any) -> Any:
        """The context manager of a `with` statement."""
        cls = type(manager)
        if (
            operators.special(cls, "__enter__") is None
            and operators.special(cls, "__exit__") is None
        ):
            known = self.watch.known(manager)
            if known is not None and not isinstance(manager, Tensor):
                self.deep(manager, "with")
            return manager
        return builtin_calls.FollowedContext(self, manager)

    # --- values that leave the watched code ---------------------------------------------------

    key = escaping_values.key
    keys_of_all = escaping_values.keys_of_all
    part = escaping_values.text_part
    text = escaping_values.text
    joined = escaping_values.joined
    shallow = escaping_values.shallow
    operand = escaping_values.operand
    deep = escaping_values.deep
    deep_all = escaping_values.deep_all
    write_array = escaping_values.write_array
    write_view = escaping_values.write_view

    # --- operators and iteration --------------------------------------------------------------

    unary = operators.unary
    mapping = access.mapping
    pairs = access.pairs
    unpack = access.unpack
    unpack_each = access.unpack_each

    def binary(self, symbol: str, a: Any, b: Any) -> Any:
        self.use_items(a, b)
        if a.__class__ is Number or b.__class__ is Number:
            a, b = result_numbers.arithmetic(self, symbol, a, b)
        return operators.binary(self, symbol, a, b)

    def inplace(self, symbol: str, a: Any, b: Any) -> Any:
        self.use_items(a, b)
        if isinstance(a, (*CONTAINERS, np.ndarray)):
            self.flow.save(a)
        elif a.__class__ is Number or b.__class__ is Number:
            a, b = result_numbers.arithmetic(self, symbol, a, b)
        return operators.inplace(self, symbol, a, b)

    def iter(self, value: Any) -> Any:
        self.use_items(value)
        return operators.iterate(self, value)

    # --- conditions ---------------------------------------------------------------------------

    if_ = conditions.if_
    choose = conditions.choose
    chain = conditions.chain
    assert_ = conditions.check

    def test(self, value: Any) -> bool:
        self.use(value)
        dynamic = dynamic_list_of(value)
        return operators.truth(self, value if dynamic is None else dynamic.length() > 0)

    def not_(self, value: Any) -> Any:
        if not self.decides(value):
            return not self.test(value)
        return known_number(logical_not(conditions.predicate(value)))

    def compare(self, symbol: str, a: Any, b: Any) -> Any:
        if symbol in ("in", "not in"):
            found = conditions.contains(self, a, b)
            if found is not None:
                return found if symbol == "in" else self.not_(found)
        if symbol in ("is", "is not"):
            return self.flow.aliases.same(a, b) is (symbol == "is")
        self.use_items(a, b)
        return operators.compare(self, symbol, a, b)

    def compare_first(self, symbol: str, a: Any, b: Any) -> bool:
        """The first part of a < b < c."""
        result = self.compare(symbol, a, b)
        answer = self.test(result)
        self._kept, self._kept_right = result, b
        return answer

    def keep(self, value: Any) -> bool:
        """The truth of a value, which is stored for `kept` in case it is the result."""
        answer = self.test(value)
        self._kept = value
        return answer

    def kept(self) -> Any:
        value, self._kept = self._kept, None
        return value

    def kept_right(self) -> Any:
        value, self._kept_right = self._kept_right, None
        return value

    def and_(self, first: Any, *rest: Callable[[], Any]) -> Any:
        return conditions.join(self, first, rest, True)

    def or_(self, first: Any, *rest: Callable[[], Any]) -> Any:
        return conditions.join(self, first, rest, False)

    def all_of(self, first: Any, *rest: Callable[[], Any]) -> Any:
        """a and b: only the truth, as a condition."""
        return conditions.join(self, first, rest, True, only_truth=True)

    def any_of(self, first: Any, *rest: Callable[[], Any]) -> Any:
        return conditions.join(self, first, rest, False, only_truth=True)

    @contextlib.contextmanager
    def trying(self) -> Iterator[None]:
        self.flow.tries += 1
        try:
            yield
        finally:
            self.flow.tries -= 1

    # --- loops --------------------------------------------------------------------------------

    def while_(self, test: Any, body: Any, cells: Any, *live: Sequence[str]) -> None:
        repeat.while_(self, test, body, self.cells(cells), *live)

    def for_(self, iterable: Any, body: Any, going: Any, cells: Any, *live: Sequence[str]) -> None:
        repeat.for_(self, iterable, body, going, self.cells(cells), *live)

    # --- match --------------------------------------------------------------------------------

    def first(self, value: Any, *late: Callable[[], Any]) -> Any:
        """The subject of a match statement, with the names that its patterns use."""
        for read in late:
            try:
                read()
            except (NameError, AttributeError):
                continue  # the pattern raises the error, if it is reached
        return value

    def subject(self, value: Any) -> Any:
        value = settled(value) if value.__class__ is TextParts else value
        self.deep(value, "match", calls=False)
        guard_recursively.refuse_computed(self, value)
        return value


def _is_wrong_call(error: TypeError) -> bool:
    """Whether an error says that arguments do not fit: it has no frame but that of the call."""
    return error.__traceback__ is not None and error.__traceback__.tb_next is None
