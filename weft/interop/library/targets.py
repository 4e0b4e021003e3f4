"""What libraries can be built for: machines, and what their systems offer."""

from __future__ import annotations

import platform
from dataclasses import dataclass

from weft.base.errors import RangeError
from weft.codegen.machine import Caches, Machine, host

__all__ = ["TARGETS", "LibraryTarget", "Variant", "library_target"]


@dataclass(frozen=True, slots=True)
class Variant:
    """One version of the code: several may be in one library, for what a processor can do.

    level   of x86-64, which is asked for when an instance is made; 0: none is asked for
    """

    name: str
    machine: Machine
    level: int = 0


@dataclass(frozen=True, slots=True)
class LibraryTarget:
    """
    variants    the versions of the code, the best one last; the first runs everywhere
    suffixes    of what can be built
    files       whether there is a C library: memory, files
    threads     whether there may be threads, which run different instances
    """

    name: str
    variants: tuple[Variant, ...]
    suffixes: tuple[str, ...] = (".so", ".a", ".o")
    files: bool = True
    threads: bool = True

    @property
    def triple(self) -> str:
        return self.variants[0].machine.triple

    @property
    def bits(self) -> int:
        """Of a pointer."""
        return 8 * self.variants[0].machine.pointer_bytes


_V2 = "+cx16,+popcnt,+sse3,+sse4.1,+sse4.2,+ssse3"
_V3 = f"{_V2},+avx,+avx2,+bmi,+bmi2,+f16c,+fma,+lzcnt,+movbe"
_V4 = f"{_V3},+avx512f,+avx512bw,+avx512cd,+avx512dq,+avx512vl,-prefer-256-bit"
_LINUX = "x86_64-unknown-linux-gnu"
_X86 = (
    Variant("x86-64", Machine(_LINUX, "x86-64", "", 16), 1),
    Variant("x86-64-v3", Machine(_LINUX, "x86-64-v3", _V3, 32), 3),
    Variant("x86-64-v4", Machine(_LINUX, "x86-64-v4", _V4, 64), 4),
)


_ARM64 = Machine("aarch64-unknown-linux-gnu", "generic", "+neon", 16)
_MACOS = Machine("arm64-apple-macos11", "apple-m1", "", 16, Caches(64 << 10, 2 << 20, 8 << 20))
#: Registers hold four floats each; "caches" keep its temporaries small.
_CORTEX = Machine(
    *("thumbv7em-unknown-none-gnueabihf", "cortex-m4", "", 16),
    Caches(1 << 10, 4 << 10, 4 << 10, 256),
    ghz=0.1,
    pointer_bytes=4,
    threads=False,
)
_SIMD = "+bulk-memory,+nontrapping-fptoint,+sign-ext,+simd128"
_WASM = Machine("wasm32-unknown-unknown", "generic", _SIMD, 16, pointer_bytes=4, threads=False)


def _host() -> LibraryTarget:
    """This machine alone: the code that compiled functions run here."""
    return LibraryTarget("native", (Variant("native", host()),))


TARGETS: dict[str, LibraryTarget] = {
    target.name: target
    for target in (
        LibraryTarget("x86_64-linux", _X86),
        *(
            LibraryTarget(f"{variant.name.replace('-', '_', 1)}-linux", (variant,))
            for variant in _X86[1:]
        ),
        LibraryTarget("aarch64-linux", (Variant("aarch64", _ARM64),)),
        LibraryTarget("aarch64-macos", (Variant("aarch64", _MACOS),), (".o",)),
        LibraryTarget("cortex-m4", (Variant("cortex-m4", _CORTEX),), (".a", ".o"), False, False),
        LibraryTarget("wasm32", (Variant("wasm32", _WASM),), (".wasm", ".o"), False, False),
    )
}


def library_target(name: str | None, suffix: str) -> LibraryTarget:
    """The target of a name, for a file with this suffix; without a name, that of this system."""
    if name is None:
        x86 = platform.machine() in ("x86_64", "AMD64")
        name = "wasm32" if suffix == ".wasm" else "x86_64-linux" if x86 else "native"
    if name != "native" and name not in TARGETS:
        raise RangeError(
            f"there is no target {name!r}", op="build_library", hint=f"native, {', '.join(TARGETS)}"
        )
    found = _host() if name == "native" else TARGETS[name]
    if len(found.variants) > 1 and not host().is_x86:
        raise RangeError(
            f"code for {name} that chooses its version can only be made on such a machine",
            op="build_library",
            hint=", ".join(other for other in TARGETS if other.startswith("x86_64-v")),
        )
    if suffix not in found.suffixes:
        raise RangeError(
            f"a library for {name} cannot be a {suffix or 'file without a suffix'}",
            op="build_library",
            hint=", ".join(found.suffixes),
        )
    return found
