"""Run a function and keep all that can be seen of the call; compare two such calls."""

from __future__ import annotations

import contextlib
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import weft
from fuzzing.world import World, shown
from weft import Tensor

#: What vmap says of sizes that depend on values.
VARIES = "so it would differ from element to element"


@dataclass
class Outcome:
    """What one call did.

    leaves      its results: arrays, and Python values
    requires    for each result whether it requires a gradient
    gradients   of the weighed sum of the results, and of the weighed sum of these
    error       or the error it raised; `message` is what that said
    backward    whether the error came of the backward
    """

    leaves: list[Any] = field(default_factory=list)
    spec: Any = None
    requires: list[bool] = field(default_factory=list)
    gradients: list[Any] = field(default_factory=list)
    error: type[BaseException] | None = None
    message: str = ""
    backward: bool = False

    @property
    def refused(self) -> bool:
        """Whether it said that it cannot do this, where it could be done."""
        if self.error is None:
            return False
        return issubclass(self.error, weft.errors.CaptureError) or VARIES in self.message

    def numbers(self) -> list[Any]:
        return [*self.leaves, *self.gradients]


@dataclass(frozen=True)
class Backward:
    """Which arguments ask for gradients, and whether gradients of these are taken, too.

    quiet   whether the call is made under `no_grad`, and there is no backward
    """

    asked: tuple[bool, ...] = ()
    second: bool = False
    quiet: bool = False


def run(
    function: Callable[..., Any],
    args: Sequence[Any],
    backward: Backward | None = None,
    world: World | None = None,
) -> Outcome:
    """Call a function on copies of its arguments, and go backward.

    The state of its world and what it prints are results of the call, too. They have no gradients.
    """
    out = Outcome()
    asked = backward.asked if backward is not None else (False,) * len(args)
    leaves: dict[int, Any] = {}  # a tensor that is given twice stays one
    for x, wanted in zip(args, asked, strict=True):
        leaves.setdefault(id(x), x.detach().requires_grad_(wanted) if _is_float(x) else x)
    given = [leaves[id(x)] for x in args]
    at = [x for x in leaves.values() if isinstance(x, Tensor) and x.requires_grad]
    quiet = backward is not None and backward.quiet
    learning = weft.set_grad_enabled(not quiet)
    with learning, warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            if world is None:
                found, out.spec = weft.tree_flatten(function(*given))
            else:
                with world.watched():
                    result = shown(function(*given))
                found, out.spec = weft.tree_flatten([result, world.seen()])
            out.leaves = [_array(x) for x in found]
            out.requires = [isinstance(x, Tensor) and x.requires_grad for x in found]
        except Exception as error:
            return _failed(error)
        if backward is not None and not quiet:
            if world is not None:
                found = weft.tree_flatten(result)[0]
            try:
                grads = _gradients(found, at, create=backward.second)
                out.gradients = [_array(g) for g in grads]
                if backward.second:
                    out.gradients += [_array(g) for g in _gradients(grads, at, create=False)]
            except Exception as error:
                return _failed(error, backward=True)
    return out


def _failed(error: Exception, backward: bool = False) -> Outcome:
    return Outcome(error=type(error), message=str(error), backward=backward)


def _gradients(results: list[Any], at: list[Tensor], *, create: bool) -> list[Any]:
    """Gradients of the weighed sum of what depends on something."""
    total = None
    for i, x in enumerate(results):
        if _is_float(x) and x.requires_grad:
            weights = np.cos(np.arange(x.size) * 1.7 + i).reshape(x.shape)
            term = (x.astype(weft.float64) * weft.asarray(weights)).sum()
            total = term if total is None else total + term
    if total is None or not at:
        return [weft.zeros_like(x) for x in at]
    how = {"create_graph": create, "materialize_grads": True}
    return list(weft.autograd.grad(total, at, **how))


def _is_float(x: Any) -> bool:
    return isinstance(x, Tensor) and x.dtype.kind == "float"


def _array(x: Any) -> Any:
    return x.numpy(copy=True) if isinstance(x, Tensor) else x


# --- comparison -------------------------------------------------------------------------------


@dataclass
class Difference:
    """kind    what differs: "raises", "structure", "dtype", "shape", "value", "gradient", …
    where   the number of the result or gradient
    """

    kind: str
    text: str
    where: int = -1


def difference(
    want: Outcome, got: Outcome, *, loose: bool, exact: bool, weak: bool = False
) -> Difference | None:
    """What differs between two calls, except that rounding may do it.

    loose   a tensor without axes may stand where there was a Python number
    exact   whether `requires_grad` must be the same, and not only no gradient lost
    weak    whether a number or the tensor may be a float where there was an integer: it is one on
            another path
    """
    if want.error is not got.error:
        kind = f"raises {_kind(got)} for {_kind(want)}"
        return Difference(kind, f"raised {_name(got)}\n  instead of {_name(want)}")
    if want.error is not None:
        return None
    if want.spec is not None and got.spec is not None and want.spec != got.spec:
        return Difference("structure", f"gave {got.spec} instead of {want.spec}")
    if len(want.leaves) != len(got.leaves):
        return Difference("structure", f"{len(got.leaves)} results, not {len(want.leaves)}")
    for i, (a, b) in enumerate(zip(want.leaves, got.leaves, strict=True)):
        found = _kinds(a, b, loose, weak)
        if found:
            return Difference(found[0], f"result {i} is {found[1]}", i)
    for i, (one, two) in enumerate(zip(want.requires, got.requires, strict=False)):
        if (one and not two) or (exact and two and not one):
            text = f"result {i} has requires_grad={two} instead of {one}"
            return Difference("requires_grad", text, i)
    if len(want.gradients) != len(got.gradients):
        return Difference("gradient", f"{len(got.gradients)} gradients, not {len(want.gradients)}")
    return None


def _kind(out: Outcome) -> str:
    if out.error is None:
        return "nothing"
    return f"{out.error.__name__} ({reason(out.message)[:60]})"


def reason(message: str) -> str:
    """The first line of an error without what is of one program only."""
    line = message.strip().splitlines()[0] if message.strip() else ""
    line = re.sub(r"'[^']*'|`[^`]*`|\"[^\"]*\"|\([^)]*\)", "…", line)
    line = re.sub(r"\b[tx]\d+\b", "…", line)
    line = re.sub(r"[a-z]+\d*\[[^\]]*\]|\d+", "#", line)
    return line[:110]


def _name(out: Outcome) -> str:
    if out.error is None:
        return "nothing"
    where = " in the backward" if out.backward else ""
    return f"{out.error.__name__}{where}: {out.message}"


def _kinds(a: Any, b: Any, loose: bool, weak: bool) -> tuple[str, str] | None:
    if isinstance(a, np.ndarray) != isinstance(b, np.ndarray):
        if loose and isinstance(b, np.ndarray) and not b.shape and not isinstance(a, str):
            kinds = {bool: "b", int: "iuf" if weak else "iu", float: "f"}
            if b.dtype.kind in kinds.get(type(a), ""):
                return None
        return "kind", f"{b!r} instead of {a!r}"
    if isinstance(a, str) and isinstance(b, str) and a != b:
        return "text", f"{b!r} instead of {a!r}"
    if weak and type(a) is int and type(b) is float:
        return None
    if not isinstance(a, np.ndarray):
        return None if type(a) is type(b) else ("kind", f"{b!r} instead of {a!r}")
    if a.dtype != b.dtype:
        return "dtype", f"{b.dtype} instead of {a.dtype}"
    if a.shape != b.shape:
        return "shape", f"of shape {b.shape} instead of {a.shape}"
    return None


@contextlib.contextmanager
def threads(count: int) -> Any:
    before = weft.get_num_threads()
    weft.set_num_threads(count)
    try:
        yield
    finally:
        weft.set_num_threads(before)
