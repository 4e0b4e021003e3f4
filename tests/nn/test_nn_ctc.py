"""CTC beside PyTorch's, with gradients of the logits, eager and as machine code."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from nn_samples.table import indices, values
from peer import figures

import weft
import weft.nn.functional as F

LOGITS = values(9, 4, 6, low=-2, high=2)
LABELS = indices(4, 5, below=5, seed=1) + 1
LABELS[1] = [2, 2, 3, 3, 3]  # repeated labels need a blank between them
CASES: dict[str, tuple[Any, Any, Any, dict[str, Any]]] = {
    "padded": (LABELS, [9, 9, 7, 5], [5, 3, 4, 2], {}),
    "sum": (LABELS, [9, 9, 7, 5], [5, 3, 4, 2], {"reduction": "sum"}),
    "none": (LABELS, [9, 9, 7, 5], [5, 3, 4, 2], {"reduction": "none"}),
    "blank": (LABELS % 5, [9, 8, 7, 6], [3, 4, 2, 1], {"blank": 5}),
    "joined": (LABELS.reshape(-1)[:11], [9, 9, 7, 5], [5, 0, 4, 2], {}),
    "no labels": (LABELS, [9, 9, 7, 5], [0, 0, 4, 2], {"reduction": "none"}),
    "too short": (
        LABELS,
        [9, 4, 3, 2],
        [5, 5, 4, 2],
        {"zero_infinity": True, "reduction": "none"},
    ),
    "one step": (LABELS, [1, 1, 1, 1], [1, 0, 1, 1], {"reduction": "none"}),
}


def outcome(library: Any, case: str, make: Any, run: Any = None) -> dict[str, Any]:
    labels, steps, counts, options = CASES[case]
    logits = make(LOGITS)
    logits.requires_grad = True

    def work(logits: Any, labels: Any, steps: Any, counts: Any) -> Any:
        scores = library.nn.functional.log_softmax(logits, -1)
        return library.nn.CTCLoss(**options)(scores, labels, steps, counts)

    given = (logits, make(labels), make(np.array(steps)), make(np.array(counts)))
    loss = (run(work) if run else work)(*given)
    (loss * make(values(*loss.shape, seed=2))).sum().backward()
    return {"loss": loss, "grad": logits.grad}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("way", ["eager", "native"])
def test_ctc(case: str, way: str) -> None:
    name = f"nn_ctc_{case.replace(' ', '_')}"
    want = figures(name, lambda torch: outcome(torch, case, torch.tensor))
    run = None if way == "eager" else lambda f: weft.compile(f, backend="native")
    for key, got in outcome(weft, case, weft.asarray, run).items():
        np.testing.assert_allclose(
            got.detach().numpy(), want[key], rtol=1e-9, atol=1e-12, err_msg=key
        )


def test_without_a_batch_and_second_derivatives() -> None:
    scores = F.log_softmax(weft.asarray(LOGITS), -1)
    alone = F.ctc_loss(scores[:, 0], weft.asarray(LABELS[0]), 9, 5, reduction="none")
    assert alone.shape == ()
    among = F.ctc_loss(scores, weft.asarray(LABELS), [9] * 4, [5, 3, 4, 2], reduction="none")
    np.testing.assert_allclose(alone.item(), among[0].item(), rtol=1e-12)

    def loss(logits: weft.Tensor) -> weft.Tensor:
        return F.ctc_loss(F.log_softmax(logits, -1), weft.asarray(LABELS[:1, :2]), [3], [2])

    weft.check_grads(loss, [weft.asarray(LOGITS[:3, :1])], order=2)


def test_a_sequence_too_short_for_its_labels_has_an_infinite_loss() -> None:
    scores = F.log_softmax(weft.asarray(LOGITS), -1)
    loss = F.ctc_loss(scores, weft.asarray(LABELS), [2] * 4, [5] * 4, reduction="none")
    assert loss.tolist() == [np.inf] * 4


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"input_lengths": [10] * 4}, "input_lengths .* not in 0 … 9"),
        ({"target_lengths": [6] * 4}, "target_lengths .* not in 0 … 5"),
        ({"input_lengths": [9]}, "input_lengths are 4 integers"),
        ({"blank": 6}, "blank 6 is none of 6"),
        ({"targets": weft.asarray(LABELS + 5)}, "a label is none of 6 classes"),
        ({"targets": weft.asarray(LABELS[:2])}, "not those of 4 sequences"),
    ],
)
def test_errors(change: dict[str, Any], message: str) -> None:
    options: dict[str, Any] = {
        "targets": weft.asarray(LABELS),
        "input_lengths": [9] * 4,
        "target_lengths": [5] * 4,
    }
    with pytest.raises(ValueError, match=message):
        F.ctc_loss(weft.asarray(LOGITS), **(options | change))
