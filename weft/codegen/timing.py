"""Programs that write down when each of their kernels ran, and on which thread: for profiles.

The clock is read before and after each place that calls a kernel, a *site*. Where the pool calls a
kernel for parts of the work, it does so through a function that notes each part, too, with the
thread that did it.

    @events        so many rows of four i64: the site, the thread, when it began and ended, in ns
    @event_count   how many events there were
    @site_totals   of those beyond the room, for each site two i64: how many, for how long in all
"""

from __future__ import annotations

from dataclasses import dataclass

from weft.codegen.text import Function, Module
from weft.schedule.groups import Group

__all__ = ["ROOM", "Site", "Timing"]

#: How many events are kept of one run.
ROOM = 1 << 16


@dataclass(frozen=True, slots=True)
class Site:
    """A place in the program that calls a kernel, or does what a node of control flow says.

    inner   whether it is on the way to other sites, as a loop is to those of its body
    part    whether what is noted is a part of what another site with the same kernel notes
    """

    group: Group
    kernel: str
    inner: bool = False
    part: bool = False


class Timing:
    """The sites of a program that is being written; `clock` is the system's number of one."""

    def __init__(self, module: Module, clock: int) -> None:
        self.module = module
        self.clock = clock
        self.sites: list[Site] = []
        module.declare("i32", "clock_gettime", "i32, ptr")
        module.declare("i64", "pthread_self", "")
        self._define_now()
        self._define_note()

    def part(self, group: Group, kernel: str) -> str:
        """A function that calls a kernel of a group for a part of its items, and notes that."""
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
        """Note what a group, or one of its kernels, did since `start`."""
        number = self._site(Site(group, kernel, inner))
        f.do(f"call void @profile.note(i64 {number}, i64 {start})")

    def finish(self) -> None:
        """All sites are known: make room for what is noted."""
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
