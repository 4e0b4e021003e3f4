"""One number that stands for what all modules are.

It grows whenever an attribute of a module gets another value or goes: a parameter, a buffer, a
submodule, the mode, a plain number; and with hooks, and when parameters are frozen. A compiled
function that notes it when it is made needs to compare one integer to know that no module has
changed. Writing to the elements of parameters and buffers, as training does, leaves it alone.
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
