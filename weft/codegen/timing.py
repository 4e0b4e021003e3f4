"""Programs that record when each of their kernels ran, and on which thread: for profiles.

The clock is read before and after each *site*, a place that calls a kernel. If the thread pool runs
a kernel in parts, each part is recorded as well, with its thread.

    @events        rows of four i64: the site, the thread, begin and end in ns
    @event_count   how many events there were
    @site_totals   for events beyond the buffer, two i64 for each site: their number and total time
"""

from __future__ import annotations

from dataclasses import dataclass

from weft.codegen.text import Function, Module
from weft.schedule.groups import Group

__all__ = ["ROOM", "Site", "Timing"]

#: Maximum events recorded in one run.
ROOM = 1 << 16


@dataclass(frozen=True, slots=True)
class Site:
    """A place in the program that calls a kernel, or runs a control flow node.

    inner   whether it contains other sites, as a loop does
    part    whether it records a part of what another site with the same kernel records
    """

    group: Group
    kernel: str
    inner: bool = False
    part: bool = False


class Timing:
    """The sites of a program that is being written; `clock` is a system clock id."""

    def __init__(self, module: Module, clock: int) -> None:
        self.module = module
        self.clock = clock
        self.sites: list[Site] = []
        module.declare("i32", "clock_gettime", "i32, ptr")
        module.declare("i64", "pthread_self", "")
        self._define_now()
        self._define_note()

    def part(self, group: Group, kernel: str) -> str:
        """A function that calls a kernel for some of its items, and records that."""
        number = self._site(Site(group, kernel, part=True))
        name = f"site.{number}"
        params = [("ptr", "args"), ("i64", "begin"), ("i64", "end")]
        f = self.module.function(name, "i32", params)
        start = f("call i64 @profile.now()")
        status = f(f"call i32 @{kernel}(ptr %args, i64 %begin, i64 %end)")
        f.do(f"call void @profile.note(i64 {number}, i64 {start})")
        f.do(f"ret i32 {status}")
        return name

    def begin(self, f: Function) -> str:
        return f("call i64 @profile.now()")

    def end(
        self, f: Function, start: str, group: Group, kernel: str = "", *, inner: bool = False
    ) -> None:
        """Record what a group, or one of its kernels, did since `start`."""
        number = self._site(Site(group, kernel, inner))
        f.do(f"call void @profile.note(i64 {number}, i64 {start})")

    def finish(self) -> None:
        """Define the buffers for events, once all sites are known."""
        zeros = "zeroinitializer, align 64"
        self.module.variable("events", f"[{4 * ROOM} x i64]", zeros, "")
        self.module.variable("event_count", "i64", "0, align 64", "")
        self.module.variable("site_totals", f"[{2 * max(1, len(self.sites))} x i64]", zeros, "")

    def _site(self, site: Site) -> int:
        self.sites.append(site)
        return len(self.sites) - 1

    def _define_now(self) -> None:
        f = self.module.function("profile.now", "i64", [], "nounwind noinline")
        time = f.var("i64", count=2, align=16)
        f(f"call i32 @clock_gettime(i32 {self.clock}, ptr {time})")
        seconds, rest = time.load_index(), (time + 1).load_index()
        f.do(f"ret i64 {seconds * 1_000_000_000 + rest}")

    def _define_note(self) -> None:
        params = [("i64", "site"), ("i64", "start")]
        f = self.module.function("profile.note", "void", params, "nounwind noinline")
        stop = f("call i64 @profile.now()")
        at = f.index(f("atomicrmw add ptr @event_count, i64 1 monotonic"))
        fits = f(f"icmp ult i64 {at}, {ROOM}")
        with f.when(fits):
            row = f.ptr("@events", "i64") + at * 4
            thread = f("call i64 @pthread_self()")
            for i, value in enumerate(("%site", thread, "%start", stop)):
                (row + i).store(value)
        with f.when(f(f"xor i1 {fits}, true")):
            total = f.ptr("@site_totals", "i64") + f.index("%site") * 2
            f(f"atomicrmw add ptr {total}, i64 1 monotonic")
            taken = f.index(stop) - f.index("%start")
            f(f"atomicrmw add ptr {total + 1}, i64 {taken} monotonic")
        f.do("ret void")
