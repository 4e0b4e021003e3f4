"""The machine that code is made for: its name, its features, how wide its vectors are."""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass

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
    """This machine, less what WEFT_TARGET_FEATURES takes away ("-avx512f,-avx512vl", say)."""
    features = dict(llvm.get_host_cpu_features())
    for word in os.environ.get("WEFT_TARGET_FEATURES", "").replace(" ", "").split(","):
        if word:
            features[word.lstrip("+-")] = not word.startswith("-")
    if not features.get("avx512f", False):  # whatever else of its family is there is of no use
        features = {k: v and not k.startswith("avx512") for k, v in features.items()}
    text = ",".join(("+" if on else "-") + name for name, on in sorted(features.items()))
    width = 64 if features.get("avx512f") else 32 if features.get("avx2") else 16
    return Target(llvm.get_process_triple(), llvm.get_host_cpu_name(), text, width)
