"""Write the files that come from the cards: `make generate`. A test holds that they are current.

- `weft/core/methods.pyi`: the types of the methods and operators attached to Tensor, for editors
  and mypy
- `docs/ops.md`: the reference of public functions
- `docs/mistakes.md`: what is said to mistakes that people make
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import mistakes

import weft
from weft.core.calling import calling_of
from weft.core.public import PUBLIC
from weft.ir.op import OPS, Trait

ROOT = Path(__file__).resolve().parent.parent
METHODS = ROOT / "weft" / "core" / "methods.pyi"
REFERENCE = ROOT / "docs" / "ops.md"
MISTAKES = ROOT / "docs" / "mistakes.md"

HEAD = '''"""Methods of Tensor as `weft.ops` attaches them. Made by `make generate`."""

import builtins
from collections.abc import Sequence
from typing import Any, Literal

from weft.base.shapes import Axis
from weft.core.operands import Operand
from weft.core.results import ValuesIndices
from weft.core.tensor import Tensor

class TensorMethods:
    __slots__ = ()
'''


def attached() -> dict[str, Any]:
    """What the ops put on Tensor, by name."""
    own = "weft.core.tensor"
    found = {}
    for name, value in vars(weft.Tensor).items():
        function = value.fget if isinstance(value, property) else value
        if inspect.isfunction(function) and function.__module__ != own:
            found[name] = value
    return dict(sorted(found.items()))


def method_stub(name: str, value: Any) -> str:
    if isinstance(value, property):
        kind = str(inspect.signature(value.fget).return_annotation)
        kind = _outside(kind if kind in ("bool", "int", "Tensor | None") else "Tensor")
        kind = "Any" if name == "grad_fn" else kind
        lines = f"    @property\n    def {name}(self) -> {kind}: ..."
        if value.fset is not None:
            lines += f"\n    @{name}.setter\n    def {name}(self, value: {kind}) -> None: ..."
        return lines
    if name.startswith("__i") and name != "__invert__":
        return f"    def {name}(self, other: Any, /) -> Tensor: ..."
    signature = calling_of(value).several() or inspect.signature(value)
    parameters = list(signature.parameters.values())
    first = parameters[0].replace(name="self", annotation=inspect.Parameter.empty)
    if name.startswith("__") and len(parameters) == 2 and name != "__getitem__":
        ignore = "  # type: ignore[override]" if name in ("__eq__", "__ne__") else ""
        return f"    def {name}(self, other: Any, /) -> Tensor: ...{ignore}"
    rest = [first, *parameters[1:]]
    if len(rest) > 1 and rest[1].kind is not inspect.Parameter.POSITIONAL_ONLY:
        rest[0] = first.replace(kind=inspect.Parameter.POSITIONAL_ONLY)
    text = str(signature.replace(parameters=rest))
    text = re.sub(r"(: |-> )'([^']*)'", r"\1\2", text)  # annotations are strings
    text = re.sub(r'(: |-> )"([^"]*)"', r"\1\2", text)
    return f"    def {name}{_outside(text)}: ..."


def _outside(text: str) -> str:
    """Annotations in words that mean the same inside of the class, which has methods like int()."""
    text = re.sub(r"(?<![.\w])(bool|int|float|complex|tuple|list)\b", r"builtins.\1", text)
    return re.sub(r"-> (?!Tensor|Any)[A-Z]\w*$", "-> Any", text)  # a result with named parts


def methods_text() -> str:
    return HEAD + "\n".join(method_stub(n, v) for n, v in attached().items()) + "\n"


def reference_text() -> str:
    lines = [
        "# Public functions and primitives",
        "",
        "Made from the cards by `make generate`. Each function is also a Tensor method where the",
        "last column names one. Rules of dtype promotion, casts and integer arithmetic: "
        "[numerics](numerics.md).",
        "",
    ]
    families: dict[str, list[str]] = {}
    others: dict[str, list[str]] = {}
    for entry in PUBLIC.values():
        if entry.alias:
            others.setdefault(entry.alias, []).append(f"`{entry.name}`")
    for entry in PUBLIC.values():
        if entry.alias:
            continue
        family = entry.function.__module__.rpartition(".")[2]
        signature = re.sub(r": [^,)=]+(?= = )|: [^,)]+", "", plain_signature(entry.function))
        doc = (inspect.getdoc(entry.function) or "").split("\n\n")[0].replace("\n", " ")
        if entry.name in others:
            doc = f"{doc} Also called {', '.join(others[entry.name])}."
        methods = ", ".join(f"`x.{m}`" for m in entry.methods if not m.startswith("__"))
        families.setdefault(family, []).append(
            f"| `weft.{entry.name}{signature}` | {doc} | {methods} |".replace("||", "\\|\\|")
        )
    for family, rows in sorted(families.items()):
        lines += [f"## {family}", "", "| function | what it gives | method |"]
        lines += ["| --- | --- | --- |", *rows, ""]
    lines += ["## Primitives", "", "| op | inputs | attributes | dtypes | traits |"]
    lines += ["| --- | --- | --- | --- | --- |"]
    for op in sorted(OPS.values(), key=lambda op: op.name):
        traits = ", ".join(t.name.lower() for t in Trait if t.value and t in op.traits and t.name)
        lines.append(
            f"| `{op.name}` | {', '.join(op.inputs)} | {', '.join(op.attrs)} "
            f"| {op.kinds} | {traits} |"
        )
    return "\n".join(lines) + "\n"


def plain_signature(function: Any) -> str:
    """The signature without annotations."""
    signature = inspect.signature(function)
    bare = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    return str(signature.replace(parameters=bare, return_annotation=signature.empty))


OUTPUTS = {METHODS: methods_text, REFERENCE: reference_text, MISTAKES: mistakes.page}

if __name__ == "__main__":
    for path, text in OUTPUTS.items():
        path.write_text(text())
        print(f"wrote {path.relative_to(ROOT)}")
