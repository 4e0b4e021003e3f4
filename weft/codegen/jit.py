"""From LLVM IR to functions that can be called."""

from __future__ import annotations

import itertools
import os
import re
import threading
from collections.abc import Sequence
from typing import Any, ClassVar

from weft.base.errors import InternalError
from weft.codegen import llvm
from weft.codegen.llvm_passes import run_passes, short_code_generation
from weft.codegen.target import Target, host

__all__ = ["Library", "assembly", "build", "link", "object_code", "optimized"]

_numbers = itertools.count()
#: One thread at a time is in LLVM. A fork waits for it, so that the child finds LLVM at rest.
_lock = threading.RLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release
    )


class Library:
    """Machine code in memory; it is there for as long as this object is."""

    def __init__(self, tracker: Any, jit: Any) -> None:
        self._tracker = tracker
        self._jit = jit  # what the code lies in

    def address(self, name: str) -> int:
        """Where an exported function or variable begins."""
        return int(self._tracker[name])

    def keep(self) -> None:
        """Let the code stay until the process ends, with or without this object."""
        self._tracker.detach()


class _Engine:
    """What LLVM needs to make code for a target, made once. Only for who has the lock."""

    _all: ClassVar[dict[Target, _Engine]] = {}

    def __init__(self, target: Target) -> None:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        found = llvm.Target.from_triple(target.triple)
        self.machine = found.create_target_machine(
            cpu=target.cpu,
            features=target.features,
            opt=2,
            codemodel="jitdefault",
            jit=True,
        )
        self._jit: Any = None

    @property
    def jit(self) -> Any:
        if self._jit is None:
            self._jit = llvm.create_lljit_compiler(
                self.machine, use_jit_link=False, suppress_errors=False
            )
        return self._jit

    @classmethod
    def of(cls, target: Target) -> _Engine:
        if target not in cls._all:
            cls._all[target] = cls(target)
        return cls._all[target]


def optimized(text: str, target: Target | None = None) -> Any:
    """The LLVM module of a text, after LLVM's own passes."""
    target = target or host()
    with _lock:
        machine = _Engine.of(target).machine
        module = _parsed(text)
        run_passes(module, machine)
        return module


def assembly(text: str, target: Target | None = None) -> str:
    """What a text becomes, for people."""
    target = target or host()
    with _lock:
        module = optimized(text, target)
        with short_code_generation(target.triple):
            return str(_Engine.of(target).machine.emit_assembly(module))


def object_code(text: str, target: Target | None = None) -> bytes:
    """The text of a module as an object file."""
    target = target or host()
    with _lock:
        module = optimized(text, target)
        with short_code_generation(target.triple):
            return bytes(_Engine.of(target).machine.emit_object(module))


def link(code: bytes, exports: Sequence[str], target: Target | None = None) -> Library:
    """Load an object file into the process."""
    target = target or host()
    with _lock:
        jit = _Engine.of(target).jit
        builder = llvm.JITLibraryBuilder().add_object_img(code).add_current_process()
        for name in exports:
            builder.export_symbol(name)
        try:
            return Library(builder.link(jit, f"weft{next(_numbers)}"), jit)
        except RuntimeError as error:
            raise InternalError(f"LLVM cannot link: {error}", op="native") from None


def build(text: str, exports: Sequence[str], target: Target | None = None) -> Library:
    """Machine code of a module's text; the functions named in `exports` can be called."""
    return link(object_code(text, target), exports, target)


# --- text that is no IR --------------------------------------------------------------------------


def _parsed(text: str) -> Any:
    try:
        # A context of its own: the one of the process keeps every constant for good.
        module = llvm.parse_assembly(text, llvm.create_context())
    except RuntimeError as error:
        raise InternalError(_parse_message(text, str(error)), op="native", hint=_HINT) from None
    try:
        module.verify()
    except RuntimeError as error:
        raise InternalError(_verify_message(text, str(error)), op="native", hint=_HINT) from None
    return module


_HINT = 'this is a mistake in Weft: please report it; backend="interpret" runs the program'
_AROUND = 3  # lines shown before and after the one


def _parse_message(text: str, said: str) -> str:
    """What LLVM said, with the function and the lines around the place it names."""
    found = re.search(r":(\d+):(\d+): error: (.*)", said)
    if found is None:
        return f"LLVM cannot read the generated code: {said}"
    number, what = int(found[1]), found[3]
    return f"LLVM cannot read the generated code: {what}\n{_shown(text, number)}"


def _verify_message(text: str, said: str) -> str:
    """The same for code that is well written and makes no sense: LLVM cites the instruction."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    cited = re.search(r"^\s*(%\S+ = .*|store .*|call .*|ret .*|br .*)$", said, re.MULTILINE)
    message = "LLVM finds the generated code wrong: " + "; ".join(lines[:6])
    if cited:
        head = cited[1].split("=")[0].strip() + " =" if "=" in cited[1] else cited[1].strip()
        for number, line in enumerate(text.splitlines(), 1):
            if line.strip().startswith(head):
                return f"{message}\n{_shown(text, number)}"
    return message


def _shown(text: str, number: int) -> str:
    lines = text.splitlines()
    number = min(number, len(lines))
    head = next((line for line in lines[:number][::-1] if line.startswith("define ")), "")
    first = max(0, number - 1 - _AROUND)
    shown = [f"  in {head}"] if head else []
    for at, line in enumerate(lines[first : number + _AROUND], first + 1):
        shown.append(f"{'>' if at == number else ' '} {at:5} {line}")
    return "\n".join(shown)
