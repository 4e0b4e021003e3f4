"""Running programs that the fuzzer found once."""

from __future__ import annotations

from fuzzing.case import Argument, Case
from fuzzing.check import check

#: The arguments of programs that were found before there was a matrix among them.
FIRST = (
    Argument("x", ()),
    Argument("v", (3,)),
    Argument("n", None, below=4),
    Argument("k", (), "int64", below=4),
)


def check_program(lines: str) -> None:
    """It runs in every mode as eagerly, or is refused: a name that one way lacks is."""
    body = tuple(lines.strip().splitlines())
    case = Case("program", 0, body, FIRST, calls=tuple(range(5)), second=True)
    result = check(case)
    assert result.state in ("same", "refused"), result.text
