"""Classes and functions for programs that are rewritten."""

from __future__ import annotations

import dataclasses
import enum
import functools
from collections.abc import Callable, Iterator
from typing import Any

SCALE = 3


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Vector:
    """Python methods behind every operator."""

    def __init__(self, *parts: int) -> None:
        self.parts = list(parts)

    def __add__(self, other: Any) -> Any:
        if not isinstance(other, Vector):
            return NotImplemented
        return Vector(*(a + b for a, b in zip(self.parts, other.parts, strict=True)))

    def __radd__(self, other: Any) -> Any:
        return Vector(*(other + a for a in self.parts))

    def __iadd__(self, other: Any) -> Any:
        self.parts = [a + other for a in self.parts]
        return self

    def __neg__(self) -> Any:
        return Vector(*(-a for a in self.parts))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vector) and self.parts == other.parts

    def __lt__(self, other: Any) -> bool:
        return sum(self.parts) < sum(other.parts)

    def __len__(self) -> int:
        return len(self.parts)

    def __iter__(self) -> Iterator[int]:
        return iter(self.parts)

    def __getitem__(self, i: Any) -> Any:
        return self.parts[i]

    def __setitem__(self, i: Any, value: Any) -> None:
        self.parts[i] = value

    def __contains__(self, value: object) -> bool:
        return value in self.parts

    def __call__(self, k: int) -> int:
        return sum(self.parts) * k

    def __repr__(self) -> str:
        return f"Vector{tuple(self.parts)}"

    def __format__(self, spec: str) -> str:
        return f"<{spec}|{self.parts}>"

    def __int__(self) -> int:
        return sum(self.parts)

    def __abs__(self) -> int:
        return max(self.parts)

    def __enter__(self) -> Any:
        self.parts.append(100)
        return self

    def __exit__(self, *_exc: object) -> bool:
        self.parts.pop()
        return _exc[0] is KeyError


class Base:
    kind = "base"

    def __init__(self, n: int = 1) -> None:
        self.n = n
        self.__secret = 10 * n

    def name(self) -> str:
        return f"{self.kind}{self.n}"

    @property
    def double(self) -> int:
        return self.n * 2

    @double.setter
    def double(self, value: int) -> None:
        self.n = value // 2

    @classmethod
    def make(cls, n: int) -> Any:
        return cls(n)

    @staticmethod
    def plus(a: int, b: int) -> int:
        return a + b

    def secret(self) -> int:
        return self.__secret

    def __getattr__(self, name: str) -> Any:
        if name.startswith("no"):
            raise AttributeError(name)
        return f"?{name}"


class Child(Base):
    kind = "child"

    def __init__(self, n: int = 2) -> None:
        super().__init__(n)
        self.extra = [super().name() for _ in range(1)] if False else [n]

    def name(self) -> str:
        return "<" + super().name() + ">"


@dataclasses.dataclass
class Point:
    x: int
    y: int = 2
    tags: list[str] = dataclasses.field(default_factory=list)
    size: int = dataclasses.field(init=False, default=0)

    def __post_init__(self) -> None:
        self.size = self.x + self.y


def doubled(function: Callable[..., int]) -> Callable[..., int]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> int:
        return 2 * function(*args, **kwargs)

    return call


@doubled
def decorated(a: int, *, b: int = 5) -> int:
    return a + b
