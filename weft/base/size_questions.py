"""Who answers questions that depend on sizes, and the error where nobody does."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from weft.base.errors import UnknownSizeError

if TYPE_CHECKING:
    from weft.base.asked_sizes import AskedSizes


class _Asked(threading.local):
    """The recording that answers in this thread: see `weft.base.asked_sizes`."""

    sizes: AskedSizes | None = None


asked = _Asked()


def undecided(question: str, names: tuple[str, ...]) -> UnknownSizeError:
    return UnknownSizeError(
        f"{question} depends on sizes that are not known: {', '.join(names)}",
        hint=f'say what is known of them, as in weft.dim("{names[0]}", min=1), or give a fixed '
        "size",
    )
