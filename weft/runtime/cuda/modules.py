"""Kernels for the driver: from the cache on disk, or compiled by LLVM and the driver's assembler.

What is kept is machine code for one kind of GPU, by the text that it was made of. A process that
finds it there compiles nothing.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import re
import time
from collections.abc import Iterator, Sequence
from typing import Any

from weft.base import store
from weft.base.errors import InternalError
from weft.codegen import llvm
from weft.codegen.cuda.machine import GpuMachine
from weft.codegen.cuda.ptx import ptx_parts
from weft.codegen.jit import at_once

__all__ = ["allow_shared", "load"]

VERSION = 1
_ENTRY = re.compile(r"\.entry ([\w$]+)\(")
#: CU_JIT_INPUT_PTX, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES.
_PTX, _SHARED = 1, 8


def load(
    cupy: Any, text: str, names: Sequence[str], machine: GpuMachine
) -> tuple[dict[str, Any], dict[str, float]]:
    """The functions of a module, from its LLVM IR, and the seconds that its stages took."""
    start = time.perf_counter()
    key = store.name_of(
        *(b"cuda", repr((VERSION, machine, llvm.version())).encode()),
        *(store.sources("codegen"), text.encode()),
    )
    found = store.read(key)
    seconds: dict[str, float] = {}
    if found is not None:
        entries, images = found
    else:
        entries, images, seconds = _made(cupy, text, machine, key)
    functions: dict[str, Any] = {}
    wanted = set(names)
    loading = time.perf_counter()
    for part, image in zip(entries, images, strict=True):
        if wanted.isdisjoint(part):
            continue
        module = cupy.cuda.function.Module()
        module.load(image)
        functions |= {name: module.get_function(name) for name in part if name in wanted}
    seconds |= {"load": time.perf_counter() - loading, "code": time.perf_counter() - start}
    return functions, seconds


def _made(
    cupy: Any, text: str, machine: GpuMachine, key: str
) -> tuple[list[list[str]], list[bytes], dict[str, float]]:
    start = time.perf_counter()
    parts = ptx_parts(text, machine)
    made = time.perf_counter()
    entries = [_ENTRY.findall(part) for part in parts]
    device = cupy.cuda.Device()

    def image(part: str) -> bytes:
        device.use()  # each thread has a current context of its own
        return _machine_code(part.encode()) or b""

    images = at_once([functools.partial(image, part) for part in parts])
    seconds = {"ptx": made - start, "assembler": time.perf_counter() - made}
    if all(images):
        store.write(key, entries, images)
        return entries, images, seconds
    return entries, [part.encode() for part in parts], seconds  # the driver compiles it, too


def allow_shared(function: int, size: int) -> None:
    """Let a function be launched with so many bytes of shared memory."""
    driver = ctypes.CDLL("libcuda.so.1")
    status = driver.cuFuncSetAttribute(ctypes.c_void_p(function), _SHARED, ctypes.c_int(size))
    if status:
        raise InternalError(f"a kernel cannot have {size} bytes of shared memory: error {status}")


def _machine_code(text: bytes) -> bytes | None:
    """What the driver's assembler makes of PTX for the current GPU; None if it does not."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        with _linking(driver) as state:
            given = ctypes.c_char_p(text), ctypes.c_size_t(len(text) + 1)
            if driver.cuLinkAddData_v2(state, _PTX, *given, b"weft", 0, None, None):
                return None
            code, size = ctypes.c_void_p(), ctypes.c_size_t()
            if driver.cuLinkComplete(state, ctypes.byref(code), ctypes.byref(size)):
                return None
            return ctypes.string_at(code, size.value)
    except (OSError, AttributeError):
        return None


@contextlib.contextmanager
def _linking(driver: Any) -> Iterator[Any]:
    state = ctypes.c_void_p()
    if driver.cuLinkCreate_v2(0, None, None, ctypes.byref(state)):
        raise OSError
    try:
        yield state
    finally:
        driver.cuLinkDestroy(state)
