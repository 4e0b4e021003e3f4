"""The programs of `examples/from_torch`, run with `weft.torch` or, rewritten, with PyTorch."""

from __future__ import annotations

import contextlib
import linecache
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "from_torch"
PROGRAMS = sorted(path.stem for path in FOLDER.glob("*.py"))


def load(name: str, *, with_pytorch: bool = False) -> Any:
    """A program as a module. For PyTorch its import lines are changed, and nothing else."""
    path = FOLDER / f"{name}.py"
    lines = path.read_text().splitlines(keepends=True)
    if with_pytorch:
        lines = [_pytorch(line) for line in lines]
    file = f"{path}#pytorch" if with_pytorch else str(path)
    source = "".join(lines)
    linecache.cache[file] = (len(source), None, lines, file)
    module = types.ModuleType(name)
    exec(compile(source, file, "exec"), vars(module))
    return module


def _pytorch(line: str) -> str:
    is_import = line.startswith(("import weft.torch", "from weft.torch"))
    return line.replace("weft.torch", "torch", 1) if is_import else line


def curve(name: str, torch: Any, steps: int) -> list[float]:
    """The losses of a program whose weights, draws and batches do not depend on the library."""
    program = load(name, with_pytorch=not torch.__name__.startswith("weft"))
    loader = getattr(program, "DataLoader", None)
    if loader is not None:
        program.DataLoader = lambda *args, shuffle=False, **kwargs: loader(*args, **kwargs)
    with _same_numbers(torch):
        found: list[float] = program.main(steps)
    return found


@contextlib.contextmanager
def _same_numbers(torch: Any) -> Iterator[None]:
    """Draws, and the weights that an optimizer is given, come from NumPy."""
    rng = np.random.default_rng(0)

    def randn(*size: Any, **_options: Any) -> Any:
        return torch.tensor(rng.standard_normal(size).astype(np.float32))

    def randn_like(x: Any) -> Any:
        return randn(*x.shape)

    def randint(high: int, size: Any, dtype: Any = None) -> Any:
        return torch.tensor(rng.integers(0, high, size))

    learn = torch.optim.Optimizer.__init__

    def with_weights(self: Any, params: Any, *args: Any, **kwargs: Any) -> None:
        given = list(params)
        with torch.no_grad():
            for p in given:
                start = _start(rng, tuple(p.shape), np.asarray(p.detach()))
                p.copy_(torch.tensor(start.astype(np.float32)))
        learn(self, given, *args, **kwargs)

    changed = [(torch, "randn", randn), (torch, "randn_like", randn_like)]
    changed += [(torch, "randint", randint), (torch.optim.Optimizer, "__init__", with_weights)]
    before = [getattr(owner, name) for owner, name, _ in changed]
    for owner, name, function in changed:
        setattr(owner, name, function)
    try:
        yield
    finally:
        for (owner, name, _), function in zip(changed, before, strict=True):
            setattr(owner, name, function)


def _start(rng: Any, shape: tuple[int, ...], held: Any) -> Any:
    """Matrices are drawn, scales stay ones, biases begin at zero."""
    if len(shape) > 1:
        return rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))
    return np.ones(shape) if (held == 1).all() else np.zeros(shape)
