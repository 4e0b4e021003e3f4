"""What the Array API asks a namespace about itself."""

from __future__ import annotations

from typing import Any

from weft.base.device import CPU, Device, as_device
from weft.base.dtypes import (
    DTYPES,
    KINDS,
    DType,
    bfloat16,
    default_complex,
    default_float,
    default_int,
    float16,
)
from weft.ir.dispatch import FAMILIES, family_for

__all__ = ["ARRAY_API_VERSIONS", "ArrayNamespaceInfo", "array_namespace_info"]

ARRAY_API_VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12")
#: The dtypes of the standard. Weft also has two narrow floats, which its test suite does not know.
_BEYOND = frozenset({float16, bfloat16})


class ArrayNamespaceInfo:
    """Capabilities, devices and dtypes of Weft: `weft.__array_namespace_info__()`."""

    def capabilities(self) -> dict[str, Any]:
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> Device:
        return CPU

    def devices(self) -> list[Device]:
        return [Device(kind) for kind, layout in FAMILIES if layout == "dense"]

    def default_dtypes(self, *, device: Any = None) -> dict[str, DType]:
        family_for(as_device(device))
        return {
            "real floating": default_float(),
            "complex floating": default_complex(),
            "integral": default_int(),
            "indexing": default_int(),
        }

    def dtypes(
        self, *, device: Any = None, kind: str | tuple[str, ...] | None = None
    ) -> dict[str, DType]:
        family_for(as_device(device))
        kinds = (kind,) if isinstance(kind, str) else kind
        wanted = frozenset().union(*(KINDS[k] for k in kinds)) if kinds else KINDS["all"]
        return {
            name: dtype
            for name, dtype in DTYPES.items()
            if dtype.kind in wanted and dtype not in _BEYOND
        }


def array_namespace_info() -> ArrayNamespaceInfo:
    return ArrayNamespaceInfo()
