"""What notebooks show of modules. The tools, which make it, come last: `weft.wiring` fills it in.

Modules are not imported before they are used, so that nothing can be attached to their class.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["html_of", "use_html"]

_show: Callable[[Any], str] | None = None


def use_html(show: Callable[[Any], str]) -> None:
    """Let `html_of` call this function."""
    global _show
    _show = show


def html_of(module: Any) -> str | None:
    """A module as HTML, or None to show its `repr`."""
    return None if _show is None else _show(module)
