"""Links object files to a shared library: with the system's `cc`, else with the wheel `ziglang`."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from weft.base.errors import WeftError
from weft.codegen.jit import library_object
from weft.codegen.machine import Machine, host
from weft.interop.library.system import LIBC, LIBM

__all__ = ["NoLinker", "link_shared", "link_wasm", "linkers"]

#: What a module for WebAssembly may import from `Math`, for numbers far from 0.
MATH = ("sin", "cos", "tan")
#: Bytes of its stack: kernels have their large variables elsewhere.
_STACK = 1 << 17


class NoLinker(WeftError, RuntimeError):
    """No linker was found, or it failed."""


def linkers(machine: Machine) -> list[str]:
    """What can link for a machine here: "cc", "zig"."""
    same = machine.triple.split("-")[0] == host().triple.split("-")[0]
    found = ["cc"] if same and sys.platform == "linux" and shutil.which("cc") else []
    return [*found, "zig"] if importlib.util.find_spec("ziglang") else found


def link_shared(
    objects: Sequence[bytes],
    path: Path,
    machine: Machine,
    linker: str | None = None,
) -> None:
    """Write a shared library."""
    known = linkers(machine)
    if not known or (linker is not None and linker not in known):
        raise NoLinker(
            f"there is no linker for {machine.triple}" + (f" named {linker}" if linker else ""),
            op="build_library",
            hint='pip install "weft[aot]" brings one; a .o or .a file needs none',
        )
    with tempfile.TemporaryDirectory() as folder:
        files = []
        for number, data in enumerate(objects):
            file = Path(folder) / f"part{number}.o"
            file.write_bytes(data)
            files.append(str(file))
        made = Path(folder) / "made.so"
        name = f"-soname={path.name}"
        if (linker or known[0]) == "cc":
            options = ["-shared", "-nostartfiles", f"-Wl,{name}", "-Wl,-z,noexecstack"]
            command = ["cc", *options, "-o", str(made), *files, "-Wl,--as-needed", "-lm"]
        else:
            stubs = _stubs(Path(folder), machine)
            options = ["-shared", name, "-z", "noexecstack", "--as-needed"]
            command = [sys.executable, "-m", "ziglang", "ld.lld", *options]
            command += ["-o", str(made), *files, *stubs]
        _run(command)
        _put(made, path)


def link_wasm(objects: Sequence[bytes], path: Path, exports: Sequence[str]) -> None:
    """Write a module for WebAssembly. It imports nothing but functions of `Math`."""
    if importlib.util.find_spec("ziglang") is None:
        raise NoLinker(
            "there is no linker for WebAssembly",
            op="build_library",
            hint='pip install "weft[aot]" brings one; a .o file needs none',
        )
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "imports").write_text("\n".join(MATH) + "\n")
        command = [sys.executable, "-m", "ziglang", "wasm-ld", "--no-entry", "--gc-sections"]
        command += ["--stack-first", "-z", f"stack-size={_STACK}", "--strip-all"]
        command += [f"--allow-undefined-file={place / 'imports'}", "--export=__heap_base"]
        command += [f"--export={name}" for name in exports]
        for number, data in enumerate(objects):
            (place / f"part{number}.o").write_bytes(data)
            command.append(str(place / f"part{number}.o"))
        _run([*command, "-o", str(place / "made.wasm")])
        _put(place / "made.wasm", path, 0o644)


def _stubs(folder: Path, machine: Machine) -> list[str]:
    """Libraries that only name functions, so that the linker notes which libraries have them."""
    made = []
    for library, names in (("libm.so.6", LIBM), ("libc.so.6", LIBC)):
        text = "\n".join(f"define void @{name}() {{ ret void }}" for name in sorted(names))
        part, file = folder / f"{library}.o", folder / library
        part.write_bytes(library_object(text, machine))
        linked = [sys.executable, "-m", "ziglang", "ld.lld", "-shared", f"-soname={library}"]
        _run([*linked, "-o", str(file), str(part)])
        made.append(str(file))
    return made


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoLinker(f"the linker cannot be run: {error}", op="build_library") from None
    if done.returncode:
        raise NoLinker(f"the linker failed: {done.stderr.strip()[-2000:]}", op="build_library")


def _put(made: Path, path: Path, mode: int = 0o755) -> None:
    """Move a file to its place at once, so that nobody sees a part of it."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        shutil.copyfile(made, beside)
        os.chmod(beside, mode)
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)
