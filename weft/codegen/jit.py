"""Compiles LLVM IR to callable functions."""

from __future__ import annotations

import ctypes
import itertools
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

from weft.base.errors import InternalError
from weft.base.locks import process_lock
from weft.codegen import llvm
from weft.codegen.elf import Image, NotExecutable, NotLoaded
from weft.codegen.llvm_passes import run_passes, short_code_generation
from weft.codegen.machine import Machine, host
from weft.codegen.parse import parsed
from weft.codegen.split import apart, split

__all__ = [
    "CannotLoad",
    "Library",
    "assembly",
    "at_once",
    "build",
    "emit",
    "library_object",
    "link",
    "object_code",
    "object_codes",
    "optimized",
    "passed",
]

#: Minimum length of a part of a text that is compiled in its own thread, and maximum parts.
PART_SIZE, MOST_PARTS = 40_000, 4

#: The function that starts the kernels of a graph, one after the other: it runs once, so that its
#: code need not be fast, and it may be long.
STRAIGHT, LONG = "graph", 30_000

#: LLVM's code generation levels: for fast code, and for fast compilation.
GOOD, BRIEF = 2, 0

_numbers = itertools.count()
#: One thread (and its workers) at a time compiles, loads or unloads. A fork waits for it, so that
#: the child finds LLVM in a consistent state.
_lock = process_lock()


class CannotLoad(InternalError):
    """Compiled code cannot be loaded, or cannot be executed."""


def load_llvm() -> None:
    """Load LLVM, and what it needs to compile for this machine."""
    with _lock:
        _Engine.of(host()).machine(0)


class Library:
    """Machine code in memory; it lives as long as this object, or one that holds it."""

    def __init__(self, addresses: Mapping[str, int], close: Callable[[], None]) -> None:
        self._addresses = addresses
        self._close: Callable[[], None] | None = close
        self._held = 0
        self._ended = False

    def address(self, name: str) -> int:
        """The address of an exported function or variable."""
        return self._addresses[name]

    def keep(self) -> None:
        """Keep the code until the process ends, even without this object."""
        self._close = None

    def hold(self) -> None:
        """Keep the code until `release`, for callers that use it in `__del__`: of objects that are
        destroyed together, in a cycle, this one may be the first."""
        self._held += 1

    def release(self) -> None:
        """Undo `hold`."""
        self._held -= 1
        if self._ended and not self._held:
            self.__del__()

    def __del__(self, _finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        self._ended = True
        if self._close is not None and not self._held and not _finalizing():
            close, self._close = self._close, None
            close()


def build(text: str, exports: Sequence[str], target: Machine | None = None) -> Library:
    """Compile and load a module's text; `exports` names the functions that can be called."""
    return link(object_code(text, target), exports, target)


def object_code(text: str, target: Machine | None = None) -> list[bytes]:
    """The text of a module as object files: one, or several if it is long."""
    return object_codes([text], target)[0]


def object_codes(
    texts: Sequence[str], target: Machine | None = None, brief: Sequence[bool] | None = None
) -> list[list[bytes]]:
    """The object files of several modules, compiled in parallel.

    `brief` marks modules whose code need not be fast: they compile in a third of the time.
    """
    target = target or host()
    most = min(MOST_PARTS, os.cpu_count() or 1)
    parts = []
    for text, short in zip(texts, brief or [False] * len(texts), strict=True):
        straight = None if short else apart(text, STRAIGHT, LONG)
        rest = text if straight is None else straight[0]
        level = BRIEF if short else GOOD
        group = [(part, level) for part in split(rest, min(len(rest) // PART_SIZE, most))]
        parts.append(group if straight is None else [*group, (straight[1], BRIEF)])
    flat = [part for group in parts for part in group]
    with _lock, short_code_generation(target.triple):
        todo = [_emitter(part, target, at, level) for at, (part, level) in enumerate(flat)]
        made = iter(at_once(todo))
    return [list(itertools.islice(made, len(group))) for group in parts]


def library_object(text: str, target: Machine) -> bytes:
    """The object file of a module for a library, for any machine. Code can lie at any address,
    where there are shared libraries."""
    reloc = "static" if target.pointer_bytes == 4 else "pic"
    with _lock, short_code_generation(target.triple):
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
        llvm.initialize_native_asmparser()
        machine = llvm.Target.from_triple(target.triple).create_target_machine(
            cpu=target.cpu, features=target.features, opt=GOOD, reloc=reloc, codemodel="default"
        )
        head = f'target datalayout = "{machine.target_data}"\ntarget triple = "{target.triple}"\n'
        with passed(head + text, machine) as module:
            return emit(machine, module)


def link(code: Sequence[bytes], exports: Sequence[str], target: Machine | None = None) -> Library:
    """Load object files into the process, as one library."""
    try:
        image = Image(code, exports)
        return Library(image.addresses, image.close)
    except NotExecutable as reason:
        raise CannotLoad(f"there is no memory to run code in: {reason}", op="native") from None
    except NotLoaded:  # other machines; LLVM also reports what is wrong
        return _linked_by_llvm(code, exports, target or host())


def optimized(text: str, target: Machine | None = None) -> str:
    """The text after LLVM's passes, for people."""
    with _lock, passed(text, _Engine.of(target or host()).machine(0)) as module:
        return str(module)


def assembly(text: str, target: Machine | None = None) -> str:
    """The assembly of a text, for people."""
    target = target or host()
    machine = _Engine.of(target).machine(0)
    with _lock, short_code_generation(target.triple), passed(text, machine) as module:
        return str(machine.emit_assembly(module))


# --- LLVM ----------------------------------------------------------------------------------------


class _Engine:
    """What LLVM needs to compile for a machine, created once. Use it only with the lock held."""

    _all: ClassVar[dict[Machine, _Engine]] = {}

    def __init__(self, target: Machine) -> None:
        self._target = target
        self._machines: dict[tuple[int, int], Any] = {}
        self._jit: Any = None

    @classmethod
    def of(cls, target: Machine) -> _Engine:
        with _lock:
            if target not in cls._all:
                llvm.initialize_native_target()
                llvm.initialize_native_asmprinter()
                cls._all[target] = cls(target)
            return cls._all[target]

    def machine(self, number: int, level: int = GOOD) -> Any:
        """An LLVM target machine; each can serve one thread at a time."""
        if (number, level) not in self._machines:
            found = llvm.Target.from_triple(self._target.triple)
            self._machines[number, level] = found.create_target_machine(
                cpu=self._target.cpu,
                features=self._target.features,
                opt=level,
                codemodel="jitdefault",
                jit=True,
            )
        return self._machines[number, level]

    @property
    def jit(self) -> Any:
        if self._jit is None:
            self._jit = llvm.create_lljit_compiler(
                self.machine(0), use_jit_link=False, suppress_errors=False
            )
        return self._jit


@contextmanager
def passed(text: str, machine: Any) -> Iterator[Any]:
    """The module of a text after LLVM's passes.

    It has its own context, as the global context never frees constants. Both are freed here, the
    context last, an order that garbage collection would not guarantee.
    """
    with llvm.create_context() as context, parsed(text, context) as module:
        run_passes(module, machine)
        yield module


def _emitter(text: str, target: Machine, number: int, level: int) -> Callable[[], bytes]:
    machine = _Engine.of(target).machine(number, level)

    def emitted() -> bytes:
        with passed(text, machine) as module:
            return emit(machine, module)

    return emitted


def emit(machine: Any, module: Any, assembly: bool = False) -> bytes:
    """`machine.emit_object(module)`, or `emit_assembly`, without llvmlite's lock."""
    lib = llvm.ffi.lib
    to_memory = llvm.unlocked("LLVMPY_TargetMachineEmitToMemory")
    with llvm.ffi.OutputString() as said:
        buffer = to_memory(machine, module, int(not assembly), said)
        if not buffer:
            raise InternalError(f"LLVM cannot make code: {said}", op="native")
    try:
        start, size = lib.LLVMPY_GetBufferStart(buffer), lib.LLVMPY_GetBufferSize(buffer)
        return ctypes.string_at(start, size)
    finally:
        lib.LLVMPY_DisposeMemoryBuffer(buffer)


def _linked_by_llvm(code: Sequence[bytes], exports: Sequence[str], target: Machine) -> Library:
    with _lock:
        jit = _Engine.of(target).jit
        builder = llvm.JITLibraryBuilder().add_current_process()
        for part in code:
            builder.add_object_img(part)
        for name in exports:
            builder.export_symbol(name)
        try:
            tracker = builder.link(jit, f"weft{next(_numbers)}")
        except RuntimeError as error:
            raise CannotLoad(f"LLVM cannot link: {error}", op="native") from None

    def close() -> None:
        with _lock:
            tracker.close()

    return Library({name: tracker[name] for name in exports}, close)


def at_once(makers: Sequence[Callable[[], bytes]]) -> list[bytes]:
    """Run functions in parallel and return their results; all but the first run in new threads."""
    made: list[bytes] = [b""] * len(makers)
    failed: list[BaseException] = []

    def run(place: int) -> None:
        try:
            made[place] = makers[place]()
        except BaseException as error:
            failed.append(error)

    others = [threading.Thread(target=run, args=(place,)) for place in range(1, len(makers))]
    for other in others:
        other.start()
    run(0)
    for other in others:
        other.join()
    if failed:
        raise failed[0]
    return made
