"""Programs as files: one zip, stored, of graph text, safetensors and JSON.

Nothing in a file is run when it is opened, and nothing of it is trusted: the graph is verified, the
tensors have the types that it says, and every error is a `FileError`.
"""

from __future__ import annotations

import functools
import importlib.metadata
import io
import itertools
import json
import os
import struct
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from weft.base.device import CPU
from weft.base.errors import DTypeError, FileError, WeftError
from weft.capture.program_run import Routine
from weft.core.tensor import Tensor, type_of, wrap
from weft.interop import weights
from weft.interop.programs.arguments import Arguments
from weft.interop.programs.data import program_data, program_of_data
from weft.ir.graph import Graph
from weft.ir.op import OPS, Trait
from weft.ir.parse import parse_graph
from weft.ir.types import TensorType

__all__ = ["read_program", "write_program"]

FORMAT, VERSION = "weft program", 1
HEAD, GRAPH, SIGNATURE = "weft.json", "graph.txt", "signature.json"
CONSTANTS, STATE = "constants.safetensors", "state.safetensors"
MEMBERS = (HEAD, GRAPH, SIGNATURE, CONSTANTS, STATE)
_DATE = (1980, 1, 1, 0, 0, 0)  # the same program gives the same bytes
_LONGEST_DIRECTORY = 1 << 16


# --- writing -------------------------------------------------------------------------------------


def write_program(
    path: str | os.PathLike[str],
    routine: Routine,
    arguments: Arguments,
    tensors: Mapping[str, Tensor],
) -> None:
    """Write a program, with this state."""
    constants: dict[str, Any] = {}
    graph = routine.graph
    for value in graph.inputs:
        if isinstance(value.type, TensorType) and value.type.device != CPU:
            raise DTypeError(
                f"{value.name} is on {value.type.device}: only programs on the CPU are saved",
                op="Program.save",
            )
    text = graph.text(constants=constants, history=False)
    state = dict(tensors)
    learn = [name for name, x in state.items() if x.requires_grad]
    for number, of in routine.grads.items():
        places = routine.signature.places
        grad = state[places[of].name].grad
        if grad is None:
            raise DTypeError(
                f"state[{places[of].name!r}] has no gradient, which the program adds to",
                op="Program.save",
                hint="give it one: .grad = weft.zeros_like(...)",
            )
        state[places[number].name] = grad
    head = {
        "format": FORMAT,
        "version": VERSION,
        "weft": _weft(),
        "name": arguments.function,
        "custom ops": sorted(_custom_ops(graph)),
    }
    data = program_data(routine, arguments, learn)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as file:
        for name, content in (
            (HEAD, _json(head)),
            (GRAPH, text.encode()),
            (SIGNATURE, _json(data)),
            (CONSTANTS, _tensors({name: wrap(array) for name, array in constants.items()})),
            (STATE, _tensors({name: x.detach() for name, x in state.items()})),
        ):
            file.writestr(zipfile.ZipInfo(name, _DATE), content)
    Path(path).write_bytes(buffer.getvalue())


@functools.cache
def _weft() -> str:
    return importlib.metadata.version("weft")


def _json(data: Any) -> bytes:
    return json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False).encode()


def _tensors(tensors: Mapping[str, Tensor]) -> bytes:
    file = io.BytesIO()
    weights.save(dict(tensors), file)
    return file.getvalue()


def _custom_ops(graph: Graph) -> set[str]:
    """The ops that are not Weft's own: a reader must register them first."""
    return {
        node.op.name
        for part in graph.walk()
        for node in part.nodes
        if not str(getattr(node.op.infer, "__module__", "")).startswith("weft.")
        or not str(getattr(node.op.eval, "__module__", "")).startswith("weft.")
    }


# --- reading -------------------------------------------------------------------------------------


def read_program(
    path: str | os.PathLike[str],
) -> tuple[Routine, Arguments, dict[str, Tensor]]:
    """The parts of the program in a file."""
    data = Path(path).read_bytes()
    name = os.path.basename(os.fspath(path))
    try:
        return _read(data)
    except FileError as error:
        raise FileError(f"{name}: {error.message}", op="load_program", hint=error.hint) from None
    except WeftError as error:
        raise FileError(f"{name}: {error.message}", op="load_program", hint=error.hint) from error
    except (Exception, RecursionError) as error:
        why = "it is nested too deeply" if isinstance(error, RecursionError) else repr(error)[:200]
        raise FileError(
            f"{name} is no program that can be read: {why}", op="load_program"
        ) from None


def _read(data: bytes) -> tuple[Routine, Arguments, dict[str, Tensor]]:
    members = _members(data)
    _check_head(json.loads(bytes(members[HEAD])))
    constants = {name: x.numpy() for name, x in _loaded(members[CONSTANTS]).items()}
    for array in constants.values():
        array.flags.writeable = False
    graph = parse_graph(str(members[GRAPH], "utf-8"), constants)
    graph.verify()
    _check_ops(graph)
    routine, arguments, learn = program_of_data(json.loads(bytes(members[SIGNATURE])), graph)
    tensors = _loaded(members[STATE])
    places = routine.signature.places[len(arguments.names) :]
    if [place.name for place in places] != list(tensors):
        raise FileError("the state has other names than the signature")
    for place in places:
        if type_of(tensors[place.name]) != place.type:
            found = type_of(tensors[place.name])
            raise FileError(f"state {place.name} is {found}, and {place.type} in the signature")
    all_places = routine.signature.places
    for number, of in routine.grads.items():
        grad, target = all_places[number], all_places[of]
        if grad.type != target.type:
            raise FileError(f"the gradient {grad.name} has another type than {target.name}")
        tensors[target.name].grad = tensors.pop(grad.name)
    for name in learn:
        tensors[name].requires_grad = True
    return routine, arguments, tensors


def _members(data: bytes) -> dict[str, memoryview]:
    """The content of each file of the zip."""
    _check_directory(data)
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        infos = file.infolist()
    if sorted(info.filename for info in infos) != sorted(MEMBERS):
        raise FileError("it holds other files than a program does")
    found: dict[str, memoryview] = {}
    view = memoryview(data)
    taken: list[tuple[int, int]] = []
    for info in infos:
        if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size:
            raise FileError(f"{info.filename} in it is compressed; programs are stored")
        if info.flag_bits & 1:
            raise FileError(f"{info.filename} in it is encrypted")
        start = info.header_offset
        head = bytes(view[start : start + 30])
        if len(head) < 30 or head[:4] != b"PK\3\4":
            raise FileError(f"{info.filename} in it has no head")
        begin = start + 30 + sum(struct.unpack("<HH", head[26:30]))
        end = begin + info.file_size
        if not 0 <= start < begin <= end <= len(data):
            raise FileError(f"{info.filename} in it is cut off")
        taken.append((start, end))
        content = view[begin:end]
        if zlib.crc32(content) != info.CRC:
            raise FileError(f"{info.filename} in it is damaged: its checksum is another")
        found[info.filename] = content
    taken.sort()
    if any(end > start for (_, end), (start, _) in itertools.pairwise(taken)):
        raise FileError("files in it overlap")
    return found


def _check_directory(data: bytes) -> None:
    """The end of the zip is where it should be, and says that there are few files."""
    if data[:4] != b"PK\3\4":
        raise FileError("it is no program", hint="weft.export(f, ...).save(path) writes programs")
    end = data[-22:]
    if len(end) < 22 or end[:4] != b"PK\5\6" or end[20:] != b"\0\0":
        raise FileError("it is cut off")
    count, length = struct.unpack("<HI", end[10:16])
    if length == 0xFFFFFFFF and len(data) > 98:
        length = struct.unpack("<Q", data[-98 + 40 : -98 + 48])[0]
    if length > _LONGEST_DIRECTORY or (count > len(MEMBERS) and count != 0xFFFF):
        raise FileError("it holds more files than a program does")


def _check_head(head: Any) -> None:
    if not isinstance(head, dict) or head.get("format") != FORMAT:
        raise FileError("it is no program")
    version = head.get("version")
    if version != VERSION:
        newer = isinstance(version, int) and version > VERSION
        raise FileError(
            f"it has version {version!r:.20} of the format, and this Weft reads {VERSION}",
            hint="use a newer Weft" if newer else "export it again",
        )
    missing = [op for op in head.get("custom ops", []) if op not in OPS]
    if missing:
        raise FileError(
            f"it uses the op {missing[0]!r:.60}, which is not registered here",
            hint="import the module that defines it with weft.custom_op, then load the program",
        )


def _check_ops(graph: Graph) -> None:
    for part in graph.walk():
        for node in part.nodes:
            if Trait.PYTHON in node.op.traits:
                raise FileError(f"its graph calls Python: {node.op.name}")
        for value in part.values():
            kind = value.type
            if isinstance(kind, TensorType) and kind.device != CPU:
                raise FileError(f"a value of it is on {kind.device}; programs are on the CPU")


def _loaded(content: memoryview) -> dict[str, Any]:
    found = weights.load(io.BytesIO(content))
    if not isinstance(found, dict) or not all(isinstance(x, Tensor) for x in found.values()):
        raise FileError("its tensors are not a table of tensors")
    return found
