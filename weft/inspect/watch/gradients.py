"""`weft.print_grad`: the gradient that arrives at a tensor, shown when backward comes there."""

from __future__ import annotations

from weft.base.source import user_frame
from weft.capture.from_source.builtin_calls import looks_on
from weft.capture.from_source.tokens import print as show
from weft.core.tensor import Tensor

__all__ = ["print_grad"]


def print_grad(x: Tensor, label: str = "") -> None:
    """Print the gradient of x when a backward pass knows it; in compiled functions, too.

    >>> x = weft.tensor([1.0, 2.0], requires_grad=True)
    >>> h = x * x
    >>> weft.print_grad(h, "h")
    >>> (h * 3).sum().backward()
    gradient of h: tensor([3., 3.])

    A tensor through which no gradient will flow prints nothing.
    """
    if x._node is None:
        return
    frame = user_frame()
    where = "" if frame is None else f"the tensor at line {frame.f_lineno}"
    title = f"gradient of {label or where}:"

    def shown(g: Tensor) -> None:
        show(title, g)

    x.register_hook(shown)


looks_on(print_grad)
