"""What libraries can be built for: machines, and what their systems offer."""

from __future__ import annotations

import platform
from dataclasses import dataclass

from weft.base.errors import RangeError
from weft.codegen.machine import Machine, host

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
    files       whether there is a C library: memory, files
    dynamic     whether there are shared libraries
    suffix      of what is built
    threads     whether there may be threads, which run different instances
    """

    name: str
    variants: tuple[Variant, ...]
    files: bool = True
    dynamic: bool = True
    suffix: str = ".so"
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
    )
}


def library_target(name: str | None) -> LibraryTarget:
    """The target of a name; without one, that of this system."""
    if name is None:
        name = "x86_64-linux" if platform.machine() in ("x86_64", "AMD64") else "native"
    if name == "native":
        return _host()
    if name not in TARGETS:
        raise RangeError(
            f"there is no target {name!r}", op="build_library", hint=f"native, {', '.join(TARGETS)}"
        )
    return TARGETS[name]
