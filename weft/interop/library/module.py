"""The module of a library: machine code that allocates nothing."""

from __future__ import annotations

import functools
from typing import Any

from weft.base.errors import InternalError
from weft.codegen.text import Function, Module

__all__ = ["LibraryModule", "room_of"]


class LibraryModule(Module):
    """Large variables of kernels lie in memory of the instance, which `@PREFIX.room` points to
    while it runs; loops that keep more than there is memory for end the run.

    prefix   of names that other modules of the library see
    owns     whether this module defines those
    """

    has_lapack = False
    allocate, deallocate, allocate_aligned = "weft.take", "weft.give", "weft.no_memory"

    def __init__(self, machine: Any, prefix: str, *, owns: bool, threads: bool) -> None:
        super().__init__(machine)
        self.prefix = prefix
        local = "thread_local(initialexec) " if threads else ""
        self.room = f"@{prefix}.room"
        start = "hidden" if owns else "external hidden"
        value = " null" if owns else ""
        self._globals[self.room] = f"{self.room} = {start} {local}global ptr{value}, align 8"

    def finish(self) -> None:
        """Add the functions that code asks for memory."""
        params = [("i64", "size")]
        f = self.function(self.allocate, "noalias ptr", params, "nounwind alwaysinline")
        taken = f(f"load ptr, ptr {self.room}")
        f.do(f"store ptr {f.ptr(taken).bytes(f.index('%size'))}, ptr {self.room}")
        f.do(f"ret ptr {taken}")
        f = self.function(self.deallocate, "void", [("ptr", "taken")], "nounwind alwaysinline")
        f.do(f"store ptr %taken, ptr {self.room}")
        f.do("ret void")
        params = [("i64", "align"), ("i64", "size")]
        f = self.function(self.allocate_aligned, "ptr", params)
        f.do("ret ptr null")

    def declare(self, result: str, name: str, params: str, attrs: str = "") -> str:
        own = (self.allocate, self.deallocate, self.allocate_aligned)
        return name if name in own else super().declare(result, name, params, attrs)

    def hide(self, name: str, new: str) -> None:
        """Add a function of this name for other modules of the library, which calls `name`."""
        params = [("ptr", "table"), ("ptr", "arena"), ("ptr", "run")]
        f = self.function(new, "i32", params, linkage="hidden")
        status = f(f"call i32 @{name}(ptr %table, ptr %arena, ptr %run)")
        f.do(f"ret i32 {status}")

    def internal(self, name: str) -> None:
        """Make a function visible in this module alone, if there is one of this name."""
        function = self._functions.get(name)
        if function is not None and not function.result.startswith("internal "):
            function.result = f"internal {function.result}"

    def defined(self) -> list[str]:
        """The names that other modules, or users, can see."""
        found = [f.name for f in self._functions.values() if not f.result.startswith("internal ")]
        return found + [
            name[1:]
            for name, text in self._globals.items()
            if text.partition(" = ")[2].startswith("hidden ")
        ]

    @property
    def functions(self) -> dict[str, Function]:
        return self._functions


def room_of(module: LibraryModule) -> int:
    """The most bytes that variables of functions that call each other take at the same time."""
    known = module.functions
    busy: set[str] = set()

    @functools.cache
    def most(name: str) -> int:
        function = known[name]
        if name in busy:
            raise InternalError(f"{name} calls itself", op="build_library")
        busy.add(name)
        found = max((most(other) for other in function.callees() if other in known), default=0)
        busy.discard(name)
        return function.room() + found

    return max(map(most, known), default=0)
