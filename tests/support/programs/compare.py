"""Run a function and keep all that can be seen of it; compare two such runs."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from bitwise import same_bits

import weft
from weft import Tensor

Array = np.ndarray[Any, Any]


@dataclass
class Outcome:
    """What one call did.

    leaves, spec   its result: arrays and Python values, and the tree they stand in
    error          or the type of the error it raised
    printed        what it printed
    arguments      what the arguments hold afterwards
    state          what the module's parameters and buffers hold afterwards
    gradients      of the weighted sum of all floating results
    second         and of the weighted sum of these
    random         the state of the default generator afterwards
    """

    leaves: list[Any] = field(default_factory=list)
    spec: Any = None
    error: type[BaseException] | None = None
    message: str = ""
    printed: str = ""
    arguments: list[Array] = field(default_factory=list)
    state: list[Array] = field(default_factory=list)
    gradients: list[Array] = field(default_factory=list)
    second: list[Array] = field(default_factory=list)
    random: Array | None = None


def is_float(x: Any) -> bool:
    return isinstance(x, Tensor) and x.dtype.kind == "float"


def fresh(tree: Any, grad: bool) -> Any:
    """The same tree with new leaf tensors; those of floats ask for gradients."""
    return weft.tree_map(
        lambda x: (
            weft.tensor(x, requires_grad=grad and is_float(x)) if isinstance(x, Tensor) else x
        ),
        tree,
    )


def weights(like: Sequence[Tensor], shift: float = 0.0) -> list[Tensor]:
    """Fixed numbers, one tensor for each."""
    return [
        weft.asarray(np.cos(np.arange(x.size) * 1.7 + i + shift).reshape(x.shape), dtype=x.dtype)
        for i, x in enumerate(like)
    ]


def weighted(parts: Sequence[Tensor], shift: float = 0.0) -> Tensor | None:
    """One number of all parts that depend on something, to be differentiated."""
    total = None
    for part, w in zip(parts, weights(parts, shift), strict=True):
        if part.requires_grad:
            term = (part * w).sum().astype(weft.float64)
            total = term if total is None else total + term
    return total


def derivatives(total: Tensor | None, at: Sequence[Tensor], create: bool) -> list[Tensor]:
    if total is None or not at:
        return [weft.zeros_like(x) for x in at]
    return list(weft.autograd.grad(total, at, create_graph=create, materialize_grads=True))


def call(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    wanted: bool | tuple[int, ...] = True,
    second: bool = False,
    seed: int | None = None,
    module: Any = None,
) -> Outcome:
    """Call the function on copies of the arguments.

    wanted   gradients: of all floating arguments, of those with these numbers, or none
    second   gradients of the gradients, too
    seed     for the default generator
    module   whose parameters and buffers belong to the function
    """
    chosen = set(range(len(args))) if wanted is True else set(wanted or ())
    given = tuple(fresh(arg, i in chosen) for i, arg in enumerate(args))
    named = fresh(kwargs, wanted is True)
    tensors = [x for x in weft.tree_leaves((given, named)) if isinstance(x, Tensor)]
    at = [x for x in tensors if x.requires_grad]
    if wanted and module is not None:
        at += list(module.parameters())
    if seed is not None:
        weft.manual_seed(seed)
    out = Outcome()
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            result = function(*given, **named)
        found, out.spec = weft.tree_flatten(result)
        out.leaves = [x.numpy(copy=True) if isinstance(x, Tensor) else x for x in found]
        if wanted:
            total = weighted([x for x in found if is_float(x)])
            grads = derivatives(total, at, second)
            out.gradients = [g.numpy(copy=True) for g in grads]
            if second:
                twice = derivatives(weighted(grads, 0.5), at, False)
                out.second = [g.numpy(copy=True) for g in twice]
    except Exception as error:  # also of the backward
        out.error, out.message = type(error), str(error)
    out.printed = printed.getvalue()
    out.arguments = [x.numpy(copy=True) for x in tensors]
    if module is not None:
        held = [*module.parameters(), *module.buffers()]
        out.state = [x.numpy(copy=True) for x in held]
    if seed is not None:
        out.random = np.asarray(weft.get_rng_state()).copy()
    return out


def difference(
    want: Outcome,
    got: Outcome,
    *,
    loose: bool = False,
    near: float = 0.0,
    gradients_near: float = 0.0,
) -> str:
    """What differs between two runs, in words; empty if nothing does.

    loose            a tensor without axes may stand where there was a Python number
    near             how far apart numbers may be, relatively; 0: not a bit
    gradients_near   and those of gradients
    """
    if want.error is not got.error:
        return f"raised {_name(got)} instead of {_name(want)}"
    if want.printed != got.printed:
        return f"printed\n{got.printed}instead of\n{want.printed}"
    if want.spec != got.spec:
        return f"gave {got.spec} instead of {want.spec}"
    for i, (a, b) in enumerate(zip(want.leaves, got.leaves, strict=True)):
        if not _same(a, b, loose, near):
            return f"result {i} is {b!r} instead of {a!r}"
    for what in ("arguments", "state", "gradients", "second"):
        old, new = getattr(want, what), getattr(got, what)
        if len(old) != len(new):
            return f"{len(new)} {what} instead of {len(old)}"
        for i, (a, b) in enumerate(zip(old, new, strict=True)):
            by = gradients_near if what in ("gradients", "second") else 0.0
            if not _same(a, b, loose, max(near, by)):
                return f"{what} {i}: {b!r} instead of {a!r}"
    if want.random is not None and not np.array_equal(want.random, got.random):
        return f"left the generator at {got.random} instead of {want.random}"
    return ""


def _name(out: Outcome) -> str:
    return "nothing" if out.error is None else f"{out.error.__name__}: {out.message}"


def _same(a: Any, b: Any, loose: bool, near: float) -> bool:
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        if same_bits(a, b):
            return True
        if not near or a.shape != b.shape or a.dtype != b.dtype or a.dtype.kind != "f":
            return False
        return bool(np.allclose(a, b, rtol=near, atol=near, equal_nan=True))
    if isinstance(a, np.ndarray):
        return False
    if isinstance(b, np.ndarray):
        if not loose or b.shape or isinstance(a, str):
            return False
        kinds = {bool: "b", int: "iu", float: "f"}
        if b.dtype.kind not in kinds.get(type(a), ""):
            return False
        value = b.item()
        return value == a or value != value != a or bool(near and abs(value - a) <= near * abs(a))
    return type(a) is type(b) and (a == b or (a != a and b != b))
