"""The thread pool: every item once, on as many threads as were set, whatever goes on around it."""

from __future__ import annotations

import ctypes
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from weft.codegen import llvm
from weft.codegen.contract import Status
from weft.codegen.jit import Library, build
from weft.codegen.machine import container_cores, host
from weft.errors import DTypeError, RangeError
from weft.runtime import threads
from weft.runtime.pool.code import EXPORTS, pool_text
from weft.runtime.pool.layout import FIELDS, MOST_THREADS

#: `count` adds 1 to each item; `fail` gives 7 for the item `args` names; `meet` comes back when
#: args[1] threads have come (or after args[2] tries: 1); `nest` runs `count` inside; `nap` sleeps.
#: `linger` is short for the first item; the others wait until `args` says that the run shall end.
KERNELS = """
declare i32 @usleep(i32)
declare i32 @sched_yield()

define i32 @count(ptr %args, i64 %begin, i64 %end) {
entry:
  br label %head
head:
  %i = phi i64 [ %begin, %entry ], [ %next, %body ]
  %more = icmp slt i64 %i, %end
  br i1 %more, label %body, label %done
body:
  %p = getelementptr i64, ptr %args, i64 %i
  %old = atomicrmw add ptr %p, i64 1 monotonic
  %next = add i64 %i, 1
  br label %head
done:
  ret i32 0
}

define i32 @fail(ptr %args, i64 %begin, i64 %end) {
  %at = load i64, ptr %args
  %low = icmp sge i64 %at, %begin
  %high = icmp slt i64 %at, %end
  %here = and i1 %low, %high
  %p = getelementptr i64, ptr %args, i64 1
  %old = atomicrmw add ptr %p, i64 1 monotonic
  %status = select i1 %here, i32 7, i32 0
  ret i32 %status
}

define i32 @meet(ptr %args, i64 %begin, i64 %end) {
entry:
  %wanted.at = getelementptr i64, ptr %args, i64 1
  %tries.at = getelementptr i64, ptr %args, i64 2
  %wanted = load i64, ptr %wanted.at
  %tries = load i64, ptr %tries.at
  %old = atomicrmw add ptr %args, i64 1 seq_cst
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %next, %again ]
  %here = load atomic i64, ptr %args seq_cst, align 8
  %all = icmp sge i64 %here, %wanted
  br i1 %all, label %good, label %wait
wait:
  %slept = call i32 @usleep(i32 100)
  %next = add i64 %i, 1
  %late = icmp sge i64 %next, %tries
  br i1 %late, label %bad, label %again
again:
  br label %head
good:
  ret i32 0
bad:
  ret i32 1
}

define i32 @nest(ptr %args, i64 %begin, i64 %end) {
  %pool.at = getelementptr ptr, ptr %args, i64 1
  %counts.at = getelementptr ptr, ptr %args, i64 2
  %parallel = load ptr, ptr %args
  %pool = load ptr, ptr %pool.at
  %counts = load ptr, ptr %counts.at
  %s = call i32 %parallel(ptr %pool, ptr @count, ptr %counts, i64 10, i64 1, ptr null)
  ret i32 %s
}

define i32 @nap(ptr %args, i64 %begin, i64 %end) {
  %old = atomicrmw add ptr %args, i64 1 monotonic
  %s = call i32 @usleep(i32 1000)
  ret i32 0
}

define i32 @linger(ptr %args, i64 %begin, i64 %end) {
entry:
  %first = icmp eq i64 %begin, 0
  br i1 %first, label %short, label %head
short:
  %s = call i32 @usleep(i32 50000)
  ret i32 0
head:
  %i = phi i64 [ 0, %entry ], [ %next, %again ]
  %asked = load atomic i32, ptr %args monotonic, align 4
  %end.now = icmp ne i32 %asked, 0
  br i1 %end.now, label %out, label %wait
wait:
  %t = call i32 @usleep(i32 1000)
  %next = add i64 %i, 1
  %late = icmp sge i64 %next, 10000
  br i1 %late, label %out, label %again
again:
  br label %head
out:
  ret i32 0
}
"""
NAMES = ["count", "fail", "meet", "nest", "nap", "linger"]
ITEMS = (0, 1, 2, 7, 100, 1003)
GRAINS = (-1, 0, 1, 3, 64, 1003, 1 << 62)
FACE = ctypes.CFUNCTYPE(
    *[ctypes.c_int32, *[ctypes.c_void_p] * 3, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p]
)


class Pool:
    """`weft_parallel` of a library, called on the kernels above."""

    def __init__(self, library: Library, kernels: Library) -> None:
        self.library, self.kernels = library, kernels
        self.at = library.address("weft_pool")
        self.parallel = FACE(library.address("weft_parallel"))

    def run(self, kernel: str, args: Any, items: int, grain: int = 1, stop: Any = None) -> int:
        at = self.kernels.address(kernel)
        word = None if stop is None else stop.ctypes.data
        status: int = self.parallel(self.at, at, args.ctypes.data, items, grain, word)
        return status

    def set(self, count: int) -> None:
        ctypes.c_int32.from_address(self.at + FIELDS["wanted"]).value = count

    def field(self, name: str) -> int:
        return ctypes.c_int32.from_address(self.at + FIELDS[name]).value


@pytest.fixture(scope="module")
def kernels() -> Library:
    return build(KERNELS, NAMES)


@pytest.fixture
def own(kernels: Library) -> Iterator[Pool]:
    """The pool of this process, with three threads."""
    before = weft.get_num_threads()
    weft.set_num_threads(3)
    pool = Pool(threads._pool.ready(), kernels)
    yield pool
    weft.set_num_threads(before)


def _variants() -> dict[str, Callable[[], str]]:
    """The pool's text for other systems, as far as it runs on this one."""
    return {
        "futex": lambda: pool_text(host()),
        "condition": lambda: pool_text(host(), futex=False),
        "no threads": lambda: pool_text(replace(host(), triple="unknown-unknown-unknown")),
    }


@pytest.mark.parametrize("variant", _variants())
def test_every_item_once(variant: str, kernels: Library) -> None:
    library = build(_variants()[variant](), EXPORTS)
    library.keep()
    pool = Pool(library, kernels)
    for count in (0, 1, 2, 3, 5, 2):
        pool.set(count)
        for items, grain in itertools.product(ITEMS, GRAINS):
            counts = np.zeros(max(ITEMS) + 1, np.int64)
            assert pool.run("count", counts, items, grain) == 0
            np.testing.assert_array_equal(counts, np.arange(len(counts)) < items)
    pool.set(0)


def test_as_many_threads_as_were_set(own: Pool) -> None:
    for count in (3, 2, 5, 1, 4):
        weft.set_num_threads(count)
        for _ in range(3):
            args = np.array([0, count, 200_000], np.int64)
            assert own.run("meet", args, count) == 0
        if count > 1:
            assert own.field("workers") == count - 1
    args = np.array([0, 6, 100], np.int64)  # one thread more never comes
    assert own.run("meet", args, 5) == 1


def test_the_first_status_is_given_and_ends_the_job(own: Pool) -> None:
    for count in (1, 3):
        weft.set_num_threads(count)
        args = np.array([5, 0], np.int64)
        assert own.run("fail", args, 10_000) == 7
        assert args[1] < 10_000
        args = np.array([-1, 0], np.int64)
        assert own.run("fail", args, 100) == 0


def test_inside_of_a_region_it_runs_alone(own: Pool) -> None:
    counts = np.zeros(10, np.int64)
    args = np.array([own.library.address("weft_parallel"), own.at, counts.ctypes.data])
    assert own.run("nest", args, 50) == 0
    assert (counts == 50).all()


def test_many_python_threads(own: Pool) -> None:
    counts = np.zeros((4, 1003), np.int64)

    def calls(row: int) -> None:
        for _ in range(200):
            own.run("count", counts[row], 1003, 10)

    callers = [threading.Thread(target=calls, args=(row,)) for row in range(4)]
    for caller in callers:
        caller.start()
    for count in (1, 2, 3, 4, 2, 3):  # and somebody changes the number meanwhile
        weft.set_num_threads(count)
        time.sleep(0.001)
    for caller in callers:
        caller.join()
    assert (counts == 200).all()


def test_idle_workers_sleep(own: Pool) -> None:
    if not Path("/proc/self/task").exists():
        pytest.skip("only Linux says what threads do")
    before = set(os.listdir("/proc/self/task"))
    weft.set_num_threads(6)
    assert own.run("meet", np.array([0, 6, 200_000]), 6) == 0
    new = set(os.listdir("/proc/self/task")) - before
    assert len(new) >= 5 - 2  # numbers of threads that have ended may come back
    deadline = time.monotonic() + 20
    while own.field("sleepers") < 5 or "R" in [_state(task) for task in new]:
        assert time.monotonic() < deadline
        time.sleep(0.005)


def _state(task: str) -> str:
    try:
        return Path(f"/proc/self/task/{task}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, ProcessLookupError):
        return "gone"


# --- the process around it -----------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_after_fork(own: Pool) -> None:
    if not hasattr(os, "fork"):
        pytest.skip("there is no fork")
    assert own.run("meet", np.array([0, 3, 200_000]), 3) == 0
    child = os.fork()
    if child == 0:
        status = 1
        try:
            counts = np.zeros(100, np.int64)
            met = own.run("meet", np.array([0, 3, 200_000]), 3)
            status = met or own.run("count", counts, 100) or int(counts.sum() != 100)
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert own.run("meet", np.array([0, 3, 200_000]), 3) == 0


PROGRAM = f"""
import ctypes, sys, threading
import weft
from weft.codegen.jit import build
from weft.runtime import threads
text = '''{KERNELS}'''
kernels = build(text, ["nap"])
parallel = ctypes.CFUNCTYPE(
    ctypes.c_int32, *[ctypes.c_void_p] * 3, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p
)
weft.set_num_threads(4)
counts = (ctypes.c_int64 * 1)()
call = parallel(threads.parallel_address())
def run(items):
    at = ctypes.addressof(counts)
    return call(threads.pool_address(), kernels.address("nap"), at, items, 1, None)
"""


@pytest.mark.parametrize(
    "end",
    [
        "run(8)",  # workers still look at the bell
        "run(8); import time; time.sleep(0.05)",  # they sleep
        "threading.Thread(target=run, args=(10**6,), daemon=True).start(); run(2)",  # a job is on
        "run(8); sys.exit()",
    ],
)
def test_the_process_ends(end: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", f"{PROGRAM}\n{end}"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_nothing_starts_before_it_is_needed() -> None:
    code = (
        "import sys, threading, weft; weft.get_num_threads(); weft.set_num_threads(4); "
        "print('llvmlite' in sys.modules, threading.active_count())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "1"]


# --- signals -------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 3])
def test_ctrl_c_ends_a_run(own: Pool, count: int) -> None:
    weft.set_num_threads(count)
    timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT))
    args = np.zeros(1, np.int64)
    timer.start()
    status = own.run("nap", args, 60_000, stop=np.zeros(1, np.int32))
    timer.join()
    assert status == Status.INTERRUPTED
    assert args[0] < 60_000
    with pytest.raises(KeyboardInterrupt):
        threads.raise_interrupt()
    counts = np.zeros(100, np.int64)
    assert own.run("count", counts, 100) == 0  # all is usable
    assert (counts == 1).all()


@pytest.mark.parametrize("variant", ["futex", "condition"])
def test_who_waits_for_long_items_polls(variant: str, kernels: Library) -> None:
    """The caller is through with its own, and the workers cannot ask."""
    library = build(_variants()[variant](), EXPORTS)
    library.keep()
    pool = Pool(library, kernels)
    pool.set(3)
    main = ctypes.c_uint64.from_address(pool.at + FIELDS["main_thread"])
    main.value = threading.main_thread().ident or 0
    stop = np.zeros(1, np.int32)
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.15)
        assert pool.run("linger", stop, 3, stop=stop) == Status.INTERRUPTED
        assert stop[0] == Status.INTERRUPTED
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_job_that_must_not_end_is_not_ended(own: Pool) -> None:
    """It writes where inputs lie: the exception comes after it."""
    args = np.zeros(1, np.int64)
    timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012
        timer.start()
        assert own.run("nap", args, 600) == 0
        threading.Event().wait(5)
    timer.join()
    assert args[0] == 600


def test_what_a_handler_raises_is_what_is_raised(own: Pool) -> None:
    class Enough(Exception):
        pass

    def handler(*_args: object) -> None:
        raise Enough("of this")

    before = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        stop = np.zeros(1, np.int32)
        assert own.run("nap", np.zeros(1, np.int64), 60_000, stop=stop) == Status.INTERRUPTED
        with pytest.raises(Enough, match="of this"):
            threads.raise_interrupt()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_handler_that_raises_nothing_ends_nothing(own: Pool) -> None:
    called: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda number, _frame: called.append(number))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        args = np.zeros(1, np.int64)
        assert own.run("nap", args, 600, stop=np.zeros(1, np.int32)) == 0
        assert args[0] == 600
        assert called == [signal.SIGALRM]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_other_threads_leave_signals_to_the_main_one(own: Pool) -> None:
    found: list[int] = []
    runner = threading.Thread(target=lambda: found.append(own.run("nap", np.zeros(1), 300)))
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012
        runner.start()
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(10)
    runner.join()
    assert found == [0]


# --- how many ------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [0, -1, MOST_THREADS + 1, 10**30])
def test_numbers_out_of_range(n: int) -> None:
    before = weft.get_num_threads()
    with pytest.raises(RangeError, match=rf"set_num_threads: {n} threads") as error:
        weft.set_num_threads(n)
    assert "cores" in error.value.hint
    assert weft.get_num_threads() == before


@pytest.mark.parametrize("n", [None, "2", 2.0, True, [2]])
def test_what_is_no_number_of_threads(n: Any) -> None:
    with pytest.raises(DTypeError, match="a number of threads is an integer"):
        weft.set_num_threads(n)


def test_numpy_integers_are_numbers() -> None:
    before = weft.get_num_threads()
    weft.set_num_threads(np.int32(2))  # type: ignore[arg-type]
    assert weft.get_num_threads() == 2
    assert type(weft.get_num_threads()) is int
    weft.set_num_threads(before)


@pytest.mark.parametrize(("text", "count"), [("1", 1), (" 3 ", 3), ("256", 256)])
def test_the_environment_says(text: str, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads._pool, "threads", 0)
    monkeypatch.setenv("WEFT_NUM_THREADS", text)
    assert weft.get_num_threads() == count


@pytest.mark.parametrize("text", ["0", "-2", "two", "1.5", "257", "²"])
def test_the_environment_says_nonsense(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads._pool, "threads", 0)
    monkeypatch.setenv("WEFT_NUM_THREADS", text)
    with pytest.raises(RangeError, match="WEFT_NUM_THREADS is"):
        weft.get_num_threads()


def test_the_default_is_all_usable_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads._pool, "threads", 0)
    monkeypatch.setenv("WEFT_NUM_THREADS", "")
    monkeypatch.setattr(threads, "_usable_cores", lambda: 7)
    assert weft.get_num_threads() == 7


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({"cpu.max": "150000 100000\n"}, 2),
        ({"cpu.max": "50000 100000\n"}, 1),
        ({"cpu.max": "max 100000\n"}, 0),
        ({"cpu.max": "nonsense"}, 0),
        ({"cpu/cpu.cfs_quota_us": "300000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 3),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, 0),
        ({"cpu/cpu.cfs_quota_us": "3\n", "cpu/cpu.cfs_period_us": "0\n"}, 0),
        ({}, 0),
    ],
)
def test_what_a_container_may_use(files: dict[str, str], cores: int, tmp_path: Path) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert container_cores(tmp_path) == cores


# --- other machines ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "triple", ["aarch64-unknown-linux-gnu", "arm64-apple-darwin23", "x86_64-apple-darwin23"]
)
def test_the_text_for_other_machines_is_good(triple: str) -> None:
    llvm.parse_assembly(pool_text(replace(host(), triple=triple))).verify()


BLAS = """
import numpy, threadpoolctl, weft
def now():
    return [x["num_threads"] for x in threadpoolctl.threadpool_info() if x["user_api"] == "blas"]
shown = [now()]
for n in (1, 2, 8):
    weft.set_num_threads(n)
    shown.append(now())
print(shown)
"""


def test_numpys_blas_is_bound() -> None:
    def shown(limit: str) -> list[list[int]]:
        found = subprocess.run(
            [sys.executable, "-c", BLAS],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "OPENBLAS_NUM_THREADS": limit},
        )
        result: list[list[int]] = json.loads(found.stdout)
        return result

    before, one, two, eight = shown("2")
    if not before:
        pytest.skip("this NumPy has no BLAS that threadpoolctl knows")
    assert one == [1] * len(before)
    assert two == eight == before  # never more than it was started with
    assert shown("1") == [[1] * len(before)] * 4
