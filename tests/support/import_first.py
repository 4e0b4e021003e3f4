"""Imports modules of Weft, each as the first one, and uses Weft then.

    python tests/support/import_first.py weft weft.ir.graph weft.ops.matmul

The folder of the package, and the modules. Each is imported in a fork, before the package itself.
"""

from __future__ import annotations

import importlib
import os
import sys
import types
from typing import Any

import numpy as np


def use() -> None:
    del sys.modules["weft"]
    weft: Any = importlib.import_module("weft")
    model = weft.nn.Linear(2, 1)

    def f(x: Any, k: float) -> Any:
        y = weft.vmap(lambda row: weft.cond(row.sum() > k, lambda: row * 2, lambda: -row))(x)
        loss = model(y).sum() * x.shape[0]
        loss.backward()
        return loss

    x = weft.tensor([[1.0, 2.0], [-3.0, 1.0]])
    compiled = weft.compile(f, backend="interpret")
    found = []
    for run in (f, compiled, compiled):
        model.zero_grad()
        found.append((float(run(x, 1.0)), model.weight.grad.tolist()))
    assert found[0] == found[1] == found[2], found
    graph = weft.make_graph(lambda x: x + 1, weft.ones(2))
    again = weft.Graph.parse(graph.text())
    np.testing.assert_array_equal(again(weft.ones(2)).numpy(), [2, 2])
    with weft.Graph() as declared:
        weft.ones(2) + 1
    assert declared.nodes
    assert callable(compiled.explain)


def main(folder: str, *names: str) -> None:
    for name in names:
        child = os.fork()
        if not child:
            package = sys.modules["weft"] = types.ModuleType("weft")  # without its __init__
            package.__path__ = [folder]
            try:
                importlib.import_module(name)
                use()
            except BaseException as error:
                print(f"{name} first: {type(error).__name__}: {error}", flush=True)
            os._exit(0)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
