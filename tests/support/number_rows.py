"""Programs with Python numbers that change from call to call, and how often each is recorded."""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

import weft
from weft import nn

F = nn.functional


class Record(NamedTuple):
    step: int
    rate: float


@dataclass(frozen=True)
class Settings:
    name: str
    rate: float


class Held:
    """Has the length of a list that grows."""

    def __init__(self) -> None:
        self.parts: list[int] = []

    def __len__(self) -> int:
        return len(self.parts)


class World:
    """What the programs of one run keep between calls."""

    def __init__(self) -> None:
        self.n = 0
        self.rate = 0.1
        self.log: list[Any] = []
        self.kept: dict[str, Any] = {}
        self.pair = (0.5, 1)
        self.shown: list[str] = []
        self.pairs = [0, 1.0]
        self.places = [0.0, 0.0, 0.0, 0.0]
        self.recent: deque[float] = deque(maxlen=3)
        self.held = Held()
        self.scalar = np.float64(3.0)
        self.whole = np.int64(0)
        self.record = Record(0, 0.5)
        self.settings = Settings("run", 8.0)
        self.kind = type("Kind", (), {"count": 0, "rate": 8.0})
        self.derived = type("Derived", (self.kind,), {})

    def apply(self, function: Any, x: Any) -> Any:
        return function(x)


#: name -> (program of a world and a tensor, recordings when compiled, when traced)
PROGRAMS: dict[str, tuple[Callable[[World, Any], Any], int, int]] = {}


def program(compiled: int, traced: int | None = None) -> Callable[[Any], Any]:
    def register(function: Any) -> Any:
        PROGRAMS[function.__name__] = (function, compiled, traced or compiled)
        return function

    return register


# --- numbers from outside ------------------------------------------------------------------------


@program(2)
def counter(o: World, x: Any) -> Any:
    o.n += 1
    return x * o.n


@program(1)
def counter_nobody_reads(o: World, x: Any) -> Any:
    o.n += 1
    return x * 2


@program(2)
def bias_correction(o: World, x: Any) -> Any:
    o.n = o.n + 1
    return x / (1 - 0.9**o.n), o.n


@program(2)
def decaying_rate(o: World, x: Any) -> Any:
    o.rate *= 0.9
    return x * o.rate


@program(3)  # the first call, numbers as inputs, the other answer
def every_third(o: World, x: Any) -> Any:
    o.n += 1
    if o.n % 3 == 0:
        return x * 2
    return x - 1


@program(3)
def warmup(o: World, x: Any) -> Any:
    o.n += 1
    rate = 0.1 * min(1.0, o.n / 4) * 0.5 * (1 + math.cos(math.pi * o.n / 10))
    return x * rate


@program(2)
def floor_of_a_rate(o: World, x: Any) -> Any:
    o.rate = max(0.01, o.rate * 0.9)
    return weft.softmax(x / o.rate, axis=0)


@program(2)
def creation(o: World, x: Any) -> Any:
    o.n += 1
    made = weft.full((3,), o.n) + weft.tensor([o.n, 2, 3]) + weft.arange(3) * o.n
    return made, made.dtype.name


@program(2)
def index(o: World, x: Any) -> Any:
    o.n = (o.n + 1) % 3
    return x[o.n] + x[-1 - o.n]


@program(6)  # an index outside of its axis is a guard
def index_that_may_be_outside(o: World, x: Any) -> Any:
    o.n += 1
    try:
        return x[o.n], x[0, ..., None]
    except IndexError:
        return x[o.n % 3]


@program(2)
def kinds(o: World, x: Any) -> Any:
    o.n += 1
    return x * o.n if isinstance(o.n, int) and type(o.n) is int else x


@program(2)
def pair(o: World, x: Any) -> Any:
    first, second = o.pair
    o.pair = (first * 0.5, second + 1)
    return x * first, [v * 2 for v in o.pair]


@program(3)  # the first call finds none
def item_of_dict(o: World, x: Any) -> Any:
    step = o.kept.get("step", 3)
    o.kept["step"] = step + 1
    return x * step


@program(2)
def loop_with_it(o: World, x: Any) -> Any:
    o.rate = o.rate + 0.25
    for i in range(4):
        x = x * o.rate + i
    return x


@program(2)
def while_with_it(o: World, x: Any) -> Any:
    o.rate = o.rate + 0.25
    while x.sum() < 50:
        x = x * (1 + o.rate) + 1
    return x


@program(2)
def branch_with_it(o: World, x: Any) -> Any:
    o.rate = o.rate + 0.25
    return x * o.rate if x.sum() > 5 else x - o.rate


PROGRAMS["branch_with_it"] = (branch_with_it, 2, 3)
PROGRAMS["while_with_it"] = (while_with_it, 2, 7)


@program(2)
def gradient(o: World, x: Any) -> Any:
    o.n += 1
    w = x.detach().requires_grad_()
    ((w * o.n) ** 2).sum().backward()
    return w.grad


@program(2)
def transforms(o: World, x: Any) -> Any:
    o.n += 1
    n = o.n
    grad = weft.grad(lambda y: (y * n).sum() ** 2)(x)
    mapped = weft.vmap(lambda y: y * n + weft.maximum(y, n))(x)
    tangent = weft.jvp(lambda y: (y * n).sum(), (x,), (x,))[1]
    return grad, mapped, tangent


@program(2)
def no_grad(o: World, x: Any) -> Any:
    o.rate += 0.5
    with weft.no_grad():
        return weft.clip(x, -o.rate, o.rate)


# --- numbers of tensors --------------------------------------------------------------------------


@program(1)
def item(o: World, x: Any) -> Any:
    return x.sum().item(), {"n": (x > 0).sum().item(), "b": (x.sum() > 3).item()}


@program(1)
def appended(o: World, x: Any) -> Any:
    loss = (x * x).sum()
    o.log.append(loss.item())
    return loss


@program(1)
def kept(o: World, x: Any) -> Any:
    loss = (x * x).sum()
    o.last = loss.item()  # type: ignore[attr-defined]
    o.kept["half"] = loss.item() / 2
    return loss


@program(2)
def moving_average(o: World, x: Any) -> Any:
    o.rate = 0.9 * o.rate + 0.1 * (x * x).sum().item()
    return x


@program(2)
def running_mean(o: World, x: Any) -> Any:
    o.n += 1
    o.rate += (x.sum().item() - o.rate) / o.n
    return x * 0.9**o.n


@program(1)
def total(o: World, x: Any) -> Any:
    o.rate += x.sum().item()
    return x


@program(1)
def converted(o: World, x: Any) -> Any:
    return float(x.sum()), int(x.sum() * 1.5), max(1.0, x.sum().item()), abs(-x.sum().item())


@program(1, 2)
def branch(o: World, x: Any) -> Any:
    if x.sum().item() > 7:
        return x
    return -x


@program(2)  # each side has another shape: Python decides
def branch_of_shapes(o: World, x: Any) -> Any:
    if x.sum().item() > 7:
        return x[:1]
    return -x


@program(2, 3)
def best(o: World, x: Any) -> Any:
    loss = x.sum().item()
    if loss > o.rate:
        o.rate = loss
    return loss


@program(1)
def perplexity(o: World, x: Any) -> Any:
    return math.exp(-x.sum().item()), math.isfinite(x.sum().item()), math.sqrt(x.sum().item() + 1)


@program(2)
def shown(o: World, x: Any) -> Any:
    o.n += 1
    print(f"step {o.n:3d} loss {(x * x).sum().item():.3f} {o.n!r}", o.n, x.sum().item())
    return x


@program(1)
def inside_of_a_loop(o: World, x: Any) -> Any:
    found = 0.0
    for _ in range(3):
        x = x + 1
        found = found + x.sum().item()
    return found


@program(1)
def rounded(o: World, x: Any) -> Any:
    return round(x.sum().item(), 2), round(x.sum().item() * 1.3)


# --- numbers as Python needs them ----------------------------------------------------------------


def _caught(x: Any, a: Any) -> Any:
    try:
        return x * (1 / (a - 2.25))
    except ZeroDivisionError:
        return x - 1


#: name -> (function of a tensor and a number, recordings for five numbers)
EXPRESSIONS: dict[str, tuple[Callable[[Any, Any], Any], int]] = {
    "clip": (lambda x, a: weft.clip(x, -a, a), 2),
    "clamp": (lambda x, a: x.clamp(min=-a, max=a), 2),
    "where": (lambda x, a: weft.where(x > 0, x, a), 2),
    "full_like": (lambda x, a: weft.full_like(x, a), 2),
    "asarray": (lambda x, a: weft.asarray([a, 1.0]).sum() * x, 2),
    "power": (lambda x, a: weft.abs(x) ** a + a**x, 2),
    "maximum": (lambda x, a: weft.maximum(x, a), 2),
    "leaky_relu": (lambda x, a: F.leaky_relu(x, negative_slope=a), 2),
    "alpha": (lambda x, a: (x * 1).add_(x, alpha=-a), 2),
    "in place": (lambda x, a: (x * 1).mul_(a).clamp_(max=a), 2),
    "lerp": (lambda x, a: weft.lerp(x, x * 2, a), 2),
    "comparison": (lambda x, a: ((x > a).sum(), x == a), 2),
    "integers": (lambda x, a: (x > 0).astype("int32") * int(a), 2),
    "integers by floats": (lambda x, a: (x > 0).astype("int32") * a, 2),
    "huber": (lambda x, a: F.huber_loss(x, x * 0, delta=a), 2),
    "scan": (lambda x, a: weft.scan(lambda c, y: (c * a + y, c), weft.zeros(()), x)[0], 2),
    "cond": (lambda x, a: weft.cond(x.sum() > 0, lambda v: v * a, lambda v: v / a, x), 2),
    "fori": (lambda x, a: weft.fori_loop(0, 3, lambda i, c: c * a, x), 2),
    "rounding": (lambda x, a: x * round(a, 1) + int(a) + a // 1 + a % 1, 2),
    "extremes": (lambda x, a: x * max(a, 1.0) + min(a, 2.0) + sum([a, 1, a]), 2),
    "tree": (lambda x, a: {"a": a, "l": [a + 1, (a,)], "t": x * a}, 2),
    "bits": (lambda x, a: (int(a) << 3, int(a) & 1, ~int(a)), 2),
    "closure": (lambda x, a: (lambda y: y * a)(x), 2),
    "int64": (lambda x, a: weft.tensor(int(a)) * 2, 2),
    "walrus": (lambda x, a: (b := a * 2) + b, 2),
    "truths": (lambda x, a: (a > 2, not a > 2, bool(a), a > 1 and a < 3, 1 < a < 3), 5),
    "fraction": (lambda x, a: x * (1 / (a - 2.5)), 3),  # one of the numbers divides by zero
    "caught": (_caught, 3),
    "complex": (lambda x, a: abs((a - 10) ** 0.5), 5),
    "norm": (lambda x, a: weft.linalg.vector_norm(x, ord=a), 5),
    "layer_norm": (lambda x, a: F.layer_norm(x, (5,), eps=a), 5),
    "mapped argument": (lambda x, a: weft.vmap(lambda y, b: y * b, in_axes=(0, None))(x, a), 5),
    "linspace": (lambda x, a: weft.linspace(0, a, 5) * x, 5),
    "numpy": (lambda x, a: x * float(np.exp(a)) * np.float32(a), 5),
    "slice": (lambda x, a: x[: int(a)].sum(), 4),
    "list": (lambda x, a: [x, x * 2, x * 3, x * 4, x * 5][int(a)], 4),
    "key": (lambda x, a: {1: x, 2: x * 2, 3: x * 3, 4: x * 4}[int(a)], 4),
    "text": (lambda x, a: f"{a:.2f}{a!r:>10}" + "%s" % a + str(a) + repr(a) + "b" * int(a), 5),  # noqa: UP031
    "members": (lambda x, a: (int(a) in (1, 2), int(a) in {1, 2}, int(a) in range(2)), 5),
    "hash": (lambda x, a: hash(a), 5),
    "isnan": (lambda x, a: x if math.isnan(a) else x * a, 2),
    "divmod": (lambda x, a: divmod(a, 2), 5),
    "large": (lambda x, a: x * (int(a) * 10**30), 5),
    "range": (lambda x, a: sum(range(int(a))), 4),
    "sizes": (lambda x, a: (weft.zeros(int(a)), weft.repeat(x, int(a))), 4),
    "class": (lambda x, a: (type(a).__name__, a is None, a != "x", a.real, a.is_integer()), 5),
    "json": (lambda x, a: json.dumps({"a": a}), 5),
}
