"""Libraries in tests: C programs that use them are compiled and run."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

CC = shutil.which("cc") if sys.platform == "linux" else None
needs_cc = pytest.mark.skipif(CC is None, reason="there is no C compiler: cc is not found")

#: Runs a function some times, on arrays read from files, and writes what it gives.
CALLS = """\
#include "{prefix}.h"
#include <stdio.h>
#include <stdlib.h>

static void read_into(const char *name, void *data, size_t bytes) {{
  FILE *file = fopen(name, "rb");
  if (!file || fread(data, 1, bytes, file) != bytes) exit(90);
  fclose(file);
}}

{buffers}

int main(void) {{
  {prefix} *made;
  int status = {prefix}_create(&made);
  if (status) return status;
{reads}
  FILE *out = fopen("out.bin", "wb");
  if (!out) return 91;
  for (int round = 0; round < {rounds}; round++) {{
    status = {prefix}_{word}(made{given});
    if (status) {{
      puts({prefix}_error_text(status));
      return status;
    }}
{writes}
  }}
  fclose(out);
  if ({prefix}_save(made, "state.safetensors")) return 92;
  return {prefix}_destroy(made);
}}
"""


def compiled(source: str, folder: Path, library: Path, *options: str) -> Path:
    """An executable of a C program that uses a library."""
    file, program = folder / "main.c", folder / "main"
    file.write_text(source)
    assert CC is not None
    command = [CC, "-std=gnu11", "-Wall", "-Werror", "-O1", "-o", str(program), str(file)]
    command += [str(library), *options, "-lm", f"-Wl,-rpath,{folder}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return program


def run(command: Sequence[str | Path], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(part) for part in command], cwd=folder, capture_output=True, text=True, check=False
    )


def loaded(file: Path) -> Any:
    """The loader of a library, as a module."""
    spec = importlib.util.spec_from_file_location(f"library_{file.parent.name}_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def c_calls(
    folder: Path, built: Any, word: str, arguments: dict[str, Any], results: int, rounds: int
) -> bytes:
    """What a C program gets from calls of a library: results of all rounds, one after another."""
    prefix = built.path.stem.removeprefix("lib")
    header = (folder / f"{prefix}.h").read_text()
    names = [*arguments, *(["result"] if results == 1 else [f"result_{i}" for i in range(results)])]
    kinds = {}
    for line in header.splitlines():
        for name in names:
            if line.strip().removeprefix("const ").split(",")[0].endswith(f" *{name}"):
                kinds[name] = line.strip().removeprefix("const ").split(" *")[0]
    count = {name: f"{prefix}_{name}_count".upper() for name in names}
    for name, array in arguments.items():
        (folder / f"{name}.bin").write_bytes(np.ascontiguousarray(array).tobytes())
    source = CALLS.format(
        prefix=prefix,
        word=word,
        rounds=rounds,
        buffers="\n".join(f"static {kinds[n]} {n}[{count[n]}];" for n in names),
        reads="\n".join(f'  read_into("{n}.bin", {n}, sizeof {n});' for n in arguments),
        given="".join(f", {n}, {count[n]}" for n in names),
        writes="\n".join(
            f"    fwrite({n}, 1, sizeof {n}, out);" for n in names if n not in arguments
        ),
    )
    done = run([compiled(source, folder, built.path)], folder)
    assert done.returncode == 0, (done.returncode, done.stdout, done.stderr)
    return (folder / "out.bin").read_bytes()
