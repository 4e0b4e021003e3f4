"""Rows of recurrent layers, attention and transformers."""

from __future__ import annotations

import numpy as np

from nn_samples.table import Row, row, values

X = values(4, 2, 3, seed=1)  # steps, batch, features
H, C = values(1, 2, 5, seed=2), values(1, 2, 5, seed=3)
STEP, S, CELL = values(2, 3, seed=4), values(2, 5, seed=5), values(2, 5, seed=6)
DEEP = {"num_layers": 2, "bidirectional": True}
Q, K = values(4, 2, 6, seed=7), values(3, 2, 6, seed=8)
V = values(3, 2, 6, seed=9)
LOOK = values(4, 3, seed=10) > 0.3  # True: do not look
LOOK[0] = False
PADDED = np.array([[False, False, True], [False, True, True]])
ADDED = values(4, 3, seed=11)
QUIET = {"dropout": 0.0}
NARROW = {"dim_feedforward": 8, "dropout": 0.0}
CAUSAL = np.triu(np.full((4, 4), -np.inf), k=1)


def self_attention(label: str = "", **call: object) -> Row:
    return row("MultiheadAttention", 6, 2, to=(Q, Q, Q), call=call, label=f"self{label}")


ROWS: list[Row] = [
    row("RNN", 3, 5, to=X),
    row("RNN", 3, 5, to=(X, H), make={"nonlinearity": "relu", "bias": False}, label="relu"),
    row("RNN", 3, 5, to=X, make=DEEP, label="deep"),
    row("LSTM", 3, 5, to=X),
    row("LSTM", 3, 5, to=(X, (H, C)), label="states"),
    row("LSTM", 3, 5, to=X, make=DEEP, label="deep"),
    row("LSTM", 3, 5, to=X.swapaxes(0, 1).copy(), make={"batch_first": True}, label="batch_first"),
    row("LSTM", 3, 5, to=X[:, 0].copy(), label="single"),
    row("GRU", 3, 5, to=X),
    row("GRU", 3, 5, to=(X, H), make={"bias": False}, label="states"),
    row("GRU", 3, 5, to=X, make=DEEP | {"batch_first": True}, label="deep"),
    row("GRU", 3, 5, to=(X[:, 0].copy(), H[:, 0].copy()), label="single"),
    row("RNNCell", 3, 5, to=(STEP, S)),
    row("RNNCell", 3, 5, to=STEP, make={"nonlinearity": "relu"}, label="relu"),
    row("LSTMCell", 3, 5, to=(STEP, (S, CELL))),
    row("LSTMCell", 3, 5, to=STEP[0], make={"bias": False}, label="single"),
    row("GRUCell", 3, 5, to=(STEP, S)),
    row("GRUCell", 3, 5, to=STEP, label="fresh"),
    # --- attention
    row("MultiheadAttention", 6, 2, to=(Q, K, V)),
    self_attention(),
    self_attention("_quiet", need_weights=False),
    self_attention("_causal", need_weights=False, attn_mask=CAUSAL, is_causal=True),
    row("MultiheadAttention", 6, 2, to=(Q, K, V), call={"attn_mask": LOOK}, label="mask"),
    row("MultiheadAttention", 6, 2, to=(Q, K, V), call={"attn_mask": ADDED}, label="added"),
    row(
        "MultiheadAttention",
        6,
        2,
        to=(Q, K, V),
        call={"attn_mask": np.stack([LOOK] * 4), "average_attn_weights": False},
        label="heads",
    ),
    row(
        "MultiheadAttention",
        6,
        2,
        to=(Q, K, V),
        call={"key_padding_mask": PADDED, "need_weights": False},
        label="padding",
    ),
    row(
        "MultiheadAttention",
        6,
        3,
        to=(Q, K, V),
        make={"bias": False, "add_bias_kv": True, "add_zero_attn": True},
        call={"key_padding_mask": PADDED},
        label="extras",
    ),
    row(
        "MultiheadAttention",
        6,
        2,
        to=(Q.swapaxes(0, 1).copy(), values(2, 3, 4), values(2, 3, 5)),
        make={"kdim": 4, "vdim": 5, "batch_first": True},
        label="sizes",
    ),
    row(
        "MultiheadAttention",
        6,
        2,
        to=(Q[:, 0].copy(), K[:, 0].copy(), V[:, 0].copy()),
        label="single",
    ),
    # --- transformers
    row("TransformerEncoderLayer", 6, 2, to=Q, make=NARROW),
    row(
        "TransformerEncoderLayer",
        6,
        2,
        to=Q.swapaxes(0, 1).copy(),
        make=NARROW | {"norm_first": True, "activation": "gelu", "batch_first": True},
        call={"src_mask": CAUSAL},
        label="norm_first",
    ),
    row(
        "TransformerEncoderLayer",
        6,
        2,
        to=K,
        make=NARROW | {"bias": False},
        call={"src_key_padding_mask": PADDED},
        label="padding",
    ),
    row("TransformerDecoderLayer", 6, 2, to=(Q, K), make=NARROW),
    row(
        "TransformerDecoderLayer",
        6,
        2,
        to=(Q, K),
        make=NARROW | {"norm_first": True},
        call={"tgt_mask": CAUSAL, "memory_key_padding_mask": PADDED},
        label="masks",
    ),
    row("Transformer", 6, 2, 2, 1, 8, 0.0, to=(K, Q), call={"tgt_mask": CAUSAL}),
]
