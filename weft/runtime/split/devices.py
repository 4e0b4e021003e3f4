"""Devices that take whole segments of a graph, by name; the table is open from outside.

    weft.register_engine(weft.Engine("npu", compile=compile_for_npu, refuses=why_not, memory=2**30))

An engine compiles a graph into a function of arrays. "cpu" is machine code, as everywhere; "ort"
and "openvino" are opened when they are first asked for. What stands behind a colon is theirs:
"ort:CUDAExecutionProvider", "openvino:NPU".
"""

from __future__ import annotations

import importlib
import re
import threading
from collections.abc import Callable, Mapping
from typing import Any

from weft.base.dataclass import dataclass
from weft.base.device import ENGINES
from weft.base.errors import DeviceError, RangeError
from weft.core.tensor import wrap
from weft.ir.graph import Graph, Node
from weft.runtime.lazy_imports import code_maker

__all__ = ["CPU", "Engine", "Rates", "engine", "engines_here", "register_engine"]
__all__ += ["unregister_engine", "use_engines"]

CPU = "cpu"
#: Takes the arrays of a segment's inputs, and returns those of its outputs.
Run = Callable[[list[Any]], list[Any]]


@dataclass(frozen=True, slots=True)
class Rates:
    """What the cost model counts with.

    flops, bytes    per second
    call            seconds that one call of a segment takes besides
    transfer        bytes per second between the device and the host
    latency         seconds that one transfer takes besides
    """

    flops: float
    bytes: float
    call: float
    transfer: float = float("inf")
    latency: float = 0.0

    def __post_init__(self) -> None:
        for name in ("flops", "bytes", "transfer"):
            if not getattr(self, name) > 0:
                raise RangeError(f"{name} is {getattr(self, name)!r:.40}, not above 0", op="Rates")
        for name in ("call", "latency"):
            if not getattr(self, name) >= 0:
                raise RangeError(f"{name} is {getattr(self, name)!r:.40}, below 0", op="Rates")


def _runs_all(_node: Node) -> str:
    return ""


def as_it_is(array: Any) -> Any:
    """How an array comes to a device that shares the host's memory."""
    return array


@dataclass(frozen=True, eq=False, slots=True)
class Engine:
    """A device that runs whole segments.

    compile     graph -> function of a list of arrays. It is called once for each segment, and must
                not write to arrays that it gets
    refuses     node -> why the engine cannot run it, or ""
    put, get    how an array of the host comes to the device, and back
    rates       what the cost model counts with; None: measured once, and kept on disk
    memory      the bytes that are there; None: enough
    version     what measured rates depend on
    """

    name: str
    compile: Callable[[Graph], Run]
    refuses: Callable[[Node], str] = _runs_all
    put: Callable[[Any], Any] = as_it_is
    get: Callable[[Any], Any] = as_it_is
    rates: Rates | None = None
    memory: int | None = None
    version: str = ""


_ENGINES: dict[str, Engine] = {}
_OPENERS: dict[str, str] = {}
_lock = threading.RLock()


def use_engines(modules: Mapping[str, str]) -> None:
    """Engines that are opened when they are asked for: by kind, the module whose function
    `open_engine(name, option)` makes them."""
    _OPENERS.update(modules)
    ENGINES.update(modules)


def register_engine(made: Engine) -> Engine:
    """Make a device known that runs segments: `with weft.device(made.name):`. See docs/devices.md.

    Returns it; `weft.unregister_engine(name)` forgets it.
    """
    if not isinstance(made, Engine):
        raise DeviceError(f"{made!r:.60} is no weft.Engine", op="register_engine")
    with _lock:
        if made.name in _ENGINES or made.name in _OPENERS:
            raise DeviceError(
                f"there is already a device {made.name!r}",
                op="register_engine",
                hint="give it another name, or unregister that one",
            )
        _check_engine(made)
        _ENGINES[made.name] = made
        ENGINES.add(made.name)
    return made


def _check_engine(made: Engine) -> None:
    name = made.name
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z_][\w.-]*", name) or name == "auto":
        raise RangeError(
            f"{name!r:.40} is no name of a device",
            op="register_engine",
            hint='a word of letters and digits, but not "auto"',
        )
    for what in ("compile", "refuses", "put", "get"):
        if not callable(getattr(made, what)):
            raise DeviceError(f"{what} is no function", op="register_engine")
    if made.rates is not None and not isinstance(made.rates, Rates):
        raise DeviceError(f"rates is {made.rates!r:.40}, no weft.Rates", op="register_engine")
    if made.memory is not None and (not isinstance(made.memory, int) or made.memory < 0):
        raise RangeError(
            f"memory is {made.memory!r:.40}", op="register_engine", hint="a number of bytes"
        )


def unregister_engine(name: str) -> None:
    """Forget a device that `register_engine` made known."""
    with _lock:
        if name == CPU or name not in _ENGINES:
            raise DeviceError(f"{name!r} was not registered", op="unregister_engine")
        del _ENGINES[name]
        ENGINES.discard(name)


def engine(name: str) -> Engine:
    """The device of a name; an error says which there are, or what to install."""
    with _lock:
        found = _ENGINES.get(name)
        if found is None:
            kind, colon, option = name.partition(":") if isinstance(name, str) else ("", "", "")
            if kind not in _OPENERS or (colon and not option):
                known = ", ".join(sorted({*_ENGINES, *_OPENERS}))
                raise DeviceError(
                    f"there is no device {name!r:.60} that runs parts of a graph",
                    hint=f"known are {known}; weft.register_engine makes others known",
                )
            opener: Any = importlib.import_module(_OPENERS[kind]).open_engine
            found = _ENGINES[name] = opener(name, option)
        return found


def engines_here() -> list[str]:
    """The names of the devices that are registered, or can be opened here."""
    names = [CPU, *[name for name in _ENGINES if name not in (CPU, "cuda")]]
    for kind in _OPENERS:
        if kind not in names:
            try:
                engine(kind)
            except DeviceError:
                continue
            names.append(kind)
    return names


# --- the CPU -------------------------------------------------------------------------------------


def _machine_code(graph: Graph) -> Run:
    program = code_maker()(graph)

    def run(arrays: list[Any]) -> list[Any]:
        return [x._data for x in program.call([wrap(array) for array in arrays])]

    return run


_ENGINES[CPU] = Engine(CPU, _machine_code)
#: Of values that are on a GPU: what is typed so runs there, and nothing else.
_ENGINES["cuda"] = Engine(
    "cuda",
    _machine_code,
    lambda node: "only values that are on the GPU are computed there: x.to('cuda')",
    rates=Rates(1e13, 1e12, 2e-5),
)
