"""`weft.print_grad`: prints the gradient of a tensor when a backward pass computes it."""

from __future__ import annotations

from weft.base.source import user_frame
from weft.capture.builtin_table import looks_on
from weft.core.tensor import Tensor
from weft.record.effects import print as show

__all__ = ["print_grad"]


def print_grad(x: Tensor, label: str = "") -> None:
    """Print the gradient of x when a backward pass has computed it; also in compiled functions.

    >>> x = weft.tensor([1.0, 2.0], requires_grad=True)
    >>> h = x * x
    >>> weft.print_grad(h, "h")
    >>> (h * 3).sum().backward()
    gradient of h: tensor([3., 3.])

    Nothing is printed for a tensor that gets no gradient.
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
