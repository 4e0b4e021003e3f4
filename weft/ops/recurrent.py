"""The gates of LSTM and GRU cells: all that happens in a step after its matrix products.

One node for each step instead of a dozen. Features lie along the last axis, gates side by side.
"""

from __future__ import annotations

from typing import Any

from weft.base.errors import ShapeError
from weft.ir.op import Cost, Op, Trait, Types
from weft.ir.types import TensorType
from weft.ops.rules import check_kind, check_same


def _check(state: TensorType, gates: int, *operands: TensorType) -> None:
    check_same(state, *operands)
    check_kind(state, "real floating", "the state")
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


def _lstm_type(gates: TensorType, c: TensorType) -> tuple[TensorType, TensorType]:
    _check(c, 4, gates)
    return c, c


def _lstm_open(xp: Any, gates: Any) -> tuple[Any, Any, Any, Any]:
    """How far the input, forget and output gates are open, and the new value between them."""
    i, f, g, o = _split(gates, 4)
    return _sigmoid(xp, i), _sigmoid(xp, f), xp.tanh(g), _sigmoid(xp, o)


def _lstm_values(xp: Any, gates: Any, c: Any) -> Any:
    i, f, g, o = _lstm_open(xp, gates)
    new = f * c + i * g
    return o * xp.tanh(new), new


def _lstm_change(xp: Any, g: Any, new: Any, o: Any) -> tuple[Any, Any]:
    """The gradient of the new c, by itself and through h; and tanh of the new c."""
    g_h, g_c = g
    t = xp.tanh(new)
    if g_h is None:
        return g_c, t
    through = g_h * o * (1 - t * t)
    return (through if g_c is None else through + g_c), t


def _lstm_vjp_gates(xp: Any, g: Any, out: Any, gates: Any, c: Any) -> Any:
    i, f, n, o = _lstm_open(xp, gates)
    change, t = _lstm_change(xp, g, out[1], o)
    g_h = g[0] if g[0] is not None else xp.zeros_like(change)
    parts = [
        change * n * (i * (1 - i)),
        change * c * (f * (1 - f)),
        change * i * (1 - n * n),
        g_h * t * (o * (1 - o)),
    ]
    return xp.concat(parts, axis=-1)


def _lstm_vjp_c(xp: Any, g: Any, out: Any, gates: Any, _c: Any) -> Any:
    _, f, _, o = _split(gates, 4)
    return _lstm_change(xp, g, out[1], _sigmoid(xp, o))[0] * _sigmoid(xp, f)


lstm_gates = Op(
    "lstm_gates",
    _lstm_type,
    _lstm_values,
    kinds="real floating",
    traits=Trait.WIDEN,
    outputs=2,
    vjp=(_lstm_vjp_gates, _lstm_vjp_c),
    cost=_cost,
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
    """The gradients of what goes into each gate, and how far the reset gate is open."""
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
    traits=Trait.WIDEN,
    vjp=(_gru_vjp_x, _gru_vjp_hidden, _gru_vjp_h),
    cost=_cost,
)
