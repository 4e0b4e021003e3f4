"""Attributes as keys, by which two calls of an op are compared.

`==` on attributes is not enough: 1, True and 1.0 are equal, 0.0 and -0.0 are equal, and NaN is not
equal to itself. And slices have no hash in Python 3.11.
"""

from __future__ import annotations

import struct
from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np


def attrs_key(attrs: Mapping[str, Any]) -> Hashable:
    """A key that is equal for equal attributes: same types all the way down, same bits of floats.

    >>> from weft.ir.attributes import attrs_key
    >>> attrs_key({"a": 1, "b": 2}) == attrs_key({"b": 2, "a": 1})
    True
    >>> attrs_key({"a": 0.0}) == attrs_key({"a": -0.0})
    False
    """
    if not attrs:
        return ()
    if len(attrs) == 1:
        [(name, value)] = attrs.items()
        return (name, attr_key(value))
    return tuple([(name, attr_key(attrs[name])) for name in sorted(attrs)])


def attr_key(value: Any) -> Hashable:
    """The key of one attribute."""
    kind = type(value)
    if kind is int or kind is bool or kind is str or value is None:
        return kind, value
    if kind is tuple or kind is list:
        return kind, tuple([attr_key(part) for part in value])
    if kind is float:
        return kind, struct.pack("<d", value)
    if kind is complex:
        return kind, struct.pack("<dd", value.real, value.imag)
    if kind is slice:
        return kind, attr_key(value.start), attr_key(value.stop), attr_key(value.step)
    if kind is dict:
        # Regardless of order, like equality of dicts.
        return kind, frozenset([(attr_key(name), attr_key(part)) for name, part in value.items()])
    if isinstance(value, np.generic):
        return kind, value.dtype.str, value.tobytes()
    if isinstance(value, np.ndarray):
        return kind, value.dtype.str, value.shape, value.tobytes()
    try:
        hash(value)
    except TypeError:
        return kind, "at", id(value)  # an unknown object is only equal to itself
    return kind, value
