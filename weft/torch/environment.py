"""What PyTorch programs ask of the machine, and switches that mean nothing here."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

from weft.base.precision import get_float32_matmul_precision as get_float32_matmul_precision
from weft.base.precision import set_float32_matmul_precision as set_float32_matmul_precision
from weft.compile import compile as core_compile
from weft.runtime.cuda import api

__all__ = [
    *("backends", "compile", "cuda", "get_float32_matmul_precision", "jit", "mps"),
    *("set_float32_matmul_precision", "use_deterministic_algorithms", "version"),
]


def _nothing(*_args: Any, **_kwargs: Any) -> None:
    """Does nothing: there is nothing of the kind here."""


def _no(*_args: Any, **_kwargs: Any) -> bool:
    return False


def _none(*_args: Any, **_kwargs: Any) -> int:
    return 0


def _module(name: str, **members: Any) -> types.ModuleType:
    made = types.ModuleType(f"weft.torch.{name}", f"`torch.{name}`.")
    vars(made).update(members)
    return made


cuda = _module("cuda", **{name: getattr(api, name) for name in api.__all__})
mps = _module("mps", is_available=_no, manual_seed=_nothing, empty_cache=_nothing)
backends = _module(
    "backends",
    cudnn=_module(
        "backends.cudnn", is_available=_no, enabled=False, benchmark=False, deterministic=True
    ),
    mps=_module("backends.mps", is_available=_no, is_built=_no),
    cuda=_module(
        "backends.cuda", is_built=api.is_available, matmul=_module("backends.cuda.matmul")
    ),
)
version = _module("version", cuda=None, hip=None)


def _refused(name: str) -> Callable[..., Any]:
    def refuse(*_args: Any, **_kwargs: Any) -> Any:
        raise NotImplementedError(
            f"torch.jit.{name} makes TorchScript, which Weft has not\n"
            "  to fix: use torch.compile(f): it captures loops and branches from the same source"
        )

    return refuse


def _ignored(function: Any) -> Any:
    return function


jit = _module(
    "jit",
    **{name: _refused(name) for name in ("script", "trace", "load", "save", "freeze")},
    ignore=_ignored,
    unused=_ignored,
    is_scripting=_no,
    is_tracing=_no,
)

#: What PyTorch calls its compilers, and says about how to compile: Weft has one.
_BACKENDS = frozenset({"inductor", "eager", "aot_eager", "cudagraphs"})


def compile(
    model: Any = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: Any = None,
    mode: str | None = None,
    options: Any = None,
    disable: bool = False,
) -> Any:
    """`weft.compile`, which has no modes and always takes the whole graph."""
    if model is None:
        return lambda given: compile(given, dynamic=dynamic, backend=backend, disable=disable)
    if disable:
        return model
    sizes: Any = "auto" if dynamic is None else dynamic
    ours = None if backend in (None, *_BACKENDS) else backend
    return core_compile(model, backend=ours, dynamic=sizes)


use_deterministic_algorithms = _nothing
