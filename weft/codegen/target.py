"""The machine that code is made for: its name, its features, how wide its vectors are."""

from __future__ import annotations

import functools
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from weft.base import store
from weft.codegen import llvm

__all__ = ["Target", "host"]


@dataclass(frozen=True, slots=True)
class Target:
    """cpu and features as LLVM writes them; `vector_bytes` is the width of its vectors."""

    triple: str
    cpu: str
    features: str
    vector_bytes: int

    def lanes(self, itemsize: int) -> int:
        """How many elements of a size stand in one vector."""
        return max(1, self.vector_bytes // itemsize)

    def has(self, feature: str) -> bool:
        return f"+{feature}" in self.features.split(",")


@functools.cache
def host() -> Target:
    """This machine, less what WEFT_TARGET_FEATURES takes away ("-avx512f,-avx512vl", say).

    LLVM knows it. What it said is kept, so that code which is kept too can be found without LLVM.
    """
    changes = os.environ.get("WEFT_TARGET_FEATURES", "").replace(" ", "")
    processor = _processor()
    name = store.name_of(b"target 1", llvm.version().encode(), processor, changes.encode())
    kept = store.read(name) if processor else None
    if kept is not None:
        return Target(**kept[0])
    found = _asked(changes)
    if processor:
        store.write(name, asdict(found))
    return found


def _asked(changes: str) -> Target:
    features = dict(llvm.get_host_cpu_features())
    for word in changes.split(","):
        if word:
            features[word.lstrip("+-")] = not word.startswith("-")
    if not features.get("avx512f", False):  # whatever else of its family is there is of no use
        features = {k: v and not k.startswith("avx512") for k, v in features.items()}
    text = ",".join(("+" if on else "-") + name for name, on in sorted(features.items()))
    width = 64 if features.get("avx512f") else 32 if features.get("avx2") else 16
    return Target(llvm.get_process_triple(), llvm.get_host_cpu_name(), text, width)


#: What the system says about a processor that does not change while it runs.
_LASTING = (
    *("vendor_id", "cpu family", "model", "model name", "stepping", "flags"),
    *("CPU implementer", "CPU architecture", "CPU variant", "CPU part", "CPU revision", "Features"),
)


def _processor(path: Path = Path("/proc/cpuinfo")) -> bytes:
    """What tells this processor from others; nothing where the system does not say."""
    try:
        with path.open() as file:  # the first of them: with hundreds, the whole takes long
            block = file.read(16384).partition("\n\n")[0]
    except OSError:
        return b""
    lines = [line for line in block.splitlines() if line.partition(":")[0].strip() in _LASTING]
    return f"{os.uname().machine}\n{chr(10).join(lines)}".encode() if lines else b""
