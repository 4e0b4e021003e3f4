"""Rows of functions that no module stands for, or that take more than their module does."""

from __future__ import annotations

import numpy as np

from nn_samples.table import Row, function, indices, values

X = values(3, 5, seed=1)
I = values(2, 3, 4, 5, seed=2)  # noqa: E741
Q, K, V = (values(2, 3, n, 4, seed=n) for n in (5, 6, 7))
K, V = K[:, :, :6], V[:, :, :6]
SEEN = values(5, 6, seed=9) > 0
NOWHERE = SEEN & (np.arange(5) != 2)[:, None]  # one query may look at nothing
ATTENTION = "scaled_dot_product_attention"

ROWS: list[Row] = [
    function("one_hot", indices(3, 2, below=4)),
    function("one_hot", indices(3, below=4), 7, label="more"),
    function("normalize", X),
    function("normalize", X * (np.arange(3) > 0)[:, None], label="zero"),
    function("normalize", I, p=1.0, dim=2, label="one"),
    function("normalize", X, p=3.0, dim=0, label="cubic"),
    function("softmax", X, dim=0),
    function("log_softmax", X, dim=1),
    function("softmin", X, dim=1),
    function("glu", values(3, 4), dim=0 - 1),
    # --- padding
    function("pad", X, (1, 2)),
    function("pad", X, (1, 2, 0, 3), value=2.5, label="value"),
    function("pad", I, (-1, 2, 0, -1), label="negative"),
    function("pad", I, (2, 1, 3, 0), mode="reflect", label="reflect"),
    function("pad", I, (2, 1, 5, 0), mode="replicate", label="replicate"),
    function("pad", I, (2, 1, 4, 3), mode="circular", label="circular"),
    function("pad", values(2, 3, 4), (3, 3), mode="reflect", label="reflect1"),
    # --- resizing
    function("interpolate", I, size=(7, 3)),
    function("interpolate", I, scale_factor=2.0, label="double"),
    function("interpolate", I, size=(7, 3), mode="nearest-exact", label="exact"),
    function("interpolate", I, size=(7, 3), mode="bilinear", label="bilinear"),
    function("interpolate", I, size=7, mode="bilinear", align_corners=True, label="corners"),
    function("interpolate", I, scale_factor=(1.7, 0.6), mode="bilinear", label="scaled"),
    function("interpolate", I[0], size=9, mode="linear", label="linear"),
    function("interpolate", I[None], size=(3, 2, 7), mode="trilinear", label="trilinear"),
    # --- attention
    function(ATTENTION, Q, K, V),
    function(ATTENTION, Q, K, V, scale=0.3, label="scale"),
    function(ATTENTION, Q, K, V, attn_mask=SEEN, label="mask"),
    function(ATTENTION, Q, K, V, attn_mask=NOWHERE, label="nowhere"),
    function(ATTENTION, Q, K, V, attn_mask=values(3, 5, 6), label="added"),
    function(ATTENTION, Q, K, V, is_causal=True, label="causal"),
    function(ATTENTION, Q[0, 0], K[0, 0], V[0, 0], label="matrices"),
    function(ATTENTION, np.tile(Q, (1, 2, 1, 1)), K, V, enable_gqa=True, label="groups"),
    # --- norms and losses with other arguments than their modules
    function("layer_norm", X, (5,)),
    function("group_norm", I, 3),
    function("instance_norm", I),
    function("batch_norm", I, None, None, training=True),
    function("rms_norm", X, (5,)),
    function("cosine_similarity", X, values(3, 5), dim=-1),
    function("cosine_similarity", values(1, 2, 3), values(2, 1, 3), dim=-2, label="broadcast"),
    function("cosine_similarity", values(3), values(2, 1, 3), dim=0, label="fewer_axes"),
    function("cosine_similarity", values(4, 3), values(1, 3), label="one_row"),
    function("pairwise_distance", X, values(3, 5), p=1.0),
    *(
        function(name, X, values(3, 5), reduction=k, weight=values(3, 5, low=0.5), label=f"w_{k}")
        for name in ("mse_loss", "l1_loss", "huber_loss")
        for k in ("mean", "sum", "none")
    ),
    function("pdist", X),
    function("pdist", X, 1.0, label="one"),
    function("max_pool2d_with_indices", I, 2, stride=1),
    function("cross_entropy", X * 1e3, indices(3, below=5), label_smoothing=0.1),
    function("cross_entropy", X - 1e30, indices(3, below=5), label="low"),
    function("conv2d", I, values(2, 3, 2, 2), values(2), padding="same"),
    function("conv_transpose2d", I, values(3, 2, 2, 2), stride=2),
    function("max_pool2d", I, 2, return_indices=True),
    function("avg_pool2d", I, 2, divisor_override=3),
    function("adaptive_avg_pool2d", I, (2, 3)),
]
