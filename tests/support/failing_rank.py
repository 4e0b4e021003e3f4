"""A script in which one of two ranks does something else: the way of failing is its argument."""

import os
import signal
import sys
import time

import weft
from weft import distributed

way = sys.argv[1]
distributed.init(timeout=3 if way == "hangs" else 60)
x = distributed.all_reduce(weft.ones(4))


@weft.compile
def summed(x):
    return distributed.all_reduce(x * 2)


if way in ("differs in machine code", "is stopped in machine code"):
    for _ in range(3):
        summed(x)
if distributed.rank() == 1:
    sys.stdout.write(f"fails at {time.time()}\n")
    sys.stdout.flush()
    if way == "raises":
        weft.ones(3) @ weft.ones(4)
    elif way == "is killed":
        os.kill(os.getpid(), signal.SIGKILL)
    elif way == "is stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif way == "hangs":
        time.sleep(1000)
    elif way == "leaves":
        sys.exit(3)
    elif way == "differs":
        distributed.all_gather(x)
    elif way == "differs in machine code":
        distributed.all_reduce(weft.ones(5))
    elif way == "is stopped in machine code":
        os.kill(os.getpid(), signal.SIGSTOP)
if "machine code" in way:
    summed(x)
distributed.all_reduce(x)
