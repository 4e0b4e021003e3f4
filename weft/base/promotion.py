"""Type promotion: the result dtype of an op on several dtypes and Python numbers.

The rules, in order:

1. equal dtypes stay as they are;
2. the higher kind wins (bool < integer < floating < complex), and keeps its own width: an integer
   never widens a float (int64 + float32 is float32);
3. within a kind the wider dtype wins; float16 + bfloat16 is float32; signed + unsigned is the next
   wider signed integer, and for uint64, where there is none, an error;
4. a real float mixed with a complex gives the complex dtype that holds both;
5. Python numbers are weak: they take the dtype of the tensor they meet, or the default dtype of
   their own kind where that is higher than the tensor's.
"""

from __future__ import annotations

from collections.abc import Iterable

from weft.base import dtypes
from weft.base.dtypes import DType, Kind
from weft.base.errors import DTypeError

__all__ = ["set_promotion"]

#: The order of kinds; one of a later place holds those before it.
RANKS = {"bool": 0, "int": 1, "uint": 1, "float": 2, "complex": 3}

#: A cache of pairs; users may add entries for their own dtypes.
_TABLE: dict[tuple[DType, DType], DType] = {}


def promote(a: DType, b: DType) -> DType:
    """The dtype that holds both."""
    if a is b:
        return a
    found = _TABLE.get((a, b))
    if found is None:
        found = _TABLE[a, b] = _TABLE[b, a] = _promote(a, b)
    return found


def promote_all(first: DType, *others: DType) -> DType:
    for other in others:
        first = promote(first, other)
    return first


def set_promotion(a: DType, b: DType, result: DType) -> None:
    """Set the dtype that two dtypes promote to; one of them must be your own."""
    _TABLE[a, b] = _TABLE[b, a] = result


def promote_weak(dtype: DType, kind: Kind) -> DType:
    """The dtype of a tensor of `dtype` combined with a Python number of `kind`."""
    if RANKS[kind] <= RANKS[dtype.kind]:
        return dtype
    if kind == "complex":
        return dtypes.complex_dtype(dtype)
    return dtypes.default_for_kind(kind)


def _promote(a: DType, b: DType) -> DType:
    if RANKS[a.kind] > RANKS[b.kind]:
        a, b = b, a
    if a.name not in _STANDARD or b.name not in _STANDARD:
        raise _no_common(a, b)
    if RANKS[a.kind] < RANKS[b.kind]:
        return dtypes.complex128 if a is dtypes.float64 and b.kind == "complex" else b
    if a.kind == b.kind:
        if a.itemsize == b.itemsize:  # float16 and bfloat16: neither holds the other
            return dtypes.float32
        return a if a.itemsize > b.itemsize else b
    signed, unsigned = (a, b) if a.kind == "int" else (b, a)
    if signed.itemsize > unsigned.itemsize:
        return signed
    if unsigned.itemsize == 8:
        raise _no_common(a, b)
    return dtypes.DTYPES[f"int{2 * unsigned.bits}"]


_STANDARD = frozenset(dtypes.DTYPES)


def _no_common(a: DType, b: DType) -> DTypeError:
    return DTypeError(
        f"no dtype holds all values of both {a.name} and {b.name}",
        hint="cast one of them: x.astype(...)",
    )


def can_cast(source: DType, target: DType) -> bool:
    """Whether `source` promotes to `target`, so that a cast loses nothing but precision."""
    try:
        return promote(source, target) is target
    except DTypeError:
        return False


def result_dtype(given: Iterable[DType], weak: Iterable[Kind] = ()) -> DType:
    """The common dtype of tensors' dtypes and of the kinds of Python numbers."""
    strong = list(given)
    kinds = sorted(weak, key=RANKS.__getitem__)
    if strong:
        result = promote_all(*strong)
    elif kinds:
        result = dtypes.default_for_kind(kinds[0])
    else:
        raise DTypeError("at least one tensor, dtype or number is needed", op="result_type")
    for kind in kinds:
        result = promote_weak(result, kind)
    return result
