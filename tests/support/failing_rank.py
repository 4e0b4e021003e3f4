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
if distributed.rank() == 1:
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
distributed.all_reduce(x)
