"""Connectionist temporal classification: a loss over all alignments of steps with labels."""

from __future__ import annotations

import contextlib
from typing import Any

from weft.base import dtypes
from weft.base.errors import CaptureError, RangeError, ShapeError
from weft.core.autocast import autocasts
from weft.core.operands import cast
from weft.core.tensor import Tensor, type_of
from weft.nn.functional.checks import below
from weft.nn.functional.loss import reduced
from weft.ops.creation import arange, asarray, full, ones
from weft.ops.elementwise import exp, isinf, log, maximum, minimum
from weft.ops.index import take, take_along_axis
from weft.ops.reduce import cumulative_sum, mean
from weft.ops.select import where
from weft.ops.shape import broadcast_to, concat, expand_dims, reshape, stack
from weft.record.control.loops import makes_graph, scan

__all__ = ["ctc_loss"]

_NEVER = -float("inf")


def _log_sum(parts: list[Tensor]) -> Tensor:
    """log(sum of exp) of log-probabilities, also of -inf, which gets a gradient of 0."""
    top = parts[0]
    for part in parts[1:]:
        top = maximum(top, part)
    top = top.detach()
    level = where(top == _NEVER, 0.0, top)
    total = exp(parts[0] - level)
    for part in parts[1:]:
        total = total + exp(part - level)
    some = total > 0
    return where(some, log(where(some, total, 1.0)) + level, _NEVER)


@autocasts("float32")
def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """Minus the log-probability of the labels, summed over all alignments with the steps.

    log_probs        (steps, batch, classes), or (steps, classes): what log_softmax gives
    targets          (batch, longest): labels; or all labels one after the other as a vector
    input_lengths    how many steps of each sequence are real
    target_lengths   how many labels each sequence has
    zero_infinity    losses of sequences too short for their labels are 0 in place of inf

    The mean is that of each loss divided by the number of its labels. Gradients are those of
    log_probs itself: PyTorch's differ from them by a term that its log_softmax takes away again.

    >>> steps = weft.nn.functional.log_softmax(weft.zeros((4, 1, 3)), -1)
    >>> weft.nn.functional.ctc_loss(steps, weft.asarray([[1, 2]]), [4], [2])
    tensor(0.8431995)
    """
    x, labels, steps, counts = _checked(log_probs, targets, input_lengths, target_lengths, blank)
    batched = log_probs.ndim == 3
    losses = -_alignments(x, labels, steps, counts, blank)
    if zero_infinity:
        losses = where(isinf(losses), 0.0, losses)
    if reduction == "mean":
        return mean(losses / maximum(cast(counts, losses.dtype), 1))
    losses = reduced(losses, reduction, "ctc_loss")
    return losses if batched or reduction != "none" else losses[0]


def _alignments(x: Tensor, labels: Tensor, steps: Tensor, counts: Tensor, blank: int) -> Tensor:
    """The log-probability of each sequence's labels."""
    length, batch = x.shape[:2]
    longest = labels.shape[1]
    # Labels with blanks around them: blank, a, blank, b, blank.
    gaps = full((batch, longest), blank, dtype=labels.dtype, device=x.device)
    walk = reshape(stack([gaps, labels], axis=-1), (batch, 2 * longest))
    walk = concat([walk, full((batch, 1), blank, dtype=labels.dtype, device=x.device)], axis=1)
    size = 2 * longest + 1
    scores = take_along_axis(x, broadcast_to(walk[None], (length, batch, size)), axis=2)
    # A blank may be left out between two different labels.
    leaps = (walk[:, 2:] != blank) & (walk[:, 2:] != walk[:, :-2])
    leaps = concat([_false(batch, min(2, size), x), leaps], axis=1)
    place = arange(size, device=x.device)
    start = where(place < 2, scores[0], _NEVER)
    running = arange(1, length, device=x.device)[:, None, None] < reshape(steps, (1, -1, 1))

    def step(state: tuple[Tensor], given: tuple[Tensor, Tensor]) -> tuple[tuple[Tensor], Tensor]:
        (old,), (score, going) = state, given
        ways = [old]
        for skipped in range(1, min(3, size)):
            edge = full((batch, skipped), _NEVER, dtype=old.dtype, device=old.device)
            ways.append(concat([edge, old[:, :-skipped]], axis=1))
        if size > 2:
            ways[2] = where(leaps, ways[2], _NEVER)
        new = where(going, _log_sum(ways) + score, old)
        return (new,), new[:, 0]

    state = (start,)
    if makes_graph() and length > 1:
        state, _ = scan(step, state, (scores[1:], running))
    else:
        for t in range(length - 1):
            state, _ = step(state, (scores[t + 1], running[t]))
    last = expand_dims(2 * counts, -1)
    ends = [take_along_axis(state[0], last, axis=1)[:, 0]]
    before = take_along_axis(state[0], maximum(last - 1, 0), axis=1)[:, 0]
    ends.append(where(counts > 0, before, _NEVER))
    found = _log_sum(ends)
    # Without steps, only an empty list of labels is certain.
    return where(steps > 0, found, where(counts > 0, _NEVER, 0.0))


def _false(batch: int, count: int, like: Tensor) -> Tensor:
    return ones((batch, count), dtype=dtypes.bool, device=like.device) == False  # noqa: E712


def _lengths(value: Any, batch: int, name: str, like: Tensor) -> Tensor:
    found = asarray(value, device=like.device) if not isinstance(value, Tensor) else value
    found = reshape(found, (1,)) if found.ndim == 0 else found
    if found.shape != (batch,) or found.dtype.kind not in ("int", "uint"):
        raise ShapeError(
            f"{name} are {batch} integers, one for each sequence, not {found.type}", op="ctc_loss"
        )
    return cast(found, dtypes.int64)


def _checked(
    log_probs: Tensor, targets: Tensor, input_lengths: Any, target_lengths: Any, blank: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(steps, batch, classes), labels (batch, longest), and both lengths."""
    if log_probs.ndim not in (2, 3) or not log_probs.shape[0]:
        raise ShapeError(
            f"log_probs have shape {log_probs.shape}, not (steps, batch, classes)",
            op="ctc_loss",
            operands=[type_of(log_probs)],
        )
    x = log_probs if log_probs.ndim == 3 else expand_dims(log_probs, 1)
    length, batch, classes = x.shape
    if not 0 <= blank < classes:
        raise RangeError(f"blank {blank} is none of {classes} classes", op="ctc_loss")
    if targets.dtype.kind not in ("int", "uint"):
        raise ShapeError(f"targets are integers, not {targets.dtype.name}", op="ctc_loss")
    steps = _lengths(input_lengths, batch, "input_lengths", x)
    counts = _lengths(target_lengths, batch, "target_lengths", x)
    labels = cast(targets, dtypes.int64)
    if log_probs.ndim == 2 and labels.ndim == 1:
        labels = expand_dims(labels, 0)
    if labels.ndim == 1:
        labels = _padded(labels, counts)
    if labels.ndim != 2 or labels.shape[0] != batch:
        raise ShapeError(
            f"targets of shape {targets.shape} are not those of {batch} sequences",
            op="ctc_loss",
            operands=[type_of(targets)],
        )
    longest = labels.shape[1]
    steps = below(steps, length + 1, f"input_lengths are not in 0 … {length}", "ctc_loss")
    counts = below(counts, longest + 1, f"target_lengths are not in 0 … {longest}", "ctc_loss")
    real = arange(longest, device=x.device) < counts[:, None]
    known = where(real, labels, blank)
    return (
        x,
        below(known, classes, f"a label is none of {classes} classes", "ctc_loss"),
        steps,
        counts,
    )


def _padded(labels: Tensor, counts: Tensor) -> Tensor:
    """Labels that stand one after the other, as one row for each sequence."""
    longest = labels.shape[0]  # in a graph no number is known: as long as all together
    if not makes_graph() and counts.size:
        with contextlib.suppress(CaptureError):  # under vmap, each element has its own
            longest = int(counts.max())
    first = cumulative_sum(counts) - counts
    places = first[:, None] + arange(longest, device=labels.device)
    if not labels.shape[0]:
        return places * 0
    places = minimum(places, labels.shape[0] - 1)
    return reshape(take(labels, reshape(places, (-1,))), places.shape)
