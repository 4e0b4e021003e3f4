"""Write the files that come from the cards: `make generate`. A test holds that they are current.

- `weft/core/methods.pyi`: the types of the methods and operators attached to Tensor, for editors
  and mypy
- `weft/ops/public_functions.pyi`, `weft/linalg.pyi` and others, `weft/__init__.pyi`: the types of
  public functions
- `docs/ops.md`: the reference of public functions
- `docs/mistakes.md`: what is said to mistakes that people make
"""

from __future__ import annotations

import inspect
import re
from functools import partial
from pathlib import Path
from typing import Any

import mistakes

import weft
import weft.ops.collective
import weft.ops.flow
import weft.optim  # their cards
from weft.core.calling import calling_of
from weft.core.public import PUBLIC, PublicFunction
from weft.ir.op import OPS, Trait
from weft.ops import layout  # noqa: F401  (its card is not there before)

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
from weft.core.results import Histogram, ValuesIndices
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
        kind = "Any" if name in ("grad_fn", "at") else kind
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
    known = "Any|Axis|False|Literal|None|Operand|Sequence|Tensor|True"
    return re.sub(rf"(?<![.\w])(?!(?:{known})\b)[A-Z]\w*\b", "Any", _in_words(text))


def _in_words(text: str) -> str:
    return re.sub(r"(?<![.\w])(bool|int|float|complex|tuple|list|str)\b", r"builtins.\1", text)


def methods_text() -> str:
    return HEAD + "\n".join(method_stub(n, v) for n, v in attached().items()) + "\n"


FUNCTIONS = ROOT / "weft" / "ops" / "public_functions.pyi"
FUNCTIONS_HEAD = '''"""Types of public functions, all forms of calls. Made by `make generate`."""

import builtins
from collections.abc import Sequence
from typing import Any, Literal, overload

'''


def function_stub(name: str, entry: PublicFunction) -> str:
    """A public function as type checkers see it: with the names and forms that calls may have."""
    calls = [inspect.signature(entry.function), entry.calling.several()]
    lines = [f"def {name}{call_text(call)}: ..." for call in calls if call is not None]
    return lines[0] if len(lines) == 1 else "\n".join(f"@overload\n{line}" for line in lines)


def call_text(signature: inspect.Signature) -> str:
    """A signature with `...` for defaults and annotations that are not quoted."""
    parameters = []
    for parameter in signature.parameters.values():
        default = parameter.default if parameter.default is parameter.empty else ...
        parameters.append(parameter.replace(default=default))
    text = str(signature.replace(parameters=parameters)).replace("= Ellipsis", "= ...")
    text = re.sub(r"(: |-> )'([^']*)'", r"\1\2", text)
    return _in_words(re.sub(r'(: |-> )"([^"]*)"', r"\1\2", text))


def functions_text(namespace: str = "") -> str:
    """The public functions of `weft`, or of one of its modules such as `weft.linalg`."""
    imports: dict[str, str] = {}
    stubs = []
    for name in exported(namespace):
        entry = PUBLIC.get(f"{namespace}.{name}" if namespace else name)
        if entry is None:
            value = getattr(getattr(weft, namespace), name)
            known = value.__name__ in PUBLIC
            module = "weft.ops.public_functions" if known else value.__module__
            imports[f"{value.__name__} as {name}"] = module
            continue
        if inspect.isclass(entry.function):
            imports[name] = entry.function.__module__
            continue
        stub = function_stub(name, entry)
        stubs.append(stub)
        names = inspect.unwrap(entry.function).__globals__
        for word in set(re.findall(r"(?<![.\w])[A-Z]\w+", stub)) - {"Any", "Literal", "Sequence"}:
            if word in names or word in NAMES:
                value = names.get(word)
                own = value if isinstance(value, type) else inspect.unwrap(entry.function)
                imports[word] = NAMES.get(word) or own.__module__
    lines = sorted(
        f"from {module} import {word if ' as ' in word else f'{word} as {word}'}"
        for word, module in imports.items()
    )
    return FUNCTIONS_HEAD + "\n".join([*lines, "", *stubs]) + "\n"


def exported(namespace: str) -> list[str]:
    if namespace:
        return sorted(getattr(weft, namespace).__all__)
    return sorted(name for name, entry in PUBLIC.items() if not entry.namespace)


#: Where words come from that are no classes, or that functions made by other functions use.
NAMES = {
    "Order": "weft.ops.linalg_more",
    "Axis": "weft.base.shapes",
    "Norm": "weft.ops.fft_axis",
    "Operand": "weft.core.operands",
    "Tensor": "weft.core.tensor",
}


def package_text() -> str:
    """What `weft` exports as type checkers see it: functions of ops with all forms of calls."""
    lines = (ROOT / "weft" / "__init__.py").read_text().splitlines()
    kept = [line for line in lines if not re.match(r"from weft\.ops\.(?!info)", line)]
    end = next(i for i, line in enumerate(kept) if line.startswith("else:  # unknown names"))
    exports = "from weft.ops.public_functions import *"
    first = next(i for i, line in enumerate(kept) if line.startswith("from weft.core.grad_mode"))
    kept = [*kept[:first], exports, *kept[first:end]]
    head = [kept[0], "", "# Made by `make generate` from weft/__init__.py.", *kept[1:]]
    constants = ["newaxis: None", "__version__: str", "__array_api_version__: str"]
    return "\n".join([*head, *constants]) + "\n"


def reference_text() -> str:
    lines = [
        "# Public functions and primitives",
        "",
        "Made from the cards by `make generate`. Each function is also a Tensor method where the",
        "last column names one, and most methods have a twin that ends in an underscore and gives",
        "the tensor the new value: `x.clamp_(0, 1)`.",
        "",
        "Calls may be written as in NumPy and PyTorch, by one rule for all functions: an axis by",
        "position (`x.sum(0)`), `dim` and `keepdim` for `axis` and `keepdims`, a shape as several",
        "numbers (`weft.zeros(2, 3)`, `x.permute(0, 2, 1)`), `requires_grad=True` for those that",
        "make tensors. Where a name means something else than in PyTorch:",
        "[differences](torch_differences.md). Rules of dtype promotion, casts and integers:",
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


OUTPUTS = {
    FUNCTIONS: functions_text,
    **{
        ROOT / "weft" / f"{namespace}.pyi": partial(functions_text, namespace)
        for namespace in sorted({entry.namespace for entry in PUBLIC.values()} - {""})
    },
    ROOT / "weft" / "__init__.pyi": package_text,
    METHODS: methods_text,
    REFERENCE: reference_text,
    MISTAKES: mistakes.page,
}

if __name__ == "__main__":
    for path, text in OUTPUTS.items():
        path.write_text(text())
        print(f"wrote {path.relative_to(ROOT)}")
