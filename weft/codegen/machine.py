"""The machine that code is made for: its name, features, vectors, caches, pace and cores."""

from __future__ import annotations

import ctypes
import functools
import math
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from weft.base import store
from weft.codegen import llvm

__all__ = ["Caches", "Machine", "container_cores", "host"]

#: From so many cores on, items of work are cut so that each core gets some.
MANY = 8


@dataclass(frozen=True, slots=True)
class Caches:
    """Sizes in bytes; the defaults are for systems that do not report theirs.

    first, second   data caches that one core has
    last            the largest cache, which cores may share
    way             two addresses this far apart compete for the same lines of the first cache
    """

    first: int = 32 << 10
    second: int = 512 << 10
    last: int = 8 << 20
    way: int = 4096

    @property
    def room(self) -> int:
        """How much memory a thread may take for one item of work: less than the second cache."""
        return max(min(448 << 10, self.last), self.second * 7 // 16)


@dataclass(frozen=True, slots=True)
class Machine:
    """A CPU as a code generator sees it.

    cpu, features   as LLVM spells them
    vector_bytes    the width of its vectors
    ghz             the clock rate that estimates of time assume
    pointer_bytes   the size of an address
    threads         whether work is shared by threads
    cores           how many there are; not how many threads run: results do not depend on that
    """

    triple: str
    cpu: str
    features: str
    vector_bytes: int
    caches: Caches = field(default_factory=Caches)
    ghz: float = 3.0
    pointer_bytes: int = 8
    threads: bool = True
    cores: int = 2

    def lanes(self, itemsize: int) -> int:
        """How many elements of a size fit in one vector."""
        return max(1, self.vector_bytes // itemsize)

    def piece(self, size: int, _itemsize: int = 1) -> int:
        """How many elements one item of work moves, where `size` is usual for a CPU."""
        return size

    def parts(self, count: int) -> int:
        """How many items some work is cut into at most, where `count` is usual for a CPU of few
        cores."""
        if not self.threads:
            return 1
        return max(count, 2 * self.cores) if self.has_many_cores else count

    @property
    def has_many_cores(self) -> bool:
        return self.threads and self.cores >= MANY

    @property
    def access_cycles(self) -> float:
        """Cycles to read or write a vector in a long loop. With many cores, another one mostly has
        it in its cache."""
        return 4.0 if self.has_many_cores else 1.0

    def has(self, feature: str) -> bool:
        return f"+{feature}" in self.features.split(",")

    @property
    def is_x86(self) -> bool:
        return self.triple.startswith(("x86", "i686"))

    @property
    def is_wasm(self) -> bool:
        return self.triple.startswith("wasm")

    @property
    def has_vectors(self) -> bool:
        """Whether vectors are more than a few scalars."""
        return not self.triple.startswith("thumb")

    @property
    def registers(self) -> int:
        """How many vector registers there are."""
        if not self.has_vectors:
            return 8  # of four floats each
        if self.is_wasm:
            return 15  # of 16 on x86: V8 has one for itself
        return 16 if self.is_x86 and self.vector_bytes < 64 else 32

    def holds(self, rows: int, columns: int) -> bool:
        """Whether the sums of rows × columns vectors stay in registers, with what they are
        computed from."""
        if self.is_wasm:  # V8 loads all operands first, and needs one for a product
            return rows * columns + rows + columns + 1 <= self.registers
        return rows * columns + min(rows, columns) + 1 <= self.registers - 1

    def rows_beside(self, columns: int) -> int:
        """The most rows of so many vectors whose sums stay in registers."""
        return max(rows for rows in range(1, 15) if rows == 1 or self.holds(rows, columns))

    def fuses(self, itemsize: int = 4) -> bool:
        """Whether it multiplies and adds floats of a size in one instruction, rounded once."""
        if self.is_x86:
            return self.has("fma")
        if self.is_wasm:
            return False
        return itemsize <= 4 or self.pointer_bytes == 8  # Cortex-M4 has no float64

    @property
    def multiply_cycles(self) -> float:
        """Cycles between two multiplications of vectors: one for 64 bytes, else a half."""
        return 1.0 if self.vector_bytes == 64 else 0.5


@functools.cache
def host() -> Machine:
    """This machine, without the features that WEFT_TARGET_FEATURES removes ("-avx512f,-avx512vl",
    say), and with as many cores as WEFT_TARGET_CORES tells.

    What LLVM reports about the processor is cached on disk, so that cached code can be found
    without LLVM. Caches are queried in each process.
    """
    changes = os.environ.get("WEFT_TARGET_FEATURES", "").replace(" ", "")
    processor = _processor()
    name = store.name_of(b"machine 1", llvm.version().encode(), processor, changes.encode())
    kept = store.read(name) if processor else None
    found = kept[0] if kept is not None else _asked(changes)
    if processor and kept is None:
        store.write(name, found)
    return Machine(**found, caches=_caches(), ghz=_ghz(), cores=_cores())


def _cores() -> int:
    """The cores of this machine, or of this container. Not the cores that the process may use just
    now: code that is kept on disk is the same for all processes."""
    told = os.environ.get("WEFT_TARGET_CORES", "")
    if told.isdecimal() and int(told) > 0:
        return int(told)
    count = os.cpu_count() or 1
    return max(1, min(count, container_cores() or count))


def container_cores(root: Path = Path("/sys/fs/cgroup")) -> int:
    """The CPU limit of the container in cores, rounded up; 0 if unlimited."""
    try:
        if (root / "cpu.max").exists():
            quota, period = (root / "cpu.max").read_text().split()
        else:
            quota = (root / "cpu" / "cpu.cfs_quota_us").read_text()
            period = (root / "cpu" / "cpu.cfs_period_us").read_text()
        if float(quota) > 0:  # "max" is not a number
            return math.ceil(float(quota) / float(period))
    except (OSError, ValueError, ZeroDivisionError):
        pass
    return 0


def _asked(changes: str) -> dict[str, str | int]:
    features = dict(llvm.get_host_cpu_features())
    for word in changes.split(","):
        if word:
            features[word.lstrip("+-")] = not word.startswith("-")
    if not features.get("avx512f", False):  # other features of its family are useless without it
        features = {k: v and not k.startswith("avx512") for k, v in features.items()}
    text = ",".join(("+" if on else "-") + name for name, on in sorted(features.items()))
    width = 64 if features.get("avx512f") else 32 if features.get("avx2") else 16
    return {
        "triple": llvm.get_process_triple(),
        "cpu": llvm.get_host_cpu_name(),
        "features": text,
        "vector_bytes": width,
    }


#: Lines of /proc/cpuinfo that do not change while the system runs.
_LASTING = (
    *("vendor_id", "cpu family", "model", "model name", "stepping", "flags"),
    *("CPU implementer", "CPU architecture", "CPU variant", "CPU part", "CPU revision", "Features"),
)


def _processor(path: Path = Path("/proc/cpuinfo")) -> bytes:
    """What identifies this processor; empty if the system does not say."""
    try:
        with path.open() as file:  # only the first: reading hundreds takes long
            block = file.read(16384).partition("\n\n")[0]
    except OSError:
        return b""
    lines = [line for line in block.splitlines() if line.partition(":")[0].strip() in _LASTING]
    return f"{os.uname().machine}\n{chr(10).join(lines)}".encode() if lines else b""


def _ghz(path: Path = Path("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq")) -> float:
    """The highest clock rate, where the system says it."""
    text = _word(path)
    return int(text) / 1e6 if text.isdigit() else 3.0


# --- caches --------------------------------------------------------------------------------------

#: Bounds of the second-level cache size: smaller blocks are not worth copying, larger ones gain
#: nothing.
_LEAST_SECOND, _MOST_SECOND = 256 << 10, 2 << 20


def _caches() -> Caches:
    if sys.platform == "darwin":
        return _settled(_of_sysctl())
    return _settled(_of_sysfs(Path("/sys/devices/system/cpu/cpu0/cache")))


def _settled(found: dict[str, int]) -> Caches:
    """The sizes found, within bounds; defaults for the rest."""
    known = {name: size for name, size in found.items() if size > 0}
    if "second" in known:
        known["second"] = min(max(known["second"], _LEAST_SECOND), _MOST_SECOND)
    made = Caches(**known)
    return made if made.last >= made.second else Caches(**{**known, "last": made.second})


def _of_sysfs(folder: Path) -> dict[str, int]:
    """What Linux reports about the caches of the first core; the largest of the outer levels counts
    as the last."""
    sizes: dict[int, int] = {}
    found: dict[str, int] = {}
    for place in sorted(folder.glob("index*")):
        if _word(place / "type") not in ("Data", "Unified"):
            continue
        level, size = int(_word(place / "level") or 0), _bytes(_word(place / "size"))
        sizes[level] = size
        ways = int(_word(place / "ways_of_associativity") or 0)
        if level == 1 and ways:
            found["way"] = size // ways
    if sizes:
        found |= {"first": sizes.get(1, 0), "second": sizes.get(2, 0), "last": max(sizes.values())}
    return found


def _word(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _bytes(text: str) -> int:
    """48K, 1024K, 32M"""
    units = {"K": 10, "M": 20, "G": 30}
    digits = text.rstrip("KMG")
    return int(digits) << units.get(text[-1:], 0) if digits.isdigit() else 0


def _sysctl(name: str) -> int:
    """What macOS says by a name; 0 where it does not know it."""
    value, size = ctypes.c_uint64(), ctypes.c_size_t(8)
    failed = ctypes.CDLL(None).sysctlbyname(
        name.encode(), ctypes.byref(value), ctypes.byref(size), None, ctypes.c_size_t(0)
    )
    return 0 if failed else value.value


def _of_sysctl(asked: Callable[[str], int] = _sysctl) -> dict[str, int]:
    """What macOS reports about its fast cores, or about all of them."""

    def either(word: str) -> int:
        return asked(f"hw.perflevel0.{word}") or asked(f"hw.{word}")

    second = either("l2cachesize")
    return {
        "first": either("l1dcachesize"),
        "second": second // max(1, asked("hw.perflevel0.cpusperl2")),
        "last": asked("hw.l3cachesize") or second,
    }
