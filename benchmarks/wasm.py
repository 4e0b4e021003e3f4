"""WebAssembly against ONNX Runtime Web, in one process of Node, each on one thread.

Networks with the same weights are built as libraries and written as ONNX; both sides answer the
same input, and their outputs are compared with those of eager code. The sides alternate, in rounds
of 4 milliseconds; the smallest round of each counts, in time of the processor. The bar is 0.7 of
ONNX Runtime's time. On both sides, a call takes an array of JavaScript and gives one. The last line
is a training step (MLP, Adam), beside the compiled function in Python: ONNX Runtime Web cannot
train.

    python benchmarks/wasm.py [NAME ...] [--json]

It needs Node, the wheels onnx and ziglang, and npm, which brings onnxruntime-web to build/web.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

import weft
import weft.nn.functional as F
from weft import nn, optim

BAR, ROUNDS = 0.7, 100
VERSION = "1.30.0"
MODULES = Path(__file__).parent.parent / "build" / "web"
SCRIPT = """\
import { readFile, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
const [modules, rounds] = [process.argv[2], Number(process.argv[3])];
const ort = createRequire(modules + "/")("onnxruntime-web");
ort.env.wasm.numThreads = 1;
ort.env.logLevel = "error";
const rows = JSON.parse(await readFile("rows.json", "utf8"));
const now = () => { const { user, system } = process.cpuUsage(); return (user + system) / 1e3; };
const spent = async (work, calls) => {
  const start = now();
  for (let i = 0; i < calls; i++) await work();
  return (now() - start) / calls;
};
const found = {};
for (const [name, shape] of rows) {
  const x = new Float32Array(new Uint8Array(await readFile(`${name}.bin`)).buffer);
  const model = await (await import(`./${name}.js`)).load();
  const session = await ort.InferenceSession.create(
    await readFile(`${name}.onnx`), { executionProviders: ["wasm"], intraOpNumThreads: 1 });
  const given = new ort.Tensor("float32", x, shape);
  const ours = () => model.infer(x);
  const theirs = async () => (await session.run({ x: given })).y.data;
  const sides = { weft: ours, onnxruntime: theirs };
  const out = {}, times = { weft: [], onnxruntime: [] }, calls = {};
  for (const [side, work] of Object.entries(sides)) {
    out[side] = Array.from(await work());
    await spent(work, 200);  // V8 compiles again what runs often
    calls[side] = Math.ceil(4 / await spent(work, 20));
    await spent(work, calls[side]);
  }
  for (let i = 0; i < rounds; i++)
    for (const [side, work] of Object.entries(sides))
      times[side].push(await spent(work, calls[side]));
  found[name] = { out, times };
}
await writeFile("found.json", JSON.stringify(found));
"""
TRAINING = """\
import { readFile } from "node:fs/promises";
import { load } from "./training.js";
const model = await load();
const [x, y] = JSON.parse(await readFile("training.json", "utf8"));
const given = [Float32Array.from(x), BigInt64Array.from(y, BigInt)];
const losses = [];
for (let i = 0; i < 20; i++) losses.push(model.train_step(...given)[0]);
let best = Infinity;
for (let round = 0; round < 100; round++) {
  const start = performance.now();
  for (let i = 0; i < 20; i++) model.train_step(...given);
  best = Math.min(best, (performance.now() - start) / 20);
}
console.log(JSON.stringify({ losses, best }));
"""


def dense(*sizes: int) -> Any:
    layers: list[Any] = []
    for inner, outer in itertools.pairwise(sizes):
        layers += [nn.Linear(inner, outer), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def conv(*given: int, **more: Any) -> list[Any]:
    return [nn.Conv2d(*given, **more), nn.ReLU()]


def convolutions() -> dict[str, tuple[Any, tuple[int, ...]]]:
    pool = nn.MaxPool2d(2)
    return {
        "cnn_digits": (
            nn.Sequential(
                *(*conv(1, 16, 3, padding=1), pool, *conv(16, 32, 3, padding=1), pool),
                *(nn.Flatten(), nn.Linear(128, 10)),
            ),
            (16, 1, 8, 8),
        ),
        "cnn_mnist": (
            nn.Sequential(
                *(*conv(1, 16, 3, padding=1), pool, *conv(16, 32, 3, padding=1), pool),
                *(nn.Flatten(), nn.Linear(32 * 49, 10)),
            ),
            (8, 1, 28, 28),
        ),
        "cnn_lenet": (
            nn.Sequential(
                *(*conv(1, 6, 5, padding=2), pool, *conv(6, 16, 5), pool, nn.Flatten()),
                *dense(400, 120, 84, 10),
            ),
            (1, 1, 28, 28),
        ),
        "cnn_photo": (
            nn.Sequential(
                *(*conv(3, 32, 3, padding=1), *conv(32, 32, 3, padding=1), pool),
                *(*conv(32, 64, 3, padding=1), *conv(64, 64, 3, padding=1), pool),
                *(nn.Flatten(), nn.Linear(4096, 10)),
            ),
            (1, 3, 32, 32),
        ),
        "cnn_strides": (
            nn.Sequential(
                *(*conv(3, 16, 3, stride=2, padding=1), *conv(16, 16, 3, padding=1, groups=16)),
                *(*conv(16, 32, 1), *conv(32, 32, 3, stride=2, padding=1, groups=32)),
                *(*conv(32, 64, 1), nn.Flatten(), nn.Linear(64 * 256, 10)),
            ),
            (1, 3, 64, 64),
        ),
        "cnn_wide": (
            nn.Sequential(
                *conv(64, 64, 3, padding=1), *conv(64, 128, 3, stride=2), *conv(128, 64, 1)
            ),
            (4, 64, 15, 15),
        ),
    }


def networks() -> dict[str, tuple[Any, tuple[int, ...]]]:
    """Models, and the shapes of what they take."""
    return {
        "mlp_digits": (dense(64, 128, 128, 10), (64, 64)),
        "mlp_one": (dense(784, 256, 128, 10), (1, 784)),
        "mlp_wide": (dense(256, 512, 512, 64), (16, 256)),
        "mlp_odd": (dense(100, 300, 51), (7, 100)),
        **convolutions(),
    }


def as_onnx(model: Any, shape: tuple[int, ...], given_back: tuple[int, ...]) -> bytes:
    """A sequence of layers as ONNX."""
    nodes, held, now = [], [], "x"
    kind = onnx.TensorProto.FLOAT

    def tensors(layer: Any) -> list[str]:
        for name in ("weight", "bias"):
            array = getattr(layer, name).detach().numpy()
            held.append(numpy_helper.from_array(array, f"{name}{len(held)}"))
        return [tensor.name for tensor in held[-2:]]

    for number, layer in enumerate(model):
        given, attrs, op = [now], {}, type(layer).__name__
        if isinstance(layer, nn.Linear):
            op, attrs = "Gemm", {"transB": 1}
            given += tensors(layer)
        elif isinstance(layer, nn.Conv2d):
            op, pads = "Conv", [*layer.padding] * 2
            attrs = {"strides": [*layer.stride], "pads": pads, "group": layer.groups}
            given += tensors(layer)
        elif isinstance(layer, nn.MaxPool2d):
            op, attrs = "MaxPool", {"kernel_shape": [2, 2], "strides": [2, 2]}
        elif isinstance(layer, nn.ReLU):
            op = "Relu"
        now = "y" if number == len(model) - 1 else f"value{number}"
        nodes.append(helper.make_node(op, given, [now], **attrs))
    types = {"x": shape, "y": given_back}
    ends = [helper.make_tensor_value_info(name, kind, sizes) for name, sizes in types.items()]
    graph = helper.make_graph(nodes, "model", ends[:1], ends[1:], held)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    onnx.checker.check_model(made)
    return bytes(made.SerializeToString())


def infer_of(model: Any) -> Any:
    def infer(x: Any) -> Any:
        return model(x)

    return infer


def compared(folder: Path, chosen: list[str]) -> dict[str, Any]:
    """Milliseconds of both sides, and how far apart their outputs are."""
    weft.manual_seed(0)
    rows, wanted = [], {}
    for name, (model, shape) in networks().items():
        if chosen and name not in chosen:
            continue
        model.eval().requires_grad_(False)
        x = np.random.default_rng(0).normal(size=shape).astype("f4")
        weft.export(infer_of(model), weft.spec(shape)).build(folder / f"{name}.wasm")
        y = model(weft.tensor(x)).numpy()
        (folder / f"{name}.onnx").write_bytes(as_onnx(model, shape, y.shape))
        x.tofile(folder / f"{name}.bin")
        rows.append([name, shape])
        wanted[name] = y.ravel()
    (folder / "rows.json").write_text(json.dumps(rows))
    (folder / "main.mjs").write_text(SCRIPT)
    subprocess.run(["node", "main.mjs", str(modules()), str(ROUNDS)], cwd=folder, check=True)
    found = json.loads((folder / "found.json").read_text())
    for name, row in found.items():
        scale = np.abs(wanted[name]).max()
        for side, out in row.pop("out").items():
            row[f"{side}_error"] = float(np.abs(np.array(out) - wanted[name]).max() / scale)
            assert row[f"{side}_error"] < 1e-5, (name, side, row)
        times = row.pop("times")
        row |= {side: min(rounds) for side, rounds in times.items()}
        row["median"] = float(np.median(np.divide(times["weft"], times["onnxruntime"])))
    return found


def modules() -> Path:
    """The folder with onnxruntime-web."""
    if not (MODULES / "node_modules" / "onnxruntime-web").exists():
        MODULES.mkdir(parents=True, exist_ok=True)
        command = [
            "npm",
            "install",
            "--silent",
            "--no-fund",
            "--no-audit",
            "--prefix",
            str(MODULES),
        ]
        subprocess.run([*command, f"onnxruntime-web@{VERSION}"], check=True)
    return MODULES.absolute()


def training(folder: Path) -> dict[str, float]:
    """Milliseconds of a training step: in Python, and as WebAssembly."""
    weft.manual_seed(0)
    model = dense(64, 128, 128, 10)
    optimizer = optim.Adam(model.parameters(), lr=1e-3)

    def train_step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    program = weft.export(train_step, weft.spec((64, 64)), weft.spec((64,), "int64"))
    program.build(folder / "training.wasm")
    x = np.random.default_rng(0).normal(size=(64, 64)).astype("f4")
    y = np.arange(64) % 10
    (folder / "training.json").write_text(json.dumps([x.ravel().tolist(), y.tolist()]))
    (folder / "main.mjs").write_text(TRAINING)
    command = ["node", "main.mjs"]
    done = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
    found = json.loads(done.stdout)
    given = weft.tensor(x), weft.tensor(y)
    losses = [float(program(*given)) for _ in range(20)]
    np.testing.assert_allclose(found["losses"], losses, rtol=1e-4)
    best = math.inf
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for _ in range(20):
            program(*given)
        best = min(best, (time.perf_counter() - start) / 20)
    return {"weft": found["best"], "process": best * 1e3}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("names", nargs="*", help="networks, by default all")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    weft.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        found = compared(Path(name), options.names)
        if not options.names or "training" in options.names:
            found["training"] = training(Path(name))
    if options.json:
        print(json.dumps(found, indent=2))
        return 0
    for name, row in found.items():
        said = f"{name:12} {row['weft'] * 1e3:9.1f} µs"
        if "onnxruntime" in row:
            ratio = row["weft"] / row["onnxruntime"]
            said += f", ONNX Runtime Web {row['onnxruntime'] * 1e3:9.1f} µs: {ratio:.2f} "
            said += f"(bar {BAR}; median of rounds {row['median']:.2f}); "
            said += f"errors {row['weft_error']:.0e}, {row['onnxruntime_error']:.0e}"
        else:
            said += f", in Python, native code {row['process'] * 1e3:9.1f} µs"
        print(said)
    return 0


if __name__ == "__main__":
    sys.exit(main())
