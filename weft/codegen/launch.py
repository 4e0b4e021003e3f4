"""Launches kernels, directly or through the thread pool, and polls for cancellation in between."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from weft.base.dim_algebra import dim_max
from weft.base.dims import is_zero
from weft.codegen.contract import RUN
from weft.codegen.index import Ptr, minimum
from weft.codegen.kernel import PARAMS, Kernel, argument, each_item
from weft.codegen.text import Function, Module
from weft.schedule.groups import Group
from weft.schedule.target import Costs

if TYPE_CHECKING:
    from weft.codegen.checks.calls import Checking
    from weft.codegen.timing import Timing

__all__ = ["Launcher", "slot"]

#: Poll between kernels outside of the pool that take longer than this together, in ns.
POLL = 1_000_000.0


def slot(f: Function, table: str | Ptr, place: int) -> Ptr:
    """The pointer at a position of a table of pointers."""
    return (f.ptr(str(table), "ptr") + place).load_ptr()


_LAUNCH = [
    *(("ptr", "run"), ("ptr", "kernel"), ("ptr", "part"), ("ptr", "args")),
    *(("i64", "items"), ("i64", "work"), ("i64", "grain"), ("ptr", "stop")),
]


def _define_launch(share: float, module: Module) -> None:
    """`@launch`: run all items of a kernel, whose work is in picoseconds, here or in the pool: then
    `part` is what threads call."""
    f = module.function("launch", "i32", _LAUNCH, "nounwind noinline")
    f.do("%none = icmp slt i64 %items, 1")
    with f.when("%none"):  # of several kernels for different sizes, most have no items
        f.do("ret i32 0")
        f.block(f.fresh("never"))
    pays = f(f"icmp sge i64 %work, {round(1000 * share)}")
    several = f("icmp sgt i64 %items, 1")
    with f.when(f(f"and i1 {pays}, {several}")):
        pool, parallel = (slot(f, "%run", RUN.index(word)) for word in ("pool", "parallel"))
        sizes = "i64 %items, i64 %grain"
        status = f(f"call i32 {parallel}(ptr {pool}, ptr %part, ptr %args, {sizes}, ptr %stop)")
        f.do(f"ret i32 {status}")
        f.block(f.fresh("never"))
    f.do(f"ret i32 {f('call i32 %kernel(ptr %args, i64 0, i64 %items)')}")


#: Into how many chunks a kernel that runs beside others is cut at most, and the ns of one that is
#: not cut.
CHUNKS, UNCUT = 64, 500.0


def _define_together(
    module: Module, name: str, kernels: Sequence[Kernel], parts: Sequence[int]
) -> int:
    """The kernel whose items are those of several kernels, `parts` of them at once; its arguments
    point to theirs. Returns how many there are. Each thread gets as much of one kernel as of the
    others, so that it goes on with what it has written before."""
    order = sorted(
        ((2 * chunk + 1) / (2 * count), place, chunk)
        for place, (kernel, part) in enumerate(zip(kernels, parts, strict=True))
        for count in [-(-kernel.items // part)]
        for chunk in range(count)
    )
    words = ", ".join(f"i64 {place}, i64 {chunk}" for _, place, chunk in order)
    table = module.constant(f"[{2 * len(order)} x i64]", f"[{words}]")
    f = module.function(name, "i32", PARAMS)
    with each_item(f) as item:
        row = f.ptr(table, "i64") + item * 2
        which, chunk_of = row.load(), (row + 1).load_index()
        for place, (kernel, part) in enumerate(zip(kernels, parts, strict=True)):
            with f.when(f(f"icmp eq i64 {which}, {place}")):
                begin = chunk_of * part
                end = minimum(begin + part, kernel.items)
                args = argument(f, place)
                status = f(f"call i32 @{kernel.name}(ptr {args}, i64 {begin}, i64 {end})")
                with f.when(f(f"icmp ne i32 {status}, 0")):
                    f.do(f"ret i32 {status}")
                    f.block(f.fresh("never"))
    f.do("ret i32 0")
    return len(order)


class Launcher:
    """Launches the kernels of one function, whose run is `%run`."""

    def __init__(
        self, f: Function, costs: Costs, timing: Timing | None, checking: Checking | None
    ) -> None:
        self.f = f
        self._piece = costs.piece
        self._share = costs.share
        self._timing = timing
        self._checking = checking
        self._unpolled = 0.0  # estimated ns since the last poll

    def of_run(self, word: str) -> Ptr:
        """A word of the run."""
        return slot(self.f, "%run", RUN.index(word))

    def start(self, group: Group, kernel: Kernel, args: Ptr, *, may_end: bool) -> str:
        """Call a kernel, through the thread pool if that pays; returns its status. `may_end`:
        whether the run may be cancelled here."""
        f = self.f
        name = kernel.name if self._checking is None else self._checking.thunk(kernel.name)
        if kernel.varies:
            self._unpolled += min(kernel.nanoseconds, POLL)
            if self._unpolled > POLL and may_end:
                self.poll()
            return self._start_or_share(group, kernel, name, args, may_end=may_end)
        if self.polls(kernel, may_end=may_end):
            self.poll()
        if not kernel.shared:
            return f(f"call i32 @{name}(ptr {args}, i64 0, i64 {kernel.items})")
        if self._timing is not None:
            name = self._timing.part(group, name)
        grain = self.grain(kernel)
        pool, parallel = self.of_run("pool"), self.of_run("parallel")
        stop = f.ptr("%run", "ptr") + RUN.index("stop") if may_end else "null"
        return f(
            f"call i32 {parallel}(ptr {pool}, ptr @{name}, ptr {args}, "
            f"i64 {kernel.items}, i64 {grain}, ptr {stop})"
        )

    def start_together(
        self, name: str, kernels: Sequence[tuple[Kernel, Ptr]], *, may_end: bool
    ) -> str:
        """Call kernels, each with its arguments, whose items threads share; returns the status."""
        f = self.f
        parts = []
        for kernel, _ in kernels:
            grain = max(1, round(self._piece / max(kernel.cost, 0.01)))
            each = -(-kernel.items // f.module.machine.cores)
            part = max(min(grain, each), -(-kernel.items // CHUNKS))
            parts.append(kernel.items if kernel.nanoseconds < UNCUT else part)
        table = f.var("ptr", count=len(kernels), align=16)
        for place, (_, args) in enumerate(kernels):
            (table + place).store(args)
        count = _define_together(f.module, name, [kernel for kernel, _ in kernels], parts)
        pool, parallel = self.of_run("pool"), self.of_run("parallel")
        stop = f.ptr("%run", "ptr") + RUN.index("stop") if may_end else "null"
        return f(
            f"call i32 {parallel}(ptr {pool}, ptr @{name}, ptr {table}, i64 {count}, i64 1, "
            f"ptr {stop})"
        )

    def polls(self, kernel: Kernel, *, may_end: bool) -> bool:
        """Whether the run is polled before a kernel of known time. It counts this time, too."""
        if kernel.shared:  # the pool polls
            return False
        self._unpolled += kernel.nanoseconds
        if self._unpolled <= POLL or not may_end:
            return False
        self._unpolled = 0.0
        return True

    def grain(self, kernel: Kernel) -> int:
        """How many items a thread takes at once."""
        return max(1, round(self._piece / max(kernel.cost, 0.01)))

    def _start_or_share(
        self, group: Group, kernel: Kernel, name: str, args: Ptr, *, may_end: bool
    ) -> str:
        """Call a kernel of which only the run knows whether sharing it pays."""
        f = self.f
        work = kernel.items * max(1, round(1000 * kernel.cost))
        work = dim_max(1, work if is_zero(kernel.work) else kernel.work)
        grain = dim_max(1, round(1000 * self._piece) * kernel.items // work)
        part = name if self._timing is None else self._timing.part(group, name)
        stop = f.ptr("%run", "ptr") + RUN.index("stop") if may_end else "null"
        launch = f.module.once("launch", functools.partial(_define_launch, self._share))
        sizes = ", ".join(f"i64 {f.size(size)}" for size in (kernel.items, work, grain))
        given = f"ptr %run, ptr @{name}, ptr @{part}, ptr {args}, {sizes}, ptr {stop}"
        return f(f"call i32 @{launch}({given})")

    def poll(self) -> None:
        """End the run if it is cancelled: in every iteration of a loop, and between kernels that
        take long together."""
        self._unpolled = 0.0
        poll, pool = self.of_run("poll"), self.of_run("pool")
        self.check(self.f(f"call i32 {poll}(ptr {pool})"))

    def check(self, status: str) -> None:
        """End the run if a status is not 0."""
        f = self.f
        with f.when(f(f"icmp ne i32 {status}, 0")):
            f.do(f"ret i32 {status}")
            f.block(f.fresh("never"))
