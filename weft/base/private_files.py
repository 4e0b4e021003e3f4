"""Files that only this user can have written.

Weft runs the code that it loads from its cache. So it loads files only if nobody else could have
written them, by the same rules by which ssh trusts a file of keys:

- The folder and its files belong to this user or to root, and neither the group nor others can
  write to them.
- Nobody else can replace the folder: the same holds for all folders above it, up to the user's home
  or the root. (Of those, others may write to a folder with the sticky bit, such as /tmp: the bit
  protects files of other users.)
- Files are opened without following links and without blocking. What is not a regular file is not
  read.

Systems without POSIX users have none of these checks.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

__all__ = ["make_folder", "read_file", "refusal", "write_file"]

_IS_POSIX = hasattr(os, "geteuid")
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_READ = os.O_RDONLY
for _name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_NOCTTY", "O_BINARY"):
    _READ |= getattr(os, _name, 0)
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL
for _name in ("O_NOFOLLOW", "O_CLOEXEC", "O_BINARY"):
    _NEW |= getattr(os, _name, 0)


def refusal(folder: str | Path) -> str | None:
    """Why a folder cannot be trusted, and how to fix it; None if it can be.

    Raises OSError if the folder does not exist.
    """
    real = os.path.realpath(folder, strict=True)
    if not _IS_POSIX:
        return None
    home = os.path.realpath(os.path.expanduser("~"))
    above = [str(parent) for parent in Path(real).parents]
    if home in above:
        above = above[: above.index(home) + 1]
    said = [_wrong(place, os.lstat(place), place != real) for place in (real, *above)]
    return next((wrong for wrong in said if wrong is not None), None)


def _wrong(place: str, found: os.stat_result, above: bool) -> str | None:
    if not _is_ours(found.st_uid):
        return (
            f"{place} belongs to another user (its owner is {found.st_uid}, you are {os.geteuid()})"
        )
    if not stat.S_ISDIR(found.st_mode):
        return f"{place} is not a folder"
    if found.st_mode & _WRITABLE_BY_OTHERS and not (above and found.st_mode & stat.S_ISVTX):
        mode = stat.S_IMODE(found.st_mode)
        return f"others can write to {place} (its mode is {mode:04o}): `chmod go-w {place}`"
    return None


def _is_ours(owner: int) -> bool:
    return owner in (0, os.geteuid())


def make_folder(folder: str | Path) -> None:
    """Create a folder, and missing folders above it, that only this user can access."""
    missing = []
    place = os.path.abspath(folder)
    while not os.path.isdir(place):
        missing.append(place)
        place = os.path.dirname(place)
    for place in reversed(missing):
        try:
            os.mkdir(place, 0o700)
        except FileExistsError:
            if not os.path.isdir(place):
                raise


def read_file(path: str | Path) -> bytes | None:
    """The content of a file; None if it does not exist or cannot be trusted."""
    try:
        descriptor = os.open(path, _READ)
    except OSError:  # it does not exist, or is a link or an unusable device
        return None
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            return None
        if _IS_POSIX and (not _is_ours(found.st_uid) or found.st_mode & _WRITABLE_BY_OTHERS):
            return None
        with open(descriptor, "rb", 0, closefd=False) as file:
            return file.read()
    except OSError:
        return None
    finally:
        os.close(descriptor)


def write_file(path: str | Path, data: bytes) -> None:
    """Write a new file that only this user can access."""
    with open(os.open(path, _NEW, 0o600), "wb", 0) as file:
        file.write(data)
