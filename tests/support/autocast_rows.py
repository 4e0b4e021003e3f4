"""Programs with `weft.autocast` around and inside of loops, branches and transforms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import weft
from weft import autocast, no_grad

#: By name: the program of a parameter w (f32[3,3]) and data x (f32[2,3]); its result.
ROWS: dict[str, Callable[[Any, Any], Any]] = {}


def row(name: str) -> Callable[[Any], Any]:
    def register(function: Any) -> Any:
        ROWS[name] = function
        return function

    return register


@row("around a product")
def _(w: Any, x: Any) -> Any:
    with autocast("bfloat16"):
        y = x @ w
    return y, (y + 1).float().sum()


@row("float16")
def _(w: Any, x: Any) -> Any:
    with autocast("float16"):
        y = weft.nn.functional.linear(x, w, w[0])
    return y, y.float().sum()


@row("float32 inside")
def _(w: Any, x: Any) -> Any:
    with autocast():
        y = x @ w
        z = weft.exp(y)
        s = weft.softmax(y, axis=-1)
    return y, z, s, (z * s).sum()


@row("off inside")
def _(w: Any, x: Any) -> Any:
    with autocast():
        y = x @ w
        with autocast(enabled=False):
            z = x @ w
        u = x @ w
    return y, z, u, (y.float() + z + u).sum()


@row("another dtype inside")
def _(w: Any, x: Any) -> Any:
    with autocast("bfloat16"):
        y = x @ w
        with autocast("float16"):
            z = y @ w
        u = z @ w
    return y, z, u, u.float().sum()


@row("decorator")
def _(w: Any, x: Any) -> Any:
    y = _product(x, w)
    return y, x @ w, y.float().sum()


@autocast("bfloat16")
def _product(x: Any, w: Any) -> Any:
    return x @ w


@autocast(enabled=False)
def _exact(x: Any, w: Any) -> Any:
    return x @ w


@row("decorator that turns it off")
def _(w: Any, x: Any) -> Any:
    with autocast():
        y = _exact(x, w)
    return y, y.sum()


@autocast("bfloat16")
def _steps(x: Any, w: Any) -> Any:
    for _ in range(3):
        x = x @ w
        yield x


@row("generator")
def _(w: Any, x: Any) -> Any:
    found = list(_steps(x, w))
    return *found, x @ w, found[-1].float().sum()


@row("around for")
def _(w: Any, x: Any) -> Any:
    with autocast():
        y = x @ w
        for _ in range(3):
            y = weft.tanh(y @ w)
    return y, y.float().sum()


@row("inside of for")
def _(w: Any, x: Any) -> Any:
    y = x
    for _ in range(3):
        with autocast():
            z = y @ w
        y = weft.tanh(z.float())
    return z, (y @ w).sum()


@row("around while")
def _(w: Any, x: Any) -> Any:
    y = x
    with autocast():
        while weft.abs(y).sum() < 20:
            y = y + 2 * (y @ w).float()
    return y, y.sum()


@row("inside of while")
def _(w: Any, x: Any) -> Any:
    y = x
    while weft.abs(y).sum() < 20:
        with autocast():
            z = y @ w
        y = y + 2 * z
    return y, (y @ w).sum()


@row("break out of it")
def _(w: Any, x: Any) -> Any:
    y = x
    for _ in range(4):
        with autocast():
            y = y + (y @ w).float()
            if y.sum() > 1:
                break
        y = (y @ w).float()
    return y, (y @ w).sum()


@row("return out of it")
def _(w: Any, x: Any) -> Any:
    return _early(w, x), _early(w, -x).sum() + (x @ w).sum()


def _early(w: Any, x: Any) -> Any:
    with autocast():
        y = (x @ w).float()
        if y.sum() > 0:
            return y
    return (x @ w).float()


@row("exception out of it")
def _(w: Any, x: Any) -> Any:
    try:
        with autocast():
            y = x @ w
            raise ValueError
    except ValueError:
        z = x @ w
    return y, z, z.sum()


@row("around if")
def _(w: Any, x: Any) -> Any:
    with autocast():
        y = x @ w if x.sum() > 0 else x @ w.T
    return y, y.float().sum()


@row("inside of if")
def _(w: Any, x: Any) -> Any:
    if x.sum() > 0:
        with autocast():
            y = (x @ w).float()
    else:
        y = (x @ w).float()
    return y, (y @ w).sum()


@row("around cond")
def _(w: Any, x: Any) -> Any:
    with autocast():
        y = weft.cond(x.sum() > 0, lambda: x @ w, lambda: x @ w.T)
    return y, y.float().sum()


@row("around scan")
def _(w: Any, x: Any) -> Any:
    with autocast():
        last, ys = weft.scan(lambda c, t: (weft.tanh(t @ w) + c, c @ w), (x @ w)[0], x)
    return last, ys, last.float().sum() + ys.float().sum()


@row("around while_loop")
def _(w: Any, x: Any) -> Any:
    with autocast():
        y = weft.while_loop(lambda y: weft.abs(y).sum() < 9, lambda y: y + (y @ w).float(), x)
    return y, y.sum()


@row("no_grad inside")
def _(w: Any, x: Any) -> Any:
    with autocast():
        y = x @ w
        with no_grad():
            z = x @ w
        u = y * z
    return y, z, u.float().sum()


@row("vmap inside")
def _(w: Any, x: Any) -> Any:
    with autocast():
        y = weft.vmap(lambda t: weft.exp(t @ w))(x)
        z = weft.vmap(lambda t: t @ w)(x)
    return y, z, (y + z).sum()


@row("it inside of vmap")
def _(w: Any, x: Any) -> Any:
    y = weft.vmap(lambda t: _product(t, w))(x)
    return y, y.float().sum()


@row("vmap of a loop")
def _(w: Any, x: Any) -> Any:
    def one(t: Any) -> Any:
        with autocast():
            return weft.while_loop(
                lambda y: weft.abs(y).sum() < 9, lambda y: y + (y @ w).float(), t
            )

    y = weft.vmap(one)(x)
    return y, (y @ w).sum()


@row("grad inside")
def _(w: Any, x: Any) -> Any:
    def loss(v: Any) -> Any:
        return weft.exp(x @ v).sum()

    with autocast():
        g = weft.grad(loss)(w)
    return g, (g * w).sum()


@row("it inside of grad")
def _(w: Any, x: Any) -> Any:
    g = weft.grad(lambda v: _product(x, v).float().sum())(w)
    return g, (g * w).sum()


@row("second derivative")
def _(w: Any, x: Any) -> Any:
    with autocast():
        h = weft.hessian(lambda t: weft.exp(t @ w).sum())(x[0])
    return h, h.sum()


@row("jvp inside")
def _(w: Any, x: Any) -> Any:
    with autocast():
        y, t = weft.jvp(lambda v: x @ v, (w,), (w * 2,))
    return y, t, (y + t).float().sum()


@row("checkpoint inside")
def _(w: Any, x: Any) -> Any:
    with autocast():
        y = weft.checkpoint(lambda t: weft.tanh(weft.tanh(t @ w) @ w))(x)
    return y, y.float().sum()


@row("it inside of a checkpoint")
def _(w: Any, x: Any) -> Any:
    y = weft.checkpoint(lambda t: weft.tanh(_product(t, w)) @ w.bfloat16())(x)
    return y, y.float().sum()


@row("backward inside")
def _(w: Any, x: Any) -> Any:
    v = weft.tensor([[0.5, 0.25, -1.0]] * 3, requires_grad=True)
    with autocast():
        weft.exp(x @ v).sum().backward()
        y = x @ w
    return v.grad, y, y.float().sum()


class Cube(weft.Function):
    """With a product in forward, and one in backward."""

    @staticmethod
    def forward(ctx: Any, x: Any, w: Any) -> Any:
        ctx.save_for_backward(x, w)
        return x @ w

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        x, w = ctx.saved_tensors
        return g.float() @ w.T, x.T @ g.float()


@row("a function of the user's")
def _(w: Any, x: Any) -> Any:
    with autocast():
        y = Cube.apply(x, w)
    return y, y.float().sum()


@row("in place")
def _(w: Any, x: Any) -> Any:
    y = (x @ w).bfloat16()
    with autocast():
        y += x @ w
        y **= 2
        y[0] = (x @ w)[1]
    return y, y.float().sum()


@row("losses")
def _(w: Any, x: Any) -> Any:
    F = weft.nn.functional
    with autocast():
        y = x @ w
        a = F.cross_entropy(y, weft.asarray([0, 2]))
        b = F.mse_loss(y, x)
        c = F.binary_cross_entropy_with_logits(y, weft.sigmoid(x))
    return a, b, c, a + b + c


@row("batch norm, dropout and attention")
def _(w: Any, x: Any) -> Any:
    F = weft.nn.functional
    with autocast():
        y = F.batch_norm(x @ w, None, None, w[0], w[1], training=True)
        z = F.scaled_dot_product_attention(x @ w, x, x)
        u = F.layer_norm(y, (3,), w[0])
    return y, z, u, (y + z + u).sum()


@row("is_autocast_enabled")
def _(w: Any, x: Any) -> Any:
    y = x @ w
    with autocast("float16"):
        if weft.is_autocast_enabled() and weft.get_autocast_dtype() is weft.float16:
            y = x @ w
    return y, y.float().sum()
