"""What a first call makes, and later ones find: made before the recording, so that there is one.

The moments of an optimizer are made in its first step. If the recording did that, it would be of no
use afterwards. So they are made as the recording comes to the step, as if they had been there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.core.changing_numbers import unrecorded
from weft.core.grad_mode import no_grad
from weft.record.control.nested import graph_recorder

if TYPE_CHECKING:
    from weft.capture.hooks import Hooks


def is_unprepared(function: Any) -> bool:
    """Whether nothing is made before calls of a function."""
    return "prepared_by" not in function.__dict__


def prepare(hooks: Hooks, function: Any, args: tuple[Any, ...]) -> None:
    """Before a method that is marked by `prepared_by` is followed."""
    watch, obj = hooks.watch, args[0]
    if not watch.active or watch.tensors is None or watch.known(obj) is None:
        return
    state = watch.known(obj.state)
    if graph_recorder() is None or (state is not None and state.store is not None):
        return  # what is in there was read already
    made = unrecorded(_made, getattr(obj, function.prepared_by))
    if made:
        watch.on_error.append(lambda: [obj.state.pop(key, None) for key in made])


def _made(method: Any) -> Any:
    with no_grad():
        return method()
