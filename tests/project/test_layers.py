"""The import direction of the design, held by reading the source of every file in weft/."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import import_first
import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "weft"
FILES = sorted([*PACKAGE.rglob("*.py"), *PACKAGE.rglob("*.pyi")])
MOST_LINES = 600

#: A layer imports only from itself and from the layers before it.
LAYERS = [
    *("base", "convert", "ir", "core", "ops", "autodiff", "record", "capture", "passes"),
    *("schedule", "codegen", "runtime", "compile", "session", "nn", "optim", "data"),
    *("distributions", "interop", "distributed", "inspect", "wiring", "torch", "cli", "__main__"),
]
#: `weft` itself only exports: no layer may import it, and it must not start the command line.
TOP = "weft"
#: Modules that, like weft/__init__.py, only export: for `from weft.linalg import solve`.
FACADES = ("amp", "autograd", "cuda", "errors", "fft", "linalg", "onnx", "random", "special")
COMMAND_LINE = ("cli", "__main__")
#: Earlier layers that a layer has no business with: what comes after capture takes graphs as they
#: come, and the schedule does not change them.
APART = {
    **dict.fromkeys(("passes", "codegen", "runtime", "optim", "nn", "data"), ("capture",)),
    "distributions": ("capture",),
    "schedule": ("autodiff", "record", "capture", "passes"),
}


def module_name(path: Path) -> str:
    """weft/ops/linalg.py -> weft.ops.linalg"""
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(tree: ast.AST, module: str, *, package: bool) -> Iterator[tuple[ast.stmt, str]]:
    """Each import statement with the full name of a module it imports from."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node, alias.name
        elif isinstance(node, ast.ImportFrom):
            source = node.module or ""
            if node.level:
                parts = module.split(".")
                drop = node.level - 1 if package else node.level
                base = parts[: len(parts) - drop]
                source = ".".join([*base, *([source] if source else [])])
            if source == TOP:  # from weft import nn, from .. import nn: each name may be a layer
                for alias in node.names:
                    known = alias.name in LAYERS
                    yield node, f"{TOP}.{alias.name}" if known else TOP
            else:
                yield node, source


def layer_of(module: str) -> str:
    parts = module.split(".")
    return TOP if len(parts) == 1 or parts[1] in FACADES else parts[1]


def broken_rules(source: str, module: str, *, package: bool = False) -> list[str]:
    """What is wrong with the imports of one file, as sentences."""
    tree = ast.parse(source)
    inside = {
        id(node)
        for function in ast.walk(tree)
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        for node in ast.walk(function)
    }
    mine = layer_of(module)
    if mine != TOP and mine not in LAYERS:
        return [f"{module}: {mine!r} is not a layer of the design"]
    found = []
    for node, target in imports(tree, module, package=package):
        if target.split(".")[0] != TOP:
            continue
        where = f"{module}:{node.lineno}"
        theirs = layer_of(target)
        if id(node) in inside:
            found.append(f"{where}: imports {target} inside a function")
        if theirs == TOP:
            if mine != TOP:
                found.append(f"{where}: imports the whole of weft, which only exports")
        elif theirs not in LAYERS:
            found.append(f"{where}: {theirs!r} is not a layer of the design")
        elif mine == TOP:
            if theirs in COMMAND_LINE:
                found.append(f"{where}: weft/__init__.py imports {theirs}")
        elif theirs in APART.get(mine, ()):
            found.append(f"{where}: layer {mine!r} stands apart from {theirs!r}")
        elif LAYERS.index(theirs) > LAYERS.index(mine):
            found.append(f"{where}: layer {mine!r} imports from the later layer {theirs!r}")
    return found


def logic(source: str) -> list[str]:
    """Statements that an `__init__.py` may not hold: all but docs, imports and constants."""
    found = []
    for number, node in enumerate(ast.parse(source).body):
        docstring = number == 0 and isinstance(node, ast.Expr) and _is_constant(node.value)
        plain = isinstance(node, (ast.Assign, ast.AnnAssign)) and _is_constant(node.value)
        exports = isinstance(node, (ast.Import, ast.ImportFrom)) or _is_late(node)
        if not (docstring or plain or exports):
            found.append(f"line {node.lineno}: {ast.unparse(node).splitlines()[0]}")
    return found


def _is_late(node: ast.stmt) -> bool:
    """Whether names are exported that are loaded later, and told to type checkers: base/lazy.py."""
    if isinstance(node, ast.If):
        told = ast.unparse(node.test) == "_typing.TYPE_CHECKING"
        imports = all(isinstance(part, ast.ImportFrom) for part in node.body)
        return told and imports and all(map(_is_late, node.orelse))
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
        return ast.unparse(node.value.func) == "_lazily" and not node.value.keywords
    return False


def _is_constant(node: ast.expr | None) -> bool:
    """Whether an expression only writes down values, or gives a name to what has one."""
    if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
        return all(map(_is_constant, node.elts))
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.operand, ast.Constant)
    return isinstance(node, (ast.Constant, ast.Name, ast.Attribute))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_file_keeps_the_rules(path: Path) -> None:
    source = path.read_text()
    package = path.stem == "__init__"
    broken = broken_rules(source, module_name(path), package=package)
    facade = package or module_name(path) in {f"{TOP}.{name}" for name in FACADES}
    if facade and path.suffix == ".py":  # stubs have nothing but declarations
        broken += [f"{path.parent.name}/__init__.py holds logic: {line}" for line in logic(source)]
    lines = len(source.splitlines())
    if lines > MOST_LINES:
        broken.append(f"{path.name} has {lines} lines; {MOST_LINES} is the most: split it")
    assert not broken, "\n".join(broken)


@pytest.mark.parametrize(
    ("module", "source", "complaint"),
    [
        ("weft.base.dtypes", "from weft.ops import add", "later layer 'ops'"),
        ("weft.base.dtypes", "import weft.ops.linalg as la", "later layer 'ops'"),
        ("weft.ir.op", "from ..core.tensor import Tensor", "later layer 'core'"),
        ("weft.ir.op", "from .. import core", "later layer 'core'"),
        ("weft.ops.shape", "from weft import nn", "later layer 'nn'"),
        ("weft.core.bind", "if x:\n    from weft.cli import main", "later layer 'cli'"),
        ("weft.core.bind", "def f():\n    from weft.base import dtypes", "inside a function"),
        ("weft.core.bind", "class A:\n  def f(s):\n    import weft.ir.op", "inside a function"),
        ("weft.core.bind", "import weft", "whole of weft"),
        ("weft.core.bind", "from weft import zeros", "whole of weft"),
        ("weft.core.bind", "from .. import zeros", "whole of weft"),
        ("weft.core.bind", "import weft.extras", "not a layer"),
        ("weft.extras.bag", "", "not a layer"),
        ("weft.nn.linear", "from weft.optim import Adam", "later layer 'optim'"),
        ("weft.schedule.plan", "from weft.passes.fold import Fold", "stands apart from 'passes'"),
    ],
)
def test_the_checker_finds(module: str, source: str, complaint: str) -> None:
    broken = broken_rules(source, module)
    assert len(broken) == 1
    assert complaint in broken[0]


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("weft.ops.linalg", "from weft.ops.shape import reshape\nfrom .shape import reshape"),
        ("weft.ops.linalg", "from weft.base import dtypes\nfrom ..ir.op import Op"),
        ("weft.inspect.doctor", "def f():\n    import llvmlite.binding"),
        ("weft.compile", "from weft.runtime import run"),
        ("weft.cli", "from weft.compile import compile"),
    ],
)
def test_the_checker_lets_pass(module: str, source: str) -> None:
    assert broken_rules(source, module) == []


def test_relative_imports_of_a_package_start_at_itself() -> None:
    assert broken_rules("from .op import Op", "weft.ir", package=True) == []
    assert broken_rules("from ..core import bind", "weft.ir", package=True)


@pytest.mark.parametrize(
    "source",
    ["def f(): ...", "if x:\n    y = 1", "table = dict(a=1)", "x = f()", "del x", "'a'\n'b'"],
)
def test_the_checker_finds_logic(source: str) -> None:
    assert logic(source)


def test_exports_are_not_logic() -> None:
    assert logic('"""Doc."""\nfrom a import b\n__all__ = ["b", "c"]\npi = 3.14\nx: int = -1') == []
    late = 'if _typing.TYPE_CHECKING:\n    from a import b\nelse:\n    __getattr__ = {}("a", {{}})'
    assert logic(late.format("_lazily")) == []
    assert logic(late.format("other")) != []


def test_import_weft_leaves_llvm_and_code_generators_alone() -> None:
    late = ("llvmlite", "weft.codegen", "weft.runtime.native", "weft.inspect.explain", "logging")
    code = f"import sys, weft; print([m for m in sys.modules if m.startswith({late})])"
    command = [sys.executable, "-c", code]
    out = subprocess.run(command, capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


#: What tools know of programs: the questions that each answers, its plan as data, and the machine.
ASKED = {
    "weft.codegen.steps",
    *(f"weft.runtime.{name}" for name in ("executable", "machine_code", "output_routing", "timed")),
    *(f"weft.runtime.{name}" for name in ("peak", "threads", "rungs", "object_layout")),
    "weft.runtime.dataflow.timeline",  # what a run of the executor was, as data
}


def test_tools_ask_programs_and_know_no_class_of_them() -> None:
    found = {
        f"{module_name(path)} imports {target}"
        for path in (PACKAGE / "inspect").rglob("*.py")
        for _, target in imports(ast.parse(path.read_text()), module_name(path), package=False)
        if target.startswith(("weft.codegen", "weft.runtime")) and target not in ASKED
    }
    assert not found


# --- what is wired, and the order of imports -----------------------------------------------------

#: Functions by which a module enters itself into a table of an earlier layer.
ENTERS = {"alias", "attach", "attach_properties", "looks_on", "register_level", "register_pytree"}
ENTERS |= {"register_result_class", "register_stand_in", "value_class"}


def reaches_into(source: str, module: str) -> list[str]:
    """What a module does to things of other layers as it is imported."""
    tree = ast.parse(source)
    theirs = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(f"{TOP}.")
        for alias in node.names
        if layer_of(node.module or "") != layer_of(module)
    }
    found: list[str] = []

    def name_of(node: ast.AST) -> str:
        while isinstance(node, (ast.Attribute, ast.Subscript)):
            node = node.value
        return node.id if isinstance(node, ast.Name) else ""

    def look(body: list[ast.stmt]) -> None:
        for node in body:
            look([part for part in ast.iter_child_nodes(node) if isinstance(part, ast.stmt)])
            targets: list[ast.expr] = getattr(node, "targets", [])
            written = [x for x in targets if isinstance(x, (ast.Attribute, ast.Subscript))]
            call = node.value if isinstance(node, ast.Expr) else None
            if isinstance(call, ast.Call):
                called = name_of(call.func)
                if called == "setattr":
                    written.append(call.args[0])  # type: ignore[arg-type]
                elif called not in ENTERS:
                    written.append(call.func)  # type: ignore[arg-type]
            if any(name_of(target) in theirs for target in written):
                found.append(f"{module}:{node.lineno}: {ast.unparse(node).splitlines()[0]}")

    look([node for node in tree.body if not isinstance(node, (ast.FunctionDef, ast.ClassDef))])
    return found


def test_only_one_module_wires_layers() -> None:
    found = [
        line
        for path in FILES
        for line in reaches_into(path.read_text(), module_name(path))
        if module_name(path) != f"{TOP}.wiring"
    ]
    assert not found, "put it into weft/wiring.py, or pass it as an argument"
    for line in ("Graph.parse = f", "use(f)", "setattr(Graph, 'f', 1)", "TABLE['f'] = 1"):
        source = f"from weft.ir.x import Graph, use, TABLE\nfor _ in 'a':\n    {line}\n"
        assert reaches_into(source, "weft.capture.y"), line
        assert not reaches_into(source, "weft.ir.y"), line


@pytest.mark.skipif(not hasattr(os, "fork"), reason="each module is imported in a fork")
def test_any_module_may_be_imported_first() -> None:
    """A sample, which changes with the number of modules; `import_first.py` takes any others."""
    modules = [module_name(path) for path in FILES if path.suffix == ".py"]
    some = [name for name in modules[7::80] if name not in (TOP, f"{TOP}.__main__")]
    assert len(some) > 6
    command = [sys.executable, import_first.__file__, str(PACKAGE), *some]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    out = subprocess.run(command, capture_output=True, text=True, env=env, timeout=300)
    assert (out.stdout, out.returncode) == ("", 0), out.stderr[-2000:]
