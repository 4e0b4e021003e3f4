"""Which kernel runs: (device, layout) picks the family, dtype picks the kernel.

Both steps are dictionary look-ups. An array's class stands for its family, so that the first step
costs no more than `type(array)`:

    op.kernels[type(array)][array.dtype](array, …)

A table starts empty and fills itself: the first call with a dtype finds the kernel that a user
registered, or else binds the card's evaluation rule to the family's Array API namespace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import field
from functools import partial
from typing import Any

import numpy as np

from weft.base.dataclass import dataclass
from weft.base.device import CPU, Device
from weft.base.dtypes import (
    NARROW_FLOATS,
    DType,
    as_dtype,
    check_dtype,
    dtype_of_numpy,
    float32,
)
from weft.base.errors import CaptureError, DeviceError, DTypeError

__all__ = ["register_device", "register_kernel", "unregister_device"]

Kernel = Callable[..., Any]
#: An evaluation rule: a function (xp, *arrays, **attrs), the name of a function of `xp`, or a
#: dictionary of these by kind of dtype, with "" for all other kinds.
Evaluation = str | Kernel | dict[str, str | Kernel]


@dataclass(frozen=True, eq=False, slots=True)
class Family:
    """The arrays of one kind of device and layout.

    `array_type` is their class; instances have `shape` and `dtype` (NumPy's). `namespace` is an
    Array API namespace for them, or None when every kernel is registered by hand.
    """

    device: str
    layout: str
    array_type: type
    namespace: Any
    from_numpy: Callable[[np.ndarray[Any, Any], Device], Any]
    to_numpy: Callable[[Any], np.ndarray[Any, Any]]
    device_of: Callable[[Any], Device]
    #: if set, kernels cannot run on arrays of this family, and this text says why
    refusal: str = ""
    #: (op, kernel) -> the kernel to run instead: for devices on which kernels need something around
    adapted: Callable[[str, Kernel], Kernel] | None = None
    #: (group of ranks for arrays on the CPU, array) -> the same ranks for arrays of this family
    group: Callable[[Any, Any], Any] | None = None
    #: kernels that users registered: by op name and dtype (None: any dtype)
    registered: dict[tuple[str, DType | None], Kernel] = field(default_factory=dict)


FAMILIES: dict[tuple[str, str], Family] = {}
_BY_TYPE: dict[type, Family] = {}
_TABLES: dict[str, KernelTables] = {}  # by op name
#: What registers a device that not all programs use, by its kind and by the module of its arrays.
_OPENERS: dict[str, Callable[[], None]] = {}


def register_device(
    device: str,
    array_type: type,
    *,
    layout: str = "dense",
    namespace: Any = None,
    from_numpy: Callable[[np.ndarray[Any, Any], Device], Any],
    to_numpy: Callable[[Any], np.ndarray[Any, Any]],
    device_of: Callable[[Any], Device] | None = None,
    adapted: Callable[[str, Kernel], Kernel] | None = None,
    group: Callable[[Any, Any], Any] | None = None,
) -> Family:
    """Make a device (or a layout on a device) known to Weft. See `docs/kernels.md`."""
    if (device, layout) in FAMILIES or array_type in _BY_TYPE:
        raise DeviceError(f"({device}, {layout}) or {array_type} is already registered")
    only = Device(device)
    family = Family(
        device,
        layout,
        array_type,
        namespace,
        from_numpy,
        to_numpy,
        device_of or (lambda _array: only),
        adapted=adapted,
        group=group,
    )
    FAMILIES[device, layout] = _BY_TYPE[array_type] = family
    return family


def use_opener(device: str, module: str, opener: Callable[[], None]) -> None:
    """Let a device be registered when it is first asked for, or an array of a module is met.

    `opener` calls `register_device`, or raises what says why there is no such device here.
    """
    _OPENERS[device] = _OPENERS[module] = opener


def register_stand_in(family: Family) -> None:
    """Make a class known whose instances stand for arrays, but which kernels cannot run on."""
    _BY_TYPE[family.array_type] = family


def unregister_device(device: str, *, layout: str = "dense") -> None:
    """Forget a device that `register_device` made known."""
    family = FAMILIES.get((device, layout))
    if family is None or family.array_type is np.ndarray:
        raise DeviceError(f"({device}, {layout}) was not registered")
    del FAMILIES[device, layout], _BY_TYPE[family.array_type]
    for tables in _TABLES.values():
        tables.pop(family.array_type, None)


def register_kernel(
    op: str,
    *,
    device: str = "cpu",
    layout: str = "dense",
    dtype: Any = None,
) -> Callable[[Kernel], Kernel]:
    """Use the decorated function for `op` on arrays of this device, layout and dtype.

    The kernel is called with raw arrays and the op's attributes by name, and returns an array (a
    tuple of arrays where the op has several results). Without a dtype it serves all dtypes that
    have no kernel of their own.
    """
    tables = _TABLES.get(op)
    if tables is None:
        raise DTypeError(f"there is no op named {op!r}", op="register_kernel")
    family = family_for(Device(device), layout)
    key = None if dtype is None else as_dtype(dtype)

    def register(kernel: Kernel) -> Kernel:
        family.registered[op, key] = kernel
        tables.overridden |= family.array_type is np.ndarray
        if family.array_type in tables:
            # Emptied, not replaced: operators hold a reference to it. It fills itself again.
            tables[family.array_type].clear()
        return kernel

    return register


def is_replaced(op: Any, dtypes: Iterable[DType]) -> bool:
    """Whether a kernel of the user's stands for this op on the CPU, for one of these dtypes."""
    if not op.kernels.overridden:
        return False
    registered = FAMILIES["cpu", "dense"].registered
    return any((op.name, dtype) in registered for dtype in (None, *dtypes))


def how_to_bring_together(devices: Iterable[Device]) -> str:
    """What to do about operands on different devices, some of which may not exist here."""
    known = sorted({name for name, _ in FAMILIES})
    missing = sorted({str(device) for device in devices if device.kind not in known})
    if missing:
        return f"there is no device {', '.join(missing)} here, only {', '.join(known)}"
    return "bring them together with x.to_device(...)"


def family_for(device: Device, layout: str = "dense") -> Family:
    family = FAMILIES.get((device.kind, layout))
    if family is None and device.kind in _OPENERS and (device.kind, "dense") not in FAMILIES:
        _OPENERS[device.kind]()
        family = FAMILIES.get((device.kind, layout))
    if family is None:
        known = ", ".join(sorted({name for name, _ in FAMILIES}))
        raise DeviceError(
            f"there is no device {str(device)!r} with layout {layout!r} here",
            hint=f"known devices: {known}; others are added with weft.register_device",
        )
    return family


def family_of(array: Any) -> Family:
    family = _BY_TYPE.get(type(array))
    if family is None:
        raise DeviceError(
            f"no device is registered for arrays of class {type(array).__qualname__}",
            hint="weft.register_device makes one known",
        )
    return family


def is_device_array(value: Any) -> bool:
    """Whether this is an array of a device other than the CPU, which may be registered now."""
    kind = type(value)
    if kind not in _BY_TYPE and kind.__name__ == "ndarray":
        opener = _OPENERS.get(kind.__module__.partition(".")[0])
        if opener is not None:
            opener()
    return kind in _BY_TYPE and kind is not np.ndarray and not _BY_TYPE[kind].refusal


class DTypeTable(dict[np.dtype[Any], Kernel]):
    """The second step: dtype -> kernel, for one op and one family."""

    def __init__(self, tables: KernelTables, family: Family) -> None:
        self.tables = tables
        self.family = family

    def __missing__(self, numpy_dtype: np.dtype[Any]) -> Kernel:
        tables, family = self.tables, self.family
        if family.refusal:
            raise CaptureError(family.refusal, op=tables.op)
        dtype = dtype_of_numpy(numpy_dtype)
        registered = family.registered
        kernel = registered.get((tables.op, dtype)) or registered.get((tables.op, None))
        if kernel is None:
            check_dtype(dtype, tables.kinds, tables.op)
            if family.namespace is None and not tables.anywhere:
                raise DTypeError(
                    f"no kernel for {dtype.name} on ({family.device}, {family.layout})",
                    op=tables.op,
                    hint="weft.register_kernel adds one",
                )
            kernel = tables.numpy if family.array_type is np.ndarray else None
            kernel = kernel or bind_namespace(tables.eval, dtype.kind, family.namespace)
            if tables.widen and dtype in NARROW_FLOATS:
                kernel = widened(kernel, numpy_dtype)
        if family.adapted is not None:
            kernel = family.adapted(tables.op, kernel)
        self[numpy_dtype] = kernel
        return kernel


class KernelTables(dict[type, DTypeTable]):
    """The first step: class of the array -> table of its family, for one op."""

    def __init__(
        self,
        op: str,
        evaluate: Evaluation,
        numpy: Kernel | None,
        kinds: str,
        *,
        widen: bool,
        anywhere: bool,
    ) -> None:
        self.op = op
        self.eval = evaluate
        self.numpy = numpy
        self.kinds = kinds
        self.widen = widen
        self.anywhere = anywhere
        self.overridden = False  # has a user registered a kernel for NumPy arrays?
        _TABLES[op] = self

    def __missing__(self, array_type: type) -> DTypeTable:
        family = _BY_TYPE.get(array_type)
        if family is None:
            raise DeviceError(f"no device is registered for arrays of class {array_type}")
        table = self[array_type] = DTypeTable(self, family)
        return table


def bind_namespace(evaluate: Evaluation, kind: str, xp: Any) -> Kernel:
    """The evaluation rule of a card as a kernel over arrays of namespace `xp`."""
    if isinstance(evaluate, dict):
        evaluate = evaluate.get(kind) or evaluate[""]
    if isinstance(evaluate, str):
        kernel: Kernel = getattr(xp, evaluate)
        return kernel
    return partial(evaluate, xp)


def widened(kernel: Kernel, narrow: np.dtype[Any]) -> Kernel:
    """`kernel` computing in float32 for arrays of a narrow float, rounding results once."""
    wide = float32.numpy

    def run(*arrays: Any, **attrs: Any) -> Any:
        out = kernel(*[a.astype(wide) if a.dtype == narrow else a for a in arrays], **attrs)
        if isinstance(out, tuple):
            return tuple(o.astype(narrow) if o.dtype == wide else o for o in out)
        return out.astype(narrow) if out.dtype == wide else out

    return run


register_device(
    "cpu",
    np.ndarray,
    namespace=np,
    from_numpy=lambda array, _device: array,
    to_numpy=lambda array: array,
    device_of=lambda _array: CPU,
)
