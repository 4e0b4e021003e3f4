"""Recurrent layers over whole sequences: RNN, LSTM, GRU.

Sequences of different lengths are given padded, with their `lengths`: beyond its end a sequence
keeps its last state, and its outputs are 0, as with PyTorch's packed sequences. Sequences need not
be sorted by length.
"""

from __future__ import annotations

from typing import Any

from weft.autodiff.function import Function
from weft.base.errors import RangeError, ShapeError
from weft.core.autocast import lowered
from weft.core.tensor import Tensor, type_of
from weft.nn import functional as F
from weft.nn.module import Module
from weft.nn.parameter import Parameter
from weft.nn.recurrent_cell import (
    NONLINEARITIES,
    check_nonlinearity,
    draw_uniform,
    gru_step,
    lstm_step,
)
from weft.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence
from weft.ops.creation import arange, asarray, empty, zeros
from weft.ops.select import where
from weft.ops.shape import concat, expand_dims, squeeze, stack, swapaxes
from weft.record.control.loops import makes_graph, scan

__all__ = ["GRU", "LSTM", "RNN"]

States = tuple[Tensor, ...]  # (h,), or (h, c) for an LSTM


class _Steps(Function):
    """x[0], x[1], … Their gradients come back as one stack: the work is linear in the steps."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Any:
        return tuple(x[t] for t in range(x.shape[0]))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return stack(grads)


def _in_python(
    step: Any, state: States, given: tuple[Tensor, ...], direction: int
) -> tuple[Tensor, States]:
    """What a scan does, as Python: for eager code, in which slices are cheaper all at once."""
    into = given[0]
    if not into.shape[0]:
        return zeros((0, *state[0].shape), dtype=into.dtype, device=into.device), state
    parts = [_Steps.apply(into), *given[1:]]
    order = range(into.shape[0])
    outputs: list[Any] = [None] * len(order)
    for t in reversed(order) if direction else order:
        state, outputs[t] = step(state, tuple(part[t] for part in parts))
    return stack(outputs), state


class _Recurrent(Module):
    """What the three layers share; they differ in their step."""

    _gates = 1
    _states = 1
    _projects = False

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if not 0 <= proj_size < max(hidden_size, 1) or (proj_size and not self._projects):
            what = "hidden_size" if self._projects else "1: only an LSTM projects"
            raise RangeError(f"proj_size is {proj_size}, not in 0 … less than {what}")
        if not 0 <= dropout <= 1:
            raise RangeError(f"the probability of dropping is {dropout}, not in 0 … 1")
        if num_layers < 1 or hidden_size < 1:
            raise RangeError("num_layers and hidden_size must be 1 or more")
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.dropout = dropout
        self.bidirectional = bidirectional
        self.proj_size = proj_size
        rows = self._gates * hidden_size
        options = {"dtype": dtype, "device": device}
        for layer, suffix in self._places():
            columns = self._output * self._directions if layer else input_size
            shapes = {
                "weight_ih": (rows, columns),
                "weight_hh": (rows, self._output),
                **({"bias_ih": (rows,), "bias_hh": (rows,)} if bias else {}),
                **({"weight_hr": (proj_size, hidden_size)} if proj_size else {}),
            }
            for name, shape in shapes.items():
                self.register_parameter(name + suffix, Parameter(empty(shape, **options)))
        self.reset_parameters()

    @property
    def _output(self) -> int:
        """The size of h: smaller than `hidden_size` where an LSTM projects it."""
        return self.proj_size or self.hidden_size

    @property
    def _directions(self) -> int:
        return 2 if self.bidirectional else 1

    def _places(self) -> list[tuple[int, str]]:
        """The layers with their directions: numbers, and endings of their parameters' names."""
        endings = ("", "_reverse")[: self._directions]
        return [(n, f"_l{n}{end}") for n in range(self.num_layers) for end in endings]

    def reset_parameters(self) -> None:
        """Draw new first values, as PyTorch does."""
        draw_uniform(self, self.hidden_size)

    def _step(self, x: Tensor, hidden: Tensor, state: States) -> States:
        """The next state from what the input and the old h put into the gates."""
        raise NotImplementedError

    # --- forward ------------------------------------------------------------------------------

    def forward(self, input: Any, hx: Any = None, lengths: Any = None) -> tuple[Any, Any]:
        """The outputs of all steps, and the last states of all layers.

        input     (steps, batch, input_size), with batch_first (batch, steps, input_size); without
                  a batch (steps, input_size)
        hx        first states, (layers * directions, batch, hidden_size) each; zeros by default
        lengths   how many steps of each sequence are real; all by default

        A `PackedSequence` as input gives one as output.
        """
        if isinstance(input, PackedSequence):
            padded, own = pad_packed_sequence(input, self.batch_first)
            out, states = self.forward(padded, hx, own)
            again = pack_padded_sequence(
                out, input.lengths(), self.batch_first, enforce_sorted=input.order is None
            )
            return input.with_data(again.data), states
        if input.ndim not in (2, 3) or input.shape[-1] != self.input_size:
            raise ShapeError(
                f"the input has shape {input.shape}, not (…, {self.input_size}) with 2 or 3 axes",
                op=type(self).__name__,
                operands=[type_of(input)],
                hint="axes are (steps, batch, features), or with batch_first (batch, steps, …)",
            )
        batched = input.ndim == 3
        (x,) = lowered(input if batched else expand_dims(input, 1))
        if batched and self.batch_first:
            x = swapaxes(x, 0, 1)
        first = self._first_states(x, hx, batched)
        mask = None if lengths is None else self._mask(x, lengths)
        last: list[States] = []
        for layer in range(self.num_layers):
            outputs = []
            for direction in range(self._directions):
                out, state = self._run(x, first[len(last)], layer, direction, mask)
                outputs.append(out)
                last.append(state)
            x = outputs[0] if len(outputs) == 1 else concat(outputs, axis=-1)
            if self.dropout and layer < self.num_layers - 1:
                x = F.dropout(x, self.dropout, self.training)
        states = [stack([s[i] for s in last]) for i in range(self._states)]
        if not batched:
            x = squeeze(x, 1)
            states = [squeeze(s, 1) for s in states]
        elif self.batch_first:
            x = swapaxes(x, 0, 1)
        return x, states[0] if self._states == 1 else tuple(states)

    def _first_states(self, x: Tensor, hx: Any, batched: bool) -> list[States]:
        places = self.num_layers * self._directions
        sizes = (self._output, self.hidden_size)[: self._states]
        shapes = [(places, x.shape[1], size) for size in sizes]
        if hx is None:
            place = {"dtype": x.dtype, "device": x.device}
            return [tuple([zeros(shape[1:], **place) for shape in shapes])] * places
        given = lowered(hx) if isinstance(hx, Tensor) else lowered(*hx)
        if not batched:
            given = tuple(expand_dims(state, 1) for state in given)
        if [state.shape for state in given] != shapes:
            wanted = "(h, c)" if self._states == 2 else "h"
            shown = ", ".join(str(state.shape) for state in given)
            needed = ", ".join(map(str, shapes))
            raise ShapeError(
                f"the first state must be {wanted} of shape {needed}; given: {shown}",
                op=type(self).__name__,
                operands=[type_of(x)],
            )
        return [tuple(state[i] for state in given) for i in range(places)]

    def _mask(self, x: Tensor, lengths: Any) -> Tensor:
        """(steps, batch, 1): which sequences are still going on in which step."""
        counts = asarray(lengths, device=x.device)
        steps, batch = x.shape[:2]
        if counts.shape != (batch,) or counts.dtype.kind not in ("int", "uint"):
            raise ShapeError(
                f"lengths must be {batch} integers, one for each sequence, not {counts.type}",
                op=type(self).__name__,
            )
        return (counts > arange(steps, dtype=counts.dtype, device=x.device)[:, None])[..., None]

    def _run(
        self, x: Tensor, state: States, layer: int, direction: int, mask: Tensor | None
    ) -> tuple[Tensor, States]:
        """One layer in one direction over all steps."""
        suffix = f"_l{layer}{'_reverse' if direction else ''}"
        weight, bias = getattr(self, "weight_hh" + suffix), getattr(self, "bias_hh" + suffix, None)
        projection = getattr(self, "weight_hr" + suffix, None)
        # What the inputs put into the gates is one product for all steps.
        own = getattr(self, "weight_ih" + suffix), getattr(self, "bias_ih" + suffix, None)
        into = F.linear(x, *own)

        def step(state: States, given: tuple[Tensor, ...]) -> tuple[States, Tensor]:
            new = self._step(given[0], F.linear(state[0], weight, bias), state)
            if projection is not None:
                new = (F.linear(new[0], projection), *new[1:])
            if mask is None:
                return new, new[0]
            going = given[1]
            kept = tuple(where(going, n, old) for n, old in zip(new, state, strict=True))
            return kept, where(going, new[0], 0)

        given = (into,) if mask is None else (into, mask)
        if makes_graph():
            state, outputs = scan(step, state, given, reverse=bool(direction))
            return outputs, state
        return _in_python(step, state, given, direction)

    def extra_repr(self) -> str:
        parts = [f"{self.input_size}, {self.hidden_size}"]
        usual = {
            "num_layers": 1,
            "bias": True,
            "batch_first": False,
            "dropout": 0,
            "bidirectional": False,
            "proj_size": 0,
        }
        for name, value in usual.items():
            if getattr(self, name) != value:
                parts.append(f"{name}={getattr(self, name)}")
        return ", ".join(parts)


class RNN(_Recurrent):
    """h' = tanh(W_ih x + b_ih + W_hh h + b_hh), or relu of it, over sequences."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        check_nonlinearity(nonlinearity)
        super().__init__(
            input_size,
            hidden_size,
            num_layers,
            bias,
            batch_first,
            dropout,
            bidirectional,
            device=device,
            dtype=dtype,
        )
        self.nonlinearity = nonlinearity

    def _step(self, x: Tensor, hidden: Tensor, state: States) -> States:
        return (NONLINEARITIES[self.nonlinearity](x + hidden),)


class LSTM(_Recurrent):
    """Long short-term memory over sequences; with `proj_size`, h is a projection to that size."""

    _gates = 4
    _states = 2
    _projects = True

    def _step(self, x: Tensor, hidden: Tensor, state: States) -> States:
        return lstm_step(x + hidden, state[1])


class GRU(_Recurrent):
    """Gated recurrent units over sequences."""

    _gates = 3

    def _step(self, x: Tensor, hidden: Tensor, state: States) -> States:
        return (gru_step(x, hidden, state[0]),)
