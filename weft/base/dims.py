"""Named dimensions: create, parse, solve and substitute them.

>>> B = weft.dim("B", min=1)
>>> weft.base.dims.parse_dim("2*B+1") == 2 * B + 1
True
"""

from __future__ import annotations

import ast
import keyword
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from fractions import Fraction
from typing import Any

from weft.base.dim_algebra import Dim, dim_max, dim_min, names_of, of_atom, replaced
from weft.base.errors import DTypeError, RangeError, ShapeError
from weft.base.polynomials import Atom

__all__ = ["dim"]

Shape = tuple[int, ...]
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def dim(name: str, min: int = 0, max: int | None = None, multiple_of: int = 1) -> Dim:
    """A dimension whose size is not known yet; it is at least `min` and at most `max`.

    One that is a multiple of 8 is 8 times another: `8*T_by_8`.

    Dimensions with the same name are equal, even if their bounds differ. The bounds belong to the
    object: expressions made of it are simplified and compared with their help.

    >>> B = weft.dim("B", min=1)
    >>> B * 4 // 2, B > 0, weft.dim("T", multiple_of=8) % 4
    (2*B, True, 0)
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name) or keyword.iskeyword(name):
        raise DTypeError(
            f"{name!r} is not a valid name of a dimension",
            op="dim",
            hint="use letters, digits and _",
        )
    low, high = operator.index(min), None if max is None else operator.index(max)
    if low < 0 or (high is not None and high < low):
        raise RangeError(f"{name} cannot be from {low} to {high}", op="dim")
    step = operator.index(multiple_of)
    if step < 1:
        raise RangeError(f"{name} cannot be a multiple of {step}", op="dim")
    if step > 1:
        low, high = -(-low // step), None if high is None else high // step
        made: Any = of_atom(Atom("name", f"{name}_by_{step}", (), low, high)) * step
        return made  # type: ignore[no-any-return]
    return of_atom(Atom("name", name, (), low, high))


def as_dim(value: Any, op: str = "", names: Mapping[str, Dim] | None = None) -> int:
    """A size from an int, a Dim, or text such as "B" or "2*B+1"."""
    if isinstance(value, Dim):
        return value
    if isinstance(value, str):
        return parse_dim(value, names)
    try:
        return operator.index(value)
    except TypeError:
        raise DTypeError(
            f"{value!r} is not a size", op=op, hint='give an int, a name as "B", or a weft.dim'
        ) from None


def has_dims(shape: Iterable[int]) -> bool:
    """Whether a size is symbolic."""
    return any(size.__class__ is Dim for size in shape)


def ceil_div(a: int, b: int) -> int:
    """a / b rounded up, for b >= 1. All callers use it, so that equal sizes compare equal."""
    return (a + b - 1) // b


#: What a size counts as in estimates, where nothing is known of it.
TYPICAL = 256


def typical(size: int) -> int:
    """A size, or a likely one for a symbolic size: for estimates, never for what must be right.
    A likely size is at least 1: of n - i, where i is at most n, too."""
    if not isinstance(size, Dim):
        return size
    return max(size.evaluate({atom.text: _likely(atom) for atom in names_of(size)}), 1)


def _likely(atom: Atom) -> int:
    most = TYPICAL if atom.high is None else min(TYPICAL, atom.high)
    return max(most, atom.low or 0)


def is_zero(size: int) -> bool:
    """Whether a size is the number 0; what may be 0 in some run is not."""
    return size.__class__ is int and size == 0


def log2_estimate(size: int) -> int:
    """log2 of a size, rounded down, for cost estimates; a symbolic size counts as 1024."""
    return 10 if isinstance(size, Dim) else max(size, 1).bit_length() - 1


def scaled(size: int, factor: float) -> int:
    """A size times a factor, rounded down, for cost estimates."""
    if isinstance(size, Dim):
        ratio = Fraction(factor).limit_denominator(100)
        return size * ratio.numerator // ratio.denominator
    return int(size * factor)


# --- text --------------------------------------------------------------------------------------

_OPERATORS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_FUNCTIONS = {"max": dim_max, "min": dim_min}
_MOST_TERMS = 256


def parse_dim(text: str, names: Mapping[str, Dim] | None = None) -> int:
    """The expression that prints as `text`; `names` gives dimensions their bounds."""
    try:
        return _read(ast.parse(text.strip(), mode="eval").body, names or {})
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError):
        raise ShapeError(
            f"{text!r} is not a size", hint="write ints, names, + - * // %, max and min"
        ) from None


def parse_shape(text: str, names: Mapping[str, Dim] | None = None) -> Shape:
    """The shape that prints as `text` within the brackets of a type: "2*B+1,4"."""
    if not text.strip():
        return ()
    parts, depth = [""], 0
    for character in text:
        depth += (character == "(") - (character == ")")
        if character == "," and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return tuple(parse_dim(part, names) for part in parts)


def _read(node: ast.expr, names: Mapping[str, Dim]) -> int:
    if isinstance(node, ast.Constant) and node.value.__class__ is int:
        number: int = node.value
        return number
    if isinstance(node, ast.Name):
        found = names.get(node.id)
        return dim(node.id) if found is None else found
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_read(node.operand, names)
    if isinstance(node, ast.BinOp) and node.op.__class__ in _OPERATORS:
        left, right = _read(node.left, names), _read(node.right, names)
        result: int = _OPERATORS[node.op.__class__](left, right)
        if isinstance(result, Dim) and len(result._terms) > _MOST_TERMS:
            raise ValueError  # the product of many sums, from a file that means no good
        return result
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) > 1:
        function = _FUNCTIONS.get(node.func.id)
        if function is not None and not node.keywords:
            out, *rest = (_read(arg, names) for arg in node.args)
            for arg in rest:
                out = function(out, arg)
            return out
    raise ValueError


# --- numbers in their place --------------------------------------------------------------------


def bind_dims(
    pattern: Shape,
    actual: Shape,
    bindings: MutableMapping[str, int],
    *,
    name: str = "",
    partly: bool = False,
) -> None:
    """Find the sizes for which `pattern` is the shape `actual`, and add them to `bindings`.

    Names, and expressions that are linear in one name, are solved; other expressions are checked.
    Errors use `name` to say whose shape it is. With `partly`, axes that cannot be solved yet are
    skipped.

    >>> bindings = {}
    >>> B = weft.dim("B")
    >>> weft.base.dims.bind_dims((B, 2 * B + 1, 4), (3, 7, 4), bindings)
    >>> bindings
    {'B': 3}
    """
    bind_all([(pattern, actual, name)], bindings, partly)


def bind_all(
    shapes: Iterable[tuple[Shape, Shape, str]],
    bindings: MutableMapping[str, int],
    partly: bool = False,
) -> None:
    """`bind_dims` for several shapes, each (pattern, actual, name), with common dimensions."""
    open_axes: list[tuple[int, int, str]] = []
    for pattern, actual, name in shapes:
        of_whom = f" of {name}" if name else ""
        if len(pattern) != len(actual):
            raise ShapeError(
                f"the shape{of_whom} is {actual}, with {len(actual)} axes; "
                f"{_shown(pattern)} has {len(pattern)}"
            )
        for axis, (size, number) in enumerate(zip(pattern, actual, strict=True)):
            where = f"axis {axis}{of_whom}"
            if size.__class__ is Dim:
                open_axes.append((size, number, where))
            elif size != number:
                raise ShapeError(f"{where} has size {number}, not {size}")
    while open_axes:
        left = [axis for axis in open_axes if not _solved(*axis, bindings)]
        if len(left) == len(open_axes):
            if partly:
                return
            size, number, where = left[0]
            raise ShapeError(
                f"{where} has size {number}, from which {size} cannot be solved",
                hint="let another axis have the size of a name alone",
            )
        open_axes = left


def _shown(shape: Shape) -> str:
    return f"[{','.join(map(str, shape))}]"


def _solved(size: int, number: int, where: str, bindings: MutableMapping[str, int]) -> bool:
    """Whether one axis could be checked or solved."""
    value = replaced(size, bindings)
    if not isinstance(value, Dim):
        if value != number:
            known = ", ".join(f"{n}={bindings[n]}" for n in getattr(size, "names", ()))
            raise ShapeError(
                f"{where} has size {number}, but {size} is {value} here ({known})",
                hint="axes that are named alike must have one size",
            )
        return True
    (monomial, factor), *rest = value._terms
    if len(monomial) != 1 or monomial[0].kind != "name" or any(m for m, _ in rest):
        return False
    atom = monomial[0]
    constant = rest[0][1] if rest else 0
    found, remainder = divmod(number - constant, factor)
    if remainder:
        raise ShapeError(f"{where} has size {number}, which {size} is for no whole {atom.text}")
    low, high = atom.low or 0, atom.high
    if found < low or (high is not None and found > high):
        allowed = f"at least {low}" if high is None else f"from {low} to {high}"
        because = "" if value == size and factor == 1 and not rest else f": {atom.text} = {found}"
        raise ShapeError(
            f"{where} has size {number}, where {size} is expected{because}; "
            f"{atom.text} must be {allowed}"
        )
    bindings[atom.text] = found
    return True


def substitute(tree: Any, bindings: Mapping[str, int], partly: bool = False) -> Any:
    """A tree of tuples, lists, dicts and slices with each Dim replaced by its size.

    Returns the same object if it contains no Dim. With `partly`, names without a size stay.
    """
    if isinstance(tree, Dim):
        return replaced(tree, bindings) if partly else tree.evaluate(bindings)
    if isinstance(tree, (tuple, list)):
        parts = [substitute(part, bindings, partly) for part in tree]
        if all(new is old for new, old in zip(parts, tree, strict=True)):
            return tree
        return type(tree)(*parts) if hasattr(tree, "_fields") else type(tree)(parts)
    if isinstance(tree, dict):
        values = {key: substitute(part, bindings, partly) for key, part in tree.items()}
        same = all(values[key] is part for key, part in tree.items())
        return tree if same else values
    if isinstance(tree, slice):
        ends = (tree.start, tree.stop, tree.step)
        new = tuple(substitute(part, bindings, partly) for part in ends)
        return tree if all(a is b for a, b in zip(new, ends, strict=True)) else slice(*new)
    return tree


def dims_in(tree: Any) -> Iterator[Dim]:
    """Each Dim in a tree of tuples, lists, dicts and slices."""
    if isinstance(tree, Dim):
        yield tree
    elif isinstance(tree, (tuple, list)):
        for part in tree:
            yield from dims_in(part)
    elif isinstance(tree, dict):
        yield from dims_in(list(tree.values()))
    elif isinstance(tree, slice):
        yield from dims_in((tree.start, tree.stop, tree.step))
