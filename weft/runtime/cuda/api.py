"""What `weft.cuda` offers: PyTorch's names where they mean the same.

Functions that ask whether there is a GPU, or how much memory is in use, work everywhere; all others
raise a `DeviceError` that says what is missing: CuPy, or a GPU.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple

from weft.base.device import CURRENT, Device, as_device
from weft.base.errors import DeviceError
from weft.ops.generator import manual_seed as seed_generator
from weft.runtime.cuda import peak
from weft.runtime.cuda.host_ops import HOST
from weft.runtime.cuda.opening import cupy, missing

__all__ = [
    "DeviceProperties",
    "Event",
    "Stream",
    "current_device",
    "current_stream",
    "device",
    "device_count",
    "empty_cache",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "host_ops",
    "is_available",
    "is_bf16_supported",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "mem_get_info",
    "memory_allocated",
    "memory_reserved",
    "reset_peak_memory_stats",
    "set_device",
    "stream",
    "synchronize",
]

# --- what is there -----------------------------------------------------------------------------


def is_available() -> bool:
    """Whether tensors can lie on a GPU here: CuPy is installed and finds one.

    >>> weft.cuda.is_available() == (weft.cuda.device_count() > 0)
    True
    """
    return missing() is None


def device_count() -> int:
    """The number of GPUs; 0 where there is none, or no CuPy."""
    return 0 if missing() is not None else int(cupy().cuda.runtime.getDeviceCount())


def is_bf16_supported() -> bool:
    """Whether tensors of bfloat16 can lie on the GPU: on any that is available."""
    return is_available()


def _index(device: Any) -> int:
    """The number of a GPU from an int, a string, a Device, or None for the current one."""
    if device is None:
        return CURRENT.get("cuda", 0)
    if isinstance(device, int):
        return device
    place = as_device(device)
    if place.kind != "cuda":
        raise DeviceError(f"{str(place)!r} is no GPU", op="cuda", hint='say "cuda" or "cuda:0"')
    return place.index


def _checked_index(device: Any) -> int:
    index, count = _index(device), int(cupy().cuda.runtime.getDeviceCount())
    if not 0 <= index < count:
        raise DeviceError(
            f"there is no GPU {index}: this machine has {count}",
            op="cuda",
            hint="they are counted from 0",
        )
    return index


def current_device() -> int:
    """The number of the GPU that "cuda" means."""
    return _checked_index(None)


def set_device(device: Any) -> None:
    """Let "cuda" mean this GPU from now on."""
    index = _checked_index(device)
    CURRENT["cuda"] = index
    cupy().cuda.Device(index).use()


class device(contextlib.ContextDecorator):
    """Inside, "cuda" means this GPU: `with weft.cuda.device(1): …`."""

    def __init__(self, device: Any) -> None:
        self.device = device
        self._before: list[int] = []

    def __enter__(self) -> Device:
        self._before.append(current_device())
        set_device(self.device)
        return Device("cuda", current_device())

    def __exit__(self, *_exc: object) -> None:
        set_device(self._before.pop())


class DeviceProperties(NamedTuple):
    """What a GPU is."""

    name: str
    major: int
    minor: int
    total_memory: int
    multi_processor_count: int


def get_device_properties(device: Any = None) -> DeviceProperties:
    """Name, compute capability, memory and number of multiprocessors of a GPU."""
    found = cupy().cuda.runtime.getDeviceProperties(_checked_index(device))
    return DeviceProperties(
        found["name"].decode(),
        found["major"],
        found["minor"],
        found["totalGlobalMem"],
        found["multiProcessorCount"],
    )


def get_device_name(device: Any = None) -> str:
    """The name of a GPU, as its driver gives it."""
    return get_device_properties(device).name


def get_device_capability(device: Any = None) -> tuple[int, int]:
    """The compute capability of a GPU: (9, 0) for Hopper."""
    found = get_device_properties(device)
    return found.major, found.minor


def host_ops() -> dict[str, str]:
    """The ops that copy their operands to the CPU and run there, with the reason for each.

    >>> weft.cuda.host_ops()["expm"]
    'NumPy code that scales and squares as often as the norm asks for'
    """
    return dict(HOST)


# --- time --------------------------------------------------------------------------------------


def synchronize(device: Any = None) -> None:
    """Wait until all that was begun on a GPU is done."""
    cupy().cuda.Device(_checked_index(device)).synchronize()


def Stream(*, non_blocking: bool = True) -> Any:
    """A queue of work on the GPU: CuPy's `Stream`. Work begun in `with stream:` goes into it."""
    return cupy().cuda.Stream(non_blocking=non_blocking)


def Event(*, enable_timing: bool = False, blocking: bool = False) -> Any:
    """A mark in a stream: CuPy's `Event`, with `elapsed_time(other)` and `query()`."""
    return _event_class()(block=blocking, disable_timing=not enable_timing)


def _event_class() -> Any:
    loaded = cupy()

    class TimedEvent(loaded.cuda.Event):  # type: ignore[misc, name-defined]
        """CuPy's event, with PyTorch's names."""

        def elapsed_time(self, end: Any) -> float:
            """Milliseconds from this mark to another."""
            return float(loaded.cuda.get_elapsed_time(self, end))

        def query(self) -> bool:
            """Whether the work before the mark is done."""
            return bool(self.done)

    return TimedEvent


def current_stream() -> Any:
    """The stream into which work goes now."""
    return cupy().cuda.get_current_stream()


@contextlib.contextmanager
def stream(chosen: Any) -> Iterator[Any]:
    """Inside, work goes into this stream; None leaves everything as it is."""
    if chosen is None:
        yield None
        return
    with chosen:
        yield chosen


# --- memory ------------------------------------------------------------------------------------


def memory_allocated(device: Any = None) -> int:
    """Bytes that arrays on the GPU take now; 0 without one."""
    if not is_available():
        return 0
    loaded = cupy()
    with loaded.cuda.Device(_checked_index(device)):
        return int(loaded.get_default_memory_pool().used_bytes())


def memory_reserved(device: Any = None) -> int:
    """Bytes that the pool of memory holds: those of arrays, and those kept for new ones."""
    if not is_available():
        return 0
    loaded = cupy()
    with loaded.cuda.Device(_checked_index(device)):
        return int(loaded.get_default_memory_pool().total_bytes())


def max_memory_allocated(device: Any = None) -> int:
    """The most bytes that arrays took at one time, since `reset_peak_memory_stats()`.

    Counting costs time in each allocation, so it begins with that call, for the thread that calls;
    without it, the answer is what the pool of memory holds, which is at least as much.
    """
    if not is_available():
        return 0
    found = peak.most(cupy(), _checked_index(device))
    return memory_reserved(device) if found is None else found


def reset_peak_memory_stats(device: Any = None) -> None:
    """Count the peak of memory from now on."""
    peak.begin(cupy(), _checked_index(device), memory_allocated(device))


def empty_cache() -> None:
    """Give the memory that is kept for new arrays back to the driver."""
    if is_available():
        cupy().get_default_memory_pool().free_all_blocks()
        cupy().get_default_pinned_memory_pool().free_all_blocks()


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """Bytes that are free on the GPU, and all that it has, as the driver says."""
    free, total = cupy().cuda.Device(_checked_index(device)).mem_info
    return int(free), int(total)


# --- random numbers ----------------------------------------------------------------------------


def manual_seed(seed: int) -> None:
    """`weft.manual_seed`: all devices draw the same numbers from one stream."""
    seed_generator(seed)


def manual_seed_all(seed: int) -> None:
    """`weft.manual_seed`."""
    seed_generator(seed)
