"""One step of a recurrent network: RNNCell, LSTMCell, GRUCell."""

from __future__ import annotations

import math
from typing import Any

from weft.base.errors import RangeError, ShapeError
from weft.core.bind import bind
from weft.core.tensor import Tensor, type_of
from weft.nn import functional as F
from weft.nn import init
from weft.nn.module import Module
from weft.nn.parameter import Parameter
from weft.ops import recurrent
from weft.ops.activations import relu
from weft.ops.creation import empty, zeros
from weft.ops.elementwise import tanh

__all__ = ["GRUCell", "LSTMCell", "RNNCell"]

NONLINEARITIES = {"tanh": tanh, "relu": relu}


def check_nonlinearity(name: str) -> None:
    if name not in NONLINEARITIES:
        raise RangeError(f"nonlinearity is 'tanh' or 'relu', not {name!r}", op="RNN")


def lstm_step(gates: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """The next (h, c) of an LSTM from the sums that go into its gates."""
    out: tuple[Tensor, Tensor, Tensor] = bind(recurrent.lstm_gates, gates, c)
    return out[0], out[1]


def gru_step(x: Tensor, hidden: Tensor, h: Tensor) -> Tensor:
    """The next h of a GRU from what its input and its old h put into its gates."""
    out: Tensor = bind(recurrent.gru_gates, x, hidden, h)
    return out


def draw_uniform(module: Module, hidden_size: int) -> None:
    """First values of all recurrent layers, as PyTorch draws them."""
    bound = 1 / math.sqrt(hidden_size) if hidden_size else 0
    for parameter in module.parameters():
        init.uniform_(parameter, -bound, bound)


class _Cell(Module):
    weight_ih: Parameter
    weight_hh: Parameter
    bias_ih: Parameter | None
    bias_hh: Parameter | None
    _gates = 1

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.bias = bias
        rows = self._gates * hidden_size
        options = {"dtype": dtype, "device": device}
        self.weight_ih = Parameter(empty((rows, input_size), **options))
        self.weight_hh = Parameter(empty((rows, hidden_size), **options))
        for name in ("bias_ih", "bias_hh"):
            self.register_parameter(name, Parameter(empty(rows, **options)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new first values, as PyTorch does."""
        draw_uniform(self, self.hidden_size)

    def _start(self, input: Tensor, state: Tensor | None) -> Tensor:
        shape = (*input.shape[:-1], self.hidden_size)
        if input.ndim not in (1, 2) or input.shape[-1] != self.input_size:
            raise ShapeError(
                f"the input has shape {input.shape}, not (batch, {self.input_size})",
                op=type(self).__name__,
                operands=[type_of(input)],
            )
        if state is None:
            return zeros(shape, dtype=input.dtype, device=input.device)
        if state.shape != shape:
            raise ShapeError(
                f"the state has shape {state.shape}, not {shape}",
                op=type(self).__name__,
                operands=[type_of(input), type_of(state)],
            )
        return state

    def _from_input(self, input: Tensor) -> Tensor:
        return F.linear(input, self.weight_ih, self.bias_ih)

    def _from_state(self, h: Tensor) -> Tensor:
        return F.linear(h, self.weight_hh, self.bias_hh)

    def extra_repr(self) -> str:
        bias = "" if self.bias else f", bias={self.bias}"
        return f"{self.input_size}, {self.hidden_size}{bias}"


class RNNCell(_Cell):
    """h' = tanh(W_ih x + b_ih + W_hh h + b_hh), or relu of it."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        check_nonlinearity(nonlinearity)
        super().__init__(input_size, hidden_size, bias, device, dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        h = self._start(input, hx)
        return NONLINEARITIES[self.nonlinearity](self._from_input(input) + self._from_state(h))

    def extra_repr(self) -> str:
        kind = "" if self.nonlinearity == "tanh" else f", nonlinearity={self.nonlinearity}"
        return super().extra_repr() + kind


class LSTMCell(_Cell):
    """One step of an LSTM: (h, c) from the input and the (h, c) before."""

    _gates = 4

    def forward(
        self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, Tensor]:
        h, c = (self._start(input, state) for state in (hx or (None, None)))
        return lstm_step(self._from_input(input) + self._from_state(h), c)


class GRUCell(_Cell):
    """One step of a GRU: h from the input and the h before."""

    _gates = 3

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        h = self._start(input, hx)
        return gru_step(self._from_input(input), self._from_state(h), h)
