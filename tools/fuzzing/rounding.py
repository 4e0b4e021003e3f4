"""What rounding alone explains.

Two right programs differ by how their ops round. How much that matters for a result is measured,
not guessed: the reference is run again several times with noise of a few units in the last place on
the result of every op that rounds, and on the operands of every op that sums. What a result moves
by then is what rounding can do to it; a comparison or an index that flips shows in the same way.
Where a choice depends on rounding, noise need not show all that may follow, and nothing is said
(`choices.py`). Only results that are not almost equal anyway are judged so: the noise costs some
runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import ml_dtypes
import numpy as np

from fuzzing.choices import Choices
from weft.base.pytree import tree_map
from weft.core.bind import bind
from weft.core.tensor import Tensor, wrap
from weft.ir.op import Op, Trait
from weft.runtime import interpreted

#: How many runs with noise, and how many in all before something is called wrong.
RUNS, MOST_RUNS = 12, 72
#: How many units in the last place the noise has; how much more than what was seen is allowed.
UNITS, MARGIN = 2.0, 8.0
#: A long sum is off by a unit of its operands for every so many terms.
TERMS = 1024
#: Almost equal: this many units in the last place, of the number or of 1.
ALMOST = 64.0
#: What `explained` says other than the number of a result.
EXPLAINED, UNDECIDED = -1, -2

#: Ops that only choose or move elements, or change signs.
EXACT = {
    *("where", "negative", "abs", "positive", "relu", "maximum", "minimum", "max", "min", "sort"),
    *("concat", "gather", "setitem", "scatter", "take", "take_along_axis", "sign", "full", "eye"),
    *("floor", "ceil", "trunc", "round", "max_pool", "max_pool_pick", "embedding", "constant"),
    *("stop_gradient", "real", "imag", "conj", "arange", "repeat", "nonzero", "list_item"),
    *("argmax", "argmin", "argsort", "any", "all", "searchsorted", "unique_all", "stack_new"),
    *("max_pool_indices", "max_pool_input", "stack_zeros", "stack_push", "stack_pop", "list_of"),
    *("list_all", "list_rows", "list_only", "random_advance", "random_bits", "random_integers"),
}


def eps_of(dtype: Any) -> float:
    return float(ml_dtypes.finfo(dtype).eps)


def is_float(x: Any) -> bool:
    return isinstance(x, np.ndarray) and x.dtype.kind in "fV" and x.dtype.names is None


class Noise:
    """An op call like `bind`, with noise on what rounds; none without a seed.

    In every other run all elements of a tensor move up, or all down, as they do where one number
    that was rounded, such as a mean, went into all of them.
    """

    def __init__(self, seed: int | None, choices: Choices) -> None:
        self.is_clean = seed is None
        self.rng = np.random.default_rng(seed)
        self.together = (seed or 0) % 2 == 1
        self.choices = choices
        choices.start()

    def call(self, op: Op, *inputs: Any, **attrs: Any) -> Any:
        self.choices.note(op, inputs, attrs)
        exact = self.is_clean or op.name in EXACT or Trait.VIEW in op.traits
        if exact:
            return bind(op, *inputs, **attrs)
        if not op.elementwise:
            inputs = tuple([self.noisy(x) for x in inputs])
        out = bind(op, *inputs, **attrs)
        if not op.elementwise:
            shift = self.long_sums(op, inputs, attrs)
            out = tree_map(lambda x: self.shifted(x, shift), out)
        return tree_map(self.noisy, out)

    @staticmethod
    def long_sums(op: Op, inputs: Sequence[Any], attrs: dict[str, Any]) -> float:
        """By how much the sums in an op may be off, in the units of their dtype: it grows with the
        number of terms, and with the largest partial sum."""
        found = [x._data for x in inputs if isinstance(x, Tensor) and is_float(x._data) and x.size]
        if max((x.size for x in found), default=0) < TERMS:
            return 0.0
        largest = max(map(_largest, found))
        if op.traits & (Trait.REDUCTION | Trait.PRODUCT):
            sizes = [wrap(np.abs(x._data)) if isinstance(x, Tensor) else x for x in inputs]
            largest = max(
                largest, *tree_map(lambda x: _largest(x._data), [bind(op, *sizes, **attrs)])
            )
        return UNITS * max(x.size for x in found) / TERMS * largest

    def shifted(self, out: Any, shift: float) -> Any:
        """All of a result moves by what the sums in it may be off: a mean that is subtracted."""
        if not shift or not isinstance(out, Tensor) or not is_float(out._data):
            return out
        moved = self.rng.uniform(-shift, shift) * eps_of(out._data.dtype)
        return wrap(np.asarray(np.asarray(out._data, np.float64) + moved).astype(out._data.dtype))

    def noisy(self, x: Any) -> Any:
        if isinstance(x, Tensor) and x.dtype.kind == "complex":
            return self.noisy_complex(x)
        if not isinstance(x, Tensor) or not is_float(x._data):
            return x
        array = x._data
        wide = np.asarray(array, np.float64)
        shape = () if self.together else array.shape
        size = np.where(np.isfinite(wide), np.abs(wide), 0.0)
        moved = size * self.rng.uniform(-UNITS, UNITS, shape) * eps_of(array.dtype)
        return wrap(np.asarray(wide + moved).astype(array.dtype))

    def noisy_complex(self, x: Tensor) -> Tensor:
        """Each part moves by units of the whole number."""
        array = x._data
        wide = np.asarray(array, np.complex128)
        shape = () if self.together else array.shape
        size = np.where(np.isfinite(wide), np.abs(wide), 0.0) * eps_of(array.real.dtype)
        moved = [self.rng.uniform(-UNITS, UNITS, shape) for _ in range(2)]
        with np.errstate(all="ignore"):
            return wrap(np.asarray(wide + size * (moved[0] + 1j * moved[1])).astype(array.dtype))


def _largest(array: Any) -> float:
    return float(np.abs(np.nan_to_num(np.asarray(array, np.float64))).max(initial=0.0))


@contextmanager
def noise(seed: int | None, choices: Choices) -> Iterator[None]:
    """Graphs that the interpreter runs have noise, and note their choices."""
    before, interpreted.bind = interpreted.bind, Noise(seed, choices).call
    try:
        yield
    finally:
        interpreted.bind = before


def almost(a: Any, b: Any) -> bool:
    """Whether two results are the same, or so near that nothing can be wrong."""
    if not isinstance(a, np.ndarray) or not isinstance(b, np.ndarray):
        x, y = _plain(a), _plain(b)
        return x == y or (x != x and y != y) or _close(x, y)
    if not is_float(a):
        return bool(np.array_equal(a, b))
    return bool(np.all(_apart(a, b) <= _allowed(a)))


def _plain(x: Any) -> Any:
    return x.item() if isinstance(x, np.ndarray) else x


def _close(x: Any, y: Any) -> bool:
    number = isinstance(x, (int, float)) and isinstance(y, (int, float))
    return number and abs(x - y) <= 1e-9 * max(1.0, abs(x))


def _allowed(a: Any) -> Any:
    wide = np.abs(np.asarray(a, np.float64))
    return ALMOST * eps_of(a.dtype) * (np.where(np.isfinite(wide), wide, 0) + 1)


def _apart(a: Any, b: Any) -> Any:
    """How far apart elements are; 0 where both are the same, infinities and NaN included."""
    x, y = np.asarray(a, np.float64), np.asarray(b, np.float64)
    same = (x == y) | (np.isnan(x) & np.isnan(y))
    with np.errstate(all="ignore"):
        apart = np.abs(x - y)
    return np.where(same, 0.0, np.where(np.isnan(apart), np.inf, apart))


#: Runs the reference with noise of a seed, or none: its results, or None if it went another way.
Again = Callable[[int | None, Choices], Sequence[Any] | None]


def explained(want: Sequence[Any], got: Sequence[Any], again: Again) -> int:
    """The number of the first result that rounding does not explain, or `EXPLAINED`.

    `UNDECIDED` where rounding decides which way the reference goes.
    """
    doubtful = [i for i, pair in enumerate(zip(want, got, strict=True)) if not almost(*pair)]
    if not doubtful:
        return EXPLAINED
    again(None, Choices())  # it may be captured first
    choices = Choices()
    again(None, choices)
    moved: dict[int, Any] = {}
    worst = EXPLAINED
    for seed in range(MOST_RUNS):
        noisy = again(seed, choices)
        if noisy is None or len(noisy) != len(want):
            return UNDECIDED
        for i in doubtful:
            if isinstance(want[i], np.ndarray) and np.shape(noisy[i]) != np.shape(want[i]):
                return UNDECIDED
            apart = _apart(_number(want[i]), _number(noisy[i]))
            moved[i] = np.maximum(moved.get(i, 0.0), apart)
        if (seed + 1) % RUNS == 0:
            wrong = [i for i in doubtful if not _within(want[i], got[i], moved[i])]
            if not wrong:
                return EXPLAINED
            worst = wrong[0]
    return UNDECIDED if choices.undecided(MARGIN) else worst


def _within(want: Any, got: Any, moved: Any) -> bool:
    """Whether a result is no further off than the noise moved it, with a margin."""
    a = _number(want)
    if not is_float(a):
        return bool(np.all((_apart(a, _number(got)) == 0) | (moved > 0)))
    typical = np.where(np.isfinite(moved), moved, 0.0)
    room = MARGIN * moved + _allowed(a)
    if typical.size:
        room = room + float(np.sqrt(np.mean(typical**2)))
    return bool(np.all(_apart(a, _number(got)) <= room))


def _number(x: Any) -> Any:
    return x if isinstance(x, np.ndarray) else np.asarray(x)
