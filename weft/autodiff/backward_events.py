"""Tells recorders about histories and backward passes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.core import bind as binding
from weft.core.bind import recorder


def meets(node: Any, goes_on: bool) -> None:
    """A pass reaches a node; see `Recorder.met`."""
    if recorder() is not None:
        binding._tell("met", node, goes_on)


def followed(function: Any) -> Any:
    """A user's function that was registered earlier, such as a hook, as it must be recorded."""
    return function if recorder() is None else binding._tell("followed", function)


def asked_for(nodes: Sequence[Any], of_leaves: bool = False) -> None:
    """Python learns that a tensor has these histories; see `Recorder.read_history`."""
    if nodes and recorder() is not None:
        binding._tell("read_history", nodes, of_leaves)
