"""Which programs are served: files, folders of files, and folders with versions."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from weft.base.errors import FileError, RangeError
from weft.interop.programs.program import Program, load_program
from weft.interop.serve.options import Options
from weft.interop.serve.served import Served

__all__ = ["Models", "find_models"]

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
VERSION = re.compile(r"[1-9][0-9]{0,8}")
Given = str | os.PathLike[str] | Program


class Models:
    """All that is served, by name and version. Requests are looked up in here and nowhere else: no
    name in a request becomes a path."""

    def __init__(self, served: Sequence[Served]) -> None:
        self._by_name: dict[str, dict[str, Served]] = {}
        for one in sorted(served, key=lambda one: int(one.version)):
            self._by_name.setdefault(one.name, {})[one.version] = one

    def __iter__(self) -> Iterator[Served]:
        for versions in self._by_name.values():
            yield from versions.values()

    def get(self, name: str, version: str | None) -> Served | None:
        """A version of a model; by default the highest."""
        versions = self._by_name.get(name)
        if versions is None:
            return None
        return versions.get(version) if version is not None else [*versions.values()][-1]

    def versions(self, name: str) -> list[str]:
        return list(self._by_name.get(name, ()))

    def names(self) -> list[str]:
        return list(self._by_name)


def find_models(
    given: Given | Sequence[Given] | Mapping[str, Given], options: Options, backend: str | None
) -> Models:
    """The programs in files and folders. An item "NAME=PATH" names its model; the keys of a mapping
    do, too."""
    if isinstance(given, Mapping):
        pairs: list[tuple[str | None, Given]] = list(given.items())
    elif isinstance(given, (str, os.PathLike, Program)):
        pairs = [_named(given)]
    else:
        pairs = [_named(one) for one in given]
    found: dict[tuple[str, int], Program] = {}
    for name, what in pairs:
        for made, version, source in _sources(what, name):
            if not NAME.fullmatch(made):
                raise RangeError(
                    f"{made!r:.80} cannot be the name of a model",
                    op="serve",
                    hint="use letters, digits, '.', '_' and '-': NAME=PATH names it",
                )
            if (made, version) in found:
                raise RangeError(
                    f"there are two models {made}, version {version}",
                    op="serve",
                    hint="NAME=PATH gives another name",
                )
            loaded = source if isinstance(source, Program) else None
            found[made, version] = loaded or load_program(source, backend=backend)  # type: ignore[arg-type]
    if not found:
        raise RangeError("there is no model to serve", op="serve")
    served = [Served(name, version, p, options.max_batch) for (name, version), p in found.items()]
    for one in served:
        if one.writes and not options.stateful:
            raise RangeError(
                f"{one.name} writes to its state ({', '.join(one.writes[:3])}"
                f"{', …' if len(one.writes) > 3 else ''}): requests would change the answers of "
                "others",
                op="serve",
                hint="serve a program that only reads it (model.eval()), or allow it: "
                "stateful=True, --stateful",
            )
    return Models(served)


def _named(given: Given) -> tuple[str | None, Given]:
    if isinstance(given, str) and "=" in given and not os.path.exists(given):
        name, _, path = given.partition("=")
        return name, path
    return None, given


def _sources(what: Given, name: str | None) -> Iterator[tuple[str, int, Path | Program]]:
    """(model, version, program or its file) of a program, or of what a path holds."""
    if isinstance(what, Program):
        yield name or what.name, 1, what
        return
    path = Path(what)
    if not path.is_dir():
        yield name or path.stem, 1, path
        return
    versions = _versions(path)
    if versions:
        yield from [(name or path.resolve().name, number, file) for number, file in versions]
        return
    models = [(file.stem, 1, file) for file in sorted(path.glob("*.weft"))]
    for folder in sorted(path.iterdir()):
        if folder.is_dir():
            models += [(folder.name, number, file) for number, file in _versions(folder)]
    if not models:
        raise FileError(
            f"{path} holds no models",
            op="serve",
            hint="it may have files NAME.weft, or folders NAME/VERSION with a .weft file",
        )
    if name is not None and len(models) > 1:
        raise RangeError(f"{path} holds {len(models)} models, which have names", op="serve")
    yield from [(name or made, number, file) for made, number, file in models]


def _versions(folder: Path) -> list[tuple[int, Path]]:
    """The versions of a model: in folders whose names are numbers, one file in each."""
    found = []
    for part in sorted(folder.iterdir()):
        if part.is_dir() and VERSION.fullmatch(part.name):
            files = sorted(part.glob("*.weft"))
            if len(files) != 1:
                raise FileError(
                    f"{part} holds {len(files)} programs, where one is expected", op="serve"
                )
            found.append((int(part.name), files[0]))
    return found
