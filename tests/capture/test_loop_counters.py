"""Loop counters, and what is computed of them, are Python numbers where only a graph knows them.

What is made of them has the dtype and the value that it has eagerly.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft

MADE: dict[str, Callable[[Any, Any], Any]] = {
    "full": lambda n, x: weft.full((2,), n / 4),
    "full of an int": lambda n, x: weft.full((2,), n),
    "full of a bool": lambda n, x: weft.full((2,), n > 1),
    "full of a complex": lambda n, x: weft.full((2,), n * 1j),
    "full with a dtype": lambda n, x: weft.full((2,), n / 4, dtype=weft.float16),
    "full_like": lambda n, x: weft.full_like(x, n),
    "asarray": lambda n, x: weft.asarray(n / 4),
    "asarray of an int": lambda n, x: weft.asarray(n),
    "asarray of a comparison": lambda n, x: weft.asarray(n == 2),
    "asarray with a dtype": lambda n, x: weft.asarray(n / 4, dtype="float64"),
    "asarray of float(n)": lambda n, x: weft.asarray(float(n)),
    "asarray of min": lambda n, x: weft.asarray(min(n / 4, 2)),
    "asarray of a root": lambda n, x: weft.asarray(n**0.5),
    "asarray of divmod": lambda n, x: weft.asarray(divmod(n, 2)),
    "tensor": lambda n, x: weft.tensor(n / 4),
    "tensor of a list": lambda n, x: weft.tensor([n / 4, 1.0]),
    "tensor of ints": lambda n, x: weft.tensor([n, 2]),
    "tensor of both": lambda n, x: weft.tensor([[n, n + 1], [n / 2, 3]]),
    "tensor of bools": lambda n, x: weft.tensor([n > 1, True]),
    "beside a tensor": lambda n, x: weft.concat([weft.full((1,), n / 4), x]),
    "weak beside float16": lambda n, x: x.astype("float16") * (n / 4),
    "weak beside int8": lambda n, x: x.astype("int8") * n,
    "where": lambda n, x: weft.where(x > 1, n / 4, 0.0),
    "sin": lambda n, x: weft.sin(n / 4),
}


@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize("backend", ["interpret", "native"])
def test_dtypes_are_as_eagerly(name: str, backend: str) -> None:
    make = MADE[name]

    def counted(x: Any) -> Any:
        y = make(7, x)
        for n in range(1, 4):
            y = make(n, x)
        return y

    def carried(x: Any) -> Any:
        n = 1
        while n * x[0] < 4:
            n = n + 1
        return make(n, x)

    for function in (counted, carried):
        compiled = weft.compile(function, backend=backend)
        for x in ([1.0, 2.0], [3.0, 0.5], [9.0, 4.0]):
            got, want = compiled(weft.tensor(x)), function(weft.tensor(x))
            assert got.type == want.type
            np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-6)
        assert len(compiled.recordings) == 1
