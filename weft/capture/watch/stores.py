"""Containers from outside: what a run read and wrote, and what they held before.

Each read of a container becomes a guard. Before the first write, its contents are copied: later
reads of elements that the run did not write are guards on that copy, and `Watch.rollback` restores
it.
"""

from __future__ import annotations

import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterable
from dataclasses import field
from typing import TYPE_CHECKING, Any

from weft.base.dataclass import dataclass
from weft.capture.watch.origin import MISSING, Origin
from weft.capture.watch.settled_numbers import settled
from weft.capture.watch.texts import TextParts
from weft.capture.watch.values import is_plain, keys_of, size_of
from weft.core.counted import CONTAINERS as COUNTED
from weft.core.counted import CountedDict, CountedList
from weft.core.number import Number, calculated, is_outside
from weft.core.tensor import Tensor

if TYPE_CHECKING:
    from weft.capture.watch.watch import Known, Watch

#: The builtin class whose methods read and write a container, past those of a subclass.
BASES: tuple[type, ...] = (
    *COUNTED,  # their methods count what is written
    *(OrderedDict, defaultdict, dict, list, tuple, set, frozenset, deque),
)
#: Classes whose `[…]` only looks up an element.
_DICTS = (dict, CountedDict)
_SEQUENCES = (list, CountedList, tuple, deque)


def base_of(container: Any) -> Any:
    return next(base for base in BASES if isinstance(container, base))


def copy_of(container: Any) -> Any:
    """A copy of the contents of a container, in order: a dict, or a list for others."""
    if isinstance(container, dict):
        return {key: dict.__getitem__(container, key) for key in keys_of(container)}
    return list(base_of(container).__iter__(container))


@dataclass(eq=False, slots=True)
class Store:
    """What is known about one container besides its origin."""

    obj: Any
    original: Any = None  # a copy, once the run writes to it
    #: Of keys that the run gave values: in how many branches and loop bodies at least it was.
    depths: dict[Any, int] = field(default_factory=dict)
    written: set[Any] = field(default_factory=set)  # keys and indices that the run wrote
    moved: bool = False  # elements are at other positions than before
    appended: int = 0  # how many elements the run has put behind the others, which stay
    grown: int | None = 0  # by how much the length is larger; None: nobody knows
    #: Numbers and texts that the run wrote at, and that are others in each call.
    varying: list[Any] = field(default_factory=list)
    complete: bool = False  # all elements are guarded, or were written


def store_of(known: Known) -> Store:
    """For reads: what they find depends on the keys that the run wrote at."""
    store = _store(known)
    while store.varying:
        settled(store.varying.pop())
    return store


def _store(known: Known) -> Store:
    if known.store is None:
        known.store = Store(known.obj)
    return known.store


def is_written(known: Known) -> bool:
    """Whether the run has written to a container or an array."""
    return known.store is not None and known.store.original is not None


def held(known: Known) -> Any:
    """The contents of a container before the run wrote to it."""
    store = known.store
    return known.obj if store is None or store.original is None else store.original


def instance_dict(obj: Any) -> dict[str, Any] | None:
    """The dict of an instance, past any `__getattribute__`; None if it has none."""
    if isinstance(obj, (type, types.ModuleType)):
        own = vars(obj)
        return own if isinstance(own, dict) else None
    try:
        own = object.__getattribute__(obj, "__dict__")
    except AttributeError:
        return None
    return own if isinstance(own, dict) else None


# --- reading -------------------------------------------------------------------------------------


def key_origin(watch: Watch, key: Any) -> Any:
    """The key for an origin: a plain value, or the origin of the key object. None if neither."""
    if is_plain_key(key):
        return key
    if isinstance(key, tuple):
        return None
    found = watch.origin_of(key)
    if found is None:
        return None
    if not isinstance(key, Tensor):
        watch.identity(key)
    return found


def is_plain_key(key: Any) -> bool:
    return all(map(is_plain_key, key)) if type(key) is tuple else is_plain(key)


def element_origin(known: Known, key: Any) -> Origin:
    obj = known.obj
    if known.owner is not None and isinstance(key, str):
        return _attribute_origin(known.owner, key)
    if known.prefix:
        return known.origin.item(key, f"{known.prefix}{key}")
    if isinstance(obj, dict):
        return known.origin.item(key) if type(obj) in _DICTS else known.origin.get(key)
    return known.origin.item(key) if type(obj) in _SEQUENCES else known.origin.at(key)


def _attribute_origin(owner: Known, name: str) -> Origin:
    # If the class has __getattr__ or __getattribute__, look into the dict itself.
    cls: Any = type(owner.obj)
    if getattr(cls, "__getattr__", None) is not None or (
        cls.__getattribute__ is not object.__getattribute__
    ):
        return owner.origin.own(name)
    return owner.origin.attr(name)


def absence(known: Known, key: Any) -> Origin:
    """The origin of a missing key: MISSING as long as the dict lacks it."""
    if known.owner is not None and isinstance(key, str):
        return known.owner.origin.own(key)
    if known.prefix:
        return known.origin.get(key, f"{known.prefix}{key}")
    return known.origin.get(key)


def read_item(watch: Watch, known: Known, key: Any, exact: bool = False) -> Any:
    """Guard an element that was read by its key or index: its value, or its absence.

    Gives the number that stands for it in each call, if it is one that changes; else MISSING. Who
    cannot take that instead asks for an `exact` guard.
    """
    store = store_of(known)
    if store.complete:
        return MISSING
    if isinstance(known.obj, dict):
        return _read_key(watch, known, key, exact)
    try:
        index = key.__index__()
    except (AttributeError, TypeError):
        whole(watch, known)
        return MISSING
    before = held(known)
    size = len(before)
    if -store.appended <= index < 0 and not store.moved:
        return MISSING
    if index < 0:
        index += store.appended
        if store.written and not store.moved:
            read_length(watch, known)
            index += size
    if store.moved:
        whole(watch, known)
    elif index in store.written:
        return MISSING
    elif not -size <= index < size:
        watch.guard(_size(known), known.origin, size, holder=known)
    else:
        return _number(watch, known, index, before[index], element_origin(known, index), exact)
    return MISSING


def _number(watch: Watch, known: Known, key: Any, value: Any, origin: Origin, exact: bool) -> Any:
    if isinstance(known.obj, dict):
        now = dict.get(known.obj, key)
    else:  # what was appended lies behind
        now = known.obj[key - store_of(known).appended if key < 0 else key]
    if now is not value and not exact and now.__class__ is Number and origin in watch.changing:
        return MISSING  # the run has put it there: what it depends on was noted then
    exact = exact or now is not value
    found = watch.note(value, origin, known) if exact else watch.read(value, origin, known)
    return MISSING if found is value else found


def _read_key(watch: Watch, known: Known, key: Any, exact: bool) -> Any:
    store = store_of(known)
    name = key_origin(watch, key)
    if name is None:
        try:
            hash(key)
        except TypeError:
            return MISSING  # the look-up itself raises
        whole(watch, known)
        return MISSING
    if key in store.written:
        return MISSING
    before = held(known)
    found = dict.get(before, key, MISSING)
    if found is MISSING:
        watch.guard("missing", absence(known, name), None, holder=known)
    else:
        return _number(watch, known, key, found, element_origin(known, name), exact)
    return MISSING


def read_presence(watch: Watch, known: Known, key: Any) -> None:
    """`key in dict` was asked."""
    store = store_of(known)
    name = key_origin(watch, key)
    if name is None:
        whole(watch, known)
    elif not store.complete and key not in store.written:
        there = dict.__contains__(held(known), key)
        watch.guard("present" if there else "missing", absence(known, name), None, holder=known)


def read_member(watch: Watch, known: Known, value: Any) -> None:
    """`value in set` was asked."""
    store = store_of(known)
    if store.complete:
        return
    if store.original is not None or not is_plain_key(value):
        whole(watch, known)
    else:
        watch.note(value in known.obj, known.origin.has(value), known)


def length(watch: Watch, known: Known) -> Any:
    """The length of a container was asked: a number that each call finds, if it is one that
    changes."""
    store = store_of(known)
    written = store.original is not None and isinstance(known.obj, (dict, set))
    if store.complete or written or store.grown is None or not watch.is_growing(known.origin):
        read_length(watch, known)
        return size_of(known.obj)
    found = watch.length(size_of(held(known)), known.origin)
    if store.grown:
        found = found + store.grown
    most = getattr(known.obj, "maxlen", None)
    if most is not None:
        watch.note(most, known.origin.attr("maxlen"))
        found = calculated(min, found, most)
    return found


def read_length(watch: Watch, known: Known) -> None:
    store = store_of(known)
    if store.original is not None and isinstance(known.obj, (dict, set)):
        read_keys(watch, known)  # whether a written key is a new one depends on them
    elif not store.complete:
        watch.guard(_size(known), known.origin, size_of(held(known)), holder=known)


def _size(known: Known) -> str:
    """The kind of guard for the length: a subclass may override `len`."""
    return "length" if type(known.obj) in BASES else "size"


def read_keys(watch: Watch, known: Known) -> None:
    """Guard the keys of a dict or the elements of a set, over which code iterated."""
    if store_of(known).complete:
        return
    before = held(known)
    kind = "keys" if type(known.obj) is dict else "order"
    keys = keys_of(before) if isinstance(before, dict) else tuple(before)
    watch.guard(kind, known.origin, keys, holder=known)
    for key in keys:
        if not is_plain_key(key) and watch.known(key) is None:
            watch.note(key, watch.pin(key, f"a key of {known.origin.text}"))


def whole(watch: Watch, known: Known) -> None:
    """Guard all elements. Their own contents are guarded when they are read."""
    store = store_of(known)
    if store.complete:
        return
    before = held(known)
    if isinstance(known.obj, (dict, set, frozenset)):
        read_keys(watch, known)
    else:
        watch.guard(_size(known), known.origin, size_of(before), holder=known)
    if isinstance(known.obj, dict):
        for key, value in list(dict.items(before)):
            if key not in store.written:
                name = key_origin(watch, key)
                if name is None:
                    _odd_key(watch, known, key)
                else:
                    watch.note(value, element_origin(known, name), known)
    elif not isinstance(known.obj, (set, frozenset)):
        for index, value in enumerate(list(before)):
            if store.moved or index not in store.written:
                watch.note(value, element_origin(known, index), known)
    store.complete = True


def _odd_key(watch: Watch, known: Known, key: Any) -> None:
    watch.refuse(f"{known.origin.text} has the key {key!r:.60}, which a later call cannot name")


def elements(watch: Watch, known: Known) -> Any:
    """All elements of a list or tuple were read, one by one: the container, or its elements where
    some of them are numbers that change."""
    store = store_of(known)
    obj = known.obj
    free = watch.changing.places and not store.complete and not store.moved
    if not free or not isinstance(obj, (list, tuple)):
        whole(watch, known)
        return obj
    before = held(known)
    places = [element_origin(known, i) for i in range(len(before))]
    if not any(place in watch.changing for place in places):
        whole(watch, known)
        return obj
    watch.guard(_size(known), known.origin, size_of(before), holder=known)
    found = list(base_of(obj).__iter__(obj))
    for index, place in enumerate(places):
        if index not in store.written:
            found[index] = watch.read(before[index], place, known)
    return found


# --- writing -------------------------------------------------------------------------------------


def before_write(watch: Watch, known: Known) -> Store:
    """Copy the contents of a container, for later reads and for the rollback."""
    store = _store(known)
    if store.original is None:
        store.original = copy_of(known.obj)
        obj, original = known.obj, store.original
        watch.undo(lambda: put_back(obj, original))
    return store


def put_back(container: Any, original: Any) -> None:
    """Give a container the contents of a copy, in the same order."""
    base = base_of(container)
    if issubclass(base, dict):
        now = list(keys_of(container))
        kept = [key for key in now if key in original]
        if _same_order(kept, original):  # no key was removed: other threads may read it now
            for key in now:
                if key not in original:
                    base.__delitem__(container, key)
                elif dict.get(container, key) is not original[key]:
                    base.__setitem__(container, key, original[key])
            return
        base.clear(container)
        for key, value in original.items():
            base.__setitem__(container, key, value)
    elif issubclass(base, list):
        base.__setitem__(container, slice(None), original)
    elif base is set:
        wanted = set(original)
        for value in [value for value in container if value not in wanted]:
            set.discard(container, value)
        set.update(container, original)
        if not _same_order(container, original):  # a set's order depends on how it was filled
            set.clear(container)
            set.update(container, original)
    else:
        deque.clear(container)
        deque.extend(container, original)


def _same_order(one: Iterable[Any], two: Iterable[Any]) -> bool:
    """Whether these are the same objects in the same order; tensors override `==`."""
    return [id(part) for part in one] == [id(part) for part in two]


def set_item(container: Any, key: Any, value: Any) -> None:
    base_of(container).__setitem__(container, key, value)


def _del_item(container: Any, key: Any) -> None:
    base_of(container).__delitem__(container, key)


def write_item(watch: Watch, known: Known, key: Any, value: Any) -> None:
    """container[key] = value"""
    obj = known.obj
    if varies(key) and not _writes_at(watch, known, key):
        key = settled(key)
    if varies(key):
        store = before_write(watch, known)
        now = in_this_call(key)
        set_item(obj, now, value)
        store.written.add(now if isinstance(obj, dict) or now >= 0 else now + len(obj))
        store.varying.append(key)
        watch.effect(f"{known.origin.text}[…] = …", set_item, known.origin, key, value)
        return
    if not isinstance(obj, dict) and (not hasattr(key, "__index__") or isinstance(key, Tensor)):
        whole(watch, known)
        before_write(watch, known)
        set_item(obj, key, value)
        became(watch, known, f"{known.origin.text}[{key!r:.40}] = …")
        return
    if not isinstance(obj, dict):
        read_length(watch, known)  # whether the index exists
    store = before_write(watch, known)
    set_item(obj, key, value)
    if isinstance(obj, dict):
        store.written.add(key)
        depth = 0 if watch.flow is None else watch.flow.depth
        store.depths[key] = min(depth, store.depths.get(key, depth))
    elif not store.moved:
        index = key.__index__()
        store.written.add(index if index >= 0 else index + len(obj))
    text = f"{known.origin.text}[{_text(watch, key)}] = …"
    watch.effect(text, set_item, known.origin, key, value)


def varies(key: Any) -> bool:
    """Whether a key is a number or a text that each call knows, and another one in each."""
    return is_outside(key) or (key.__class__ is TextParts and key.is_known)


def in_this_call(key: Any) -> Any:
    return key.in_this_call() if key.__class__ is TextParts else key.outside.value


def _writes_at(watch: Watch, known: Known, key: Any) -> bool:
    """Whether a write needs no guard on its key: it is on the list, or in a dict, in any call."""
    flow = watch.flow
    if flow is None or flow.depth or not watch.active:
        return False
    if isinstance(known.obj, dict):
        return type(known.obj) in (*_DICTS, OrderedDict, defaultdict)
    if type(known.obj) is not list or key.__class__ is TextParts or key.kind != "int":
        return False
    read_length(watch, known)
    size = len(known.obj)
    return bool(key >= -size) and bool(key < size)


def delete_item(watch: Watch, known: Known, key: Any) -> None:
    """del container[key]"""
    obj = known.obj
    if isinstance(obj, dict):
        read_presence(watch, known, key)
        store = before_write(watch, known)
        _del_item(obj, key)
        store.written.add(key)
        watch.effect(f"del {known.origin.text}[{_text(watch, key)}]", _del_item, known.origin, key)
        return
    whole(watch, known)
    before_write(watch, known)
    _del_item(obj, key)
    became(watch, known, f"del {known.origin.text}[{key!r:.40}]")


def _text(watch: Watch, key: Any) -> str:
    found = None if is_plain_key(key) else watch.origin_of(key)
    return found.text if found is not None else f"{key!r:.40}"


def became(watch: Watch, known: Known, text: str) -> None:
    """Note that a container was read completely before: its new contents follow from that."""
    store_of(known).complete = True
    store_of(known).moved = True
    watch.effect(text, put_back, known.origin, copy_of(known.obj))


#: Methods of lists and deques by how many elements they put in, and those that put them behind.
_ONE = frozenset({"append", "appendleft", "insert"})
_SEVERAL = frozenset({"extend", "extendleft", "__iadd__"})
_BEHIND = frozenset({"append", "extend", "__iadd__"})


def blind(watch: Watch, known: Known, method: str, *args: Any) -> Any:
    """A method that writes without reading the contents: append, add, clear."""
    store = before_write(watch, known)
    function = getattr(base_of(known.obj), method)
    result = function(known.obj, *args)
    by = 1 if method in _ONE else len(args[0]) if method in _SEVERAL else None
    store.grown = None if by is None or store.grown is None else store.grown + by
    if method in _BEHIND and getattr(known.obj, "maxlen", None) is None:
        store.appended += by or 0
    else:
        store.moved = True
    if isinstance(known.obj, (set, dict)) and method == "clear":
        store.complete = True
    watch.effect(f"{known.origin.text}.{method}(…)", function, known.origin, *args)
    return result
