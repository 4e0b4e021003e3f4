"""`weft doctor`: facts about a machine for bug reports.

It must work on broken installations: a part that fails (LLVM, the GPU driver) reports the failure,
and the other parts go on.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.metadata
import importlib.util
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from weft.base.config import cache_dir, environment
from weft.base.private_files import refusal
from weft.core.ownership import counts
from weft.runtime.object_layout import places
from weft.runtime.rungs import rung

Section = dict[str, Any]


def report() -> dict[str, Section]:
    """All facts by section, as strings, numbers, lists and dicts for JSON."""
    return {name: _guarded(section) for name, section in SECTIONS.items()}


def as_text(found: dict[str, Section]) -> str:
    """The report as text, with one line per fact."""
    lines: list[str] = []
    for name, section in found.items():
        lines.append(name)
        width = max(map(len, section), default=0)
        lines += [f"  {key:<{width}}  {_shown(value)}" for key, value in section.items()]
        if not section:
            lines.append("  none set")
    return "\n".join(lines)


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(map(str, value)) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def _guarded(section: Callable[[], Section]) -> Section:
    try:
        return section()
    except Exception as error:  # broken installations must be reported, too
        return {"error": f"{type(error).__name__}: {error}"}


# --- the sections ------------------------------------------------------------------------------


def versions() -> Section:
    found: Section = {"weft": _version("weft")}
    found["python"] = f"{platform.python_version()} ({platform.python_implementation()})"
    for package in ("numpy", "llvmlite", "ml_dtypes"):
        found[package] = _version(package)
    found["blas of numpy"] = _blas()
    found["python at"] = sys.executable
    found["weft at"] = str(Path(__file__).resolve().parents[1])
    return found


def machine() -> Section:
    return {
        "system": platform.platform(),
        "architecture": platform.machine(),
        "libc": " ".join(platform.libc_ver()).strip() or "unknown",
    }


def cpu() -> Section:
    return {"name": _cpu_name(), "cores": os.cpu_count() or 0, "cores usable": _usable_cores()}


def llvm() -> Section:
    # llvmlite takes a tenth of a second to load, and nothing else here needs it.
    binding: Any = importlib.import_module("llvmlite.binding")
    features = binding.get_host_cpu_features()
    return {
        "version": ".".join(map(str, binding.llvm_version_info)),
        "host triple": binding.get_process_triple(),
        "host cpu": binding.get_host_cpu_name(),
        "cpu features": sorted(name for name, present in features.items() if present),
    }


def gpu() -> Section:
    cupy = importlib.util.find_spec("cupy") is not None
    return {"cupy": cupy, **_nvidia()}


def cache() -> Section:
    folder = cache_dir()
    files = [path for path in folder.rglob("*") if path.is_file()] if folder.is_dir() else []
    return {
        "folder": str(folder),
        "exists": folder.is_dir(),
        "files": len(files),
        "size": amount(sum(path.stat().st_size for path in files)),
        "refused": (refusal(folder) or "no") if folder.is_dir() else "no",
    }


def calls() -> Section:
    """How compiled functions are called: see `weft.runtime.rungs`."""
    return {
        "way": rung(),
        "layout of objects": "known" if places() is not None else "not known",
        "buffers are used again": counts(),
    }


SECTIONS: dict[str, Callable[[], Section]] = {
    "versions": versions,
    "machine": machine,
    "cpu": cpu,
    "llvm": llvm,
    "gpu": gpu,
    "cache": cache,
    "calls": calls,
    "environment": lambda: dict(environment()),
}


# --- how each is found out ---------------------------------------------------------------------


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _blas() -> str:
    config: Any = np.show_config(mode="dicts")
    blas = config.get("Build Dependencies", {}).get("blas", {})
    return f"{blas.get('name', 'unknown')} {blas.get('version', '')}".strip()


def _cpu_name() -> str:
    """The model name of the CPU; platform.processor() does not give it on most Linux machines."""
    if sys.platform == "linux":
        for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip() in ("model name", "Model", "cpu model"):
                return value.strip()
    elif sys.platform == "darwin":
        command = ["sysctl", "-n", "machdep.cpu.brand_string"]
        found = subprocess.run(command, capture_output=True, text=True, check=False, timeout=10)
        if found.stdout.strip():
            return found.stdout.strip()
    return platform.processor() or "unknown"


def _usable_cores() -> int:
    """The number of cores that this process may use, which a container may limit."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 0


def _nvidia() -> Section:
    """Ask NVIDIA's driver itself, which needs neither CuPy nor nvidia-smi."""
    name = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    try:
        driver = ctypes.CDLL(name)
    except OSError:
        return {"nvidia driver": "not found", "devices": []}
    status = driver.cuInit(0)
    if status != 0:
        return {"nvidia driver": f"found, but cuInit returned error {status}", "devices": []}
    version, count = ctypes.c_int(), ctypes.c_int()
    driver.cuDriverGetVersion(ctypes.byref(version))
    driver.cuDeviceGetCount(ctypes.byref(count))
    supports = f"CUDA {version.value // 1000}.{version.value % 1000 // 10}"
    devices = [_nvidia_device(driver, index) for index in range(count.value)]
    return {"nvidia driver": f"supports {supports}", "devices": devices}


def _nvidia_device(driver: Any, index: int) -> str:
    device, name = ctypes.c_int(), ctypes.create_string_buffer(256)
    driver.cuDeviceGet(ctypes.byref(device), index)
    driver.cuDeviceGetName(name, len(name), device)
    parts = []
    for attribute in (75, 76):  # major and minor of the compute capability
        part = ctypes.c_int()
        driver.cuDeviceGetAttribute(ctypes.byref(part), attribute, device)
        parts.append(str(part.value))
    return f"{name.value.decode()} (compute capability {'.'.join(parts)})"


def amount(size: float) -> str:
    for unit in ("bytes", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.4g} {unit}"
        size /= 1024
    return f"{size:.4g} GiB"
