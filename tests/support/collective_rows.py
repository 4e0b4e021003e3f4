"""Collectives beside NumPy: what each rank of a 2×2 mesh gets, given the arrays of all of them.

Run as a script, it checks all rows on ranks that MPI started.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import weft
from weft import distributed
from weft.base.world import current_world, ranks_of
from weft.core.bind import bind
from weft.ir.op import OPS

AXES = {"a": 2, "b": 2}
RANKS = 4
Arrays = Sequence[np.ndarray[Any, Any]]


@dataclass(frozen=True)
class Row:
    """
    call    what a rank does with its tensor
    oracle  the arrays of the group in their order, and the place of a rank in it -> its result
    over    the axes of the group
    """

    name: str
    call: Callable[[weft.Tensor], weft.Tensor]
    oracle: Callable[[Arrays, int], Any]
    over: str | None = None
    shape: tuple[int, ...] = (2, 4)
    dtypes: tuple[str, ...] = ("float32", "float64", "bfloat16", "int64")

    def expected(self, arrays: Arrays, rank: int) -> Any:
        over = tuple(AXES) if self.over is None else (self.over,)
        ranks = ranks_of(rank, tuple(AXES.items()), over)
        return self.oracle([arrays[r] for r in ranks], ranks.index(rank))


def _sum(arrays: Arrays, _place: int) -> Any:
    return sum(array.astype(np.float64) for array in arrays)


def _sent(pairs: list[tuple[int, int]]) -> Callable[[Arrays, int], Any]:
    def oracle(arrays: Arrays, place: int) -> Any:
        sources = [a for a, b in pairs if b == place]
        return arrays[sources[0]] if sources else np.zeros_like(arrays[place])

    return oracle


def _exchanged(split: int, concat: int) -> Callable[[Arrays, int], Any]:
    def oracle(arrays: Arrays, place: int) -> Any:
        return np.concatenate([np.split(x, len(arrays), split)[place] for x in arrays], concat)

    return oracle


def _bound(name: str, x: weft.Tensor, **attrs: Any) -> weft.Tensor:
    """A card that only the compiler calls."""
    if name == "own_part":
        x = distributed.broadcast(x)
    mesh = distributed.mesh.current_mesh().axes
    out: weft.Tensor = bind(OPS[name], x, mesh=mesh, over=tuple(AXES), **attrs)
    return out


D = distributed
LARGE = (3, 200_000)  # more than a message of shared memory takes at once
FLOATS = ("float32", "float64", "bfloat16")
SHIFT = [(0, 1), (1, 2), (2, 3), (3, 0)]
ROWS = [
    Row("all_reduce", lambda x: D.all_reduce(x), _sum),
    Row("all_reduce a", lambda x: D.all_reduce(x, "a"), _sum, "a"),
    Row("all_reduce 0-d", lambda x: D.all_reduce(x, "b"), _sum, "b", ()),
    Row("all_reduce empty", lambda x: D.all_reduce(x, "b"), _sum, "b", (0, 3)),
    Row(
        "mean",
        lambda x: D.all_reduce(x, "b", op="mean"),
        lambda arrays, _: _sum(arrays, 0) / 2,
        "b",
        dtypes=FLOATS,
    ),
    Row("all_reduce large", lambda x: D.all_reduce(x), _sum, shape=LARGE, dtypes=("float32",)),
    Row(
        "all_to_all large",
        lambda x: D.all_to_all(x, "a", split_axis=1, concat_axis=1),
        _exchanged(1, 1),
        "a",
        LARGE,
        ("bfloat16",),
    ),
    Row(
        "all_gather large",
        lambda x: D.all_gather(x, "b"),
        lambda a, _: np.concatenate(a),
        "b",
        LARGE,
        ("int64",),
    ),
    Row(
        "prod",
        lambda x: D.all_reduce(x, "b", op="prod"),
        lambda a, _: a[0].astype(np.float64) * a[1],
        "b",
        dtypes=("float32", "int64"),
    ),
    Row(
        "max of many",
        lambda x: D.all_reduce(x, op="max"),
        lambda a, _: np.max(np.stack(a), 0),
        shape=(7, 11),  # whole vectors, and what is left
        dtypes=("float32", "float64", "int64", "uint8", "int32"),
    ),
    Row("sum of many", lambda x: D.all_reduce(x), _sum, shape=(77,), dtypes=("int32", "float64")),
    Row("max", lambda x: D.all_reduce(x, op="max"), lambda a, _: np.max(np.stack(a), 0)),
    Row("min", lambda x: D.all_reduce(x, "a", op="min"), lambda a, _: np.min(np.stack(a), 0), "a"),
    Row("all_gather", lambda x: D.all_gather(x), lambda a, _: np.concatenate(a)),
    Row(
        "all_gather 1",
        lambda x: D.all_gather(x, "b", axis=-1),
        lambda a, _: np.concatenate(a, 1),
        "b",
    ),
    Row(
        "all_gather empty",
        lambda x: D.all_gather(x, "b"),
        lambda a, _: np.concatenate(a),
        "b",
        (0, 3),
    ),
    Row(
        "reduce_scatter",
        lambda x: D.reduce_scatter(x, axis=1),
        lambda a, place: np.split(_sum(a, 0), 4, 1)[place],
    ),
    Row(
        "reduce_scatter 0",
        lambda x: D.reduce_scatter(x, "a"),
        lambda a, p: np.split(_sum(a, 0), 2)[p],
        "a",
    ),
    Row("all_to_all", lambda x: D.all_to_all(x, split_axis=1), _exchanged(1, 0)),
    Row("all_to_all b", lambda x: D.all_to_all(x, "b", concat_axis=1), _exchanged(0, 1), "b"),
    Row("all_to_all same", lambda x: D.all_to_all(x, "b"), _exchanged(0, 0), "b"),
    Row("broadcast", lambda x: D.broadcast(x, root=3), lambda a, _: a[3]),
    Row("broadcast b", lambda x: D.broadcast(x, "b", root=1), lambda a, _: a[1], "b"),
    Row("send around", lambda x: D.send(x, SHIFT), _sent(SHIFT)),
    Row("send one", lambda x: D.send(x, [(1, 0)], "a"), _sent([(1, 0)]), "a"),
    Row("own part", lambda x: _bound("own_part", x, axis=1), lambda a, p: np.split(a[0], 4, 1)[p]),
    Row(
        "placed part",
        lambda x: D.all_reduce(_bound("placed_part", x, axis=0)),
        lambda a, _: np.concatenate(a),
    ),
    Row("first only", lambda x: D.all_reduce(_bound("first_only", x)), lambda a, _: a[0]),
    Row("send nothing", lambda x: D.send(x, []), _sent([])),
    Row(
        "transposed",
        lambda x: D.all_gather(x.T, "a"),
        lambda a, _: np.concatenate([x.T for x in a]),
        "a",
    ),
    Row("reversed", lambda x: D.all_reduce(x[::-1, ::2]), lambda a, _: _sum(a, 0)[::-1, ::2]),
    Row(
        "broadcast operand",
        lambda x: D.reduce_scatter(weft.broadcast_to(x[:1], (4, 4))),
        lambda a, _: _sum(a, 0)[:1],
    ),
    Row(
        "two of them",
        lambda x: D.all_reduce(D.all_gather(x, "a"), "b"),
        lambda a, p: np.concatenate([a[0] + a[1], a[2] + a[3]]),
        dtypes=("float32", "int64"),
    ),
]


def arrays_for(row: Row, dtype: str, seed: int) -> list[Any]:
    rng = np.random.default_rng(seed)
    values = [rng.integers(-8, 9, row.shape) for _ in range(RANKS)]  # sums of these are exact
    values = [abs(v) if dtype == "uint8" else v for v in values]
    return [weft.asarray(np.asarray(v), dtype=getattr(weft, dtype)).numpy() for v in values]


def check_row(row: Row) -> None:
    """Eagerly, compiled and under vmap, with other data each time: compiled calls are a recording,
    then a program that asks Python for its collectives, then one that calls machine code."""
    rank = distributed.rank()
    with distributed.Mesh(AXES):
        compiled = weft.compile(row.call)
        for dtype in row.dtypes:
            for seed in range(4):
                arrays = arrays_for(row, dtype, seed)
                wanted = np.asarray(row.expected(arrays, rank), np.float64)
                x = weft.asarray(arrays[rank].copy())
                for found in (row.call(x), compiled(x)):
                    assert found.dtype.name == dtype, row.name
                    np.testing.assert_array_equal(
                        found.numpy().astype(np.float64), wanted, f"{row.name} {dtype}"
                    )
        if row.shape == (2, 4):
            several = weft.vmap(row.call)(weft.stack([x, x + x]))
            for k, one in enumerate((x, x + x)):
                assert weft.all(several[k] == row.call(one)), row.name


def check_gradient(row: Row) -> None:
    """Beside difference quotients of what all ranks compute together."""
    rank = distributed.rank()
    rng = np.random.default_rng(5)
    arrays = [rng.normal(size=row.shape) for _ in range(RANKS)]
    weights = [rng.normal(size=np.shape(row.expected(arrays, r))) for r in range(RANKS)]

    def total(given: Arrays) -> float:
        return float(sum(np.sum(row.expected(given, r) * weights[r]) for r in range(RANKS)))

    wanted = np.zeros(row.shape)
    for place in np.ndindex(row.shape):
        moved = [array.copy() for array in arrays]
        moved[rank][place] += 1e-6
        wanted[place] = (total(moved) - total(arrays)) / 1e-6
    with distributed.Mesh(AXES):
        x, w = weft.asarray(arrays[rank]), weft.asarray(np.asarray(weights[rank]))
        gradient = weft.grad(lambda x: (row.call(x) * w).sum())
        for found in (gradient(x), weft.compile(gradient)(x)):
            np.testing.assert_allclose(found.numpy(), wanted, atol=1e-6, err_msg=row.name)
        tangent = weft.jvp(row.call, (x,), (x,))[1]  # these are linear, but for the extremes
        np.testing.assert_allclose(tangent.numpy(), row.call(x).numpy(), err_msg=row.name)


def check_messages() -> None:
    """Arrays from each rank to each other one, large ones before anybody takes them."""
    world = current_world()
    others = [rank for rank in range(RANKS) if rank != world.rank]
    kinds = [
        ((), "float32"), ((0, 3), "float64"), ((3, 2), "bfloat16"), ((5,), "bool"),
        ((300, 1000), "float32"), ((2,), "complex64"), ((1, 1, 2), "int64"),
    ]  # fmt: skip

    def array(shape: tuple[int, ...], dtype: str, sender: int) -> Any:
        return weft.full(shape, sender, dtype=getattr(weft, dtype)).numpy()

    for other in others:
        for shape, dtype in kinds:
            given = array(shape, dtype, world.rank).copy()
            world.post(given, other)
            given[...] = 7  # it was sent as it was
    for other in others:
        for shape, dtype in kinds:
            found, wanted = world.take(other), array(shape, dtype, other)
            assert found.dtype == wanted.dtype
            np.testing.assert_array_equal(found, wanted)


if __name__ == "__main__":
    distributed.init(timeout=30)
    for row in ROWS:
        check_row(row)
        if "float64" in row.dtypes:
            check_gradient(row)
    check_messages()
    sys.stdout.write(f"rank {distributed.rank()}: {len(ROWS)} rows\n")  # in one piece
