"""The pool's memory: where each field lies, and how generated code reaches it."""

from __future__ import annotations

from weft.codegen.text import Function

__all__ = ["COUNT", "FIELDS", "MOST_THREADS", "OPEN", "PARALLEL", "POOL_BYTES", "WAITING"]
__all__ += ["fetch", "field", "put", "slot"]

MOST_THREADS = 256

#: Where each field lies; what different threads write stands on lines of the cache of its own.
FIELDS = {
    "busy": 0,  # i32: 1 while a caller has the pool
    "wanted": 4,  # i32: the number of threads that was set, with the caller's
    "current": 8,  # i32: the number for which the workers were started
    "generation": 12,  # i32: workers of another one end
    "workers": 16,  # i32: how many there are in this generation
    "bell": 128,  # i32: changes with every job
    "sleepers": 132,  # i32: how many workers sleep on the bell, or are about to
    "state": 256,  # i32: OPEN | WAITING | how many workers are inside
    "fn": 384,  # the job
    "args": 392,
    "items": 400,
    "grain": 408,
    "parts": 416,  # i64: how many slots are filled
    "stop": 424,  # where to say that the run shall end; null where it must not
    "status": 512,  # i32: the first that was not 0
    "next_look": 640,  # i64: the counter's value from which on a poll looks at the clock
    "next_ask": 648,  # i64: the time from which on it asks Python
    "main_thread": 656,  # i64: Python's main thread, the only one that handles signals
    "raised": 664,  # 3 pointers: what the handler raised
    "mutex": 768,  # only where there is no futex
    "condition": 896,
    "slots": 1024,  # {i64 next chunk, i64 end} for each thread, 128 bytes apart
}
POOL_BYTES = FIELDS["slots"] + 128 * MOST_THREADS

#: What `state` holds beside the number of workers that are inside.
OPEN, WAITING, COUNT = 1 << 16, 1 << 17, (1 << 16) - 1

PARALLEL = [("ptr", "pool"), ("ptr", "fn"), ("ptr", "args"), ("i64", "items"), ("i64", "grain")]
PARALLEL += [("ptr", "stop")]

_SIZE = {"i32": 4, "i64": 8, "ptr": 8}


def field(f: Function, name: str) -> str:
    return f(f"getelementptr i8, ptr %pool, i64 {FIELDS[name]}")


def fetch(f: Function, kind: str, name: str, order: str = "monotonic") -> str:
    return f(f"load atomic {kind}, ptr {field(f, name)} {order}, align {_SIZE[kind]}")


def put(f: Function, kind: str, name: str, value: str, order: str = "monotonic") -> None:
    f.do(f"store atomic {kind} {value}, ptr {field(f, name)} {order}, align {_SIZE[kind]}")


def slot(f: Function, index: str) -> tuple[str, str]:
    """The addresses of a slot's next chunk and of its end."""
    offset = f(f"add i64 {f(f'mul i64 {index}, 128')}, {FIELDS['slots']}")
    first = f(f"getelementptr i8, ptr %pool, i64 {offset}")
    return first, f(f"getelementptr i8, ptr {first}, i64 8")
