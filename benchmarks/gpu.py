"""Works on a GPU, side by side: Weft, PyTorch (eager, compiled, with CUDA graphs) and JAX.

Each library runs in a process of its own. Times are the best of several rounds of calls that are
waited for at the end of the round, in µs for one call. float32 products and convolutions are exact
in all libraries; works named …_tf32 allow all of them TF32. All libraries compute with the same
numbers; how far their losses of three steps (or results and sums of gradients) lie apart is shown.
Of Weft's programs, the kernels that take longest follow, in µs. With --first, seconds of the first
call of a work, with empty caches and in a second process.

    python3 benchmarks/gpu.py [--only NAME …] [--libraries NAME …] [--limit SECONDS] [--first]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT)]
LIBRARIES = ["weft", "torch", "torch.compile", "torch.graphs", "jax"]
WORKS = [
    *("tanh", "mlp", "norm", "mlp_large", "mlp_large_tf32", "transformer", "cnn", "cnn_tf32"),
    *("embedding", "while"),
]


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


SIZES = {
    "mlp": ((64, 64, 10), 32),
    "mlp_large": ((784, 2048, 2048, 10), 1024),
    "mlp_large_tf32": ((784, 2048, 2048, 10), 1024),
}
BATCH, LENGTH, WIDTH, HEADS = 8, 1024, 1024, 16


def parameters(name: str) -> list[Any]:
    """The parameters of a step, in PyTorch's order and shapes."""
    if name in SIZES:
        shapes: list[tuple[int, ...]] = []
        for a, b in pairwise(SIZES[name][0]):
            shapes += [(b, a), (b,)]
    elif name.startswith("cnn"):
        shapes = [(64, 64, 3, 3), (64,)] * 2
    elif name == "embedding":
        shapes = [(50257, 768), (768, 768), (768,)]
    else:
        shapes = [(WIDTH,)] * 4
        for rows, columns in ((3, 1), (1, 1), (4, 1), (1, 4)):
            shapes += [(rows * WIDTH, columns * WIDTH), (rows * WIDTH,)]
    rng = np.random.default_rng(1)
    made = [rng.standard_normal(shape, np.float32) * np.float32(0.04) for shape in shapes]
    if name == "transformer":
        made[0], made[2] = made[0] + 1, made[2] + 1
    return made


def torch_step(torch: Any, name: str) -> tuple[Any, Any, tuple[Any, ...]]:
    """The module, its loss as a function of inputs, and the inputs, of works that are a step."""
    F, nn = torch.nn.functional, torch.nn
    rng = np.random.default_rng(0)
    if name in SIZES:
        sizes, batch = SIZES[name]
        layers: list[Any] = []
        for i, (a, b) in enumerate(pairwise(sizes)):
            layers += [nn.ReLU()] * (i > 0) + [nn.Linear(a, b)]
        model = nn.Sequential(*layers).to("cuda")
        x = torch.asarray(rng.standard_normal((batch, sizes[0]), np.float32)).to("cuda")
        y = torch.asarray(rng.integers(0, 10, batch)).to("cuda")
        return model, lambda x, y: F.cross_entropy(model(x), y), (x, y)
    if name.startswith("cnn"):
        both = [nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1)]
        model = nn.Sequential(*both, nn.ReLU()).to("cuda")
        x = torch.asarray(rng.standard_normal((256, 64, 32, 32), np.float32)).to("cuda")
        return model, lambda x: (model(x) ** 2).mean(), (x,)
    if name == "embedding":
        words, width = 50257, 768
        table = nn.Embedding(words, width)
        model = nn.Sequential(table, nn.Dropout(0.1), nn.Linear(width, width)).to("cuda")
        rows = torch.asarray(rng.integers(0, words, (8, 1024))).to("cuda")
        return model, lambda rows: (model(rows) ** 2).mean(), (rows,)

    class Block(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
            self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
            self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

        def forward(self, x: Any) -> Any:
            parts = self.qkv(self.first(x)).reshape((BATCH, LENGTH, 3, HEADS, WIDTH // HEADS))
            q, k, v = (parts[:, :, i].swapaxes(1, 2) for i in range(3))
            seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(seen.swapaxes(1, 2).reshape((BATCH, LENGTH, WIDTH)))
            return x + self.down(F.gelu(self.up(self.second(x))))

    model = Block().to("cuda").to(torch.bfloat16)
    given = rng.standard_normal((BATCH, LENGTH, WIDTH), np.float32)
    x = torch.asarray(given).to("cuda").to(torch.bfloat16)
    return model, lambda x: (model(x).to(torch.float32) ** 2).mean(), (x,)


STEPS = (*SIZES, "cnn", "cnn_tf32", "transformer", "embedding")


def torch_like(torch: Any, name: str, compiled: Callable[[Any], Any]) -> Callable[[], Any]:
    """The works in PyTorch's names, which are Weft's, too."""
    F = torch.nn.functional
    if name in STEPS:
        model, loss_of, given = torch_step(torch, name)
        state = model.state_dict()
        for key, value in zip(state, parameters(name), strict=True):
            state[key] = torch.asarray(value).to("cuda").to(state[key].dtype)
        model.load_state_dict(state)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

        whole = torch.__name__ == "weft"  # PyTorch compiles what makes the loss
        forward = loss_of if whole else compiled(loss_of)

        def step(*given: Any) -> Any:
            optimizer.zero_grad()
            loss = forward(*given)
            loss.backward()
            optimizer.step()
            return loss

        stepped = compiled(step) if whole else step
        return lambda: stepped(*given)
    if name == "while":
        drawn = np.random.default_rng(1).standard_normal((32, 32), np.float32) * np.float32(0.13)
        weight = torch.asarray(drawn).to("cuda")
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
    if name == "norm":  # rows that are all alike have no norm
        drawn = np.random.default_rng(1).standard_normal((16384, 4096), np.float32)
        inputs = torch.asarray(drawn).to("cuda"), weight, bias
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

    def run() -> Any:
        total = done(*inputs)
        return total, *(tensor.grad for tensor in inputs)

    return run


def jax_step(jax: Any, jnp: Any, name: str) -> tuple[Any, Any, tuple[Any, ...]]:
    """The loss as a function of parameters and inputs, the parameters, and the inputs."""
    rng = np.random.default_rng(0)
    given = [jnp.asarray(value) for value in parameters(name)]

    def normal(*shape: int, scale: float = 0.05, dtype: Any = jnp.float32) -> Any:
        return jnp.asarray(rng.standard_normal(shape, np.float32) * scale).astype(dtype)

    if name in SIZES:
        sizes, batch = SIZES[name]
        x = normal(batch, sizes[0], scale=1)
        params: Any = [(w.T, b) for w, b in zip(given[::2], given[1::2], strict=True)]

        def classes(params: Any, x: Any, y: Any) -> Any:
            for w, b in params[:-1]:
                x = jax.nn.relu(x @ w + b)
            w, b = params[-1]
            logp = jax.nn.log_softmax(x @ w + b)
            return -jnp.take_along_axis(logp, y[:, None], 1).mean()

        return classes, params, (x, jnp.asarray(rng.integers(0, 10, batch)))
    if name.startswith("cnn"):
        params = [(given[0], given[1]), (given[2], given[3])]

        def convolved(params: Any, x: Any) -> Any:
            for w, b in params:
                x = jax.lax.conv(x, w, (1, 1), "SAME") + b[:, None, None]
                x = jax.nn.relu(x)
            return (x**2).mean()

        return convolved, params, (normal(256, 64, 32, 32, scale=1),)
    if name == "embedding":
        params = given[0], given[1].T, given[2]

        def embedded(params: Any, rows: Any) -> Any:
            table, w, b = params
            x = table[rows]
            x = jnp.where(jax.random.bernoulli(jax.random.key(0), 0.9, x.shape), x / 0.9, 0.0)
            return ((x @ w + b) ** 2).mean()

        return embedded, params, (jnp.asarray(rng.integers(0, 50257, (8, 1024))),)

    given = [value.astype(jnp.bfloat16) for value in given]
    norms = [(given[0], given[1]), (given[2], given[3])]
    params = [(given[i].T, given[i + 1]) for i in range(4, 12, 2)], norms

    def layer_norm(x: Any, given: Any) -> Any:
        wide = x.astype(jnp.float32)
        mean, var = wide.mean(-1, keepdims=True), wide.var(-1, keepdims=True)
        return ((wide - mean) / jnp.sqrt(var + 1e-5)).astype(x.dtype) * given[0] + given[1]

    def block(params: Any, x: Any) -> Any:
        (qkv, out, up, down), (first, second) = params
        parts = layer_norm(x, first) @ qkv[0] + qkv[1]
        q, k, v = jnp.moveaxis(parts.reshape(BATCH, LENGTH, 3, HEADS, WIDTH // HEADS), 2, 0)
        seen = jax.nn.dot_product_attention(q, k, v, is_causal=True, implementation="cudnn")
        x = x + seen.reshape(BATCH, LENGTH, WIDTH) @ out[0] + out[1]
        h = jax.nn.gelu(layer_norm(x, second) @ up[0] + up[1], approximate=False)
        x = x + h @ down[0] + down[1]
        return (x.astype(jnp.float32) ** 2).mean()

    return block, params, (normal(BATCH, LENGTH, WIDTH, scale=1, dtype=jnp.bfloat16),)


def with_jax(name: str) -> Callable[[], Any]:
    import jax
    import jax.numpy as jnp

    if name in STEPS:
        loss, params, given = jax_step(jax, jnp, name)

        @jax.jit
        def step(params: Any, *given: Any) -> Any:
            value, grads = jax.value_and_grad(loss)(params, *given)
            return jax.tree.map(lambda p, g: (p - 0.01 * g).astype(p.dtype), params, grads), value

        state = [params]

        def run() -> Any:
            state[0], value = step(state[0], *given)
            return value

        return run
    if name == "tanh":
        inputs = tuple(jnp.ones(1_000_000) * v for v in (0.1, 0.2, 0.3))

        def work(x: Any, z: Any, w: Any) -> Any:
            for _ in range(10):
                z = jnp.tanh(z * w + x)
            return z.sum()

    else:
        drawn = np.random.default_rng(1).standard_normal((16384, 4096), np.float32)
        inputs = (jnp.asarray(drawn), jnp.ones(4096), jnp.zeros(4096))

        def work(x: Any, weight: Any, bias: Any) -> Any:
            mean, var = x.mean(1, keepdims=True), x.var(1, keepdims=True)
            h = (x - mean) / jnp.sqrt(var + 1e-5) * weight + bias
            return (jax.nn.gelu(h, approximate=False) * jax.nn.sigmoid(h)).sum()

    done = jax.jit(jax.value_and_grad(work, argnums=(0, 1, 2)))

    def both() -> Any:
        total, grads = done(*inputs)
        return total, *grads

    return both


def prepared(library: str, name: str) -> tuple[Callable[[], Any], Callable[[], None], float]:
    """What runs a work once, what waits for it, and when its library was there."""
    fast = name.endswith("tf32")
    if library == "jax":
        import jax

        precision = "tensorfloat32" if fast else "highest"
        jax.config.update("jax_default_matmul_precision", precision)
        imported = time.perf_counter()
        run = with_jax(name)
        last: list[Any] = [None]

        def again() -> Any:
            last[0] = run()
            return last[0]

        return again, lambda: jax.block_until_ready(last[0]), imported
    if library == "weft":
        import weft as torch

        compiled: Callable[[Any], Any] = torch.compile
    else:
        import torch

        torch.backends.cudnn.allow_tf32 = fast
        mode = {"torch.graphs": "reduce-overhead"}.get(library)
        compiled = (lambda f: f) if library == "torch" else lambda f: torch.compile(f, mode=mode)
    torch.set_float32_matmul_precision("high" if fast else "highest")
    imported = time.perf_counter()
    return torch_like(torch, name, compiled), torch.cuda.synchronize, imported


def measure(library: str, name: str) -> None:
    start = time.perf_counter()
    if library == "jax" and name == "while":
        print(json.dumps({"refused": "reverse mode through a while of unknown length"}))
        return
    again, wait, imported = prepared(library, name)
    ready = time.perf_counter() - start
    values = numbers(again())
    wait()
    first = time.perf_counter() - start
    if name in STEPS:
        values += [number for _ in range(2) for number in numbers(again())]
    found = {"us": timed(again, wait), "first": first, "ready": ready, "import": imported - start}
    print(json.dumps(found | {"values": values}))
    if library == "weft":
        _describe()
        _profile(again)


def first_call(library: str, name: str) -> None:
    """Seconds of a first call, when parameters and inputs are on the GPU."""
    again, wait, _ = prepared(library, name)
    wait()
    start = time.perf_counter()
    again()
    wait()
    print(f"{time.perf_counter() - start:.3f}", flush=True)


def first_calls(libraries: list[str], names: list[str], limit: float) -> None:
    """First calls with empty caches, and in a second process. Python's modules are compiled before,
    as by an installation."""
    for name in names:
        line = f"{name}, first call:"
        for library in libraries:
            with tempfile.TemporaryDirectory() as folder:
                environment = {k: v for k, v in os.environ.items() if "DONTWRITE" not in k}
                environment["PYTHONPYCACHEPREFIX"] = f"{folder}/modules"
                found = []
                for cache in ("before", "cache", "cache"):
                    for word in ("WEFT_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"):
                        place = Path(folder, cache, word)
                        place.mkdir(mode=0o700, parents=True, exist_ok=True)
                        environment[word] = str(place)
                    command = [sys.executable, __file__, "--run-first", library, name]
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        done = subprocess.run(
                            command, capture_output=True, text=True, timeout=limit, env=environment
                        )
                        found.append((done.stdout or done.stderr).strip()[-200:])
            line += f" {library} {' s, from disk '.join(found[1:])} s;"
        print(line, flush=True)


def numbers(result: Any) -> list[float]:
    """A result and the sums of its gradients, as numbers."""
    parts = result if isinstance(result, tuple) else (result,)
    return [float(part.sum()) for part in parts]


def apart(found: list[float], others: list[float]) -> float:
    """The largest difference, relative to the numbers."""
    pairs = zip(found, others, strict=True)
    return max(abs(a - b) / max(abs(a), abs(b), 1e-9) for a, b in pairs)


def _profile(again: Callable[[], Any]) -> None:
    """What takes longest in one call, kernel by kernel; the program is launched in parts for it."""
    import cupy

    from weft.runtime import executable

    events: list[Any] = []

    def watched(call: Callable[..., Any], word: str) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            start, end = cupy.cuda.Event(), cupy.cuda.Event()
            start.record()
            call(*args)
            end.record()
            shape = ""
            if word in ("product", "biased"):
                shape = f" {args[0].count}×{args[0].rows}×{args[0].terms}×{args[0].columns}"
            events.append((names.get(id(args[0]), word) + shape, start, end))

        return run

    programs = [made.program for made in list(executable._live)]
    programs = [program for program in programs if type(program).__name__ == "CudaProgram"]
    names = {id(f): name for p in programs for name, f in p._functions.items()}
    for program in programs:
        program._may_take = lambda _inputs: False
    driver = programs[0]._driver
    for word in ("launch", "product", "biased", "convolution"):
        setattr(driver, word, watched(getattr(driver, word), word))
    totals: dict[str, list[float]] = {}
    for _ in range(4):
        events.clear()
        again()
        cupy.cuda.get_current_stream().synchronize()
        here: dict[str, float] = {}
        for name, start, end in events:
            here[name] = here.get(name, 0) + cupy.cuda.get_elapsed_time(start, end) * 1e3
        for name, time_ in here.items():
            totals.setdefault(name, []).append(time_)
    best = sorted(((min(times), name) for name, times in totals.items()), reverse=True)
    whole = sum(time_ for time_, _ in best)
    print(f"#   alone {whole:.0f}:", ", ".join(f"{name} {time_:.1f}" for time_, name in best[:60]))


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
        print(f", calls {calls}, {reason}"[:200], end="; ")
        seconds = getattr(program, "seconds", {})
        print(", ".join(f"{word} {value:.2f} s" for word, value in seconds.items()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="*", default=WORKS, choices=WORKS)
    parser.add_argument("--libraries", nargs="*", default=LIBRARIES, choices=LIBRARIES)
    parser.add_argument("--limit", type=float, default=60, help="seconds for one measurement")
    parser.add_argument("--first", action="store_true", help="measure first calls instead")
    parser.add_argument("--run", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--run-first", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.run:
        measure(*given.run)
        return
    if given.run_first:
        first_call(*given.run_first)
        return
    if given.first:
        first_calls(given.libraries, given.only, given.limit)
        return
    for name in given.only:
        line, more, agreed = f"{name}:", [], {}
        for library in given.libraries:
            command = [sys.executable, __file__, "--run", library, name]
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=given.limit)
            except subprocess.TimeoutExpired:
                line += f" {library} late;"
                continue
            lines = done.stdout.strip().splitlines()
            try:
                found = json.loads(lines[0])
            except (IndexError, ValueError):
                line += f" {library} failed;"
                more.append(f"#   {library}: {done.stderr.strip()[-260:]}".replace("\n", " | "))
                continue
            if "us" in found:
                agreed[library] = found["values"]
                times = "/".join(f"{found[word]:.2f}" for word in ("import", "ready", "first"))
                line += f" {library} {found['us']:.1f} ({times} s);"
            else:
                line += f" {library} refuses;"
            more += lines[1:5]
        if "weft" in agreed:
            others = {key: value for key, value in agreed.items() if key != "weft"}
            far = ", ".join(f"{key} {apart(agreed['weft'], x):.1e}" for key, x in others.items())
            more.append(f"#   values {agreed['weft'][:4]}; apart: {far}")
        print(line, *(text[:2500] for text in more), sep="\n", flush=True)


if __name__ == "__main__":
    main()
