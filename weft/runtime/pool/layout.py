"""The pool's memory: the offset of each field, and access from generated code."""

from __future__ import annotations

from weft.codegen.index import Ptr, Size
from weft.codegen.text import Function

__all__ = ["COUNT", "FIELDS", "MOST_THREADS", "OPEN", "PARALLEL", "POOL_BYTES", "WAITING"]
__all__ += ["fetch", "field", "put", "slot"]

MOST_THREADS = 256

#: The offset of each field. Fields that different threads write are on different cache lines; what
#: a worker reads of a job is on one.
FIELDS = {
    "busy": 0,  # i32: 1 while a caller has the pool
    "wanted": 4,  # i32: the number of threads that was set, including the caller
    "current": 8,  # i32: the number of threads when the workers were started
    "workers": 12,  # i32: the number of workers in this generation
    "bell": 128,  # i32: changes with every job
    "sleepers": 132,  # i32: the number of workers that sleep on the bell, or are about to
    "state": 256,  # i32: OPEN | WAITING | the number of workers inside
    "fn": 384,  # the job
    "args": 392,
    "items": 400,
    "grain": 408,
    "parts": 416,  # i64: the number of slots in use
    "stop": 424,  # address of the stop flag; null if the run must not be interrupted
    "status": 432,  # i32: the first nonzero status
    "generation": 436,  # i32: the generation; workers of another one end
    "next_look": 640,  # i64: the counter value after which a poll reads the clock
    "next_ask": 648,  # i64: the time after which it asks Python
    "main_thread": 656,  # i64: the main thread of Python, which alone handles signals
    "raised": 664,  # 3 pointers: the exception of the handler
    "mutex": 768,  # only without futexes
    "condition": 896,
    "slots": 1024,  # {i64 next chunk, i64 end} for each thread, 128 bytes apart
}
POOL_BYTES = FIELDS["slots"] + 128 * MOST_THREADS

#: Bits of `state` besides the number of workers inside.
OPEN, WAITING, COUNT = 1 << 16, 1 << 17, (1 << 16) - 1

PARALLEL = [("ptr", "pool"), ("ptr", "fn"), ("ptr", "args"), ("i64", "items"), ("i64", "grain")]
PARALLEL += [("ptr", "stop")]

_SIZE = {"i32": 4, "i64": 8, "ptr": 8}


def field(f: Function, name: str) -> Ptr:
    return f.ptr("%pool").bytes(FIELDS[name])


def fetch(f: Function, kind: str, name: str, order: str = "monotonic") -> str:
    return f(f"load atomic {kind}, ptr {field(f, name)} {order}, align {_SIZE[kind]}")


def put(f: Function, kind: str, name: str, value: str, order: str = "monotonic") -> None:
    f.do(f"store atomic {kind} {value}, ptr {field(f, name)} {order}, align {_SIZE[kind]}")


def slot(f: Function, index: Size) -> tuple[Ptr, Ptr]:
    """The addresses of a slot's next chunk and of its end."""
    first = f.ptr("%pool", "i64").bytes(index * 128 + FIELDS["slots"])
    return first, first + 1
