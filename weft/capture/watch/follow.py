"""Decides which code is followed into its source, and what is known about the rest."""

from __future__ import annotations

import functools
import os
import sys
import types
from typing import Any

import ml_dtypes
import numpy as np

from weft.base.lazy import Lazy
from weft.base.source import PACKAGE
from weft.core.autocast import casting
from weft.core.composite import composite
from weft.core.grad_mode import decorated

FOLLOW, WEFT, LIBRARY = "follow", "weft", "library"

#: Parts of Weft that are followed like the user's own code: their attribute reads are guards.
FOLLOWED_WEFT = (
    *(os.path.join(PACKAGE, name, "") for name in ("nn", "optim", "distributions")),
    *(os.path.join(PACKAGE, "torch", name) for name in ("nn", "func", "utils", "distributions")),
    os.path.join(PACKAGE, "interop", "programs", "call"),
    os.path.join(PACKAGE, "distributed", "compiled_steps"),
)
#: The wrappers of `@weft.no_grad()` and its like; the user's function inside of them is followed.
WRAPPERS = frozenset(
    code
    for wrapping in (decorated, casting)
    for code in wrapping.__code__.co_consts
    if isinstance(code, types.CodeType)
)
#: The wrapper of `composite`, which only matters to eager calls: the function inside is followed.
[COMPOSITE] = [code for code in composite.__code__.co_consts if isinstance(code, types.CodeType)]
#: Modules whose functions call the user's functions and record them as nested graphs, and those
#: that run the graphs of saved programs, which do not change.
RECORDING = (
    *("weft.record.control.branches", "weft.record.control.loops"),
    *("weft.interop.programs.run", "weft.interop.programs.arguments", "weft.record.make_graph"),
)
#: Modules whose functions take a function and run it on tensors of their own.
TRANSFORMS = ("weft.autodiff.transforms", "weft.autodiff.checkpoint")
#: What these functions do depends on the rank and the mesh, too, which are guarded at a call.
DISTRIBUTED = "distributed"
#: Modules whose functions depend only on their arguments and on the modes, which are guarded.
PURE_WEFT = (
    *("base", "ir", "core", "ops", "autodiff", "linalg", "fft", "autograd", "torch"),
    *("distributions", "errors", DISTRIBUTED),
)

sysconfig = Lazy("sysconfig")


@functools.cache
def _folders(*names: str) -> tuple[str, ...]:
    """Folders of the Python installation, by their names in `sysconfig`."""
    paths = sysconfig.get_paths()
    return tuple(os.path.realpath(paths[name]) + os.sep for name in names)


_ARRAYS = tuple(
    os.path.dirname(os.path.realpath(str(module.__file__))) + os.sep for module in (np, ml_dtypes)
)

_policies: dict[str, str] = {}


def policy(file: str) -> str:
    """What to do with functions of a source file."""
    found = _policies.get(file)
    if found is None:
        found = _policies[file] = _policy(file)
    return found


def _policy(file: str) -> str:
    if file.startswith(FOLLOWED_WEFT):
        return FOLLOW
    if file.startswith(PACKAGE):
        return WEFT
    if file.startswith("<frozen "):
        return LIBRARY
    real = os.path.realpath(file)
    if real.startswith(_ARRAYS) or f"{os.sep}llvmlite{os.sep}" in real:
        return LIBRARY
    standard = real.startswith(_folders("stdlib", "platstdlib"))
    installed = real.startswith(_folders("purelib", "platlib")) or "site-packages" in real
    return LIBRARY if standard and not installed else FOLLOW


class Wrapper:
    """A callable around a function. Inside of another capture, that function is followed."""

    function: Any


#: Modules of the standard library whose functions only compute.
PURE_MODULES = frozenset(
    {
        *("math", "cmath", "operator", "_operator", "functools", "_functools", "itertools"),
        *("collections", "_collections", "collections.abc", "_collections_abc", "heapq", "_heapq"),
        *("bisect", "_bisect", "string", "_string", "re", "_sre", "re._compiler", "json"),
        *("json.encoder", "json.decoder", "_json", "copy", "dataclasses", "enum", "typing"),
        *("types", "numbers", "decimal", "_decimal", "fractions", "statistics", "_statistics"),
        *("struct", "_struct", "textwrap", "abc", "_abc", "contextlib", "datetime", "array"),
        *("base64", "binascii", "hashlib", "_hashlib", "_blake2", "_sha2", "_sha3", "_md5"),
        *("zlib", "pprint", "difflib", "keyword", "unicodedata", "calendar", "colorsys", "html"),
        *("graphlib", "ast", "_ast", "reprlib", "copyreg", "builtins", "numpy", "ml_dtypes"),
        *("inspect", "zoneinfo", "posixpath", "genericpath"),
    }
)
#: Exceptions among those and the builtins: they depend on more than their arguments.
IMPURE = frozenset(
    {
        *("builtins.input", "builtins.open", "builtins.breakpoint", "builtins.__import__"),
        *("builtins.compile", "builtins.memoryview", "builtins.exec", "builtins.eval"),
        *("datetime.date.today", "datetime.datetime.now", "datetime.datetime.today"),
        *("datetime.datetime.utcnow", "datetime.datetime.fromtimestamp"),
        *("datetime.date.fromtimestamp", "datetime.datetime.timestamp"),
        *("datetime.datetime.astimezone", "calendar.setfirstweekday", "decimal.getcontext"),
        *("decimal.setcontext", "decimal.localcontext", "numpy.seterr", "numpy.geterr"),
        *("numpy.seterrcall", "numpy.setbufsize", "numpy.set_printoptions", "numpy.load"),
        *("numpy.save", "numpy.savez", "numpy.savez_compressed", "numpy.loadtxt"),
        *("numpy.savetxt", "numpy.genfromtxt", "numpy.fromfile", "numpy.memmap"),
        *("inspect.stack", "inspect.currentframe", "inspect.trace", "inspect.getsource"),
        *("inspect.getmodule", "genericpath.exists", "genericpath.isfile", "genericpath.isdir"),
        *("genericpath.getsize", "posixpath.realpath", "posixpath.abspath"),
        *("posixpath.expanduser", "posixpath.expandvars", "json.load", "json.dump"),
    }
)

IMMUTABLE_C = (
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.MethodWrapperType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
    types.CodeType,
    types.GenericAlias,
    types.UnionType,
    types.ModuleType,
    np.ufunc,
    np.dtype,
)


def module_of(function: Any) -> str:
    """The name of the module that a function or class of the library is defined in."""
    name = getattr(function, "__module__", None)
    if name is None:
        holder = getattr(function, "__self__", None)
        if isinstance(holder, types.ModuleType):
            return holder.__name__
        owner = getattr(function, "__objclass__", None) or (
            holder if isinstance(holder, type) else type(holder) if holder is not None else None
        )
        name = getattr(owner, "__module__", "") if owner is not None else ""
    return str(name or "")


#: Modules of the library whose functions pass tensors on, or ask them as Python itself does.
_HANDS_TENSORS_ON = frozenset(
    {
        *("builtins", "operator", "_operator", "functools", "_functools", "itertools", "copy"),
        *("collections", "_collections", "typing", "types", "dataclasses", "contextlib", "enum"),
        *("abc", "_abc", "logging", "warnings", "inspect", "weakref", "threading", "heapq"),
        *("_heapq", "bisect", "_bisect", "", "weft"),
    }
)
_NUMPY_FUNCTION = type(np.sum)


def named_object(function: Any) -> Any:
    """The object that a module holds under the name of a function; perhaps a decorated one."""
    found: Any = sys.modules.get(getattr(function, "__module__", None) or "")
    for name in str(getattr(function, "__qualname__", "")).split("."):
        found = getattr(found, name, None)
    return found


def reads_unseen(function: Any) -> bool:
    """Whether a function may read its arguments without being followed."""
    if any(function is one for one in (isinstance, issubclass, callable, id, type)):
        return False
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    return code is None or policy(code.co_filename) == LIBRARY


def needs_numbers(function: Any) -> bool:
    """Whether a library function needs numbers, which tensors of a graph do not have."""
    if isinstance(function, types.FunctionType):
        if policy(function.__code__.co_filename) != LIBRARY:
            return False
    elif not isinstance(function, (types.BuiltinFunctionType, np.ufunc, _NUMPY_FUNCTION)):
        return False
    holder = getattr(function, "__self__", None)
    if holder is not None and not isinstance(holder, types.ModuleType):
        return False
    if isinstance(function, np.ufunc):
        return True
    return module_of(function).partition(".")[0] not in _HANDS_TENSORS_ON


def why_impure(function: Any) -> str:
    """Why a library function depends on more than its arguments; "" if it does not."""
    module = module_of(function)
    name = getattr(function, "__qualname__", None) or getattr(function, "__name__", repr(function))
    top = module.partition(".")[0]
    shown = name if module in ("", "builtins") else f"{module}.{name}"
    if module.startswith("numpy.random"):
        return f"{shown} draws random numbers of NumPy"
    if top not in PURE_MODULES and module not in PURE_MODULES:
        return f"{shown} is called, and what it reads is not known"
    if f"{module}.{name}" in IMPURE or f"{top}.{name}" in IMPURE:
        return f"{shown} depends on more than its arguments"
    return ""
