"""What calling a traced function costs over running its ops, and what checking guards costs.

    python benchmarks/trace_call.py

A traced function of one tiny op is called, and the same op run by the interpreter alone; the two
alternate, and the medians are compared. The bars: 10 µs over the interpreter's own op time, 2 µs
for ten guards.

A whole training step is called with kernels that do nothing: what is left is all that is done
around them, which is to check guards, to fetch what the graph reads, to make arrays, and to put
results where they go. The bars: 10 µs for three layers (6 parameters), 0.15 µs
for each further parameter.

Ten rounds of tanh on 32 numbers are called with kernels: with the backward inside of the compiled
function, outside of it, by `weft.autograd.grad`, and as `compile(grad(f))`. The bars: 10 µs with
`backward` outside, 6 µs for `compile(grad(f))` on tensors that require gradients.
"""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable
from typing import Any

import weft
from weft import nn
from weft.capture.trace.captured import Captured
from weft.codegen.cache import Code, cached
from weft.codegen.jit import Library
from weft.codegen.machine import host
from weft.codegen.text import Module
from weft.core.bind import bind
from weft.ir.interpret import PreparedGraph
from weft.nn import functional as F
from weft.runtime.native_call import FIELDS

CALLS = 2000
ROUNDS = 15


def microseconds(run: Callable[[], object], calls: int = CALLS) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        run()
    return (time.perf_counter() - start) / calls * 1e6


def medians(*runs: Callable[[], object]) -> list[float]:
    """Median times of several functions, called in turns."""
    times: list[list[float]] = [[] for _ in runs]
    for run in runs:
        microseconds(run)
    for _ in range(ROUNDS):
        for run, seen in zip(runs, times, strict=True):
            seen.append(microseconds(run))
    return [statistics.median(seen) for seen in times]


def fastest(run: Callable[[], object]) -> float:
    """The best of many short rounds: what it costs when nobody else wants the processor."""
    return min(microseconds(run, CALLS // 20) for _ in range(ROUNDS * 20))


def one_op(x: weft.Tensor, y: weft.Tensor) -> weft.Tensor:
    return x + y


class Settings:
    def __init__(self) -> None:
        self.a, self.b, self.c, self.d, self.e = 1, 2.0, "text", True, None


SETTINGS = Settings()


def guarded(x: weft.Tensor) -> weft.Tensor:
    s = SETTINGS
    if s.a == 1 and s.b == 2.0 and s.c == "text" and s.d and s.e is None:
        return x + 1
    return x


def main() -> None:
    x, y = weft.ones(4), weft.ones(4)
    traced: Captured = weft.trace(one_op)
    traced(x, y)
    graph = weft.make_graph(one_op, x, y)
    program = PreparedGraph(graph)
    call, op, eager = medians(
        lambda: traced(x, y), lambda: program.run([x, y], bind), lambda: one_op(x, y)
    )
    print(f"traced call {call:.2f} µs, interpreter alone {op:.2f} µs, eager {eager:.2f} µs")
    print(f"over the interpreter: {call - op:.2f} µs (bar: 10)")

    watched: Captured = weft.trace(guarded)
    watched(x)
    root = watched._roots[0]
    count = len(root.guards)
    (checked,) = medians(lambda: root.check((x,), {}))
    print(f"checking {count} guards: {checked:.2f} µs, {checked / count * 10:.2f} for ten (bar: 2)")
    gradients()
    training()


def training_step(layers: int, optimizer_of: Callable[[Any], Any]) -> Captured:
    model = nn.Sequential(*[nn.Linear(8, 8) for _ in range(layers)])
    optimizer = optimizer_of(model.parameters())

    def step(x: weft.Tensor, y: weft.Tensor) -> weft.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    captured: Captured = weft.compile(step, backend="native")
    return captured


def stop_kernels(step: Captured) -> None:
    """Exchange the kernels of a step for a function that does nothing: what is left is around."""
    call: Any = step.programs[-1].call
    call.__self__[FIELDS.index("entry")] = nothing().address("nothing")


@functools.cache
def nothing() -> Library:
    module = Module(host())
    f = module.function("nothing", "i32", [("ptr", "arrays"), ("ptr", "arena"), ("ptr", "run")])
    f.do("ret i32 0")
    text = module.text().replace("internal", "")
    library = cached(b"nothing", lambda: Code(text, ["nothing"])).library
    library.keep()
    return library


OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "SGD": lambda params: weft.optim.SGD(params, lr=0.01),
    "Adam": lambda params: weft.optim.Adam(params, lr=0.001),
}
LAYERS = (3, 32, 128)


def chain(x: weft.Tensor, w: weft.Tensor) -> weft.Tensor:
    z = x
    for _ in range(10):
        z = weft.tanh(z * w + x)
    return z.sum()


def chain_and_rows(x: weft.Tensor, w: weft.Tensor) -> tuple[weft.Tensor, weft.Tensor]:
    y = x * w
    return chain(x, w), y


def chain_inside(x: weft.Tensor, w: weft.Tensor) -> weft.Tensor:
    x.grad = w.grad = None
    loss = chain(x, w)
    loss.backward()
    return loss


def gradients() -> None:
    """Where the backward of a compiled function comes from."""
    x, w = (weft.full(32, value, requires_grad=True) for value in (0.5, 0.25))
    fixed = x.detach(), w.detach()
    forward, two = weft.compile(chain), weft.compile(chain_and_rows)
    inside, of_both = weft.compile(chain_inside), weft.compile(weft.grad(chain, argnums=(0, 1)))

    def outside() -> None:
        x.grad = w.grad = None
        forward(x, w).backward()

    def of_several() -> None:
        x.grad = w.grad = None
        two(x, w)[0].backward()

    rows: dict[str, tuple[Callable[[], object], str]] = {
        "call without a history": (lambda: forward(*fixed), ""),
        "call with a history": (lambda: forward(x, w), ""),
        "backward inside": (lambda: inside(x, w), ""),
        "backward outside": (outside, " (bar: 10)"),
        "the same, added to .grad": (lambda: forward(x, w).backward(), ""),
        "backward of one of two results": (of_several, ""),
        "weft.autograd.grad outside": (lambda: weft.autograd.grad(forward(x, w), [x, w]), ""),
        "compile(grad(f))": (lambda: of_both(*fixed), ""),
        "compile(grad(f)) on leaves": (lambda: of_both(x, w), " (bar: 6)"),
    }
    for name, (run, bar) in rows.items():
        print(f"ten times tanh of 32 numbers, {name}: {fastest(run):.2f} µs{bar}")


def training() -> None:
    x, y = weft.ones((4, 8)), weft.asarray([0, 1, 2, 3])
    for name, optimizer_of in OPTIMIZERS.items():
        found = []
        for layers in LAYERS:
            step = training_step(layers, optimizer_of)
            for _ in range(4):
                step(x, y)
            assert len(step.recordings) <= 2, step.recordings
            stop_kernels(step)
            around = fastest(lambda step=step: step(x, y))  # type: ignore[misc]
            found.append(around)
            print(f"training step, {name}, {2 * layers} params: {around:.2f} µs over the graph")
        each = (found[-1] - found[0]) / (2 * LAYERS[-1] - 2 * LAYERS[0])
        print(f"    {found[0]:.2f} µs (bar: 10), {each:.3f} for each further one (bar: 0.15)")


if __name__ == "__main__":
    main()
