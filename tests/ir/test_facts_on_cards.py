"""What holds of an op stands on its card: no other file lists ops by name, or compares their names.

A rewrite that is about one op names its card (`node.op is MATMUL`, from `weft.ops.cards`).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from weft.ir.op import OPS, SCHEDULED

ROOT = Path(__file__).resolve().parents[2]
#: The cards themselves.
CARDS = "weft/ops/"
#: Tables of PyTorch's names are what it is for.
NAMESPACE = "weft/torch/"
#: Core lies below the cards, and looks up those that it calls.
BELOW = "weft/core/"
#: Emitters, and the kernels of a device, have tables by name: one row for each op that they emit.
EMITTERS = ("weft/codegen/", "weft/runtime/cuda/", "weft/interop/onnx/", "weft/interop/engines/")
FILES = [
    path
    for path in sorted((ROOT / "weft").rglob("*.py"))
    if not path.relative_to(ROOT).as_posix().startswith((CARDS, NAMESPACE))
]
NAMES = {*OPS, *SCHEDULED}

#: (file, what stands there) -> why it may.
ALLOWED = {
    ("weft/base/dims.py", "{'max': …, 'min': …}"): "functions in expressions of sizes, not ops",
    ("weft/nn/init.py", "('linear', 'sigmoid', 'identity')"): "names that `calculate_gain` takes",
    ("weft/interop/library/link.py", "('sin', 'cos', 'tan')"): "names of JavaScript's Math",
    ("weft/nn/functional/bags.py", "('sum', 'mean', 'max')"): "values of the argument mode=",
    ("weft/optim/lr_scheduler/swa.py", "('cos', 'linear')"): "values of anneal_strategy=",
    ("weft/nn/recurrent_cell.py", "{'tanh': …, 'relu': …}"): "values of the argument nonlinearity=",
    ("weft/optim/lr_scheduler/cycles.py", "{'cos': …, 'linear': …}"): "values of anneal_strategy=",
    ("weft/optim/lr_scheduler/plateau.py", "('min', 'max')"): "values of the argument mode=",
    ("weft/nn/init.py", "{'tanh': …, 'relu': …, 'selu': …}"): "the same",
    ("weft/distributed/collectives.py", "('sum', 'mean', 'max', 'min', 'prod')"): "values of op=",
    ("weft/distributed/collectives.py", "('max', 'min', 'prod')"): "the same",
    ("weft/distributed/reducing.py", "{'sum': …, 'prod': …, 'max': …, 'min': …}"): "the same",
    ("weft/distributed/mpi.py", "{'sum': …, 'prod': …, 'max': …, 'min': …}"): "the same",
    ("weft/distributed/shared.py", "('all_reduce', 'reduce_scatter')"): "methods of groups",
    ("weft/distributed/shared.py", "('reduce_scatter', 'all_to_all')"): "the same",
    ("weft/distributed/shared.py", "('all_gather', 'all_to_all')"): "the same",
    ("weft/distributed/combine_code.py", "{'max': …, 'min': …}"): "values of op=",
    ("weft/distributed/combine_code.py", "{'sum': …, 'prod': …}"): "the same",
    ("weft/passes/layouts/propagate.py", "('max', 'min')"): "the same",
    ("weft/ir/text.py", "name not in _STARTS"): "words of the text of graphs",
    ("weft/runtime/keys.py", "op.name in replaced"): "ops for which a user registered a kernel",
}


def violations(
    source: str, *, emitters: bool = False, below: bool = False
) -> Iterator[tuple[int, str]]:
    """Lines and texts of tables of op names, comparisons with op names, and cards by name."""
    tree = ast.parse(source)
    public = {
        id(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    }
    held = _held(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            in_own_table = emitters and isinstance(node.comparators[0], ast.Name)
            if any(_is_op_name(side) or id(side) in held for side in sides) and not in_own_table:
                yield node.lineno, ast.unparse(node)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in ("startswith", "endswith") and _is_op_name(node.func.value):
                yield node.lineno, ast.unparse(node)
        elif isinstance(node, ast.Subscript) and ast.unparse(node.value) == "OPS":
            if isinstance(node.slice, ast.Constant) and not below:
                yield node.lineno, ast.unparse(node)
        elif not emitters and id(node) not in public and _is_table(node):
            text = ast.unparse(node)
            if isinstance(node, ast.Dict):
                text = "{" + ", ".join(f"{ast.unparse(key)}: …" for key in node.keys if key) + "}"
            yield node.lineno, text


def _held(tree: ast.AST) -> set[int]:
    """The uses of variables that a function gives the name of an op."""
    found = set()
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            inside = list(ast.walk(function))
            names = {
                ast.unparse(target)
                for node in inside
                if isinstance(node, ast.Assign) and _is_op_name(node.value)
                for target in node.targets
            }
            found |= {
                id(node) for node in inside if isinstance(node, ast.Name) and node.id in names
            }
    return found


def _is_op_name(node: ast.expr) -> bool:
    """Whether an expression is `node.op.name`, or `op.name`."""
    if not isinstance(node, ast.Attribute) or node.attr != "name":
        return False
    holder = node.value
    last = holder.attr if isinstance(holder, ast.Attribute) else getattr(holder, "id", "")
    return last == "op"


def _is_table(node: ast.AST) -> bool:
    """Whether a literal holds two names of ops or more, and little else."""
    if isinstance(node, ast.Dict):
        parts = [key for key in node.keys if key is not None]
    elif isinstance(node, (ast.Set, ast.List, ast.Tuple)):
        parts = node.elts
    else:
        return False
    named = [part for part in parts if isinstance(part, ast.Constant) and part.value in NAMES]
    return len(named) >= 2 and 2 * len(named) >= len(parts)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_facts_stand_on_cards(path: Path) -> None:
    file = path.relative_to(ROOT).as_posix()
    emitters, below = file.startswith(EMITTERS), file.startswith(BELOW)
    found = violations(path.read_text(), emitters=emitters, below=below)
    wrong = [f"{file}:{line}: {text}" for line, text in found if (file, text) not in ALLOWED]
    hint = "a fact of several ops is a trait or field of their cards; one op is `op is CARD`"
    assert not wrong, "\n".join([*wrong, hint])


def test_what_is_allowed_stands_there() -> None:
    for file, text in ALLOWED:
        found = violations((ROOT / file).read_text())
        assert text in {said for _, said in found}, f"{file} no longer has {text}"


@pytest.mark.parametrize(
    "source",
    [
        'CHEAP = frozenset({"add", "subtract"})',
        'COSTS = {"exp": 16, "sqrt": 8}',
        'X = [*("add", "multiply"), other]',
        'if node.op.name == "matmul": ...',
        "if value.node.op.name in KNOWN: ...",
        'def f(op):\n    name = op.name\n    return name != "add"',
        'op.name.endswith("_update")',
        'sweep.add(OPS["full"])',
    ],
)
def test_the_checker_finds(source: str) -> None:
    assert list(violations(source))


def test_the_checker_lets_pass() -> None:
    assert not list(violations('f"{op.name} failed"; op is ADD; ("add", 1); ("left", "add", "x")'))
    assert not list(violations('EMIT = {"add": f, "exp": g}\nnode.op.name in EMIT', emitters=True))
    assert list(violations('node.op.name == "add"', emitters=True))
