"""Ops for tests of graphs, of kinds that the cards do not have: effects and nested graphs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from weft.ir.op import OPS, Op, Trait
from weft.ir.types import TOKEN


def _print_type(token: Any, *values: Any, message: str) -> Any:
    return TOKEN


def _choose_type(condition: Any, *values: Any, graphs: Any) -> Any:
    return tuple(value.type for value in graphs[0].outputs)


def _sized_type(x: Any, *, size: Any, table: Any = None) -> Any:
    return x


def _any_type(*values: Any, **attrs: Any) -> Any:
    return values


def _none(*_args: Any, **_attrs: Any) -> Any:
    raise NotImplementedError


@contextmanager
def graph_ops() -> Iterator[None]:
    """The ops `t_print` (an effect), `t_choose` (two nested graphs), `t_sized`, `t any`."""
    ops = [
        Op("t_print", _print_type, _none, traits=Trait.EFFECT),
        Op("t_choose", _choose_type, _none),
        Op("t_sized", _sized_type, _none),
        Op("t any", _any_type, _none),
    ]
    try:
        yield
    finally:
        for op in ops:
            del OPS[op.name]
