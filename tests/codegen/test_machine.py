"""What is known about the machine that code is made for."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import pytest

import weft
import weft.nn.functional as F
from weft.codegen import cache, machine
from weft.codegen.machine import Caches, Machine, host
from weft.codegen.program import CpuEmitter
from weft.codegen.text import Module
from weft.passes.lowering.lower import lowered
from weft.schedule.planner import plan_program

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


#: What macOS says; what is made of it.
MACS = {
    "m1": (
        {
            "perflevel0.l1dcachesize": 128,
            "perflevel0.l2cachesize": 12288,
            "perflevel0.cpusperl2": 4,
        },
        Caches(128 << 10, 2 << 20, 12 << 20),
    ),
    "intel": (
        {"l1dcachesize": 32, "l2cachesize": 256, "l3cachesize": 8192},
        Caches(32 << 10, 256 << 10, 8 << 20),
    ),
    "silent": ({}, Caches()),
}


@pytest.mark.parametrize("name", MACS)
def test_caches_are_what_macos_says(name: str) -> None:
    said, wanted = MACS[name]

    def asked(word: str) -> int:
        found = said.get(word.removeprefix("hw."), 0)
        return found if word.endswith("cpusperl2") else found << 10

    assert machine._settled(machine._of_sysctl(asked)) == wanted


def test_the_clock_is_what_the_system_says(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo_max_freq").write_text("4500000\n")
    assert machine._ghz(tmp_path / "cpuinfo_max_freq") == 4.5
    assert machine._ghz(tmp_path / "none") == 3.0


def test_code_is_kept_by_the_caches_it_is_cut_for() -> None:
    other = dataclasses.replace(host(), caches=Caches(16 << 10))
    assert cache._build_key(other) != cache._build_key(host())


# --- programs for another machine than this one ---------------------------------------------------


def _attention(q: Any, k: Any, v: Any) -> Any:
    return F.scaled_dot_product_attention(q, k, v)


ARM = Machine(
    "aarch64-unknown-linux-gnu", "neoverse-n1", "+neon", 16, Caches(64 << 10, 1 << 20, 8 << 20)
)
PROGRAMS: list[tuple[Callable[..., Any], list[tuple[int, ...]]]] = [
    (lambda x, w: F.gelu(F.layer_norm(x, (130,)) @ w), [(64, 130), (130, 70)]),
    (lambda x, w: F.max_pool2d(F.conv2d(x, w), 2), [(8, 3, 20, 20), (4, 3, 3, 3)]),
    (lambda x: weft.sort(weft.sin(x).astype(weft.float16), axis=0), [(64, 33)]),
    (_attention, [(2, 50, 32)] * 3),
    (lambda x: weft.scan(lambda c, row: (weft.tanh(c + row), c), x[0], x), [(9, 5)]),
]


@pytest.mark.parametrize(("function", "shapes"), PROGRAMS)
def test_a_program_can_be_made_for_another_machine(
    function: Callable[..., Any], shapes: list[tuple[int, ...]]
) -> None:
    """The emitters ask the machine they are given, and never the one they run on."""
    emitter = CpuEmitter(Module(ARM))
    graph = weft.make_graph(function, *map(weft.spec, shapes))
    emitter.emit(plan_program(lowered(graph), emitter))
    emitter.module.expose("graph")
    text = emitter.module.text()
    assert "llvm.x86" not in text
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple(ARM.triple)
    made = target.create_target_machine(cpu=ARM.cpu, features=ARM.features, opt=0)
    code = made.emit_object(llvm.parse_assembly(text))
    assert code[:4] == b"\x7fELF"
    assert code[18:20] == b"\xb7\x00"  # AArch64
