"""Stores in which dtypes PyTorch's ops give their results under `torch.autocast` on the CPU.

    python tools/store_autocast.py

Needs torch and expecttest, which the tests do not: they read tests/support/op_db/autocast.json. The
calls are those of `tools/store_op_db.py` with floats, in float32 and in bfloat16: for each op, each
of its calls and each of the two dtypes the dtypes of its results; None where PyTorch fails.
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path

import torch
from torch.testing._internal.common_methods_invocations import op_db

SUPPORT = Path(__file__).parents[1] / "tests" / "support"
sys.path.insert(0, str(SUPPORT))

from autocast_calls import DTYPES, calls_of, dtypes_of_results  # noqa: E402
from op_db_calls import stored_calls  # noqa: E402


def main() -> None:
    warnings.simplefilter("ignore")
    ops = {op.name + f".{op.variant_test_name}" * bool(op.variant_test_name): op.op for op in op_db}
    found = {
        name: [
            [dtypes_of_results(torch, ops[name], call, dtype) for dtype in DTYPES]
            for call in calls_of(name)
        ]
        for name in stored_calls()
        if name in ops and calls_of(name)
    }
    (SUPPORT / "op_db" / "autocast.json").write_text(json.dumps(found) + "\n")
    print(f"{len(found)} ops")


if __name__ == "__main__":
    main()
