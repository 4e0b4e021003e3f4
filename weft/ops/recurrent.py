"""The gates of LSTM and GRU cells: everything in a step after its matrix products.

One node per step instead of a dozen. Features lie along the last axis, gates next to each other.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.base.errors import ShapeError
from weft.ir.op import Cost, Op, Trait, Types
from weft.ir.types import TensorType
from weft.ops.batching import leading
from weft.ops.rules import check_kind, check_same
from weft.ops.ways import gated


def _check(state: TensorType, gates: int, *operands: TensorType) -> None:
    check_same(state, *operands)
    check_kind(state, "real floating")
    wanted = (*state.shape[:-1], gates * state.shape[-1]) if state.shape else ()
    for operand in operands:
        if operand.shape != wanted:
            raise ShapeError(
                f"gates of shape {operand.shape} do not fit a state of shape {state.shape}",
                hint=f"a state of this shape has gates of shape {wanted}",
            )


def _sigmoid(xp: Any, x: Any) -> Any:
    return 1 / (1 + xp.exp(-x))


def _split(x: Any, parts: int) -> list[Any]:
    size = x.shape[-1] // parts
    return [x[..., i * size : (i + 1) * size] for i in range(parts)]


def _cost(inputs: Types, outputs: Types) -> Cost:
    moved = sum(t.nbytes for t in (*inputs, *outputs))
    return Cost(5 * sum(t.size for t in inputs), moved)


# --- LSTM --------------------------------------------------------------------------------------


def _lstm_type(gates: TensorType, c: TensorType) -> tuple[TensorType, TensorType, TensorType]:
    _check(c, 4, gates)
    return c, c, gates


def _lstm_values(xp: Any, gates: Any, c: Any) -> Any:
    """The next h and c, and the activated gates (input, forget, new value, output)."""
    i, f, n, o = _split(gates, 4)
    i, f, n, o = _sigmoid(xp, i), _sigmoid(xp, f), xp.tanh(n), _sigmoid(xp, o)
    new = f * c + i * n
    return o * xp.tanh(new), new, xp.concat([i, f, n, o], axis=-1)


def _lstm_numpy(gates: Any, c: Any) -> Any:
    """The same with fewer, larger operations."""
    opened = np.exp(-gates)
    opened += 1
    np.reciprocal(opened, out=opened)
    _, _, between, _ = _split(gates, 4)
    i, f, n, o = _split(opened, 4)
    np.tanh(between, out=n)
    new = f * c
    new += i * n
    h = np.tanh(new)
    h *= o
    return h, new, opened


def _lstm_change(xp: Any, g: Any, out: Any) -> tuple[Any, Any]:
    """The gradient of the new c, directly and through h; and tanh of the new c."""
    g_h, g_c, _ = g
    _, new, opened = out
    t = xp.tanh(new)
    if g_h is None:
        return (xp.zeros_like(new) if g_c is None else g_c), t
    through = g_h * _split(opened, 4)[3] * (1 - t * t)
    return (through if g_c is None else through + g_c), t


def _lstm_vjp_gates(xp: Any, g: Any, out: Any, _gates: Any, c: Any) -> Any:
    change, t = _lstm_change(xp, g, out)
    i, f, n, o = _split(out[2], 4)
    g_h, _, g_open = g
    through = xp.zeros_like(change) if g_h is None else g_h * t
    parts = [change * n, change * c, change * i, through]
    if g_open is not None:
        parts = [part + more for part, more in zip(parts, _split(g_open, 4), strict=True)]
    slopes = [i * (1 - i), f * (1 - f), 1 - n * n, o * (1 - o)]
    return xp.concat([p * s for p, s in zip(parts, slopes, strict=True)], axis=-1)


def _lstm_vjp_c(xp: Any, g: Any, out: Any, _gates: Any, _c: Any) -> Any:
    return _lstm_change(xp, g, out)[0] * _split(out[2], 4)[1]


lstm_gates = Op(
    "lstm_gates",
    _lstm_type,
    _lstm_values,
    numpy=_lstm_numpy,
    kinds="real floating",
    autocast="lower",
    traits=Trait.WIDEN | Trait.COMPOSITE,
    outputs=3,
    vjp=(_lstm_vjp_gates, _lstm_vjp_c),
    batch=leading,
    cost=_cost,
    ways=gated(4, 1, 1, 1, 4),
)

# --- GRU ---------------------------------------------------------------------------------------


def _gru_type(x: TensorType, hidden: TensorType, h: TensorType) -> TensorType:
    _check(h, 3, x, hidden)
    return h


def _gru_open(xp: Any, x: Any, hidden: Any) -> tuple[Any, Any, Any, Any]:
    """The reset and update gates, the new value, and the part of it that the reset gate scales."""
    xr, xz, xn = _split(x, 3)
    hr, hz, hn = _split(hidden, 3)
    r = _sigmoid(xp, xr + hr)
    return r, _sigmoid(xp, xz + hz), xp.tanh(xn + r * hn), hn


def _gru_values(xp: Any, x: Any, hidden: Any, h: Any) -> Any:
    _, z, n, _ = _gru_open(xp, x, hidden)
    return (h - n) * z + n


def _gru_changes(xp: Any, g: Any, x: Any, hidden: Any, h: Any) -> tuple[Any, Any, Any, Any]:
    """The gradients of the input of each gate, and the activated reset gate."""
    r, z, n, hn = _gru_open(xp, x, hidden)
    into_n = g * (1 - z) * (1 - n * n)
    return into_n * hn * (r * (1 - r)), g * (h - n) * (z * (1 - z)), into_n, r


def _gru_vjp_x(xp: Any, g: Any, _out: Any, x: Any, hidden: Any, h: Any) -> Any:
    into_r, into_z, into_n, _ = _gru_changes(xp, g, x, hidden, h)
    return xp.concat([into_r, into_z, into_n], axis=-1)


def _gru_vjp_hidden(xp: Any, g: Any, _out: Any, x: Any, hidden: Any, h: Any) -> Any:
    into_r, into_z, into_n, r = _gru_changes(xp, g, x, hidden, h)
    return xp.concat([into_r, into_z, into_n * r], axis=-1)


def _gru_vjp_h(xp: Any, g: Any, _out: Any, x: Any, hidden: Any, _h: Any) -> Any:
    size = hidden.shape[-1] // 3
    z = (slice(None),) * (hidden.ndim - 1) + (slice(size, 2 * size),)
    return g * _sigmoid(xp, x[z] + hidden[z])


gru_gates = Op(
    "gru_gates",
    _gru_type,
    _gru_values,
    kinds="real floating",
    autocast="lower",
    traits=Trait.WIDEN | Trait.COMPOSITE,
    vjp=(_gru_vjp_x, _gru_vjp_hidden, _gru_vjp_h),
    batch=leading,
    cost=_cost,
    ways=gated(3, 3, 1, 1),
)
