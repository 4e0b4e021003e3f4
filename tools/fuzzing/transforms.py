"""What is done with a fuzzed function: run as it is, differentiated, mapped, and both.

Each is text, so that a found case prints as it runs. `entry` takes the arguments of `program`;
where it is mapped, tensors have one axis more. Its results are weighed to one number by `weigh`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

WEIGH = """def weigh(results):
    total = weft.zeros((), dtype=weft.float64)
    for r in results:
        if isinstance(r, weft.Tensor) and weft.isdtype(r.dtype, "real floating"):
            weights = weft.cos(weft.arange(r.size, dtype=weft.float64)).reshape(r.shape)
            total = total + (r.astype(weft.float64) * weights).sum()
    return total


"""
#: The square of a residual that is 0: all gradients are 0, and their derivatives are not.
SQUARE = """def squared(results):
    residual = weigh(results)
    return (residual - residual.detach()) ** 2


"""


@dataclass(frozen=True)
class Transform:
    """mapped   how many elements tensors have along an axis in front; 0: there is none
    scalar   whether the function's results are weighed to one number
    """

    body: Callable[[list[str], list[str], list[str]], str]
    mapped: int = 0
    weighs: bool = True

    def text(self, arguments: Sequence[Any]) -> str:
        names = [argument.name for argument in arguments]
        floats = [argument.name for argument in arguments if argument.is_float and argument.grad]
        tensors = [argument.name for argument in arguments if argument.shape is not None]
        inner = self.body(names, floats, tensors)
        head = WEIGH if self.weighs else ""
        head += SQUARE if "squared(" in inner else ""
        return f"{head}def entry({', '.join(names)}):\n    return {inner}\n"


def _call(names: list[str]) -> str:
    return f"program({', '.join(names)})"


def _function(floats: list[str], names: list[str], inner: str = "weigh") -> str:
    """A lambda of the float arguments alone."""
    return f"lambda {', '.join(floats)}: {inner}({_call(names)})"


def _argnums(floats: list[str]) -> str:
    return f"argnums={tuple(range(len(floats)))}"


def _grad(names: list[str], floats: list[str], _: list[str], what: str = "grad") -> str:
    return f"weft.{what}({_function(floats, names)}, {_argnums(floats)})({', '.join(floats)})"


def _second(names: list[str], floats: list[str], how: str, inner: str = "weigh") -> str:
    """All second derivatives by one argument; `how` is text with a place for the function."""
    (one,) = floats[:1]
    return how.format(_function([one], names, inner)) + f"({one})"


def _third(names: list[str], floats: list[str], how: str) -> str:
    """The gradient of the sum of all second derivatives."""
    (one,) = floats[:1]
    return f"weft.grad(lambda {one}: {_second(names, floats, how)}.sum())({one})"


def _axes(names: list[str], tensors: list[str]) -> str:
    inside = ", ".join("0" if name in tensors else "None" for name in names)
    return f"in_axes=({inside},)"


def _vmap(names: list[str], _: list[str], tensors: list[str]) -> str:
    listed = ", ".join(names)
    return f"vmap(lambda {listed}: {_call(names)}, {_axes(names, tensors)})({listed})"


def _vmap_grad(names: list[str], floats: list[str], tensors: list[str], what: str = "grad") -> str:
    listed = ", ".join(names)
    inner = _grad(names, floats, tensors, what)
    return f"vmap(lambda {listed}: {inner}, {_axes(names, tensors)})({listed})"


def _grad_vmap(names: list[str], floats: list[str], tensors: list[str]) -> str:
    listed = ", ".join(names)
    mapped = f"vmap(lambda {listed}: weigh({_call(names)}), {_axes(names, tensors)})({listed})"
    function = f"lambda {', '.join(floats)}: {mapped}.sum()"
    return f"weft.grad({function}, {_argnums(floats)})({', '.join(floats)})"


def _jvp(names: list[str], floats: list[str], _: list[str]) -> str:
    tangents = ", ".join(f"weft.cos({name})" for name in floats)
    return f"weft.jvp({_function(floats, names)}, ({', '.join(floats)},), ({tangents},))"


HESSIAN, REVERSE = "weft.hessian({})", "weft.jacrev(weft.jacrev({}))"


def _plain(names: list[str], _: list[str], __: list[str]) -> str:
    return _call(names)


TRANSFORMS = {
    "none": Transform(_plain, weighs=False),
    "grad": Transform(lambda n, f, t: _grad(n, f, t, "value_and_grad")),
    "jvp": Transform(_jvp),
    "hessian": Transform(lambda n, f, t: _grad(n, f[:1], t, "hessian")),
    "jacobian": Transform(lambda n, f, t: _grad(n, f[:1], t, "jacobian")),
    "jacrev(jacrev)": Transform(lambda n, f, t: _second(n, f, REVERSE)),
    "minimum": Transform(lambda n, f, t: _second(n, f, REVERSE, "squared")),
    "hessian of minimum": Transform(lambda n, f, t: _second(n, f, HESSIAN, "squared")),
    "grad(hessian)": Transform(lambda n, f, t: _third(n, f, HESSIAN)),
    "grad(jacrev(jacrev))": Transform(lambda n, f, t: _third(n, f, REVERSE)),
    "vmap": Transform(_vmap, mapped=3, weighs=False),
    "vmap(grad)": Transform(_vmap_grad, mapped=3),
    "grad(vmap)": Transform(_grad_vmap, mapped=3),
    "vmap(hessian)": Transform(lambda n, f, t: _vmap_grad(n, f[:1], t, "hessian"), mapped=2),
}
