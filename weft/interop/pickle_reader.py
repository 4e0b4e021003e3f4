"""A reader of pickles that runs nothing: it knows plain values and containers, and asks its owner
for everything that has a name.

`pickle.Unpickler` is not used: some of its opcodes reserve as much memory as a file tells them to.
Here an opcode that is not needed for data is an error, and so is a name that the owner refuses.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from weft.base.errors import FileError
from weft.interop.files import check_amount

__all__ = ["Function", "plain_key", "read_pickle"]

#: Integers as keys have at most so many bytes: those that make a dict slow need more.
_LONGEST_KEY = 8
_NEWEST = 5
_PLAIN_KEYS = (str, bytes, float, bool, type(None))


class Function:
    """What a name of a pickle stands for: a function that it may call, or only a value."""

    def __init__(self, name: str, call: Callable[..., Any] | None = None, value: Any = None):
        self.name = name
        self.call = call
        self.value = value


class _Reader:
    def __init__(
        self,
        data: bytes,
        size: int,
        find: Callable[[str, str], Any],
        stored: Callable[[Any], Any],
        build: Callable[[Any, Any], None],
    ) -> None:
        self.data = data
        self.size = size
        self.find, self.stored, self.build_state = find, stored, build
        self.at = 0
        self.stack: list[Any] = []
        self.marks: list[list[Any]] = []
        self.memo: dict[int, Any] = {}
        self.containers = 0

    def run(self) -> Any:
        while True:
            code = self.take(1)[0]
            if code == _STOP:
                if len(self.stack) != 1 or self.marks:
                    raise ValueError("it ends in the middle of a value")
                return self.stack[0]
            step = _OPCODES.get(code)
            if step is None:
                raise FileError(f"the opcode {chr(code)!r} of pickles is refused", op="load")
            step(self)
            check_amount(self.containers + len(self.stack) + len(self.marks), self.size, "a pickle")

    # --- bytes --------------------------------------------------------------------------------

    def take(self, count: int) -> bytes:
        if not 0 <= count <= len(self.data) - self.at:
            raise ValueError("it is cut off")
        self.at += count
        return self.data[self.at - count : self.at]

    def number(self, code: str) -> Any:
        return struct.unpack(code, self.take(struct.calcsize(code)))[0]

    def line(self) -> str:
        end = self.data.find(b"\n", self.at)
        if end < 0:
            raise ValueError("it is cut off")
        text = self.take(end - self.at).decode()
        self.at += 1
        return text

    # --- the stack ----------------------------------------------------------------------------

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def push_container(self, value: Any) -> None:
        self.containers += 1
        self.stack.append(value)

    def mark(self) -> None:
        self.marks.append(self.stack)
        self.stack = []

    def since_mark(self) -> list[Any]:
        found, self.stack = self.stack, self.marks.pop()
        return found

    def last(self, count: int) -> tuple[Any, ...]:
        if count > len(self.stack):
            raise ValueError("a value is missing")
        found = tuple(self.stack[len(self.stack) - count :])
        del self.stack[len(self.stack) - count :]
        return found

    # --- containers ---------------------------------------------------------------------------

    def append(self, values: list[Any]) -> None:
        target = self.stack[-1]
        if type(target) is list:
            target += values
        elif not _takes_anything(target):
            raise TypeError(f"values are added to a {type(target).__name__}")

    def add(self, values: list[Any]) -> None:
        target = self.stack[-1]
        if type(target) is not set:
            raise TypeError(f"values are added to a {type(target).__name__}")
        target.update(map(plain_key, values))

    def set_items(self, pairs: list[Any]) -> None:
        target = self.stack[-1]
        if len(pairs) % 2:
            raise ValueError("a value is missing")
        if type(target) in (dict, OrderedDict):
            for key, value in zip(pairs[::2], pairs[1::2], strict=True):
                target[plain_key(key)] = value
        elif not _takes_anything(target):
            raise TypeError(f"items are set in a {type(target).__name__}")

    # --- names --------------------------------------------------------------------------------

    def find_name(self, module: Any, name: Any) -> None:
        if not isinstance(module, str) or not isinstance(name, str):
            raise TypeError("a name is no text")
        self.push(self.find(module, name))

    def call(self) -> None:
        function, arguments = self.last(2)
        if not isinstance(arguments, tuple):
            raise TypeError("arguments are no tuple")
        if not isinstance(function, Function) or function.call is None:
            name = function.name if isinstance(function, Function) else type(function).__name__
            raise FileError(f"it calls {name}, which is refused", op="load")
        self.push_container(function.call(*arguments))

    def build(self) -> None:
        (state,) = self.last(1)
        self.build_state(self.stack[-1], state)

    def protocol(self) -> None:
        version = self.take(1)[0]
        if version > _NEWEST:
            raise FileError(f"pickles of protocol {version} are not known", op="load")


def _takes_anything(target: Any) -> bool:
    return bool(getattr(target, "takes_anything", False))


def plain_key(key: Any) -> Any:
    """A key of a dict, or an element of a set, which must be a plain value."""
    if type(key) is int:
        if key.bit_length() > 8 * _LONGEST_KEY:
            raise ValueError("a key is a number of more than 64 bits")
    elif type(key) is tuple:
        for part in key:
            plain_key(part)
    elif type(key) not in _PLAIN_KEYS:
        raise TypeError(f"a key is a {type(key).__name__}")
    return key


def _int_line(r: _Reader) -> None:
    text = r.line()
    r.push(text == "01" if text in ("00", "01") else int(text))


def _long(r: _Reader, count: int) -> None:
    r.push(int.from_bytes(r.take(count), "little", signed=True))


def _text(r: _Reader, code: str) -> None:
    r.push(str(r.take(r.number(code)), "utf-8", "surrogatepass"))


def _data(r: _Reader, code: str) -> None:
    r.push(r.take(r.number(code)))


_STOP = ord(".")
#: What each opcode does. Those of classes, extensions, buffers and old text are missing.
_OPCODES: dict[int, Callable[[_Reader], Any]] = {
    ord(code): step
    for code, step in {
        "\x80": _Reader.protocol,
        "\x95": lambda r: r.take(8),  # a frame
        "N": lambda r: r.push(None),
        "\x88": lambda r: r.push(True),
        "\x89": lambda r: r.push(False),
        "I": _int_line,
        "L": lambda r: r.push(int(r.line().removesuffix("L"))),
        "F": lambda r: r.push(float(r.line())),
        "J": lambda r: r.push(r.number("<i")),
        "K": lambda r: r.push(r.number("<B")),
        "M": lambda r: r.push(r.number("<H")),
        "\x8a": lambda r: _long(r, r.number("<B")),
        "\x8b": lambda r: _long(r, r.number("<i")),
        "G": lambda r: r.push(r.number(">d")),
        "X": lambda r: _text(r, "<I"),
        "\x8c": lambda r: _text(r, "<B"),
        "\x8d": lambda r: _text(r, "<Q"),
        "B": lambda r: _data(r, "<I"),
        "C": lambda r: _data(r, "<B"),
        "\x8e": lambda r: _data(r, "<Q"),
        "\x96": lambda r: r.push(bytearray(r.take(r.number("<Q")))),
        "(": _Reader.mark,
        "0": lambda r: r.since_mark() if not r.stack else r.last(1),
        "1": _Reader.since_mark,
        ")": lambda r: r.push(()),
        "]": lambda r: r.push_container([]),
        "}": lambda r: r.push_container({}),
        "\x8f": lambda r: r.push_container(set()),
        "\x85": lambda r: r.push_container(r.last(1)),
        "\x86": lambda r: r.push_container(r.last(2)),
        "\x87": lambda r: r.push_container(r.last(3)),
        "t": lambda r: r.push_container(tuple(r.since_mark())),
        "\x91": lambda r: r.push_container(frozenset(map(plain_key, r.since_mark()))),
        "a": lambda r: r.append(list(r.last(1))),
        "e": lambda r: r.append(r.since_mark()),
        "s": lambda r: r.set_items(list(r.last(2))),
        "u": lambda r: r.set_items(r.since_mark()),
        "\x90": lambda r: r.add(r.since_mark()),
        "h": lambda r: r.push(r.memo[r.number("<B")]),
        "j": lambda r: r.push(r.memo[r.number("<I")]),
        "q": lambda r: r.memo.__setitem__(r.number("<B"), r.stack[-1]),
        "r": lambda r: r.memo.__setitem__(r.number("<I"), r.stack[-1]),
        "\x94": lambda r: r.memo.__setitem__(len(r.memo), r.stack[-1]),
        "c": lambda r: r.find_name(r.line(), r.line()),
        "\x93": lambda r: r.find_name(*r.last(2)),
        "R": _Reader.call,
        "\x81": _Reader.call,  # an object of a class, made of arguments
        "b": _Reader.build,
        "Q": lambda r: r.push_container(r.stored(r.last(1)[0])),
    }.items()
}


def read_pickle(
    data: bytes,
    size: int,
    find: Callable[[str, str], Any],
    stored: Callable[[Any], Any],
    build: Callable[[Any, Any], None],
) -> Any:
    """The value of a pickle in a file of `size` bytes.

    find     what a name of a module stands for: a `Function`, or an error
    stored   what lies elsewhere under this id
    build    takes the state of an object: its attributes
    """
    try:
        return _Reader(data, size, find, stored, build).run()
    except FileError:
        raise
    except (LookupError, TypeError, ValueError, OverflowError, struct.error) as error:
        raise FileError(
            f"its pickle cannot be read ({type(error).__name__}: {str(error)[:80]})", op="load"
        ) from None
