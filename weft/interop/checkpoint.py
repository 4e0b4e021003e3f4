"""Checkpoints of a training run: all that has to be the same for it to go on as if nothing was."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import threading
import warnings
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

from weft.base.errors import DTypeError, FileError, RangeError
from weft.base.world import current_world
from weft.core.tensor import wrap
from weft.data.progress import random_states, set_random_states
from weft.interop.files import UNFINISHED, replacing
from weft.interop.sharded import VERSION as SHARDED
from weft.interop.sharded import ShardedPart, agreed, read_sharded
from weft.interop.state import is_stateful, put_state, state_of
from weft.interop.tree import Packed
from weft.interop.weights import read_checked, write

__all__ = ["Checkpoint"]

_NAME = re.compile(r"checkpoint-(\d+)\.safetensors")
_VERSION = 1


class _Result:
    """What came of writing in the background."""

    def __init__(self) -> None:
        self.error: BaseException | None = None


class Checkpoint:
    """Saves a training run to a folder, and goes on from there in another process.

    What it is given by name is saved and restored: modules, optimizers, schedules, DataLoaders,
    GradScaler, EMA and whatever has `state_dict` and `load_state_dict`; random generators of weft,
    NumPy and Python; tensors; and dicts and lists of such things, numbers and text. The generators
    that weft, NumPy and Python share are always among it.

    keep   how many checkpoints stay; None: all of them

    On several ranks, all of them call it together, in a folder that all of them see. Each writes a
    part, and the first one an index when all parts are on the disk. A checkpoint goes back to any
    number of ranks, unless they had tensors of one name that differ.

    Training that is killed and restored gives the same numbers, bit by bit, as training that was
    not. Call `save` when a step is over: gradients are not saved.

    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> model = weft.nn.Linear(2, 1)
    >>> progress = {"best": 0.5}
    >>> with weft.Checkpoint(folder, model=model, progress=progress) as checkpoint:
    ...     checkpoint.save(10)
    >>> progress["best"] = 0.0
    >>> weft.Checkpoint(folder, model=model, progress=progress).restore()
    10
    >>> progress
    {'best': 0.5}
    """

    def __init__(self, folder: Any, *, keep: int | None = 3, **objects: Any) -> None:
        if keep is not None and keep < 1:
            raise RangeError(f"keep is at least 1, not {keep}", op="Checkpoint")
        if not objects:
            raise RangeError(
                "there is nothing to save", op="Checkpoint", hint="Checkpoint(folder, model=model)"
            )
        for name, obj in objects.items():
            if not is_stateful(obj):
                raise DTypeError(
                    f"{name} is a {type(obj).__name__}, into which nothing can be restored",
                    op="Checkpoint",
                    hint=f'put it into a dict: progress={{"{name}": …}}',
                )
        self.folder = Path(folder)
        self.keep = keep
        self.objects = objects
        self._thread: threading.Thread | None = None
        self._result = _Result()
        self._is_clean = False
        weakref.finalize(self, _report, self._result)

    # --- saving -------------------------------------------------------------------------------

    def save(self, step: int, *, wait: bool = False) -> None:
        """Save the run as it is now. The file is written in the background, unless `wait`.

        If the one before is still being written, that is waited for; and if it could not be
        written, its error is raised here. Checkpoints of later steps, from which training went
        back, are removed.
        """
        if type(step) is not int or step < 0:
            raise RangeError(f"a step is a number from 0 up, not {step!r}", op="Checkpoint.save")
        self.wait()
        world = current_world()
        if not self._is_clean and world.rank == 0:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._remove_unfinished()
            self._is_clean = True
        token, first = agreed(
            world, f"{secrets.token_hex(2)} {step}"
        ).split()  # the folder is there
        if int(first) != step:
            raise RangeError(
                f"rank 0 saves step {first}, and rank {world.rank} step {step}",
                op="Checkpoint.save",
                hint="all ranks save together",
            )
        # Arrays that are held here are not written by the next steps: they get new ones.
        packed = Packed(
            {
                "version": _VERSION,
                "step": step,
                "random": random_states(),
                "objects": self._state(),
            },
            copies=True,
        )
        part = None
        if world.size > 1:
            part = ShardedPart(world, self.folder, step, token, packed)
        work = _writer(self.folder, step, self.keep, packed, part, self._result)
        self._thread = threading.Thread(target=work, name=f"weft checkpoint {step}")
        self._thread.start()
        if wait:
            self.wait()

    def wait(self) -> None:
        """Wait until all is on the disk. An error of writing is raised here."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        error, self._result.error = self._result.error, None
        if error is not None:
            raise error

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(self, *_error: Any) -> None:
        self.wait()

    def _state(self) -> dict[str, Any]:
        return {name: state_of(obj) for name, obj in self.objects.items()}

    def _remove_unfinished(self) -> None:
        """What a process left behind that was killed while it wrote."""
        for path in self.folder.glob(f".checkpoint-*{UNFINISHED}"):
            with contextlib.suppress(OSError):
                path.unlink()
        _remove_parts(self.folder, set(_files(self.folder)))

    # --- restoring ----------------------------------------------------------------------------

    def steps(self) -> list[int]:
        """The steps of which there are checkpoints, the latest last."""
        return sorted(_files(self.folder))

    def restore(self, step: int | None = None) -> int | None:
        """Go on from a checkpoint, the latest one unless a step is given.

        Returns its step, or None if there is no checkpoint yet. If anything of it does not fit,
        nothing is changed.
        """
        self.wait()
        world = current_world()
        files = _files(self.folder)
        latest = int(agreed(world, str(max(files, default=-1))))
        if step is None and latest < 0:
            return None
        chosen = latest if step is None else step
        if chosen not in files:
            known = ", ".join(map(str, sorted(files))) or "none"
            raise RangeError(
                f"there is no checkpoint of step {chosen}; there are {known}",
                op="Checkpoint.restore",
            )
        found = read_checked(files[chosen], wrap)
        if isinstance(found, dict) and found.get("version") == SHARDED:
            now = Packed({"objects": self._state()}).parts
            found = read_sharded(self.folder, found, world, now)
        saved = self._checked(found, files[chosen].name)
        before, drawn = self._state(), random_states()
        try:
            self._put(saved)
            set_random_states(found["random"])
        except BaseException:
            self._put(before)
            set_random_states(drawn)
            raise
        return chosen

    def _put(self, states: dict[str, Any]) -> None:
        for name, obj in self.objects.items():
            put_state(obj, states[name])

    def _checked(self, found: Any, file: str) -> dict[str, Any]:
        version = found.get("version") if isinstance(found, dict) else None
        if version != _VERSION or not isinstance(found.get("objects"), dict):
            raise FileError(
                f"{file} is no checkpoint of version {_VERSION}", op="Checkpoint.restore"
            )
        saved: dict[str, Any] = found["objects"]
        if set(saved) != set(self.objects):
            raise FileError(
                f"{file} has {', '.join(sorted(saved))}, and this is a Checkpoint of "
                f"{', '.join(sorted(self.objects))}",
                op="Checkpoint.restore",
                hint='give it the same names; weft.load(path)["objects"] has all parts',
            )
        return saved


def _files(folder: Path) -> dict[int, Path]:
    """The checkpoints of a folder by their steps."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return {}
    found = {name: _NAME.fullmatch(name) for name in names}
    return {int(match[1]): folder / name for name, match in found.items() if match}


def _writer(
    folder: Path,
    step: int,
    keep: int | None,
    packed: Packed,
    part: ShardedPart | None,
    result: _Result,
) -> Callable[[], None]:
    """What runs in the background. It knows nothing of the Checkpoint, whose end it may outlive."""

    def work() -> None:
        try:
            path = folder / f"checkpoint-{step:08}.safetensors"
            if part is not None:
                part.write(path)
                if not part.is_first:
                    return
            else:
                with replacing(path) as file:
                    write(packed, file, {}, checksum=True)
            files = _files(folder)
            kept = sorted(number for number in files if number <= step)[-(keep or len(files)) :]
            for number, path in files.items():
                if number not in kept:
                    path.unlink(missing_ok=True)
            _remove_parts(folder, set(kept), set() if part is None else set(part.files))
        except BaseException as error:  # raised again where the next call is
            error.add_note(f"raised while the checkpoint of step {step} was written")
            result.error = error

    return work


def _remove_parts(folder: Path, steps: set[int], latest: set[Path] | None = None) -> None:
    """The parts of checkpoints that are not, or no longer, there; and of the latest step, those of
    an earlier attempt."""
    for path in folder.glob("checkpoint-*-part-*.safetensors"):
        number = int(path.name.split("-")[1])
        of_latest = bool(latest) and number == int(min(latest or ()).name.split("-")[1])
        if number not in steps or (of_latest and path not in (latest or ())):
            path.unlink(missing_ok=True)


def _report(result: _Result) -> None:
    """A last error that nobody asked for."""
    if result.error is not None:
        warnings.warn(f"a checkpoint was not written: {result.error!r}", stacklevel=2)
