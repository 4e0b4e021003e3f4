"""The tensors that running code can still reach: through variables, objects and lists."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from functools import partial
from types import (
    BuiltinMethodType,
    CellType,
    FrameType,
    FunctionType,
    GeneratorType,
    MethodType,
    ModuleType,
)
from typing import Any

from weft.base.source import PACKAGE
from weft.capture.from_source.dynamic_list import DynamicList
from weft.capture.from_source.held import Maybe, Split
from weft.capture.from_source.journal import slots_of
from weft.capture.watch.stores import instance_dict
from weft.capture.watch.values import CONTAINERS
from weft.capture.watch.watch import Watch
from weft.convert.lower import is_internal
from weft.core.tensor import Tensor

#: Packages of Weft whose code counts as the user's: layers, optimizers.
_FOR_USERS = ("nn", "optim", "data")
_OTHERS = tuple(os.path.join(PACKAGE, room) for room in _FOR_USERS)
_LEAVES = (str, bytes, int, float, complex, type(None), type, ModuleType)


class Reach:
    """The tensors that can be reached now.

    tensors   through variables, containers, objects and closures
    listed    tensors that were appended to lists of the graph
    """

    def __init__(self, watch: Watch, also: Iterable[Any] = ()) -> None:
        self.tensors: list[Tensor] = []
        self.appended: list[Tensor] = []
        self._seen: set[int] = set()
        self._kept: list[Any] = []
        waiting = [*_variables(), *also]
        stores = [known.store for known in watch._known.values() if known.store is not None]
        waiting += [store.obj for store in stores if store.original is not None]  # written to
        while waiting:
            value = waiting.pop()
            if isinstance(value, _LEAVES) or id(value) in self._seen:
                continue
            self._seen.add(id(value))
            self._kept.append(value)
            waiting.extend(self._parts(value))

    def holds(self, obj: Any) -> bool:
        return id(obj) in self._seen

    def _parts(self, value: Any) -> Iterable[Any]:
        if isinstance(value, Tensor):
            self.tensors.append(value)
            return [getattr(value, "_grad", None)]
        if isinstance(value, DynamicList):
            self.appended += value.held
            return ()
        if isinstance(value, Maybe):
            return [value.value]
        if isinstance(value, Split):
            return value.sides
        if isinstance(value, FunctionType):
            cells = [part for cell in value.__closure__ or () for part in _held(cell)]
            return [*cells, *(value.__defaults__ or ())]
        if isinstance(value, (MethodType, BuiltinMethodType)):
            return [value.__self__, getattr(value, "__func__", None)]
        if isinstance(value, partial):
            return [value.func, value.args, value.keywords]
        if isinstance(value, GeneratorType):
            return [] if value.gi_frame is None else [*value.gi_frame.f_locals.values()]
        if isinstance(value, dict):
            return [*value.values()]
        if isinstance(value, CONTAINERS):
            return list(value)
        room = type(value).__module__.split(".")
        if room[0] == "weft" and (len(room) < 2 or room[1] not in _FOR_USERS):
            return ()
        slots = [getattr(value, name, None) for name in slots_of(type(value))]
        return [*(instance_dict(value) or {}).values(), *slots]


def name_of(value: Any) -> str:
    """The name of the innermost variable that holds a value; empty if none does."""
    for variables in _frames():
        for name, held in variables.items():
            if held is value and not is_internal(name):
                return name
    return ""


def _variables() -> list[Any]:
    return [value for variables in _frames() for value in variables.values()]


def _frames() -> Iterator[dict[str, Any]]:
    """The variables of the functions of the watched run, the innermost first.

    Its callers are left out: objects of theirs that the run can reach are known to be from outside.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code is not Watch.run.__code__:
        file = frame.f_code.co_filename
        if not file.startswith(PACKAGE) or file.startswith(_OTHERS):
            yield frame.f_locals
        frame = frame.f_back


def _held(cell: CellType) -> list[Any]:
    try:
        return [cell.cell_contents]
    except ValueError:
        return []
