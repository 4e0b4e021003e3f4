"""The state that a function can reach: tensors, containers, attributes, random generators.

Each mode starts from the same state. So everything that the function can reach (arguments,
closures, the globals that it names, attributes of objects) is saved before the first run, and
restored before each of the others.
"""

from __future__ import annotations

import functools
import random
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from weft.base.source import is_own
from weft.capture.trace.captured import Captured
from weft.capture.watch.follow import FOLLOW, policy
from weft.core.structure import changed
from weft.core.tensor import Tensor
from weft.inspect.arrays import array_of
from weft.ops.generator import default_generator

__all__ = ["State", "arrays_of"]

#: Types whose instances hold no state of the user.
_OPAQUE = (
    type,
    types.ModuleType,
    types.CodeType,
    types.BuiltinFunctionType,
    np.ndarray,
    str,
    bytes,
)
_MOST = 200_000


class _Slots:
    """The attributes of an object that are in `__slots__` of its classes."""

    def __init__(self, owner: Any) -> None:
        self.owner = owner
        self.members = [
            found
            for base in type(owner).__mro__
            if "__slots__" in base.__dict__
            for found in base.__dict__.values()
            if isinstance(found, types.MemberDescriptorType)
        ]

    def copy(self) -> dict[types.MemberDescriptorType, Any]:
        """Those that are set, read and written without the class's own `__getattribute__`."""
        return {m: m.__get__(self.owner) for m in self.members if self._has(m)}

    def _has(self, member: types.MemberDescriptorType) -> bool:
        try:
            member.__get__(self.owner)
        except AttributeError:
            return False
        return True

    def put_back(self, kept: dict[types.MemberDescriptorType, Any]) -> None:
        now = self.copy()
        for member in self.members:
            if member in kept:
                if member not in now or now[member] is not kept[member]:
                    member.__set__(self.owner, kept[member])
            elif member in now:
                member.__delete__(self.owner)


class _Walk:
    """Visits everything that can be reached, each object once."""

    def __init__(
        self, tensor: Callable[[str, Tensor], None], holder: Callable[[Any], None]
    ) -> None:
        self.tensor = tensor
        self.holder = holder
        self.seen: dict[int, Any] = {}

    def run(self, root: Any, path: str) -> None:
        stack = [(path, root)]
        while stack and len(self.seen) < _MOST:
            where, value = stack.pop()
            if id(value) in self.seen or isinstance(value, (int, float, complex, type(None))):
                continue
            self.seen[id(value)] = value
            stack += reversed(list(self._parts(where, value)))

    def _parts(self, path: str, value: Any) -> Any:
        if isinstance(value, Tensor):
            self.tensor(path, value)
        elif isinstance(value, (dict, list, set)):
            self.holder(value)
            pairs = value.items() if isinstance(value, dict) else enumerate(value)
            words = [f"{path}[{_word(key, number)}]" for number, (key, _) in enumerate(pairs)]
            parts = value.values() if isinstance(value, dict) else value
            yield from zip(words, list(parts), strict=True)
        elif isinstance(value, (tuple, frozenset)):
            yield from [(f"{path}[{i}]", part) for i, part in enumerate(value)]
        elif isinstance(value, types.MethodType):
            yield from [(f"{path}.__self__", value.__self__), (path, value.__func__)]
        elif isinstance(value, functools.partial):
            yield from [(path, value.func), (path, value.args), (path, value.keywords)]
        elif isinstance(value, Captured):
            yield path, value.function
        elif isinstance(value, types.FunctionType):
            yield from self._function(path, value)
        elif not isinstance(value, _OPAQUE):
            slots = _Slots(value)
            if slots.members:
                self.holder(slots)
                yield from [(f"{path}.{m.__name__}", part) for m, part in slots.copy().items()]
            if hasattr(value, "__dict__"):
                self.holder(value.__dict__)
                yield from [(f"{path}.{key}", part) for key, part in vars(value).items()]

    def _function(self, path: str, function: types.FunctionType) -> Any:
        code = function.__code__
        if is_own(code.co_filename) or policy(code.co_filename) != FOLLOW:
            return
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            self.holder(cell)
            try:
                yield name, cell.cell_contents
            except ValueError:  # an empty cell
                continue
        yield f"{path}.__defaults__", function.__defaults__
        names = {name for each in _codes(code) for name in each.co_names}
        found = {n: function.__globals__[n] for n in sorted(names) if n in function.__globals__}
        self.holder((function.__globals__, found))
        yield from found.items()


def _word(key: Any, number: int) -> str:
    """The text of a key in a path; tensors are numbered."""
    return f"{key!r}" if isinstance(key, (str, int, float, bool, tuple)) else f"#{number}"


def _codes(code: types.CodeType) -> Any:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


class State:
    """A snapshot of everything that can be reached from some roots."""

    def __init__(self, roots: dict[str, Any]) -> None:
        self._roots = roots
        self._tensors: list[tuple[Tensor, Any, Any, Any, Any]] = []
        self._holders: list[tuple[Any, Any]] = []
        walk = _Walk(self._keep_tensor, self._keep_holder)
        for path, root in roots.items():
            walk.run(root, path)
        self._random = default_generator.state._data.copy()
        self._python, self._numpy = random.getstate(), np.random.get_state()  # noqa: NPY002

    def _keep_tensor(self, _path: str, x: Tensor) -> None:
        grad = getattr(x, "_grad", None)
        slope = None if grad is None else _copied(grad._data)
        self._tensors.append((x, _copied(x._data), x._node, grad, slope))

    def _keep_holder(self, holder: Any) -> None:
        if isinstance(holder, types.CellType):
            kept: Any = holder.cell_contents if _is_set(holder) else _EMPTY
        elif isinstance(holder, tuple):
            kept = None  # the globals of a function, and those that it names
        else:
            kept = holder.copy()
        self._holders.append((holder, kept))

    def restore(self) -> None:
        """Restore the snapshot."""
        for holder, kept in self._holders:
            _put_back(holder, kept)
        for x, data, node, grad, slope in self._tensors:
            x._data, x._node = _copied(data), node
            if grad is not None:
                grad._data = _copied(slope)
            if grad is not None or hasattr(x, "_grad"):
                x._grad = grad
        state = default_generator.state
        state._data = self._random.copy()
        default_generator.state = state
        random.setstate(self._python)
        np.random.set_state(self._numpy)  # noqa: NPY002
        changed()


_EMPTY = object()


def _is_set(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


def _put_back(holder: Any, kept: Any) -> None:
    if isinstance(holder, types.CellType):
        if kept is _EMPTY:
            if _is_set(holder):
                del holder.cell_contents
        elif not _is_set(holder) or holder.cell_contents is not kept:
            holder.cell_contents = kept
    elif isinstance(holder, _Slots):
        holder.put_back(kept)
    elif isinstance(holder, tuple):
        names, found = holder
        names.update(found)
    elif isinstance(holder, list):
        if len(holder) != len(kept) or any(a is not b for a, b in zip(holder, kept, strict=True)):
            holder[:] = kept
    elif isinstance(holder, dict):
        same = holder.keys() == kept.keys() and all(holder[k] is kept[k] for k in kept)
        if not same:
            holder.clear()
            holder.update(kept)
    elif holder != kept:
        holder.clear()
        holder.update(kept)


def _copied(data: Any) -> Any:
    return data.copy() if hasattr(data, "flags") else data  # of NumPy or of a device


def arrays_of(roots: dict[str, Any]) -> dict[str, Any]:
    """The arrays of all reachable tensors and of their gradients, by path."""
    found: dict[str, Any] = {}

    def note(path: str, x: Tensor) -> None:
        for name, one in ((path, x), (f"{path}.grad", getattr(x, "_grad", None))):
            array = None if one is None else array_of(one)
            if array is not None:
                found.setdefault(name, array.copy())

    walk = _Walk(note, lambda _: None)
    for path, root in roots.items():
        walk.run(root, path)
    found["the random state"] = default_generator.state._data.copy()
    return found
