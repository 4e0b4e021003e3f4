"""CuPy's namespace over NumPy arrays: what runs on a GPU, as far as it can be tried without one.

It has CuPy's names, parameters and element types (`figures/cupy_names.json`, read from CuPy), and
it is as strict: its arrays never turn into NumPy arrays by themselves. Where CuPy says nothing of a
mistake (an index out of range, a singular matrix) it says nothing either.
"""

from __future__ import annotations

import contextlib
import json
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fake_nccl
import ml_dtypes
import numpy as np

NAMES = json.loads((Path(__file__).parent / "figures" / "cupy_names.json").read_text())
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
#: What CuPy's kernels for sorting and products do not take.
NO_BFLOAT16 = {
    "matmul",
    "sort",
    "argsort",
    "dot",
    "searchsorted",
    "unique_all",
    "lexsort",
    "where",
    "cumsum",
}
Array = np.ndarray[Any, Any]


class Settings:
    """`current` is the device of new arrays; `raises` says whether LinAlgError is raised."""

    current = 0
    raises = False
    count = 2


settings = Settings()


class ndarray:
    """An array on a pretended GPU."""

    __array_ufunc__ = None
    __slots__ = ("_a", "_at", "base")

    def __init__(self, array: Array, base: Any = None, at: int | None = None) -> None:
        self._a = array
        self.base = base
        self._at = settings.current if at is None else at

    shape = property(lambda self: self._a.shape)
    dtype = property(lambda self: self._a.dtype)
    ndim = property(lambda self: self._a.ndim)
    size = property(lambda self: self._a.size)
    itemsize = property(lambda self: self._a.itemsize)
    nbytes = property(lambda self: self._a.nbytes)
    data = property(lambda self: types.SimpleNamespace(ptr=self._a.ctypes.data))
    strides = property(lambda self: self._a.strides)
    flags = property(lambda self: self._a.flags)
    device = property(lambda self: types.SimpleNamespace(id=self._at))
    mT = property(lambda self: ndarray(self._a.mT, self))
    T = property(lambda self: ndarray(self._a.T, self))
    real = property(lambda self: ndarray(self._a.real, self))
    imag = property(lambda self: ndarray(self._a.imag, self))

    def __array__(self, *_args: Any, **_kwargs: Any) -> Any:
        raise TypeError("Implicit conversion to a NumPy array is not allowed.")

    def get(self) -> Array:
        return self._a.copy()

    def __len__(self) -> int:
        return len(self._a)

    def __bool__(self) -> bool:
        return bool(self._a)

    def __int__(self) -> int:
        return int(self._a)

    def __index__(self) -> int:
        return self._a.__index__()

    def __float__(self) -> float:
        return float(self._a)

    def __complex__(self) -> complex:
        return complex(self._a)

    def item(self) -> Any:
        return self._a.item()

    def tolist(self) -> Any:
        return self._a.tolist()

    def __getitem__(self, key: Any) -> Any:
        plain = _wrapped_around(self._a.shape, _plain(key))
        found = self._a[plain]
        return ndarray(np.asarray(found), self if np.may_share_memory(found, self._a) else None)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._a[_wrapped_around(self._a.shape, _plain(key))] = _plain(value)

    def __dlpack__(self, **options: Any) -> Any:
        return self._a.__dlpack__(max_version=options.get("max_version"))

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, self._at)

    __hash__ = None  # type: ignore[assignment]


def _wrapped_around(shape: tuple[int, ...], key: Any) -> Any:
    """A key whose integer arrays are taken modulo the size of their axis, as CuPy does."""
    parts = key if isinstance(key, tuple) else (key,)
    axis, found = 0, []
    for position, part in enumerate(parts):
        if part is None:
            found.append(part)
            continue
        if part is Ellipsis:
            after = [p for p in parts[position + 1 :] if p is not None]
            used = sum(p.ndim if _is_mask(p) else 1 for p in after)
            axis = len(shape) - used
        elif isinstance(part, np.ndarray) and part.dtype.kind in "iu":
            part = part % shape[axis] if shape[axis] else part
            axis += 1
        else:
            axis += part.ndim if _is_mask(part) else 1
        found.append(part)
    return tuple(found) if isinstance(key, tuple) else found[0]


def _is_mask(part: Any) -> bool:
    return isinstance(part, np.ndarray) and part.dtype == bool


def _plain(value: Any) -> Any:
    """The NumPy values of arguments; NumPy's own arrays are refused, as CuPy refuses them."""
    if isinstance(value, ndarray):
        if value._at != settings.current:
            raise ValueError(f"Array device must be same as the current device: {value._at}")
        return value._a
    if isinstance(value, np.ndarray):
        raise TypeError("Unsupported type <class 'numpy.ndarray'>")
    if isinstance(value, (list, tuple)):
        return type(value)(_plain(part) for part in value)
    if isinstance(value, (np.generic, int, float, complex, str, type, slice, np.dtype)):
        return value
    if value is None or value is Ellipsis or callable(value):
        return value
    raise TypeError(f"Unsupported type {type(value)}")


def _fake(value: Any, *sources: Any) -> Any:
    if isinstance(value, (np.ndarray, np.generic)):
        made = np.asarray(value)
        base = next((s for s in sources if np.may_share_memory(made, s)), None)
        return ndarray(made, base)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(_fake, value))
    if isinstance(value, (tuple, list)):
        return type(value)(map(_fake, value))
    return value


def _arrays(values: Any) -> Iterator[Array]:
    for value in values:
        if isinstance(value, np.ndarray):
            yield value
        elif isinstance(value, (tuple, list)):
            yield from _arrays(value)


def _numpy(name: str) -> Callable[..., Any]:
    found: Any = np
    for part in name.split("."):
        found = getattr(found, part)
    return found  # type: ignore[no-any-return]


def _check(name: str, args: list[Any], kwargs: dict[str, Any]) -> None:
    arrays = list(_arrays([*args, *kwargs.values()]))
    if name in NAMES["ufuncs"]:
        if "out" in kwargs or set(kwargs) - {"dtype"}:
            raise TypeError(f"{name}: {sorted(kwargs)} not tried")
        loops = [loop.split("->")[0] for loop in NAMES["ufuncs"][name].split()]
        kinds = {_char(a.dtype) for a in arrays}
        if "E" in kinds and not any("E" in loop for loop in loops):
            raise TypeError(f"{name} takes no bfloat16")
        if not any(
            all(_fits(_char(a.dtype), kind) for a, kind in zip(arrays, loop, strict=False))
            for loop in loops
        ):
            raise TypeError(f"ufunc {name!r} not supported for {sorted(kinds)}")
        return
    known = NAMES["functions"][name].split()
    unknown = [key for key in kwargs if key not in known]
    if unknown and "?" not in known:
        raise TypeError(f"{name}() got an unexpected keyword argument {unknown[0]!r}")
    if name in NO_BFLOAT16 and any(a.dtype == BFLOAT16 for a in arrays):
        raise TypeError(f"{name} takes no bfloat16")
    if name.startswith(("linalg.", "fft.")) and any(_char(a.dtype) in "eE" for a in arrays):
        raise TypeError(f"{name} takes no narrow floats")
    if name == "linalg.solve" and args[0].shape[:-2] != args[1].shape[:-2]:
        raise ValueError("a must have (..., M, M) shape and b must have (..., M, K)")
    if name == "repeat" and not isinstance(args[1], (int, list, tuple)):
        raise ValueError("repeats must be int or list")


def _char(dtype: np.dtype[Any]) -> str:
    return "E" if dtype == BFLOAT16 else dtype.char


def _fits(given: str, wanted: str) -> bool:
    if "E" in (given, wanted):
        return given == wanted
    return bool(np.can_cast(given, wanted))


def _call(name: str, *args: Any, **kwargs: Any) -> Any:
    plain = [_plain(arg) for arg in args]
    named = {key: _plain(value) for key, value in kwargs.items()}
    _check(name, plain, named)
    if name == "take":
        axis = named.get("axis", plain[2] if len(plain) > 2 else None)
        size = plain[0].size if axis is None else plain[0].shape[axis]
        plain[1] = np.asarray(plain[1]) % size if size else plain[1]
    if name == "take_along_axis":
        size = plain[0].shape[named.get("axis", plain[2] if len(plain) > 2 else 0)]
        plain[1] = plain[1] % size if size else plain[1]
    if name == "clip" and len(plain) == 3 and None in (plain[1], plain[2]):
        pass
    with np.errstate(all="ignore"):
        try:
            out = _numpy(name)(*plain, **named)
        except np.linalg.LinAlgError:
            if settings.raises or name == "linalg.eig":
                raise
            return _undefined(name, plain)
    if name.startswith("astype") and "copy" in named:
        out = out.copy()
    return _fake(out, *_arrays(plain))


def _undefined(name: str, plain: list[Any]) -> Any:
    if name in ("linalg.svd", "linalg.eigh"):
        raise AssertionError(name)
    return ndarray(np.full_like(plain[-1], np.nan))


def _method(name: str) -> Callable[..., Any]:
    def method(self: ndarray, *args: Any, **kwargs: Any) -> Any:
        plain = [_plain(arg) for arg in args]
        named = {key: _plain(value) for key, value in kwargs.items()}
        if name in ("sort", "argsort", "dot") and self._a.dtype == BFLOAT16:
            raise TypeError(f"{name} takes no bfloat16")
        with np.errstate(all="ignore"):
            return _fake(getattr(_plain(self), name)(*plain, **named), self._a)

    return method


OPERATORS = {
    **{"add": "add", "sub": "subtract", "mul": "multiply", "truediv": "true_divide"},
    **{"floordiv": "floor_divide", "mod": "remainder", "pow": "power", "matmul": "matmul"},
    **{"and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor"},
    **{"lshift": "left_shift", "rshift": "right_shift"},
    **{"eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal"},
    **{"gt": "greater", "ge": "greater_equal"},
}
IN_PLACE = ("add", "sub", "mul", "truediv", "floordiv", "and", "or", "xor", "lshift", "rshift")


def _operator(function: str, swapped: bool) -> Callable[..., Any]:
    def call(self: ndarray, other: Any) -> Any:
        pair = (other, self) if swapped else (self, other)
        return _call(function, *pair)

    return call


def _in_place(function: str) -> Callable[..., Any]:
    def call(self: ndarray, other: Any) -> Any:
        _plain(self)[...] = _plain(_call(function, self, other))
        return self

    return call


for _name, _function in OPERATORS.items():
    setattr(ndarray, f"__{_name}__", _operator(_function, False))
    if _name not in ("eq", "ne", "lt", "le", "gt", "ge"):
        setattr(ndarray, f"__r{_name}__", _operator(_function, True))
for _name in IN_PLACE:
    setattr(ndarray, f"__i{_name}__", _in_place(OPERATORS[_name]))
for _name, _function in {"neg": "negative", "invert": "invert", "abs": "absolute"}.items():
    setattr(ndarray, f"__{_name}__", lambda self, _f=_function: _call(_f, self))
for _name in NAMES["methods"]:
    known = _name.startswith("_") or hasattr(ndarray, _name)
    if not known and callable(getattr(np.ndarray, _name, None)):
        setattr(ndarray, _name, _method(_name))


class _Device:
    """`cupy.cuda.Device`: a context that makes it the current one."""

    def __init__(self, index: int | None = None) -> None:
        self.id = settings.current if index is None else index
        self._before: list[int] = []

    def __enter__(self) -> _Device:
        self._before.append(settings.current)
        settings.current = self.id
        return self

    def __exit__(self, *_exc: object) -> None:
        settings.current = self._before.pop()

    def use(self) -> None:
        settings.current = self.id

    def synchronize(self) -> None:
        pass

    mem_info = (3 << 30, 4 << 30)


class _Pool:
    """A pool of memory that counts nothing."""

    def used_bytes(self) -> int:
        return 0

    def total_bytes(self) -> int:
        return 0

    def free_all_blocks(self) -> None:
        pass


class _Submodule:
    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    def __getattr__(self, name: str) -> Any:
        full = f"{self._prefix}.{name}"
        if full not in NAMES["functions"]:
            raise AttributeError(f"cupy has no {full}")
        return lambda *args, **kwargs: _call(full, *args, **kwargs)


@contextlib.contextmanager
def errstate(*, linalg: str | None = None) -> Iterator[None]:
    before, settings.raises = settings.raises, linalg == "raise"
    try:
        yield
    finally:
        settings.raises = before


def _asarray(a: Any, dtype: Any = None, order: Any = None, **_options: Any) -> ndarray:
    if isinstance(a, ndarray):
        return a if dtype is None or a.dtype == dtype else ndarray(a._a.astype(dtype))
    return ndarray(np.array(a, dtype=dtype))


#: The dtypes that atomic operations take.
ATOMIC = {"add": "ilqILQefd", "maximum": "iIQLfd"}


class _Adding:
    """A ufunc with atomic operations."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, *args: Any) -> Any:
        return _call(self.name, *args)

    def at(self, x: ndarray, key: Any, values: Any) -> None:
        if _plain(x).dtype.char not in ATOMIC[self.name]:
            raise TypeError(f"{self.name}.at takes no {x.dtype}")
        places = _wrapped_around(x.shape, _plain(key))
        getattr(np, self.name).at(_plain(x), places, _plain(values))


class Module(types.ModuleType):
    """The module `cupy`."""

    def __getattr__(self, name: str) -> Any:
        if name in NAMES["ufuncs"] or name in NAMES["functions"]:
            return lambda *args, **kwargs: _call(name, *args, **kwargs)
        raise AttributeError(f"module 'cupy' has no attribute {name!r}")


def fake_cupy() -> Any:
    """The module, as `import cupy` gives it."""
    module: Any = Module("cupy")
    module.ndarray = ndarray
    module.asarray = module.array = _asarray
    module.asnumpy = lambda a: a.get()
    module.linalg, module.fft = _Submodule("linalg"), _Submodule("fft")
    for name in ("add", "maximum"):
        setattr(module, name, _Adding(name))
    module.cuda = types.SimpleNamespace(
        Device=_Device,
        runtime=types.SimpleNamespace(getDeviceCount=lambda: settings.count),
        nccl=fake_nccl,
        get_current_stream=lambda: types.SimpleNamespace(ptr=0),
    )
    for pool in ("get_default_memory_pool", "get_default_pinned_memory_pool"):
        setattr(module, pool, _Pool)
    for name in ("float16", "float32", "float64", "complex64", "complex128", "int8", "int16"):
        setattr(module, name, getattr(np, name))
    for name in ("int32", "int64", "uint8", "uint16", "uint32", "uint64"):
        setattr(module, name, getattr(np, name))
    for name in ("bool", "inf", "nan", "pi", "newaxis", "finfo", "iinfo", "dtype"):
        setattr(module, name, getattr(np, name))
    return module


def fake_cupyx() -> Any:
    """The module `cupyx`, as far as Weft uses it."""
    from math import erf

    values = np.vectorize(erf, otypes=[np.float64])

    def of(x: ndarray) -> ndarray:
        return ndarray(np.asarray(values(_plain(x))).astype(x.dtype))

    return types.SimpleNamespace(
        errstate=errstate, scipy=types.SimpleNamespace(special=types.SimpleNamespace(erf=of))
    )
