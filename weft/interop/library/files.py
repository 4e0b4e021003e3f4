"""The files of a library: itself, its headers, and its loaders."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from weft.base.errors import RangeError
from weft.interop.library.archive import archive
from weft.interop.library.c_header import c_header, cpp_header
from weft.interop.library.functions import Library
from weft.interop.library.javascript import javascript, typescript
from weft.interop.library.layout import state_data
from weft.interop.library.link import link_shared, link_wasm
from weft.interop.library.python_loader import python_loader

__all__ = ["Built", "write_files"]


@dataclass(frozen=True, slots=True)
class Built:
    """What was built.

    files       all files that were written
    memory      bytes of an instance; `arena` of these are for values of a run
    state       bytes of the state
    """

    path: Path
    files: tuple[Path, ...]
    target: str
    function: str
    memory: int
    arena: int
    state: int

    def __str__(self) -> str:
        return (
            f"{self.path.name} for {self.target}: {self.function}, {self.memory} bytes an "
            f"instance, of these {self.arena} for a run and {self.state} of state"
        )


def write_files(
    library: Library,
    objects: Sequence[bytes],
    symbols: Sequence[Sequence[str]],
    place: Path,
    linker: str | None,
) -> Built:
    """Write all files. `symbols`: the names that each object file defines."""
    prefix, layout = library.prefix, library.layout
    _write_code(library, objects, symbols, place, linker)
    files = [place]
    texts: list[tuple[str, Callable[[Library], str]]]
    if place.suffix == ".wasm":
        script = functools.partial(javascript, file=place.name)
        texts = [(f"{prefix}.js", script), (f"{prefix}.d.ts", typescript)]
    else:
        texts = [(f"{prefix}.h", c_header), (f"{prefix}.hpp", cpp_header)]
    if place.suffix == ".so":
        texts.append((f"{prefix}.py", functools.partial(python_loader, file=place.name)))
    for name, text in texts:
        files.append(place.with_name(name))
        files[-1].write_text(text(library))
    if not library.inside:
        files.append(place.with_name(f"{prefix}.safetensors"))
        files[-1].write_bytes(layout.header + state_data(library.program, layout))
    return Built(
        place,
        tuple(files),
        library.target.name,
        f"{prefix}_{library.word}",
        layout.total if library.inside else layout.state,
        layout.arena_bytes,
        layout.state_bytes,
    )


def _write_code(
    library: Library,
    objects: Sequence[bytes],
    symbols: Sequence[Sequence[str]],
    place: Path,
    linker: str | None,
) -> None:
    variants = library.target.variants
    if place.suffix == ".so":
        link_shared(objects, place, variants[0].machine, linker)
    elif place.suffix == ".wasm":
        start = f"{library.prefix}_"
        exports = [name for names in symbols for name in names if name.startswith(start)]
        link_wasm(objects, place, exports)
    elif place.suffix == ".a":
        names = [f"{library.prefix}_{variant.name}.o" for variant in variants]
        place.write_bytes(archive(list(zip(names, objects, symbols, strict=True))))
    elif len(objects) == 1:
        place.write_bytes(objects[0])
    else:
        raise RangeError(
            f"{library.target.name} has {len(objects)} versions of the code, each in a file",
            op="build_library",
            hint="write an archive (.a), or choose one of them, as x86_64-v3-linux",
        )
