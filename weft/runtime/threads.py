"""The number of threads that kernels run on, and the thread pool.

>>> weft.set_num_threads(2)
>>> weft.get_num_threads()
2

The pool's code is in `weft/runtime/pool/`. It is loaded when a program first needs it, and its
workers start with the first parallel call. It is never shut down: sleeping workers cost nothing,
and the memory that they read must stay valid even while the process exits.
"""

from __future__ import annotations

import ctypes
import operator
import os
import threading

from weft.base.errors import DTypeError, RangeError
from weft.base.lazy import Lazy
from weft.codegen.cache import Code, Request, cached
from weft.codegen.jit import Library
from weft.codegen.machine import container_cores, host
from weft.runtime.pool.code import EXPORTS, pool_text
from weft.runtime.pool.layout import FIELDS, MOST_THREADS, POOL_BYTES

__all__ = ["get_num_threads", "set_num_threads"]

VARIABLE = "WEFT_NUM_THREADS"
threadpoolctl = Lazy("threadpoolctl")


#: The pool's code.
POOL: Request = b"pool", lambda: Code(pool_text(host()), EXPORTS, brief=True)


class _Pool:
    """The pool of this process; `threads` is 0 until it is first needed."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.threads = 0
        self.library: Library | None = None

    def ready(self) -> Library:
        if self.library is None:
            with self.lock:
                if self.library is None:
                    library = cached(*POOL).library
                    library.keep()
                    self.tell(library)
                    self.library = library
        return self.library

    def tell(self, library: Library) -> None:
        """Write the settings that the pool's code reads."""
        at = library.address("weft_pool")
        ctypes.c_int32.from_address(at + FIELDS["wanted"]).value = get_num_threads()
        main = threading.main_thread().ident
        ctypes.c_uint64.from_address(at + FIELDS["main_thread"]).value = main or 0

    def forked(self) -> None:
        """Reset the pool in a forked child, which has no workers and no holders of locks."""
        self.lock = threading.Lock()
        if self.library is not None:
            ctypes.memset(self.library.address("weft_pool"), 0, POOL_BYTES)
            self.tell(self.library)


_pool = _Pool()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.forked)


# --- for users -----------------------------------------------------------------------------------


def get_num_threads() -> int:
    """The number of threads that kernels run on.

    It is what was set, else WEFT_NUM_THREADS, else the number of usable cores.

    >>> weft.get_num_threads() >= 1
    True
    """
    if _pool.threads == 0:
        _pool.threads = _from_environment() or min(_usable_cores(), MOST_THREADS)
    return _pool.threads


def set_num_threads(n: int) -> None:
    """Run kernels on `n` threads, including the calling one. Results do not depend on it.

    NumPy's BLAS, which computes eager products, is bound as well: it runs on at most `n` threads,
    and on no more than it was started with (OPENBLAS_NUM_THREADS stays a limit).

    >>> weft.set_num_threads(1)
    >>> weft.get_num_threads()
    1
    """
    _pool.threads = _checked(n, "set_num_threads")
    _bind_blas(_pool.threads)
    if _pool.library is not None:
        _pool.tell(_pool.library)  # the next call that takes the pool starts them


#: The threads that each BLAS library was started with, by its file.
_started_with: dict[str, int] = {}


def _bind_blas(count: int) -> None:
    for library in threadpoolctl.ThreadpoolController().lib_controllers:
        if library.user_api == "blas":
            most = _started_with.setdefault(library.filepath, library.num_threads)
            library.set_num_threads(min(count, most))


def _checked(n: object, op: str) -> int:
    try:
        if isinstance(n, bool):
            raise TypeError
        count = operator.index(n)  # type: ignore[arg-type]
    except TypeError:
        raise DTypeError(
            f"a number of threads is an integer, not {n!r:.60}", op=op, hint=f"1 … {MOST_THREADS}"
        ) from None
    if not 1 <= count <= MOST_THREADS:
        raise RangeError(
            f"{count} threads: 1 to {MOST_THREADS} are possible",
            op=op,
            hint=f"this process may use {_usable_cores()} cores",
        )
    return count


def _from_environment() -> int:
    """The value of WEFT_NUM_THREADS; 0 if it is not set."""
    text = os.environ.get(VARIABLE, "").strip()
    if not text:
        return 0
    if not text.isdecimal() or not 1 <= int(text) <= MOST_THREADS:
        raise RangeError(
            f"{VARIABLE} is {text!r}",
            op="get_num_threads",
            hint=f"an integer from 1 to {MOST_THREADS}, or unset for all usable cores",
        )
    return int(text)


def _usable_cores() -> int:
    """The number of cores that this process may use, which a container may limit."""
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    return max(1, min(cores, container_cores() or cores))


# --- for generated code --------------------------------------------------------------------------


def pool_request() -> list[Request]:
    """The request for the pool's code, if it is not loaded yet."""
    return [] if _pool.library is not None else [POOL]


def pool_address() -> int:
    """The pool argument of `weft_parallel` and `weft_poll`; it is the same after a fork."""
    return _pool.ready().address("weft_pool")


def parallel_address() -> int:
    """`i32 weft_parallel(ptr pool, ptr fn, ptr args, i64 items, i64 grain, ptr stop)`."""
    return _pool.ready().address("weft_parallel")


def poll_address() -> int:
    """`i32 weft_poll(ptr pool)`: nonzero if the run must end with INTERRUPTED."""
    return _pool.ready().address("weft_poll")


def raise_interrupt() -> None:
    """After a run that ended with INTERRUPTED, raise what the signal handler raised."""
    at = pool_address() + FIELDS["raised"]
    slots = (ctypes.c_void_p * 3).from_address(at)
    kind, value, trace = slots
    slots[:] = [None] * 3
    if kind:
        _restore(kind, value, trace)
    raise KeyboardInterrupt


#: A function of the Python C API: the exception that it sets is raised when it returns.
_restore = ctypes.PYFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)(
    ("PyErr_Restore", ctypes.pythonapi)
)
