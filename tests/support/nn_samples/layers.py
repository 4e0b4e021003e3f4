"""Rows of layers with weights, of pooling and of normalization."""

from __future__ import annotations

from typing import Any

import numpy as np

from nn_samples.table import Row, indices, row, values


def evaluated(module: Any) -> None:
    module.eval()


def twice(module: Any) -> None:
    """Statistics that have seen a batch already."""
    module.num_batches_tracked += 1


V = values(2, 4, 7, seed=1)  # batch, channels, length
I = values(2, 4, 6, 5, seed=2)  # noqa: E741
D = values(1, 4, 4, 3, 5, seed=3)
BAG = indices(9, below=6, seed=6)
BEGIN = np.array([0, 2, 2, 6])  # the second bag is empty
ENDS = np.array([0, 2, 2, 6, 9])

ROWS: list[Row] = [
    row("Identity", to=V),
    row("Flatten", to=I),
    row("Flatten", 0, 2, to=I, label="front"),
    row("Unflatten", 1, (2, 2), to=V),
    row("Linear", 3, 2, to=values(5, 3)),
    row("Linear", 3, 2, to=values(2, 5, 3), label="deep"),
    row("Linear", 3, 2, to=values(3), label="vector"),
    row("Linear", 3, 2, to=values(5, 3), make={"bias": False}, label="plain"),
    row("Linear", 3, 2, to=values(0, 3), label="empty"),
    row("Bilinear", 3, 4, 2, to=(values(5, 3), values(5, 4, seed=1))),
    row("Bilinear", 3, 4, 2, False, to=(values(2, 5, 3), values(2, 5, 4)), label="plain"),
    row("Embedding", 6, 3, to=indices(4, 5, below=6)),
    row("Embedding", 6, 3, to=indices(4, 5, below=6), make={"padding_idx": 2}, label="padding"),
    row("Embedding", 6, 3, to=indices(4, 5, below=4), make={"max_norm": 0.6}, label="max_norm"),
    row(
        "Embedding",
        6,
        3,
        None,
        0.8,
        1.0,
        True,
        to=indices(4, 5, below=6),
        label="frequencies",
    ),
    # --- bags of embeddings
    *(
        row("EmbeddingBag", 6, 3, to=to, make={"mode": mode, **more}, label=f"{mode}_{label}")
        for mode in ("sum", "mean", "max")
        for label, to, more in (
            ("even", indices(4, 5, below=6), {}),
            ("offsets", (BAG, BEGIN), {}),
            ("last", (BAG, ENDS), {"include_last_offset": True}),
            ("padding", (BAG, BEGIN), {"padding_idx": 1}),
            ("padding_even", indices(4, 5, below=6), {"padding_idx": -1}),
        )
    ),
    row("EmbeddingBag", 6, 3, to=(BAG, BEGIN), make={"max_norm": 0.6}, label="max_norm"),
    row("EmbeddingBag", 6, 3, to=(BAG, BEGIN, values(9)), make={"mode": "sum"}, label="weights"),
    # --- convolutions
    row("Conv1d", 4, 6, 3, to=V),
    row("Conv1d", 4, 6, 3, 2, 1, 2, 2, to=V, label="all"),
    row("Conv1d", 4, 6, 4, to=V, make={"padding": "same", "bias": False}, label="same"),
    row("Conv1d", 4, 6, 3, to=V[0], label="single"),
    row("Conv1d", 4, 2, 3, to=V, make={"padding": 2, "padding_mode": "reflect"}, label="reflect"),
    row("Conv1d", 4, 2, 3, to=V, make={"padding": 2, "padding_mode": "circular"}, label="circular"),
    row("Conv2d", 4, 2, 3, to=I),
    row("Conv2d", 4, 8, (3, 2), (2, 1), (1, 2), (1, 2), 4, to=I, label="all"),
    row("Conv2d", 4, 2, 3, to=I, make={"padding": "same", "dilation": 2}, label="same"),
    row(
        "Conv2d",
        4,
        2,
        3,
        to=I,
        make={"padding": (2, 1), "padding_mode": "replicate"},
        label="replicate",
    ),
    row("Conv2d", 4, 2, 3, to=I, make={"padding": "same", "padding_mode": "reflect"}, label="mode"),
    row("Conv3d", 4, 2, 2, to=D),
    row("Conv3d", 4, 2, (2, 1, 3), (1, 2, 2), 1, to=D, make={"groups": 2}, label="all"),
    row("ConvTranspose1d", 4, 6, 3, to=V),
    row("ConvTranspose1d", 4, 6, 3, 2, 1, 1, 2, True, 2, to=V, label="all"),
    row("ConvTranspose2d", 4, 2, 3, to=I),
    row("ConvTranspose2d", 4, 2, (3, 2), 2, 1, 1, 2, to=I, label="all"),
    row(
        "ConvTranspose2d",
        4,
        2,
        3,
        2,
        to=I,
        call={"output_size": (14, 11)},
        label="size",
    ),
    row("ConvTranspose3d", 4, 2, 2, 2, to=D),
    # --- pooling
    row("MaxPool1d", 2, to=V),
    row("MaxPool1d", 3, 2, 1, 2, to=V, make={"ceil_mode": True}, label="all"),
    row("MaxPool2d", 2, to=I),
    row("MaxPool2d", (3, 2), (1, 2), (1, 0), to=I, make={"return_indices": True}, label="indices"),
    row("MaxPool3d", 2, to=D),
    row("AvgPool1d", 2, to=V),
    row("AvgPool2d", 3, 2, 1, to=I),
    row("AvgPool2d", 3, 2, 1, True, False, to=I, label="all"),
    row("AvgPool3d", (2, 1, 2), to=D),
    row("AdaptiveAvgPool1d", 3, to=V),
    row("AdaptiveAvgPool2d", (4, None), to=I),
    row("AdaptiveAvgPool2d", 1, to=I, label="one"),
    row("AdaptiveAvgPool3d", (2, 3, 2), to=D),
    row("AdaptiveMaxPool1d", 3, to=V),
    row("AdaptiveMaxPool2d", (4, 2), to=I, make={"return_indices": True}),
    row("AdaptiveMaxPool3d", 2, to=D),
    # --- normalization
    row("BatchNorm1d", 4, to=values(6, 4)),
    row("BatchNorm1d", 4, to=V, label="length"),
    row("BatchNorm1d", 4, to=V, prepare=evaluated, label="eval"),
    row("BatchNorm1d", 4, to=V, make={"momentum": None}, prepare=twice, label="cumulative"),
    row("BatchNorm1d", 4, to=V, make={"affine": False}, label="plain"),
    row("BatchNorm1d", 4, to=V, make={"track_running_stats": False}, label="untracked"),
    row(
        "BatchNorm1d",
        4,
        to=V,
        make={"track_running_stats": False},
        prepare=evaluated,
        label="untracked_eval",
    ),
    row("BatchNorm2d", 4, to=I),
    row("BatchNorm2d", 4, to=I, make={"affine": False}, prepare=evaluated, label="plain_eval"),
    row("BatchNorm2d", 4, 0.1, 0.3, to=I, label="options"),
    row("BatchNorm3d", 4, to=D),
    row("LayerNorm", 7, to=V),
    row("LayerNorm", (4, 7), 0.1, to=V, label="two"),
    row("LayerNorm", 7, to=V, make={"bias": False}, label="unshifted"),
    row("LayerNorm", 7, to=V, make={"elementwise_affine": False}, label="plain"),
    row("GroupNorm", 2, 4, to=V),
    row("GroupNorm", 4, 4, to=I, make={"affine": False}, label="plain"),
    row("InstanceNorm1d", 4, to=V),
    row("InstanceNorm1d", 4, to=V[0], label="single"),
    row("InstanceNorm2d", 4, to=I, make={"affine": True, "track_running_stats": True}),
    row(
        "InstanceNorm2d",
        4,
        to=I,
        make={"affine": True, "track_running_stats": True},
        prepare=evaluated,
        label="eval",
    ),
    row("InstanceNorm3d", 4, to=D),
    row("RMSNorm", 7, to=V),
    row("RMSNorm", (4, 7), 0.1, to=V, label="two"),
    row("RMSNorm", 7, to=V, make={"elementwise_affine": False}, label="plain"),
    # --- dropout does nothing in eval mode
    *(
        row(name, to=I[:, :, :, 0].copy() if "1d" in name else I, prepare=evaluated)
        for name in ("Dropout", "Dropout1d", "Dropout2d", "AlphaDropout")
    ),
]
