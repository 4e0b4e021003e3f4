"""Rows of the losses: each reduction, and each option."""

from __future__ import annotations

from typing import Any

import numpy as np

from nn_samples.table import Row, indices, row, values

A, B = values(4, 5, low=-2, high=2), values(4, 5, seed=1, low=-2, high=2)
B[0, :2] = A[0, :2]  # equal: where the slope of a distance jumps
LOGITS = values(6, 4, seed=2, low=-3, high=3)
CLASSES = indices(6, below=4, seed=3)
IGNORED = np.where(np.arange(6) % 3 == 0, -100, CLASSES)
WEIGHTS = values(4, seed=4, low=0.2, high=2)
LOG_P = LOGITS - np.log(np.exp(LOGITS).sum(1, keepdims=True))
P = np.exp(values(6, 4, seed=5))
P /= P.sum(1, keepdims=True)
CHANCES = np.append(values(4, 5, seed=6, low=0.02, high=0.98).reshape(-1)[:18], [0.0, 1.0])
CHANCES = CHANCES.reshape(4, 5)
YES = (values(4, 5, seed=7) > 0).astype(np.float64)
SIGNS = np.sign(values(4, seed=8))
IMAGE, MASK = values(2, 4, 3, 3, seed=9, low=-3, high=3), indices(2, 3, 3, below=4, seed=10)

MANY = np.array([8, 0, 3, 5])

#: classes of each sample; -1 ends the list
LISTED = np.array([[3, 0, -1, 1, 2], [-1, 1, 2, 3, 4], [4, 3, 2, 1, 0], [2, -1, -1, 4, 0]])


def squares(x: Any, y: Any) -> Any:
    return ((x - y) * (x - y)).sum(axis=-1)


def each(
    module: str, *args: Any, to: Any, label: str = "", rtol: float = 1e-9, **make: Any
) -> list[Row]:
    """One row for each reduction."""
    return [
        row(module, *args, to=to, make={**make, "reduction": k}, label=f"{label}{k}", rtol=rtol)
        for k in ("mean", "sum", "none")
    ]


ROWS: list[Row] = [
    *each("MSELoss", to=(A, B)),
    *each("L1Loss", to=(A, B)),
    *each("HuberLoss", to=(A, B)),
    *each("HuberLoss", to=(A, B), label="delta_", delta=0.4),
    *each("SmoothL1Loss", to=(A, B)),
    *each("SmoothL1Loss", to=(A, B), label="beta_", beta=0.4),
    row("SmoothL1Loss", to=(A, B), make={"beta": 0.0}, label="sharp"),
    *each("CrossEntropyLoss", to=(LOGITS, CLASSES)),
    *each("CrossEntropyLoss", to=(LOGITS, IGNORED), label="ignored_"),
    *each("CrossEntropyLoss", WEIGHTS, to=(LOGITS, IGNORED), label="weights_"),
    *each("CrossEntropyLoss", to=(LOGITS, IGNORED), label="smooth_", label_smoothing=0.2),
    *each("CrossEntropyLoss", WEIGHTS, to=(LOGITS, IGNORED), label="both_", label_smoothing=0.2),
    *each("CrossEntropyLoss", to=(LOGITS, CLASSES), label="class1_", ignore_index=1),
    *each("CrossEntropyLoss", to=(LOGITS, P), label="soft_"),
    *each("CrossEntropyLoss", WEIGHTS, to=(LOGITS, P), label="soft_both_", label_smoothing=0.1),
    *each("CrossEntropyLoss", to=(IMAGE, MASK), label="image_"),
    *each("CrossEntropyLoss", WEIGHTS, to=(IMAGE, MASK), label="image_weights_"),
    row("CrossEntropyLoss", to=(LOGITS[0], np.asarray(CLASSES[0])), label="single"),
    row("CrossEntropyLoss", to=(LOGITS * 1e5, CLASSES), label="huge"),
    row("CrossEntropyLoss", WEIGHTS, to=(LOGITS * 1e5, CLASSES), label="huge_weights"),
    *each("NLLLoss", to=(LOG_P, CLASSES)),
    *each("NLLLoss", WEIGHTS, to=(LOG_P, IGNORED), label="weights_"),
    *each("BCELoss", to=(CHANCES * 0.5 + 0.25, CHANCES[::-1].copy())),
    # PyTorch writes its bound of the slope at 0 and 1, 1e-12, in float32.
    row(
        "BCELoss",
        to=CHANCES,
        call={"target": CHANCES[::-1].copy()},
        label="limits",
        rtol=1e-8,
        steps=False,
    ),
    row("BCELoss", values(5, low=0.5, high=2), to=(CHANCES[:3], YES[:3]), label="weights"),
    *each("BCEWithLogitsLoss", to=(A * 20, YES)),
    row("BCEWithLogitsLoss", to=(A, YES), make={"pos_weight": values(5, low=1, high=3)}, label="p"),
    row("BCEWithLogitsLoss", values(5, low=0.5, high=2), to=(A, YES), label="weights"),
    *each("KLDivLoss", to=(LOG_P, P)),
    row("KLDivLoss", to=(LOG_P, P), make={"reduction": "batchmean"}, label="batchmean"),
    row("KLDivLoss", to=(LOG_P, np.log(P)), make={"log_target": True}, label="log"),
    *each("PoissonNLLLoss", to=(A, CHANCES * 3)),
    row("PoissonNLLLoss", False, True, to=(CHANCES + 1, CHANCES * 5 + 0.1), label="full"),
    *each("GaussianNLLLoss", to=(A, B, CHANCES + 0.1)),
    row("GaussianNLLLoss", to=(A, B, CHANCES[:, :1]), make={"full": True}, label="full"),
    *each("CosineEmbeddingLoss", to=(A, B, SIGNS)),
    row("CosineEmbeddingLoss", 0.2, to=(A, B, SIGNS), label="margin"),
    row("CosineSimilarity", to=(A, B)),
    row("CosineSimilarity", 0, to=(A, np.zeros_like(B)), label="zeros"),
    row("PairwiseDistance", to=(A, B)),
    row("PairwiseDistance", 3.0, to=(A, B), make={"keepdim": True}, label="cubic"),
    *each("MarginRankingLoss", to=(A[:, 0].copy(), B[:, 0].copy(), SIGNS)),
    row("MarginRankingLoss", 0.5, to=(A[:, 1].copy(), B[:, 1].copy(), SIGNS), label="margin"),
    *each("HingeEmbeddingLoss", to=(A, np.sign(B))),
    *each("TripletMarginLoss", to=(A, B, A[::-1].copy())),
    row("TripletMarginLoss", to=(A, B, A[::-1] * 0.7), make={"swap": True, "p": 1.0}, label="swap"),
    # --- several classes at once; targets have no gradient in PyTorch
    *(
        row(name, to=A, make={"reduction": k}, call={"target": target}, label=k)
        for name, target in (
            ("SoftMarginLoss", np.sign(B)),
            ("MultiLabelSoftMarginLoss", YES),
            ("MultiLabelMarginLoss", LISTED),
            ("MultiMarginLoss", CLASSES[:4]),
        )
        for k in ("mean", "sum", "none")
    ),
    row("MultiLabelSoftMarginLoss", WEIGHTS, to=LOGITS, call={"target": P}, label="weights"),
    row("MultiMarginLoss", 2, 0.5, WEIGHTS, to=LOGITS, call={"target": CLASSES}, label="options"),
    row("MultiLabelMarginLoss", to=A[0], call={"target": LISTED[0]}, label="single"),
    *(
        row(
            "TripletMarginWithDistanceLoss",
            to=(A, B, A[::-1].copy()),
            make={"distance_function": squares, "margin": 0.5, "swap": swap},
            label=f"swap{swap}",
        )
        for swap in (False, True)
    ),
    row("TripletMarginWithDistanceLoss", to=(A, B, A[::-1].copy())),
    row("AdaptiveLogSoftmaxWithLoss", 5, 9, [2, 5], 2.0, to=(A, MANY)),
    row(
        "AdaptiveLogSoftmaxWithLoss",
        5,
        9,
        [4],
        1.5,
        True,
        to=(A[0], MANY[:1].reshape(())),
        label="single",
    ),
]
