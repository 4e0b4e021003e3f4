"""What can be chosen for a server."""

from __future__ import annotations

from dataclasses import dataclass, fields

from weft.base.errors import RangeError

__all__ = ["Options"]

#: The least and the largest of options; of all others, 0 or more.
LIMITS: dict[str, tuple[float, float]] = {
    "port": (0, 65535),
    "workers": (1, 1000),
    "threads": (1, 1000),
    "max_batch": (1, 1 << 20),
    "max_delay": (0.0, 60.0),
    "max_body": (1, 1 << 40),
    "max_json": (1, 1 << 40),
    "max_queue": (1, 1 << 20),
    "timeout": (0.001, 86400.0),
    "idle": (0.001, 86400.0),
    "grace": (0.0, 86400.0),
}


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
        for field in fields(self):
            value = getattr(self, field.name)
            least, most = LIMITS.get(field.name, (0, 1 << 62))
            if isinstance(value, (int, float)) and not least <= value <= most:
                raise RangeError(
                    f"{field.name} is {value}, not from {least} to {most}",
                    op="serve",
                )
        if self.stateful and self.workers > 1:
            raise RangeError(
                "a program that writes to its state is served by one worker",
                op="serve",
                hint="leave out stateful, or workers",
            )
