"""Machine code in threads with small stacks: large temporaries do not lie there."""

from __future__ import annotations

import ctypes
import graphlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import small_stacks
from small_stacks import PROGRAMS

import weft
from weft.base.errors import InternalError
from weft.codegen.jit import build
from weft.codegen.machine import host
from weft.codegen.text import STACK, Module

ROOT = Path(weft.__file__).parent
SCRIPT = small_stacks.__file__


def test_programs_run_on_small_stacks() -> None:
    env = {**os.environ, "WEFT_NUM_THREADS": "1"}
    command = [sys.executable, SCRIPT]
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=240)
    assert done.returncode == 0, (done.stdout, done.stderr[-2000:])
    assert done.stdout.count("\n") == 11


@pytest.mark.parametrize("name", ["a sum of many stacks", "sorted", "rows"])
def test_no_function_of_generated_code_calls_itself(name: str) -> None:
    function, *args = PROGRAMS[name]
    compiled = weft.compile(function, backend="native")
    compiled(*args)
    text = compiled.programs[-1].program.text
    bodies = re.findall(r"^define .*?@([\w.]+)\(.*?\{$(.*?)^\}$", text, re.MULTILINE | re.DOTALL)
    uses = {name: set(re.findall(r"@([\w.]+)\(", body)) for name, body in bodies}
    assert len(uses) > 2
    graphlib.TopologicalSorter({name: used & uses.keys() for name, used in uses.items()}).prepare()


def test_only_variables_are_on_the_stack() -> None:
    """They know how large they are together; nobody else takes memory there."""
    found = [path for path in ROOT.rglob("*.py") if " alloca " in path.read_text()]
    names = sorted(path.relative_to(ROOT).as_posix() for path in found)
    assert names == ["codegen/text.py", "distributed/shared_code.py"]  # the latter: 16 bytes


@pytest.mark.parametrize("count", [1, STACK // 4, STACK // 4 + 1, 1 << 20])
def test_variables_keep_what_is_put_there(count: int) -> None:
    module = Module(host())
    f = module.function("f", "i32", [("i32", "x")], linkage="")
    room, small = f.var("i32", count=count, align=64), f.var("i32", "%x")
    last = room + (count - 1)
    last.store(f(f"add i32 {small.load()}, 1"))
    with f.when(f("icmp slt i32 %x, 0")):
        f.do("ret i32 -1")
        f.block(f.fresh("never"))
    f.do(f"ret i32 {last.load()}")
    text = module.text()
    assert (text.count("call void @free"), text.count("alloca")) == (
        (2, 1) if 4 * count > STACK else (0, 2)
    )
    library = build(text, ["f"])
    run = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int32)(library.address("f"))
    assert [run(4), run(-4), run(9)] == [5, -1, 10]


def test_large_variables_are_of_functions_that_can_fail() -> None:
    module = Module(host())
    f = module.function("f", "void", [])
    f.var("<16 x float>", count=STACK)
    f.do("ret void")
    with pytest.raises(InternalError, match="bytes of variables"):
        module.text()
