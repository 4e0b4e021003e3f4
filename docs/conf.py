"""The documentation as a site, by Sphinx: `make docs`. Warnings are errors there."""

from __future__ import annotations

import re
import textwrap
from typing import Any

import weft

project = "Weft"
author = "The Weft developers"
release = version = weft.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.viewcode"]
html_theme = "furo"
html_title = f"Weft {version}"
html_copy_source = False
exclude_patterns = ["images"]
myst_heading_anchors = 3  # links to headings, spelled as on GitHub
suppress_warnings = ["ref.python"]  # `type` in a signature is Python's, not a member of a class
autodoc_member_order = "alphabetical"
autodoc_typehints = "signature"
python_use_unqualified_type_names = True
maximum_signature_line_length = 88
default_role = "code"

CODE = re.compile(r"`([^`]+)`")


def _paragraph(text: str) -> list[str]:
    """Plain text with `code` as reStructuredText: nothing else in it is markup."""
    parts = CODE.split(text)
    for i, part in enumerate(parts):
        # Code stays code; elsewhere what reStructuredText would read as markup is escaped.
        parts[i] = f"\\ ``{part}``\\ " if i % 2 else re.sub(r"([\\*|_])", r"\\\1", part)
    return "".join(parts).splitlines()


def _is_table(block: str) -> bool:
    """Whether a block is laid out by hand: names and their meaning, in columns."""
    lines = block.splitlines()
    return any(line.startswith(" ") or re.search(r"\S {2,}\S", line) for line in lines)


def plain_docstring(
    app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]
) -> None:
    """Our docstrings are plain text with examples: say so to Sphinx, block by block."""
    out: list[str] = []
    blocks = re.split(r"\n\s*\n", textwrap.dedent("\n".join(lines)).strip("\n"))
    for block in blocks:
        if block.lstrip().startswith(">>>"):
            out += [".. code-block:: pycon", "", *("   " + line for line in block.splitlines())]
        elif _is_table(block):
            out += [".. code-block:: text", "", *("   " + line for line in block.splitlines())]
        else:
            out += _paragraph(block)
        out.append("")
    lines[:] = out


def without_values(
    app: Any, what: str, name: str, obj: Any, skip: bool, options: Any
) -> bool | None:
    """Leave out what has no signature and no text of its own: dtypes, numbers, submodules."""
    return True if not callable(obj) and not isinstance(obj, property) else None


def for_readers(app: Any, name: str, source: list[str]) -> None:
    """Links between files carry the title of the page; examples end with their last line."""
    text = re.sub(r"\[[\w/]+\.md\]\(", "[](", source[0])
    source[0] = text.replace("\n\n```\n", "\n```\n")


def setup(app: Any) -> None:
    app.connect("source-read", for_readers)
    app.connect("autodoc-process-docstring", plain_docstring)
    app.connect("autodoc-skip-member", without_values)
