"""Array ops that give a tensor of a shape, by family: what is asked of their operands is up to
the writer. A function returns None where the op cannot give that shape."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fuzzing.graphs import GraphWriter, Shape

Step = Callable[["GraphWriter", "Shape", str], "str | None"]

UNARY = ["tanh", "sigmoid", "abs", "relu", "negative", "square", "sin", "cos", "erf", "exp"]
UNARY += ["atan", "expm1", "sign", "floor", "round", "softplus", "gelu", "silu"]
FUNCTIONAL = {"softplus", "gelu", "silu"}
LOW = ("float16", "bfloat16")


# --- elementwise ------------------------------------------------------------------------------


def _unary(w: GraphWriter, shape: Shape, dtype: str) -> str | None:
    name = w.pick(UNARY)
    inner = w.tensor(shape, dtype)
    if name in ("exp", "expm1", "square"):
        inner = f"weft.tanh({inner})"
    return f"{'F' if name in FUNCTIONAL else 'weft'}.{name}({inner})"


def _domain(w: GraphWriter, shape: Shape, dtype: str) -> str | None:
    """Functions that need positive numbers."""
    inner = f"(weft.abs({w.tensor(shape, dtype)}) + 0.5)"
    return f"weft.{w.pick(['sqrt', 'log', 'log1p', 'reciprocal', 'log2'])}({inner})"


def _binary(w: GraphWriter, shape: Shape, dtype: str) -> str | None:
    one, two = w.tensor(shape, dtype), w.smaller(shape, dtype)
    if w.chance(0.3):
        one, two = two, one
    return w.pick(
        [
            f"({one} + {two})",
            f"({one} - {two})",
            f"({one} * {two})",
            f"(weft.tanh({one}) * {two})",
            f"({one} / (weft.abs({two}) + 1))",
            f"weft.maximum({one}, {two})",
            f"weft.minimum({one}, {two})",
            f"weft.atan2({one}, weft.abs({two}) + 1)",
            f"weft.logaddexp({one}, {two})",
            f"(({one} - {two}) * ({one} + {two}) * 0.5)",
        ]
    )


def _python_number(w: GraphWriter, shape: Shape, dtype: str) -> str | None:
    x = w.tensor(shape, dtype)
    number = w.pick([0.5, -1.5, 2, 3, 0.1])
    return w.pick([f"({x} * {number})", f"({number} - {x})", f"({x} / 3)", f"({x} ** 2)"])


def _where(w: GraphWriter, shape: Shape, dtype: str) -> str | None:
    one, two = w.tensor(shape, dtype), w.smaller(shape, dtype)
    return f"weft.where({w.condition(shape)}, {one}, {two})"


def _clip(w: GraphWriter, shape: Shape, dtype: str) -> str | None:
    return f"weft.clip({w.tensor(shape, dtype)}, -0.5, 0.7)"


def _cast(w: GraphWriter, shape: Shape, dtype: str) -> str | None:
    other = w.pick([d for d in ("float32", "float64", "bfloat16", "float16") if d != dtype])
    inner = w.tensor(shape, dtype)
    step = w.pick(["{} * 0.5", "weft.tanh({})", "{} + 1", "{}"]).format(
        f"{inner}.astype(weft.{other})"
    )
    return f"({step}).astype(weft.{dtype})"


def _from_integers(w: GraphWriter, shape: Shape, dtype: str) -> str | None:
    x = w.integers(shape, w.pick([2, 5]))
    step = w.pick(["{}", "({} // 2)", "({} % 3)", "(-{})", "({} * {})"])
    return f"{step.replace('{}', x)}.astype(weft.{dtype})"


def _from_bools(w: GraphWriter, shape: Shape, dtype: str) -> str | None:
    return f"{w.condition(shape)}.astype(weft.{dtype})"


# --- reductions -------------------------------------------------------------------------------


def _extended(w: GraphWriter, shape: Shape) -> tuple[tuple[int, ...], str] | None:
    """A shape that reduces to this one, and the arguments that say how."""
    if 1 in shape and w.chance(0.5):
        axis = shape.index(1)
        whole = (*shape[:axis], w.some_size(), *shape[axis + 1 :])
        return (whole, f"axis={axis}, keepdims=True") if w.fits(whole) else None
    axes = sorted(w.rng.sample(range(len(shape) + 2), w.pick([1, 1, 2])))
    whole_list = list(shape)
    kept = []
    for axis in axes:
        if axis <= len(whole_list):
            whole_list.insert(axis, w.some_size())
            kept.append(axis)
    if not kept or not w.fits(whole_list):
        return None
    said = str(kept[0]) if len(kept) == 1 else str(tuple(kept))
    return tuple(whole_list), f"axis={said}"


def _reduce(w: GraphWriter, shape: Shape, dtype: str) -> str | None:
    found = _extended(w, shape)
    if found is None:
        return None
    whole, how = found
    inner = w.tensor(whole, dtype)
    name = w.pick(["mean", "sum", "sum", "max", "min", "var", "std", "logsumexp", "prod"])
    if 0 in whole and name not in ("sum", "prod"):
        name = "sum"
    if name == "prod":
        inner = f"(1 + 0.3 * weft.tanh({inner}))"
    if name == "std":
        inner = f"({inner} + weft.arange({whole[-1] if whole else 1}, dtype=weft.{dtype}))"
    return f"weft.{name}({inner}, {how})"


def _scalar(w: GraphWriter, shape: Shape, dtype: str) -> str | None:
    """One number of all, beside a tensor."""
    whole = w.shape()
    number = f"weft.tanh({w.tensor(whole, dtype)}.sum())"
    return f"({w.tensor(shape, dtype)} * {number})" if shape else number


def _counts(w: GraphWriter, shape: Shape, dtype: str) -> str | None:
    found = _extended(w, shape)
    if found is None or 0 in found[0]:
        return None
    name = w.pick(["any", "all", "count_nonzero", "argmax", "argmin"])
    how = found[1]
    if name.startswith("arg") and "(" in how:
        name = "any"
    inner = w.condition(found[0]) if name in ("any", "all") else w.tensor(found[0], dtype)
    return f"weft.{name}({inner}, {how}).astype(weft.{dtype})"


def _running(w: GraphWriter, shape: Shape, dtype: str) -> str | None:
    if not shape:
        return None
    axis = w.rng.randrange(len(shape))
    inner = w.tensor(shape, dtype)
    if w.chance(0.7):
        return f"(weft.cumulative_sum({inner}, axis={axis}) * 0.2)"
    return f"weft.cumulative_prod(1 + 0.2 * weft.tanh({inner}), axis={axis})"


# --- order and places -------------------------------------------------------------------------


def _sort(w: GraphWriter, shape: Shape, dtype: str) -> str | None:
    if not shape:
        return None
    axis = w.rng.randrange(len(shape))
    return f"weft.sort({w.tensor(shape, dtype)}, axis={axis}, descending={w.chance(0.4)})"


def _take(w: GraphWriter, shape: Shape, dtype: str) -> str | None:
    if not shape:
        return None
    axis = w.rng.randrange(len(shape))
    size = max(1, w.some_size())
    whole = (*shape[:axis], size, *shape[axis + 1 :])
    if not w.fits(whole):
        return None
    places = w.integers((shape[axis],), size)
    return f"weft.take({w.tensor(whole, dtype)}, {places}, axis={axis})"


def _take_along(w: GraphWriter, shape: Shape, dtype: str) -> str | None:
    if not shape:
        return None
    axis = w.rng.randrange(len(shape))
    size = max(1, w.some_size())
    whole = (*shape[:axis], size, *shape[axis + 1 :])
    if not w.fits(whole):
        return None
    return f"weft.take_along_axis({w.tensor(whole, dtype)}, {w.integers(shape, size)}, axis={axis})"


def _gather(w: GraphWriter, shape: Shape, dtype: str) -> str | None:
    size = max(1, w.some_size())
    if not shape or not w.fits(shape[1:], size):
        return None
    places = w.integers(shape[:1], size)
    if len(shape) > 1 and w.chance(0.3):
        return f"{w.tensor((shape[1], size, *shape[2:]), dtype)}[:, {places}].swapaxes(0, 1)"
    if w.chance(0.3) and w.fits(shape[1:], 3 * size):
        other = w.integers(shape[:1], 3)
        return f"{w.tensor((3, size, *shape[1:]), dtype)}[{other}, {places}]"
    return f"{w.tensor((size, *shape[1:]), dtype)}[{places}]"


def _written(w: GraphWriter, shape: Shape, dtype: str) -> str | None:
    """A write to a part of a tensor."""
    if not shape:
        return None
    name = w.bind(f"{w.tensor(shape, dtype)} * 1", shape, dtype)
    first = shape[0]
    choices = [("1:", max(first - 1, 0)), ("::2", (first + 1) // 2), (":-1", max(first - 1, 0))]
    if first > 1:
        choices.append(("::-1", first))
    index, size = w.pick(choices)
    given = w.tensor((size, *shape[1:]), dtype)
    line = w.pick([f"{name}[{index}] = {given}", f"{name}[{index}] += {given}"])
    if first and w.chance(0.3):
        line = f"{name}[{w.integers((3,), first)}] = {w.tensor((3, *shape[1:]), dtype)}"
    elif w.chance(0.25):
        line = f"{name}[{w.condition(shape)}] = {w.pick(['0.5', '-1.0'])}"
    w.lines.append(line)
    return name


def _joined(w: GraphWriter, shape: Shape, dtype: str) -> str | None:
    if not shape:
        return None
    axis = w.rng.randrange(len(shape))
    if shape[axis] == 2 and w.chance(0.5):
        part = (*shape[:axis], *shape[axis + 1 :])
        return f"weft.stack([{w.tensor(part, dtype)}, {w.tensor(part, dtype)}], axis={axis})"
    at = w.rng.randint(0, shape[axis])
    one = (*shape[:axis], at, *shape[axis + 1 :])
    two = (*shape[:axis], shape[axis] - at, *shape[axis + 1 :])
    return f"weft.concat([{w.tensor(one, dtype)}, {w.tensor(two, dtype)}], axis={axis})"


def _moved(w: GraphWriter, shape: Shape, dtype: str) -> str | None:
    if not shape:
        return None
    axis = w.rng.randrange(len(shape))
    x = w.tensor(shape, dtype)
    options = [f"weft.roll({x}, {w.pick([1, -2])}, axis={axis})", f"weft.flip({x}, axis={axis})"]
    if len(shape) > 1:
        options += [f"weft.tril({x})", f"weft.triu({x}, k={w.pick([-1, 0, 1])})"]
    return w.pick(options)


def _repeated(w: GraphWriter, shape: Shape, dtype: str) -> str | None:
    if not shape or shape[-1] % 2:
        return None
    half = (*shape[:-1], shape[-1] // 2)
    x = w.tensor(half, dtype)
    return w.pick([f"weft.repeat({x}, 2, axis=-1)", f"weft.concat([{x}, {x}], axis=-1)"])


def _difference(w: GraphWriter, shape: Shape, dtype: str) -> str | None:
    if not shape or not w.fits((*shape[:-1], shape[-1] + 1)):
        return None
    return f"weft.diff({w.tensor((*shape[:-1], shape[-1] + 1), dtype)})"


def _padded(w: GraphWriter, shape: Shape, dtype: str) -> str | None:
    if not shape or shape[-1] < 3:
        return None
    inner = w.tensor((*shape[:-1], shape[-1] - 2), dtype)
    return f"F.pad({inner}, ({w.pick(['1, 1', '2, 0', '0, 2'])}), value=0.5)"


OPS: dict[str, list[Step]] = {
    "elementwise": [_unary, _unary, _binary, _binary, _binary, _python_number, _domain],
    "choices": [_where, _clip, _from_bools],
    "casts": [_cast, _from_integers],
    "reductions": [_reduce, _reduce, _reduce, _scalar, _counts, _running],
    "places": [_sort, _take, _take_along, _gather, _written],
    "writes": [_written, _written, _padded],
    "joins": [_joined, _joined, _moved, _repeated, _difference, _padded],
}
