"""Parses text with LLVM; errors name the line."""

from __future__ import annotations

import re
from typing import Any

from weft.base.errors import InternalError
from weft.codegen import llvm

__all__ = ["parsed"]

_HINT = 'this is a mistake in Weft: please report it; backend="interpret" runs the program'
_AROUND = 3  # lines shown before and after the error


def parsed(text: str, context: Any) -> Any:
    """The LLVM module of a text, verified; the context must be used by this thread only."""
    with llvm.ffi.OutputString() as said:
        read = llvm.unlocked("LLVMPY_ParseAssembly")(context, text.encode(), said)
        module = llvm.ModuleRef(read, context)
        if said:
            module.close()
            raise InternalError(_parse_message(text, str(said)), op="native", hint=_HINT)
    with llvm.ffi.OutputString() as said:
        if llvm.unlocked("LLVMPY_VerifyModule")(module, said):
            module.close()
            raise InternalError(_verify_message(text, str(said)), op="native", hint=_HINT)
    return module


def _parse_message(text: str, said: str) -> str:
    """LLVM's message, with the function and the lines around the error."""
    found = re.search(r":(\d+):(\d+): error: (.*)", said)
    if found is None:
        return f"LLVM cannot read the generated code: {said}"
    return f"LLVM cannot read the generated code: {found[3]}\n{_shown(text, int(found[1]))}"


def _verify_message(text: str, said: str) -> str:
    """The same for code that parses but is invalid: LLVM quotes the instruction."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    message = "LLVM finds the generated code wrong: " + "; ".join(lines[:6])
    cited = re.search(r"^\s*(%\S+ = |store .*|call .*|ret .*|br .*)", said, re.MULTILINE)
    for number, line in enumerate(text.splitlines(), 1):
        if cited and line.strip().startswith(cited[1].strip()):
            return f"{message}\n{_shown(text, number)}"
    return message


def _shown(text: str, number: int) -> str:
    lines = text.splitlines()
    head = next((line for line in lines[:number][::-1] if line.startswith("define ")), "")
    first = max(0, number - 1 - _AROUND)
    shown = [f"  in {head}"] if head else []
    for at, line in enumerate(lines[first : number + _AROUND], first + 1):
        shown.append(f"{'>' if at == number else ' '} {at:5} {line}")
    return "\n".join(shown)
