"""Values that guards compare: which are plain, when two are equal, how messages show them."""

from __future__ import annotations

import datetime
import decimal
import enum
import fractions
import operator
import pathlib
import struct
import types
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from weft.base.dataclass import dataclass
from weft.base.device import Device
from weft.base.dtypes import DType
from weft.base.lazy import Lazy
from weft.core.grad_mode import Switch
from weft.core.parts import Parts
from weft.core.private_state import class_of
from weft.core.tensor import Tensor
from weft.ir.dispatch import family_of

hashlib = Lazy("hashlib")
#: Classes with one value each, or two.
SINGLETONS = frozenset({type(None), bool, type(Ellipsis), type(NotImplemented)})
#: Compared by class and bits.
NUMBERS = frozenset({int, float, complex})
TEXTS = frozenset({str, bytes})
#: Immutable values of the library: compared by class and equality.
EQUAL = frozenset(
    {
        *(range, decimal.Decimal, fractions.Fraction, Device),
        *(datetime.date, datetime.datetime, datetime.time, datetime.timedelta, datetime.timezone),
        *(pathlib.PosixPath, pathlib.WindowsPath, pathlib.PurePosixPath, pathlib.PureWindowsPath),
    }
)
PLAIN = SINGLETONS | NUMBERS | TEXTS | EQUAL | {slice}
CONTAINERS = (list, tuple, dict, set, frozenset, deque)
#: Contents of arrays up to this many bytes are kept; of larger ones, a digest.
KEPT_BYTES = 256


def is_by_identity(value: Any) -> bool:
    """Whether a value equals only itself, so that identity is equality."""
    return isinstance(value, (type, enum.Enum, DType, types.ModuleType))


def is_plain(value: Any) -> bool:
    """Whether a value is guarded as a whole when it is read."""
    kind = type(value)
    if kind in PLAIN:
        return kind is not slice or all(map(is_plain, (value.start, value.stop, value.step)))
    return isinstance(value, (enum.Enum, DType, np.generic, np.dtype, Switch))


_pack_float = struct.Struct("d").pack


def packed(number: Any) -> bytes:
    """The bits of a float: they distinguish -0.0 from 0.0, and NaN equals itself."""
    return _pack_float(number) if number == number else b"nan"


def same_value(a: Any, b: Any) -> bool:
    """Whether two plain values are the same in class and value."""
    kind = type(b)
    if type(a) is not kind:
        return False
    if kind is float:
        return packed(a) == packed(b)
    if kind is complex:
        return packed(a.real) == packed(b.real) and packed(a.imag) == packed(b.imag)
    if kind is slice:
        mine, theirs = (a.start, a.stop, a.step), (b.start, b.stop, b.step)
        return all(map(same_value, mine, theirs))
    if isinstance(b, np.generic):
        return a.dtype == b.dtype and (a.tobytes() == b.tobytes() if b.dtype != object else a is b)
    if is_by_identity(b):
        return a is b
    if kind is datetime.datetime or kind is datetime.time:  # equal moments may differ in offset
        return bool(a == b and a.tzinfo == b.tzinfo and a.fold == b.fold)
    if kind is decimal.Decimal:  # 1.0 and 1.00 are equal and print differently
        return bool(a.as_tuple() == b.as_tuple())
    return bool(a == b)


def same_key(a: Any, b: Any) -> bool:
    return a is b or (is_plain(b) and same_value(a, b))


def mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """A list or tuple with its parts changed; the very value where none of them is another."""
    parts = [change(part) for part in value]
    return value if all(map(operator.is_, parts, value)) else type(value)(parts)


def leaves(value: Any) -> Iterator[Any]:
    """What is in nested lists, tuples and dicts, without the keys of those."""
    if type(value) in (list, tuple):
        for part in value:
            yield from leaves(part)
    elif type(value) is dict:
        yield from leaves(list(value.values()))
    else:
        yield value


def keys_of(mapping: Any) -> tuple[Any, ...]:
    """The keys of a dict in its order, past any `keys` of a subclass."""
    base: Any = OrderedDict if isinstance(mapping, OrderedDict) else dict
    return tuple(base.__iter__(mapping))


def same_keys(found: Any, expected: tuple[Any, ...]) -> bool:
    """Whether iteration gives the expected values, in order: plain ones by value."""
    now = keys_of(found) if isinstance(found, dict) else tuple(found)
    return len(now) == len(expected) and all(map(same_key, now, expected))


def same_content(container: Any, one: dict[Any, Any], two: dict[Any, Any]) -> bool:
    """Whether two states of a container have the same keys; of a set, in any order.

    Keys may be tensors, whose `==` is a tensor.
    """
    if isinstance(container, set):
        return len(one) == len(two) and all(key in two for key in one)
    return same_keys(tuple(one), tuple(two))


def size_of(container: Any) -> int:
    """The length of a container, past any `__len__` of a subclass."""
    base: Any = next((base for base in CONTAINERS if isinstance(container, base)), None)
    return len(container) if base is None else int(base.__len__(container))


def content_of(array: Any) -> bytes:
    """The elements of an array as bytes; of a large one, a digest."""
    data: bytes = array.tobytes()
    if len(data) <= KEPT_BYTES:
        return data
    digest: bytes = hashlib.blake2b(data, digest_size=32).digest()
    return digest


@dataclass(frozen=True, slots=True)
class TensorFacts:
    """Facts about a tensor from outside that a recording relies on."""

    cls: type
    array: type
    dtype: Any
    shape: tuple[Any, ...]
    device: Device
    layout: str
    leaf: bool | None  # None: it requires no gradient

    def __str__(self) -> str:
        place = "" if self.device.kind == "cpu" else f"@{self.device}"
        grad = {None: "", True: " that requires a gradient", False: " with a history"}[self.leaf]
        name = "" if self.cls is Tensor else f"{self.cls.__name__} "
        return f"{name}{self.dtype}{list(self.shape)}{place}{grad}"


def may_be_alike(sized: TensorFacts, other: TensorFacts) -> bool:
    """Whether some later call may give one tensor in the place of both."""
    if len(sized.shape) != len(other.shape):
        return False
    pairs = zip(sized.shape, other.shape, strict=True)
    if any(a.__class__ is int and b.__class__ is int and a != b for a, b in pairs):
        return False
    return replace(sized, shape=()) == replace(other, shape=())


def is_of_weft(value: Any) -> bool:
    """Whether an object is internal to Weft, such as an op: those do not change."""
    part = str(type(value).__module__).split(".")
    return part[0] == "weft" and len(part) > 1 and part[1] not in ("nn", "optim", "data")


def tensor_facts(tensor: Tensor) -> TensorFacts:
    data, node = tensor._data, tensor._node
    family = family_of(data)
    leaf = None if node is None else bool(node.is_leaf)
    shape = tuple(data.shape)
    kind = class_of(tensor)
    layout = data.layout if data.__class__ is Parts else family.layout
    return TensorFacts(kind, type(data), data.dtype, shape, family.device_of(data), layout, leaf)


def shown(value: Any) -> str:
    """A short text of a value, for messages."""
    if isinstance(value, types.FunctionType):
        return f"the function {value.__qualname__}"
    if isinstance(value, type):
        return value.__qualname__
    if isinstance(value, types.ModuleType):
        return f"the module {value.__name__}"
    if isinstance(value, types.CodeType):
        return f"the code of {value.co_qualname} at line {value.co_firstlineno}"
    if isinstance(value, Tensor):
        return f"a tensor {tensor_facts(value)}"
    if isinstance(value, np.ndarray):
        return f"an array {value.dtype}{list(value.shape)}"
    if is_plain(value) or isinstance(value, CONTAINERS):
        try:
            text = " ".join(line.strip() for line in repr(value).splitlines())
        except Exception:
            return f"a {type(value).__name__}"
        return text if len(text) <= 80 else f"{text[:77]}..."
    return f"a {type(value).__name__} at {id(value):#x}"
