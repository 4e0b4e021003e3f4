"""Joining the ranks that `weft run`, mpiexec or Slurm started."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import os
import sys
from types import TracebackType

from weft.base.errors import DistributedError
from weft.base.world import World, current_world, here, use_world
from weft.distributed.mpi import MpiWorld
from weft.distributed.run_folder import RunFolder

__all__ = ["init"]

#: What those who start processes tell them: how many there are.
_SIZES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "PMIX_SIZE", "MV2_COMM_WORLD_SIZE")
TIMEOUT = 600.0


def started_ranks() -> int:
    """How many processes this one was started with, as the environment says."""
    sizes = [os.environ[name] for name in _SIZES if os.environ.get(name, "").isdigit()]
    return int(sizes[0]) if sizes else 1


def init(timeout: float = TIMEOUT) -> None:
    """Join the other ranks. Functions of `weft.distributed` do it themselves when first used.

    `timeout` is how many seconds a rank waits for others before it ends the run. Where this
    process was started alone, there is one rank.
    """
    world = current_world()
    if isinstance(world, MpiWorld):
        world.watchdog.timeout = timeout
        return
    if world.size > 1 or started_ranks() == 1:
        return
    if importlib.util.find_spec("mpi4py") is None:
        raise DistributedError(
            f"{started_ranks()} processes were started, but mpi4py is not installed",
            hint='pip install "weft[mpi]"',
        )
    joined = MpiWorld(timeout)
    if joined.size == 1 < started_ranks():
        raise DistributedError(
            f"{started_ranks()} processes were started, but MPI finds each of them alone",
            hint="start them by the mpiexec of the MPI that mpi4py uses; "
            '"weft[mpi]" brings one that fits: weft run -n 2 ...',
        )
    use_world(joined)
    _end_all_on_errors(joined)


def joined_world() -> World:
    """The world of this thread; joined now if it was not yet."""
    if not here.place and started_ranks() > 1:
        init()
    return current_world()


def _end_all_on_errors(world: MpiWorld) -> None:
    """An uncaught error on one rank ends all of them."""
    before = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        folder = RunFolder.current()
        shown = io.StringIO()
        with contextlib.redirect_stderr(shown):
            before(kind, error, trace)
        if folder is None or not folder.failed(world.rank, shown.getvalue()):
            sys.stderr.write(f"weft.distributed: rank {world.rank} of {world.size} failed:\n")
            sys.stderr.write(shown.getvalue())
        sys.stderr.flush()
        sys.stdout.flush()
        world.abort()

    sys.excepthook = hook
