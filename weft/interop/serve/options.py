"""What can be chosen for a server."""

from __future__ import annotations

from dataclasses import dataclass, fields

from weft.base.errors import RangeError

__all__ = ["Options"]


@dataclass(frozen=True)
class Options:
    """The limits of a server; `weft.serve` says what they mean."""

    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 1
    threads: int | None = None
    max_batch: int = 32
    max_delay: float = 0.0
    max_body: int = 64 << 20
    max_json: int = 16 << 20
    max_queue: int = 256
    timeout: float = 30.0
    idle: float = 60.0
    grace: float = 30.0
    stateful: bool = False
    access_log: bool = False

    def __post_init__(self) -> None:
        least = {"workers": 1, "max_batch": 1, "max_body": 1, "max_json": 1, "max_queue": 1}
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, (int, float)) and not value >= least.get(field.name, 0):
                raise RangeError(
                    f"{field.name} is {value}: at least {least.get(field.name, 0)} is expected",
                    op="serve",
                )
        for name in ("timeout", "idle"):
            if not getattr(self, name) > 0:
                raise RangeError(f"{name} is {getattr(self, name)}, not above 0", op="serve")
        if self.threads is not None and self.threads < 1:
            raise RangeError(f"threads is {self.threads}, not above 0", op="serve")
        if self.stateful and self.workers > 1:
            raise RangeError(
                "a program that writes to its state is served by one worker",
                op="serve",
                hint="leave out stateful, or workers",
            )
