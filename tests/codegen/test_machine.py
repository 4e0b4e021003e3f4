"""What is known about the machine that code is made for."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from weft.codegen import cache, machine
from weft.codegen.machine import Caches, host

#: level, type, size and ways as Linux writes them; what is made of them.
SYSTEMS = {
    "zen": (
        [
            ("1", "Data", "48K", "12"),
            ("1", "Instruction", "32K", "8"),
            ("2", "Unified", "1024K", "16"),
            ("3", "Unified", "32768K", "16"),
        ],
        Caches(48 << 10, 1 << 20, 32 << 20, 4096),
    ),
    "small": (
        [("1", "Data", "32K", "4"), ("2", "Unified", "128K", "8")],
        Caches(32 << 10, 256 << 10, 256 << 10, 8192),
    ),
    "large": (
        [("1", "Data", "64K", ""), ("2", "Unified", "12M", "12")],
        Caches(64 << 10, 2 << 20, 12 << 20),
    ),
    "odd": ([("1", "Data", "?", "0")], Caches()),
    "silent": ([], Caches()),
}


@pytest.mark.parametrize("name", SYSTEMS)
def test_caches_are_what_the_system_says(name: str, tmp_path: Path) -> None:
    rows, wanted = SYSTEMS[name]
    for number, row in enumerate(rows):
        place = tmp_path / f"index{number}"
        place.mkdir()
        for file, word in zip(("level", "type", "size", "ways_of_associativity"), row, strict=True):
            (place / file).write_text(f"{word}\n")
    assert machine._settled(machine._of_sysfs(tmp_path)) == wanted


def test_the_clock_is_what_the_system_says(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo_max_freq").write_text("4500000\n")
    assert machine._ghz(tmp_path / "cpuinfo_max_freq") == 4.5
    assert machine._ghz(tmp_path / "none") == 3.0


def test_code_is_kept_by_the_caches_it_is_cut_for() -> None:
    other = dataclasses.replace(host(), caches=Caches(16 << 10))
    assert cache._build_key(other) != cache._build_key(host())
