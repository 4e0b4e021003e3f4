"""Works on a GPU, side by side: Weft, PyTorch (eager, compiled, with CUDA graphs) and JAX.

Each library runs in a process of its own. Times are the best of several rounds of calls that are
waited for at the end of the round, in µs for one call.

    python3 benchmarks/gpu.py [--only NAME] [--limit SECONDS]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT)]
LIBRARIES = ["weft", "torch", "torch.compile", "torch.graphs", "jax"]
WORKS = ["tanh", "mlp", "norm", "mlp_large", "while"]


def timed(run: Callable[[], Any], wait: Callable[[], None]) -> float:
    """µs for one call."""
    for _ in range(3):
        run()
    wait()
    start = time.perf_counter()
    run()
    wait()
    once = time.perf_counter() - start
    calls = max(3, min(300, int(0.15 / max(once, 1e-6))))
    best = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(calls):
            run()
        wait()
        best = min(best, (time.perf_counter() - start) / calls)
    return best * 1e6


SIZES = {"mlp": ((64, 64, 10), 32), "mlp_large": ((784, 2048, 2048, 10), 1024)}


def torch_like(torch: Any, name: str, compiled: Callable[[Any], Any]) -> Callable[[], Any]:
    """The works in PyTorch's names, which are Weft's, too."""
    F = torch.nn.functional
    if name in SIZES:
        sizes, batch = SIZES[name]
        layers: list[Any] = []
        for i, (a, b) in enumerate(pairwise(sizes)):
            layers += [torch.nn.ReLU()] * (i > 0) + [torch.nn.Linear(a, b)]
        model = torch.nn.Sequential(*layers).to("cuda")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        x = torch.ones((batch, sizes[0]), device="cuda")
        y = torch.zeros((batch,), dtype=torch.int64, device="cuda")

        def step(x: Any, y: Any) -> Any:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            return loss

        done = compiled(step)
        return lambda: done(x, y)
    if name == "while":
        weight = torch.nn.Linear(32, 32).to("cuda").weight.detach() * 0.5
        start = torch.ones((4, 32), device="cuda")

        def shrinking(x: Any, w: Any) -> Any:
            while x.abs().max() > 1e-2:
                x = 0.99 * torch.tanh(x @ w)
            return x.sum()

        inputs = start, weight
        work = shrinking
    elif name == "tanh":
        x, z, w = (torch.ones((1_000_000,), device="cuda") * v for v in (0.1, 0.2, 0.3))

        def chain(x: Any, z: Any, w: Any) -> Any:
            for _ in range(10):
                z = torch.tanh(z * w + x)
            return z.sum()

        inputs = x, z, w
        work = chain
    else:
        x = torch.ones((16384, 4096), device="cuda") * 0.5
        weight, bias = torch.ones(4096, device="cuda"), torch.zeros(4096, device="cuda")

        def norm(x: Any, weight: Any, bias: Any) -> Any:
            h = F.layer_norm(x, (4096,), weight, bias)
            return (F.gelu(h) * torch.sigmoid(h)).sum()

        inputs = x, weight, bias
        work = norm
    for tensor in inputs:
        tensor.requires_grad = True

    def both(*given: Any) -> Any:
        for tensor in given:
            tensor.grad = None
        total = work(*given)
        total.backward()
        return total

    if torch.__name__ == "weft":
        done = compiled(both)
    else:
        forward = compiled(work)

        def done(*given: Any) -> Any:
            for tensor in given:
                tensor.grad = None
            total = forward(*given)
            total.backward()
            return total

    return lambda: done(*inputs)


def with_jax(name: str) -> Callable[[], Any]:
    import jax
    import jax.numpy as jnp

    if name in SIZES:
        sizes, batch = SIZES[name]
        keys = jax.random.split(jax.random.key(0), len(sizes))
        params = [
            (jax.random.normal(k, (a, b)) * 0.05, jnp.zeros(b))
            for k, a, b in zip(keys, sizes[:-1], sizes[1:], strict=False)
        ]
        x, y = jnp.ones((batch, sizes[0])), jnp.zeros(batch, dtype=jnp.int32)

        def loss(params: Any, x: Any, y: Any) -> Any:
            for w, b in params[:-1]:
                x = jax.nn.relu(x @ w + b)
            w, b = params[-1]
            logp = jax.nn.log_softmax(x @ w + b)
            return -jnp.take_along_axis(logp, y[:, None], 1).mean()

        @jax.jit
        def step(params: Any, x: Any, y: Any) -> Any:
            value, grads = jax.value_and_grad(loss)(params, x, y)
            return jax.tree.map(lambda p, g: p - 0.01 * g, params, grads), value

        state = [params]

        def run() -> Any:
            state[0], value = step(state[0], x, y)
            return value

        return run
    if name == "tanh":
        inputs = tuple(jnp.ones(1_000_000) * v for v in (0.1, 0.2, 0.3))

        def work(x: Any, z: Any, w: Any) -> Any:
            for _ in range(10):
                z = jnp.tanh(z * w + x)
            return z.sum()

    else:
        inputs = (jnp.ones((16384, 4096)) * 0.5, jnp.ones(4096), jnp.zeros(4096))

        def work(x: Any, weight: Any, bias: Any) -> Any:
            mean, var = x.mean(1, keepdims=True), x.var(1, keepdims=True)
            h = (x - mean) / jnp.sqrt(var + 1e-5) * weight + bias
            return (jax.nn.gelu(h, approximate=False) * jax.nn.sigmoid(h)).sum()

    done = jax.jit(jax.value_and_grad(work, argnums=(0, 1, 2)))
    return lambda: done(*inputs)


def measure(library: str, name: str) -> None:
    start = time.perf_counter()
    if library == "jax" and name == "while":
        print(json.dumps({"refused": "reverse mode through a while of unknown length"}))
        return
    if library == "jax":
        import jax

        run = with_jax(name)
        last: list[Any] = [None]

        def again() -> None:
            last[0] = run()

        found = timed(again, lambda: jax.block_until_ready(last[0]))
    else:
        if library == "weft":
            import weft as torch

            compiled: Callable[[Any], Any] = torch.compile
        else:
            import torch

            mode = {"torch.graphs": "reduce-overhead"}.get(library)
            compiled = (
                (lambda f: f) if library == "torch" else lambda f: torch.compile(f, mode=mode)
            )
        run = torch_like(torch, name, compiled)
        run()
        torch.cuda.synchronize()
        first = time.perf_counter() - start
        found = timed(run, torch.cuda.synchronize)
        print(json.dumps({"us": found, "first": first, "value": float(run())}))
        if library == "weft":
            _describe()
        return
    print(json.dumps({"us": found, "first": time.perf_counter() - start}))


def _describe() -> None:
    """How Weft's programs ran."""
    from weft.runtime import executable

    for made in list(executable._live):
        program: Any = made.program
        kinds = [work.kind for work in getattr(program, "work", [])]
        calls = [node.op.name for node in getattr(program, "calls", [])]
        launches = len(getattr(program, "kernels", []))
        reason = getattr(program, "reason", "")
        print(f"#   {type(program).__name__} {len(kinds)} steps, {launches} kernels", end="")
        print(f", calls {calls}, {reason}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="*", default=WORKS, choices=WORKS)
    parser.add_argument("--libraries", nargs="*", default=LIBRARIES, choices=LIBRARIES)
    parser.add_argument("--limit", type=float, default=60, help="seconds for one measurement")
    parser.add_argument("--run", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.run:
        measure(*given.run)
        return
    for name in given.only:
        for library in given.libraries:
            command = [sys.executable, __file__, "--run", library, name]
            with contextlib.suppress(subprocess.TimeoutExpired):
                done = subprocess.run(command, capture_output=True, text=True, timeout=given.limit)
                lines = done.stdout.strip().splitlines() or [done.stderr.strip()[-300:]]
                print(f"{name} {library}: {lines[0][:300]}", flush=True)
                for line in lines[1:4]:
                    print(line[:200])


if __name__ == "__main__":
    main()
