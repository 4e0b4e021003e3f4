"""More functions that give a tensor of a shape: activations, losses by element, places in sorted
rows, norms, three-dimensional windows. Each has one line; operands are up to the writer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuzzing.graph_ops import Step

if TYPE_CHECKING:
    from fuzzing.graphs import GraphWriter, Shape

ACTIVATIONS = ["celu", "elu", "hardshrink", "hardsigmoid", "hardswish", "hardtanh", "leaky_relu"]
ACTIVATIONS += ["logsigmoid", "mish", "relu6", "selu", "softshrink", "softsign", "tanhshrink"]
#: Of numbers in (-1, 1), and of any.
INSIDE = ["asin", "acos", "atanh", "tan", "sinh", "cosh", "erfc"]
ANY = ["asinh", "ceil", "trunc", "stop_gradient"]


def _activation(w: GraphWriter, shape: Shape, dtype: str) -> str | None:
    return f"F.{w.pick(ACTIVATIONS)}({w.tensor(shape, dtype)})"


def _function(w: GraphWriter, shape: Shape, dtype: str) -> str | None:
    x = w.tensor(shape, dtype)
    if w.chance(0.4):
        return f"weft.{w.pick(ANY)}({x})"
    return f"weft.{w.pick(INSIDE)}(weft.tanh({x}) * 0.9)"


def _two(w: GraphWriter, shape: Shape, dtype: str) -> str | None:
    one, two = w.tensor(shape, dtype), w.smaller(shape, dtype)
    made: str = w.pick(
        [
            f"weft.hypot({one}, weft.abs({two}) + 0.5)",
            f"weft.copysign({one}, {two})",
            f"weft.remainder({one}, weft.abs({two}) + 0.5)",
            f"weft.floor_divide({one}, weft.abs({two}) + 0.5)",
            f"weft.pow(weft.abs({one}) + 0.5, weft.tanh({two}))",
        ]
    )
    return made


def _element_loss(w: GraphWriter, shape: Shape, dtype: str) -> str | None:
    one, two = w.tensor(shape, dtype), w.tensor(shape, dtype)
    made: str = w.pick(
        [
            f"F.l1_loss({one}, {two}, reduction='none')",
            f"F.huber_loss({one}, {two}, reduction='none', delta=0.7)",
            f"F.kl_div({one}, weft.sigmoid({two}), reduction='none')",
            f"F.binary_cross_entropy_with_logits({one}, weft.sigmoid({two}), reduction='none')",
            f"F.poisson_nll_loss(weft.tanh({one}), weft.abs({two}), reduction='none')",
        ]
    )
    return made


def _searched(w: GraphWriter, shape: Shape, dtype: str) -> str | None:
    size = max(1, w.some_size())
    edges, side = f"weft.sort({w.tensor((size,), dtype)})", w.pick(["left", "right"])
    found = f"weft.searchsorted({edges}, {w.tensor(shape, dtype)}, side={side!r})"
    return f"{found}.astype(weft.{dtype})"


def _one_hot(w: GraphWriter, shape: Shape, dtype: str) -> str | None:
    if not shape or not shape[-1]:
        return None
    return f"F.one_hot({w.integers(shape[:-1], shape[-1])}, {shape[-1]}).astype(weft.{dtype})"


def _norm(w: GraphWriter, shape: Shape, dtype: str) -> str | None:
    size = max(1, w.some_size())
    if not w.fits(shape, size):
        return None
    x = f"({w.tensor((*shape, size), dtype)} + weft.arange({size}, dtype=weft.{dtype}) + 3)"
    return f"weft.linalg.vector_norm({x}, axis=-1, ord={w.pick([1, 2, 3, 'weft.inf'])})"


def _cross(w: GraphWriter, shape: Shape, dtype: str) -> str | None:
    if not shape or shape[-1] != 3:
        return None
    return f"weft.linalg.cross({w.tensor(shape, dtype)}, {w.tensor(shape, dtype)})"


def _tiled(w: GraphWriter, shape: Shape, dtype: str) -> str | None:
    if not shape or not shape[0] or shape[0] % 2:
        return None
    part = w.tensor((shape[0] // 2, *shape[1:]), dtype)
    return f"weft.tile({part}, (2{', 1' * (len(shape) - 1)},))"


def _unstacked(w: GraphWriter, shape: Shape, dtype: str) -> str | None:
    if not w.fits(shape, 3):
        return None
    axis = w.rng.randint(0, len(shape))
    whole = (*shape[:axis], 3, *shape[axis:])
    return f"weft.unstack({w.tensor(whole, dtype)}, axis={axis})[{w.pick([0, 1, 2])}]"


def _switch(w: GraphWriter, shape: Shape, dtype: str) -> str | None:
    x, y = w.tensor(shape, dtype), w.tensor(shape, dtype)
    arms = "[lambda a, b: a * b, lambda a, b: weft.tanh(b), lambda a, b: a - b]"
    return f"weft.switch({w.integers((), 3)}, {arms}, {x}, {y})"


def _volume(w: GraphWriter, shape: Shape, dtype: str) -> str | None:
    """Convolution and pooling along three axes."""
    if len(shape) < 3 or 0 in shape:
        return None
    channels, sizes = w.pick([1, 2, 3]), shape[-3:]
    outer = shape[-4] if len(shape) > 3 else 1
    if not w.fits(sizes, 27 * channels) or len(shape) > 4:
        return None
    back = "" if len(shape) == 4 else ".squeeze(0)"
    if w.chance(0.5):
        x = w.tensor((channels, *sizes), dtype)
        kernel = w.tensor((outer, channels, 3, 3, 3), dtype)
        return f"(F.conv3d({x}[None], {kernel}, padding=1)[0] / {9 * channels}){back}"
    x = w.tensor((outer, *[size + 1 for size in sizes]), dtype)
    return f"F.{w.pick(['max_pool3d', 'avg_pool3d'])}({x}[None], 2, stride=1)[0]{back}"


FUNCTIONS: dict[str, list[Step]] = {
    "activations": [_activation, _activation, _function, _two],
    "more": [_element_loss, _searched, _one_hot, _norm, _cross, _tiled, _unstacked, _switch],
    "volumes": [_volume],
}
