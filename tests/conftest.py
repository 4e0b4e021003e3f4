"""Settings for all tests."""

import os
import signal
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import settings

import weft.optim  # noqa: F401  (its cards)
from weft.base import config
from weft.base.dtypes import _BY_NUMPY, DTYPES
from weft.core.large import large
from weft.ir.dispatch import FAMILIES
from weft.ir.op import OPS
from weft.passes import pipeline

# Tests of capture ask for the same bits as eager gives, op by op; those of machine code say so.
os.environ.setdefault("WEFT_BACKEND", "interpret")
# Items of work are cut for the same machine everywhere; tests of many cores say so.
os.environ.setdefault("WEFT_TARGET_CORES", "2")
# Eager calls are the reference that compiled code is compared with: NumPy computes all of them.
# Tests of eager kernels say so (tests/runtime/test_eager_kernels.py).
os.environ.setdefault("WEFT_EAGER", "numpy")
large.start = config.large_from()
# What is scheduled is verified before it is compiled.
os.environ.setdefault("WEFT_VERIFY_PLANS", "1")

# Who starts tests in the background may have switched Ctrl-C off, which some of them are about.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("ci", derandomize=True, deadline=None, max_examples=60)
settings.load_profile("ci")


_KERNELS = FAMILIES["cpu", "dense"].registered


@pytest.fixture(autouse=True)
def own_registrations() -> Iterator[None]:
    """Cards, kernels, passes and dtypes that a test registers are gone after it.

    Others go over all cards that there are, and the keys of machine code depend on the rest.
    """
    cards, kernels, passes = dict(OPS), dict(_KERNELS), list(pipeline._current)
    types = dict(DTYPES)
    yield
    for name in DTYPES.keys() - types.keys():
        del _BY_NUMPY[DTYPES.pop(name).numpy]
    OPS.clear()
    OPS.update(cards)
    pipeline._current[:] = passes
    if kernels != _KERNELS:
        changed = {name for (name, _), _ in _KERNELS.items() ^ kernels.items()}
        _KERNELS.clear()
        _KERNELS.update(kernels)
        for name in changed & OPS.keys():
            tables = OPS[name].kernels
            tables[np.ndarray].clear()
            tables.overridden = any(name == other for other, _ in kernels)
