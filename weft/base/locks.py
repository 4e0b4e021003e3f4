"""Locks that are held by the whole process."""

from __future__ import annotations

import os
import threading
from typing import Any

__all__ = ["process_lock"]


def process_lock() -> Any:
    """A reentrant lock that a fork waits for: the child finds what it protects as it should be."""
    lock = threading.RLock()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(
            before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release
        )
    return lock
