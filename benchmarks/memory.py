"""What a model keeps between forward and backward: Weft's eager tape, compiled, and PyTorch.

Counted are the bytes of distinct arrays that are kept for the backward, without parameters and
inputs: of the eager tape by going through its nodes, of a compiled forward by its split, of
PyTorch by its hooks on saved tensors. The bars are for the transformer blocks: compiled at most
60 % of what eager keeps, in a checkpoint at most 15 %. The last columns are for a budget: the
planned peak of forward and backward together, in parts of that with all saved, without a budget
and with `memory_budget=0.5`.

    python benchmarks/memory.py [--json]
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import weft
import weft.nn
from weft.autodiff.checkpoint import Region
from weft.autodiff.node import Dropped, OpNode, PartNode

Arrays = dict[int, np.ndarray[Any, Any]]
COMPILED, CHECKPOINT = 0.6, 0.15


@dataclass(frozen=True)
class Case:
    """A model, made by either library, and the shape of its input."""

    name: str
    title: str
    make: Callable[[Any], Any]
    shape: tuple[int, ...]
    bars: bool = False


# --- models ------------------------------------------------------------------------------------


def block(activation: str, dropout: float) -> Callable[[Any], Any]:
    def make(library: Any) -> Any:
        return library.nn.TransformerEncoderLayer(
            *(128, 4, 512, dropout), activation=activation, batch_first=True, norm_first=True
        )

    return make


def blocks(library: Any) -> Any:
    return library.nn.Sequential(*[block("gelu", 0.1)(library) for _ in range(4)])


def mlp(library: Any) -> Any:
    nn = library.nn
    inner = [layer for _ in range(3) for layer in (nn.Linear(256, 256), nn.GELU(), nn.Dropout(0.1))]
    return nn.Sequential(*inner, nn.Linear(256, 10))


def cnn(library: Any) -> Any:
    nn = library.nn
    return nn.Sequential(
        *(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.SiLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Dropout(0.2), nn.Linear(32 * 8 * 8, 10)),
    )


SEQUENCES = (16, 64, 128)
CASES = [
    Case("block", "transformer block (relu)", block("relu", 0.1), SEQUENCES, bars=True),
    Case("block_gelu", "transformer block (gelu)", block("gelu", 0.1), SEQUENCES, bars=True),
    Case("block_plain", "the same without dropout", block("gelu", 0.0), SEQUENCES, bars=True),
    Case("blocks", "4 transformer blocks (gelu)", blocks, SEQUENCES, bars=True),
    Case("mlp", "MLP 3 x (256, gelu, dropout)", mlp, (512, 256)),
    Case("cnn", "CNN with batch norm", cnn, (32, 3, 32, 32)),
]


# --- what is kept ------------------------------------------------------------------------------


def storage(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The array whose memory this one is a view of."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def on_the_tape(root: Any, without: Iterable[weft.Tensor]) -> int:
    """The bytes that the nodes behind a result hold on to."""
    found: Arrays = {}

    def add(kept: Any) -> None:
        for part in kept if isinstance(kept, (tuple, list)) else (kept,):
            if isinstance(part, tuple):
                add(part)
            elif isinstance(part, np.ndarray):
                found[id(storage(part))] = storage(part)

    seen: set[Any] = set()
    stack = [root]
    while stack:
        node = stack.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        stack += [*node.edges, *([node.parent] if isinstance(node, PartNode) else [])]
        if isinstance(node, OpNode) and node.kept.__class__ is Dropped:
            region: Region = node.kept.region
            add([*region.saved.values(), *[data for _, data, _ in region.read.values()]])
        elif isinstance(node, OpNode):
            add(node.kept)
    for tensor in without:
        found.pop(id(storage(tensor._data)), None)
    return sum(array.nbytes for array in found.values())


def of_torch(case: Case) -> int:
    model = case.make(torch)
    x = torch.randn(*case.shape, requires_grad=True)
    found: dict[int, int] = {}

    def pack(tensor: Any) -> Any:
        memory = tensor.untyped_storage()
        found[memory.data_ptr()] = memory.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        out = model(x)
    for tensor in (x, *model.parameters(), *model.buffers()):
        found.pop(tensor.untyped_storage().data_ptr(), None)
    del out
    return sum(found.values())


def checkpointed(model: Any) -> Callable[[Any], Any]:
    """The model in a checkpoint; of a row of blocks, each in one of its own."""
    if not isinstance(model, weft.nn.Sequential):
        return weft.checkpoint(model)
    parts = [weft.checkpoint(part) for part in model]

    def call(x: Any) -> Any:
        for part in parts:
            x = part(x)
        return x

    return call if len(parts) == 4 else weft.checkpoint(model)


def measure(case: Case) -> dict[str, Any]:
    weft.manual_seed(0)
    model = case.make(weft)
    x = weft.randn(*case.shape).requires_grad_()
    others = [x, *model.parameters(), *model.buffers()]

    def split(function: Any, **options: Any) -> Any:
        compiled = weft.compile(function, **options)
        compiled(x)
        return compiled.splits()[0]

    eager = on_the_tape(model(x)._node, others)
    compiled = split(lambda x: model(x))
    kept = on_the_tape(checkpointed(model)(x)._node, others)
    dropped = split(checkpointed(model))
    half = split(lambda x: model(x), memory_budget=0.5)
    row = {
        "case": case.name,
        "title": case.title,
        "eager": eager,
        "compiled": compiled.bytes_saved,
        "checkpoint": kept,
        "compiled_checkpoint": dropped.bytes_saved,
        "torch": of_torch(case),
        "budget_saved": half.bytes_saved,
        "peak": compiled.peak / compiled.peak_used,
        "budget_peak": half.peak / half.peak_used,
    }
    most = max(kept, dropped.bytes_saved)
    row["met"] = not case.bars or (
        compiled.bytes_saved <= COMPILED * eager and most <= CHECKPOINT * eager
    )
    return row


def table(rows: list[dict[str, Any]]) -> str:
    head = f"{'':<30}{'eager kB':>9}{'compiled':>15}{'checkpoint':>11}{'compiled':>9}"
    lines = [f"{head}{'torch kB':>10}{'peak':>7}{'budget 0.5':>12}"]
    for row in rows:
        shares = [row[name] / row["eager"] for name in ("compiled", "checkpoint")]
        lines.append(
            f"{row['title']:<30}{row['eager'] / 1e3:>9.0f}{row['compiled'] / 1e3:>9.0f}"
            f"{shares[0]:>6.0%}{shares[1]:>11.0%}{row['compiled_checkpoint'] / row['eager']:>9.0%}"
            f"{row['torch'] / 1e3:>10.0f}{row['peak']:>7.2f}{row['budget_peak']:>12.2f}"
            f"{'' if row['met'] else '  NOT met'}"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="bytes that are kept for the backward")
    parser.add_argument("--only", choices=[case.name for case in CASES], action="append")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore", weft.CaptureWarning)  # a budget that cannot be reached
    chosen = [case for case in CASES if options.only is None or case.name in options.only]
    rows = [measure(case) for case in chosen]
    if options.json:
        print(json.dumps({"torch": torch.__version__, "rows": rows}))
        return
    print(
        f"kept between forward and backward, without parameters and inputs; torch "
        f"{torch.__version__}\n"
    )
    print(table(rows))


if __name__ == "__main__":
    main()
