"""One number that stands for the structure of all modules.

It grows whenever a module gains, loses or exchanges a parameter, buffer or submodule, changes its
mode or its hooks, or freezes parameters. A compiled function that notes it when it is made needs
to compare one integer to know that no module has changed; training steps leave it alone.
"""

from __future__ import annotations

import itertools

_numbers = itertools.count(1)


class Structure:
    version: int = 0


structure = Structure()


def changed() -> None:
    """Note that some module is no longer what it was."""
    structure.version = next(_numbers)
