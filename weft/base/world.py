"""Who takes part in a run: the ranks of a world, and how arrays pass between them.

A world of one rank is there from the beginning. `weft.distributed` brings others: processes that
MPI started, or threads of one process. Cards of collectives (`weft/ops/collective.py`) ask
`current_world()` for a group of ranks when they are evaluated, and know no engine.

A mesh is written as pairs of names and sizes, (("data", 2), ("model", 4)): rank 0 comes first, and
the last axis changes fastest. A group is all ranks that differ only in their places along some of
these axes.
"""

from __future__ import annotations

import itertools
import math
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from weft.base.errors import DistributedError
from weft.base.lazy import Lazy

__all__ = [
    "Alone",
    "Array",
    "Axes",
    "Calls",
    "Group",
    "World",
    "called",
    "check_mesh",
    "compare_lines",
    "current_world",
    "group_size",
    "ranks_of",
    "use_world",
]

hashlib = Lazy("hashlib")
Array = np.ndarray[Any, Any]
Axes = tuple[tuple[str, int], ...]


class Group(Protocol):
    """Some ranks of a world, in the order of the mesh. All of them make the same calls."""

    rank: int  # of this process among them
    size: int
    compared: bool  # whether its ranks have compared what their first graphs do together

    def all_reduce(self, x: Array, op: str) -> Array:
        """The elementwise sum ("sum", "prod", "max", "min") of all arrays, the same everywhere."""

    def all_gather(self, x: Array) -> Array:
        """All arrays, stacked along a new first axis."""

    def reduce_scatter(self, x: Array, op: str) -> Array:
        """The reduction of x[rank] of all arrays."""

    def all_to_all(self, x: Array) -> Array:
        """From each rank i its x[rank], stacked: a transpose over ranks."""

    def broadcast(self, x: Array, root: int) -> Array:
        """The array of one rank."""

    def permute(self, x: Array, pairs: Sequence[tuple[int, int]]) -> Array:
        """Sends arrays from a to b for each pair (a, b); zeros for a rank that nobody sends to."""

    def start(self, what: str, x: Array, argument: Any) -> None:
        """Send what one of the calls above sends, and do not wait. Until `finish`, no call but
        other starts."""

    def finish(self) -> Array:
        """The result of the oldest call that was started."""

    def abandon(self) -> None:
        """Forget calls that were started, as all ranks do where a program fails."""

    def direct(
        self,
        what: str,
        dtype: Any,
        shape: tuple[int, ...],
        argument: Any,
        parts: Sequence[int],
        half: str = "",
    ) -> int:
        """The address of words of which the first is a function that machine code calls, with this
        address and that of a table of the operand's and the result's; 0 if there is none. `what` is
        a method of groups ("send": `permute`), `argument` its argument. The operand is in parts of
        so many elements, one after the other. `half`: "start", or "finish", which has another
        operand behind these, and both another result behind the first."""

    def failed(self) -> None:
        """Raise the error of such a call, which returned a status other than 0."""


class World(Protocol):
    """
    copies  compiled functions of this rank, by those that several threads share; None where each
            rank is a process
    """

    rank: int
    size: int
    copies: dict[Any, Any] | None

    def group(self, mesh: Axes, over: tuple[str, ...]) -> Group: ...

    def barrier(self) -> None:
        """Returns when all ranks have called it."""

    def post(self, x: Array, rank: int) -> None:
        """Send an array to another rank. It returns before that takes it; x may change then."""

    def take(self, rank: int) -> Array:
        """The next array that another rank posted to this one."""


def ranks_of(rank: int, mesh: Axes, over: tuple[str, ...]) -> list[int]:
    """The ranks of the group of `rank` over some axes of a mesh."""
    numbers = np.arange(math.prod(size for _, size in mesh)).reshape([size for _, size in mesh])
    (place,) = np.argwhere(numbers == rank)
    pick = tuple(
        slice(None) if name in over else int(at) for (name, _), at in zip(mesh, place, strict=True)
    )
    ranks: list[int] = numbers[pick].reshape(-1).tolist()
    return ranks


def check_mesh(mesh: Axes, ranks: int) -> None:
    """A program for other ranks than there are would compute something else."""
    size = math.prod(n for _, n in mesh)
    if size != ranks:
        shown = ", ".join(f"{name}={n}" for name, n in mesh)
        are = "is 1" if ranks == 1 else f"are {ranks}"
        raise DistributedError(
            f"the mesh {shown} has {size} ranks, but there {are}",
            hint=f"run it on {size} ranks: weft run -n {size} ...; or choose other sizes",
        )


def group_size(mesh: Axes, over: tuple[str, ...]) -> int:
    return math.prod(size for name, size in mesh if name in over)


def compare_lines(group: Group, lines: Sequence[str]) -> None:
    """Raise an error on all ranks of a group if they do not have the same lines. Only the first
    call for a group does something."""
    if group.compared:
        return
    group.compared = True
    text = np.frombuffer("\n".join(lines).encode(), np.uint8)
    digest = np.frombuffer(hashlib.blake2b(text.tobytes(), digest_size=8).digest(), np.uint8)
    digests = group.all_gather(digest)
    if (digests == digest).all():
        return
    lengths = group.all_gather(np.array([text.size]))[:, 0]
    room = np.zeros(lengths.max(), np.uint8)
    room[: text.size] = text
    texts = group.all_gather(room)
    all_lines = [
        row[:length].tobytes().decode().split("\n")
        for row, length in zip(texts, lengths, strict=True)
    ]
    first, other = 0, next(r for r in range(group.size) if all_lines[r] != all_lines[0])
    pairs = itertools.zip_longest(all_lines[first], all_lines[other], fillvalue="nothing more")
    number, (mine, theirs) = next((n, p) for n, p in enumerate(pairs, 1) if p[0] != p[1])
    raise DistributedError(
        f"ranks have different programs: collective {number} of the graph is\n"
        f"  {mine}  on rank {first} of the group, and\n"
        f"  {theirs}  on rank {other}",
        hint="all ranks of a group must make the same collective calls, on tensors of one type",
    )


class Calls:
    """Calls of a group that are made when they are finished: what is started only waits."""

    def __init__(self) -> None:
        self._started: deque[tuple[str, Array, Any]] = deque()

    def start(self, what: str, x: Array, argument: Any) -> None:
        self._started.append((what, x.copy(), argument))

    def finish(self) -> Array:
        return called(self, *self._started.popleft())

    def abandon(self) -> None:
        self._started.clear()


def called(group: Any, what: str, x: Array, argument: Any) -> Array:
    """A call of a group, by the name that `Group.direct` has for it."""
    method = getattr(group, "permute" if what == "send" else what)
    found: Array = method(x) if argument is None else method(x, argument)
    return found


class Alone(Calls):
    """A group of one rank, and the world of one rank."""

    rank = 0
    size = 1
    compared = True
    copies: dict[Any, Any] | None = None

    def group(self, mesh: Axes, over: tuple[str, ...]) -> Group:
        check_mesh(mesh, 1)
        return self

    def barrier(self) -> None:
        pass

    def post(self, x: Array, rank: int) -> None:
        raise DistributedError(f"there is no rank {rank}")

    def take(self, rank: int) -> Array:
        raise DistributedError(f"there is no rank {rank}")

    def all_reduce(self, x: Array, op: str) -> Array:
        return x.copy()

    def all_gather(self, x: Array) -> Array:
        return x[np.newaxis].copy()

    def reduce_scatter(self, x: Array, op: str) -> Array:
        part: Array = x[0]
        return part.copy()

    def all_to_all(self, x: Array) -> Array:
        return x.copy()

    def broadcast(self, x: Array, root: int) -> Array:
        return x.copy()

    def permute(self, x: Array, pairs: Sequence[tuple[int, int]]) -> Array:
        return x.copy() if (0, 0) in pairs else np.zeros_like(x)

    def direct(
        self,
        what: str,
        dtype: Any,
        shape: tuple[int, ...],
        argument: Any,
        parts: Sequence[int],
        half: str = "",
    ) -> int:
        return 0

    def failed(self) -> None:
        pass


class _Here(threading.local):
    """
    world   the world that this thread takes part in; that of the process is set on the class
    meshes  those of `with mesh:`, the innermost last
    place   both as text: recordings of functions that ask for them are made for one place
    """

    world: World = Alone()
    meshes: tuple[Axes, ...] = ()
    place = ""


here = _Here()


def current_world() -> World:
    return here.world


def own_copy(shared: Any, copy: Callable[[], Any]) -> Any:
    """What this rank uses in place of what threads share: itself, where ranks are processes.

    Calls of a rank wait for other ranks, which must not wait for a lock that this one holds.
    """
    copies = here.world.copies
    if copies is None:
        return shared
    mine = copies.get(shared)
    if mine is None:
        mine = copies[shared] = copy()
        copies[mine] = mine
    return mine


def use_world(world: World | None, *, this_thread: bool = False) -> None:
    """Take part in a world from now on; None: in a world of one rank."""
    joined = world or Alone()
    if this_thread:
        here.world, here.place = joined, _place(joined, here.meshes)
    else:
        _Here.world, _Here.place = joined, _place(joined, ())


def enter_mesh(axes: Axes) -> None:
    here.meshes = (*here.meshes, axes)
    here.place = _place(here.world, here.meshes)


def leave_mesh() -> None:
    here.meshes = here.meshes[:-1]
    here.place = _place(here.world, here.meshes)


def _place(world: World, meshes: tuple[Axes, ...]) -> str:
    return f"rank {world.rank} of {world.size}, {meshes[-1] if meshes else 'no mesh'}"
