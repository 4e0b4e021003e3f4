"""Runs the examples of documents and docstrings; `tests/project/test_docs.py` starts it.

It runs in a process of its own, as a reader would: examples register ops, devices and dtypes, and
none of that is to be seen by other tests.

    python tests/run_docs.py README.md docs/kernels.md    the blocks of these files
    python tests/run_docs.py --docstrings                 the docstrings of all modules of weft
"""

from __future__ import annotations

import doctest
import importlib
import linecache
import pkgutil
import re
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import weft
from weft.core.public import PUBLIC

FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
BLOCK = re.compile(r"^```python[ \t]*\n(.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)


def blocks(text: str) -> Iterator[tuple[int, str]]:
    """The Python blocks of a Markdown text, each with the number of its first line."""
    for match in BLOCK.finditer(text):
        yield text.count("\n", 0, match.start(1)) + 1, match.group(1)


def run_document(name: str, text: str) -> tuple[int, int]:
    """Run a document's blocks in order, in one namespace; returns (failures, blocks run)."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    failed = count = 0
    for line, source in blocks(text):
        count += 1
        if ">>>" in source:
            failed += run_session(source, namespace, name, line)
            continue
        try:
            # The blank lines make a traceback name the line of the document.
            exec(compile("\n" * (line - 1) + source, name, "exec"), namespace)
        except Exception:
            traceback.print_exc(file=sys.stdout)
            failed += 1
    return failed, count


def run_session(source: str, namespace: dict[str, Any], name: str, line: int) -> int:
    """Run a block of `>>>` lines and compare what they print; returns the failures."""
    unique = f"{name}:{line}"  # a name for each block: functions find their source by it
    test = doctest.DocTestParser().get_doctest(source, {}, unique, name, line - 1)
    for number, example in enumerate(test.examples):  # also once a later block runs
        lines = example.source.splitlines(keepends=True)
        file = f"<doctest {unique}[{number}]>"
        linecache.cache[file] = (len(example.source), None, lines, file)
    test.globs = namespace  # not a copy: later blocks go on from here
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    return runner.run(test, clear_globs=False).failed


def docstrings() -> Iterator[doctest.DocTest]:
    """The examples in docstrings of modules, classes, and functions made from the op cards."""
    finder = doctest.DocTestFinder()
    seen: set[str] = set()
    found: list[doctest.DocTest] = []
    for info in pkgutil.walk_packages(weft.__path__, "weft."):
        if info.name.endswith("__main__"):
            continue
        try:
            module = importlib.import_module(info.name)
        except ModuleNotFoundError as error:
            if str(error.name).startswith("weft"):
                raise
            continue  # it needs an extra that is not installed
        found += finder.find(module, globs={})
    for entry in PUBLIC.values():
        found += finder.find(entry.function, f"weft.{entry.name}", globs={})
    for test in found:
        if test.examples and test.docstring not in seen:
            seen.add(str(test.docstring))
            test.globs = {"weft": weft, "np": np}
            yield test


def run_docstrings() -> tuple[int, int]:
    failed = count = 0
    for test in docstrings():
        count += 1
        failed += doctest.DocTestRunner(optionflags=FLAGS).run(test).failed
    return failed, count


def main(arguments: list[str]) -> int:
    failed = count = 0
    for argument in arguments:
        if argument == "--docstrings":
            more = run_docstrings()
        else:
            more = run_document(argument, Path(argument).read_text())
        failed, count = failed + more[0], count + more[1]
    print(f"{count} examples, {failed} failures")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
