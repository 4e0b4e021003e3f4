"""Settings for all tests."""

import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import settings

from weft.ir.op import OPS

# Tests of capture ask for the same bits as eager gives, op by op; those of machine code say so.
os.environ.setdefault("WEFT_BACKEND", "interpret")
# What is scheduled is verified before it is compiled.
os.environ.setdefault("WEFT_VERIFY_PLANS", "1")

# Who starts tests in the background may have switched Ctrl-C off, which some of them are about.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("ci", derandomize=True, deadline=None, max_examples=60)
settings.load_profile("ci")


@pytest.fixture(autouse=True)
def own_cards() -> Iterator[None]:
    """Cards that a test makes are gone after it: others go over all that there are."""
    before = dict(OPS)
    yield
    OPS.clear()
    OPS.update(before)
