"""Mistakes that people make, and what Weft says to each: docs/mistakes.md is made of this.

Each function gives a function and its arguments. The line that is to be named, eagerly and
compiled, has a mark.
"""

from __future__ import annotations

import contextlib
import re
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import weft
from weft import nn
from weft.nn import functional as F

MARK = "# <- here"
Program = tuple[Callable[..., Any], tuple[Any, ...]]
MISTAKES: list[Callable[[], Program]] = []
#: What goes wrong only as a graph, which has one type for each of its values.
FINE_EAGERLY = ("branches_of_different_types",)
#: What is no error by itself: it is looked for by `weft.detect_nan()`.
LOOKED_FOR = ("a_NaN_from_the_logarithm_of_0",)
BACKENDS = ("interpret", "native")


def mistake(make: Callable[[], Program]) -> Callable[[], Program]:
    MISTAKES.append(make)
    return make


@mistake
def a_wrong_shape_in_the_third_layer() -> Program:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(4, 8)
            self.second = nn.Linear(8, 8)
            self.third = nn.Linear(9, 2)

        def forward(self, x: Any) -> Any:
            x = F.relu(self.first(x))
            x = F.relu(self.second(x))
            return self.third(x)  # <- here

    return Net(), (weft.ones((3, 4)),)


@mistake
def shapes_that_do_not_broadcast() -> Program:
    def scores(x: Any, bias: Any) -> Any:
        h = weft.tanh(x)
        return h + bias  # <- here

    return scores, (weft.ones((3, 4)), weft.ones(3))


@mistake
def a_reshape_that_does_not_fit() -> Program:
    def heads(x: Any) -> Any:
        return x.reshape(5, -1)  # <- here

    return heads, (weft.ones((3, 4)),)


@mistake
def an_index_out_of_range_in_an_embedding() -> Program:
    table = nn.Embedding(10, 4)

    def look_up(words: Any) -> Any:
        return table(words).sum()  # <- here

    def doubled(words: Any) -> Any:
        return look_up(words * 2) + 1

    return doubled, (weft.tensor([1, 7]),)


@mistake
def a_target_that_is_no_class() -> Program:
    def loss(scores: Any, target: Any) -> Any:
        return F.cross_entropy(scores * 2, target)  # <- here

    return loss, (weft.ones((2, 3)), weft.tensor([0, 3]))


@mistake
def a_tensor_index_out_of_range_in_a_loop() -> Program:
    def last(x: Any, n: Any) -> Any:
        total = x[0]
        while n > 0:
            total = total + x[n]  # <- here
            n = n - 1
        return total

    return last, (weft.ones(3), weft.tensor(5))


@mistake
def a_name_that_one_branch_does_not_define() -> Program:
    def clipped(x: Any) -> Any:
        if x.sum() > 0:
            y = x * 2
        return y  # <- here

    return clipped, (-weft.ones(3),)


@mistake
def a_name_that_does_not_exist() -> Program:
    def activation(x: Any) -> Any:
        return weft.swish9(x)  # type: ignore[attr-defined]  # <- here

    return activation, (weft.ones(3),)


@mistake
def the_truth_of_many_elements() -> Program:
    def absolute(x: Any) -> Any:
        if x > 0:  # <- here
            return x
        return -x

    return absolute, (weft.ones(3),)


@mistake
def an_assert_that_fails() -> Program:
    def root(x: Any) -> Any:
        y = x * 2
        assert (y >= 0).all(), "only of numbers that are not negative"  # <- here
        return weft.sqrt(y)

    return root, (-weft.ones(3),)


@mistake
def an_error_in_a_call_back_into_Python() -> Program:
    def look(x: Any) -> Any:
        raise ValueError("the file is gone")  # <- here

    def loaded(x: Any) -> Any:
        y = weft.py_call(look, weft.spec(3), x * 2)
        return y + 1

    return loaded, (weft.ones(3),)


@mistake
def an_error_in_a_hook() -> Program:
    w = weft.ones(3)
    w.requires_grad = True

    def refuse(g: Any) -> Any:
        raise ValueError("no gradient, please")  # <- here

    def step(x: Any) -> Any:
        y = x * w
        y.register_hook(refuse)
        y.sum().backward()
        return y

    return step, (weft.ones(3),)


@mistake
def a_backward_from_many_numbers() -> Program:
    w = weft.ones(3)
    w.requires_grad = True

    def step(x: Any) -> Any:
        y = x * w
        y.backward()  # <- here
        return y

    return step, (weft.ones(3),)


@mistake
def a_backward_without_a_history() -> Program:
    def step(x: Any) -> Any:
        loss = (x * 2).sum()
        loss.backward()  # <- here
        return loss

    return step, (weft.ones(3),)


@mistake
def a_second_backward() -> Program:
    w = weft.ones(3)
    w.requires_grad = True

    def step(x: Any) -> Any:
        loss = (x * w).sum()
        loss.backward()
        loss.backward()  # <- here
        return loss

    return step, (weft.ones(3),)


# 2**50 bytes: more than 64-bit machines can address, whatever memory they promise.
@mistake
def a_tensor_that_no_memory_holds() -> Program:
    def outer(x: Any) -> Any:
        wide = weft.broadcast_to(x, (1 << 48, 3))
        return wide + wide.sum(axis=1, keepdims=True)  # <- here

    return outer, (weft.ones(3),)


@mistake
def branches_of_different_types() -> Program:
    def scaled(x: Any) -> Any:
        if x.sum() > 0:  # <- here
            y = x * 2
        else:
            x = -x
            y = x.astype(weft.int32)
        return y

    return scaled, (weft.ones(3),)


@mistake
def a_NaN_from_the_logarithm_of_0() -> Program:
    def entropy(x: Any) -> Any:
        p = x / x.sum()
        return -(p * weft.log(p)).sum()  # <- here

    return entropy, (weft.asarray([1.0, 3.0, 0.0]),)


@mistake
def a_matrix_without_an_inverse() -> Program:
    def solved(a: Any, b: Any) -> Any:
        return weft.linalg.solve(a - 1, b)  # <- here

    return solved, (weft.ones((2, 2)), weft.ones(2))


@mistake
def an_error_raised_under_a_condition() -> Program:
    def check(value: Any, limit: int) -> None:
        if value.sum() > limit:
            raise ValueError("it diverges")  # <- here

    def iterated(x: Any) -> Any:
        for i in range(3):
            x = x * 2
            if i > 0:
                check(x, 9)
        return x

    return iterated, (weft.ones(3),)


# --- what is said --------------------------------------------------------------------------------


def marked_line(make: Callable[[], Program]) -> int:
    """The number of the line with the mark."""
    lines = Path(__file__).read_text().split("\n")
    first = make.__code__.co_firstlineno - 1
    return next(i for i in range(first, len(lines)) if lines[i].endswith(MARK)) + 1


def said(make: Callable[[], Program], backend: str | None) -> Exception | None:
    """What a mistake raises, eagerly or compiled."""
    function, args = make()
    run = function if backend is None else weft.compile(function, backend=backend)
    looking = make.__name__ in LOOKED_FOR
    try:
        with weft.detect_nan() if looking else contextlib.nullcontext():
            run(*args)
    except Exception as error:
        return error
    return None


def named_lines(error: BaseException) -> Iterator[int]:
    """The lines of this file in a traceback, from the outside in."""
    for entry in traceback.extract_tb(error.__traceback__):
        if entry.filename == __file__ and entry.name != "said":
            yield entry.lineno or 0


HEAD = """# What Weft says to mistakes

Made by `make generate` from [tools/mistakes.py](../tools/mistakes.py).
`tests/project/test_mistakes.py` holds that, eagerly, interpreted and as machine code,
the traceback ends on the same line of the user's code (marked below), and that
errors of Weft's own name it in their text.

A compiled function does not run the user's lines when it goes wrong in its graph. Its traceback
goes through them all the same: the function that was compiled, what it called, the line of the op.

```python
import weft
from weft import nn
from weft.nn import functional as F
```
"""


def page() -> str:
    """docs/mistakes.md"""
    parts = [HEAD]
    for make in MISTAKES:
        title = make.__name__.replace("_", " ")
        parts.append(f"## {title[0].upper()}{title[1:]}\n\n```python\n{_source(make)}\n```\n")
        if make.__name__ in LOOKED_FOR:
            parts.append("Inside of `with weft.detect_nan():`.\n")
        eager, compiled = (said(make, backend) for backend in (None, "native"))
        if _text(eager) == _text(compiled):
            parts.append(f"Eagerly and compiled:\n\n```\n{_text(eager)}\n```\n")
        else:
            parts.append(f"Eagerly:\n\n```\n{_text(eager)}\n```\n")
            parts.append(f"Compiled:\n\n```\n{_text(compiled)}\n```\n")
    return "\n".join(parts)


def _source(make: Callable[[], Program]) -> str:
    lines = Path(__file__).read_text().split("\n")[make.__code__.co_firstlineno + 1 :]
    end = next(i for i, line in enumerate(lines) if line.startswith("    return "))
    kept = [line[4:] for line in lines[:end]]
    text = "\n".join(kept).strip("\n")
    text = text.replace(": Any", "").replace(" -> Any", "").replace(" -> None", "")
    return re.sub(r"\n\n(?=def |class )", "\n\n\n", text)  # as ruff would have it


def _text(error: Exception | None) -> str:
    if error is None:
        return "(nothing: it runs)"
    text = f"{type(error).__name__}: {error}"
    return text.replace(str(Path(__file__).parent) + "/", "").replace(f"  {MARK}", "")
