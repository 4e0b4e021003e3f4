"""`weft.activations`: the results of modules, in eager code and in compiled functions."""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Iterator
from typing import Any

from weft.base.errors import RangeError
from weft.capture.builtin_table import looks_on
from weft.core.tensor import Tensor
from weft.nn.module import Module
from weft.ops.effects import SHOW, Shown
from weft.record.control.nested import graph_recorder
from weft.record.effects import effect, templated

__all__ = ["activations"]


class Activations(dict[str, Any]):
    """The latest result of each module by path; `calls` has the results of all calls."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: dict[str, list[Any]] = {}

    def see(self, path: str, result: Any) -> None:
        self[path] = result
        self.calls.setdefault(path, []).append(result)

    def clear(self) -> None:
        super().clear()
        self.calls.clear()


@contextlib.contextmanager
def activations(model: Module, *patterns: str) -> Iterator[Activations]:
    """Collect the results of modules: `with weft.activations(model, "0") as seen:`

    A pattern is a path in which * matches one name or a part of it, and ** any number of names.
    Without a pattern, all modules match.

    >>> model = weft.nn.Sequential(weft.nn.Linear(2, 3), weft.nn.ReLU())
    >>> run = weft.compile(model)
    >>> with weft.activations(model, "*") as seen:
    ...     y = run(weft.ones((4, 2)))
    >>> {path: value.shape for path, value in seen.items()}
    {'0': (4, 3), '1': (4, 3)}

    In a compiled function the graph returns them, also from loops and branches, without a gradient
    history. Compiled functions are recorded again for this.
    """
    tests = [_regex(pattern) for pattern in patterns or ("**",)]
    chosen = [
        (path, module)
        for path, module in model.named_modules()
        if any(test.fullmatch(path) for test in tests)
    ]
    if not chosen:
        known = ", ".join(path for path, _ in model.named_modules() if path)
        raise RangeError(
            f"no module is at {', '.join(patterns)}", op="activations", hint=f"there are: {known}"
        )
    seen = Activations()
    with contextlib.ExitStack() as hooks:
        for path, module in chosen:
            hooks.enter_context(
                module.register_forward_hook(functools.partial(_hand_out, seen, path))
            )
        yield seen


def _hand_out(seen: Activations, path: str, _module: Any, _args: Any, result: Any) -> None:
    """The hook on one module."""
    if graph_recorder() is None:
        seen.see(path, result)
        return
    tensors: list[Tensor] = []
    build = templated(result, tensors)
    handed = Shown(lambda value: seen.see(path, value), lambda values: (build(values),), {})
    effect(SHOW, tensors, {"show": handed})


looks_on(_hand_out)


def _regex(pattern: str) -> re.Pattern[str]:
    parts = re.split(r"(\*\*\.|\*\*|\*)", pattern)
    words = {"**.": r"(?:.*\.)?", "**": ".*", "*": "[^.]+"}
    return re.compile("".join(words.get(part, re.escape(part)) for part in parts))
