"""Programs as files: one zip, stored, of graph text, safetensors and JSON.

Nothing in a file is run when it is opened, and nothing of it is trusted: the graph is verified, the
tensors have the types that it says, and whatever is wrong is a `FileError`.
"""

from __future__ import annotations

import functools
import importlib.metadata
import io
import json
import os
import zipfile
import zlib
from collections.abc import Mapping
from typing import Any

from weft.base.device import CPU
from weft.base.errors import DTypeError, FileError, WeftError
from weft.core.tensor import Tensor, type_of, wrap
from weft.interop import weights
from weft.interop.files import Source, opened, parsed, replacing
from weft.interop.programs.arguments import Arguments
from weft.interop.programs.data import program_data, program_of_data
from weft.interop.programs.run import Routine
from weft.interop.zip_records import read_records
from weft.ir.graph import Graph
from weft.ir.literal import Literal
from weft.ir.op import OPS, Trait
from weft.ir.parse import parse_graph
from weft.ir.types import DENSE, TensorType

__all__ = ["read_program", "write_program"]

FORMAT, VERSION = "weft program", 1
HEAD, GRAPH, SIGNATURE = "weft.json", "graph.txt", "signature.json"
CONSTANTS, STATE = "constants.safetensors", "state.safetensors"
MEMBERS = (HEAD, GRAPH, SIGNATURE, CONSTANTS, STATE)
_DATE = (1980, 1, 1, 0, 0, 0)  # the same program gives the same bytes


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
    try:  # what no reader would take is not written
        _check_state(routine, arguments, state)
    except FileError as error:
        raise DTypeError(error.message, op="Program.save") from None
    head = {
        "format": FORMAT,
        "version": VERSION,
        "weft": _weft(),
        "name": arguments.function,
        "custom ops": sorted(_custom_ops(graph)),
    }
    data = program_data(routine, arguments, learn)
    members = {
        HEAD: _json(head),
        GRAPH: text.encode(),
        SIGNATURE: _json(data),
        CONSTANTS: _tensors({name: wrap(array) for name, array in constants.items()}),
        STATE: _tensors({name: x.detach() for name, x in state.items()}),
    }
    with replacing(path) as target, zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as file:
        for name, content in members.items():
            file.writestr(zipfile.ZipInfo(name, _DATE), content)


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
    name = os.path.basename(os.fspath(path))
    try:
        with opened(path, mapped=False) as source:
            return _read(_members(source))
    except OSError:
        raise
    except WeftError as error:
        said = error.message.removeprefix(f"{name}: ")
        raise FileError(f"{name}: {said}", op="load_program", hint=error.hint) from error
    except RecursionError:
        raise FileError(f"{name}: it is nested too deeply", op="load_program") from None
    except Exception as error:  # whatever a damaged file leads to
        why = f"{type(error).__name__}: {error}"[:200]
        raise FileError(f"{name}: it cannot be read ({why})", op="load_program") from error


def _members(source: Source) -> dict[str, bytes]:
    """The content of each file in the zip."""
    if source.size < 4 or source.part(0, 4) != b"PK\3\4":
        raise FileError("it is no program", hint="weft.export(f, ...).save(path) writes programs")
    records = read_records(source)
    if sorted(records) != sorted(MEMBERS):
        raise FileError("it holds other files than a program does")
    found: dict[str, bytes] = {}
    for name, record in records.items():
        if record.is_packed:
            raise FileError(f"{name} in it is compressed or encrypted; programs are stored")
        content = found[name] = source.part(record.start, record.end)
        if zlib.crc32(content) != record.checksum:
            raise FileError(f"{name} in it is damaged: its checksum is another")
    return found


def _read(members: dict[str, bytes]) -> tuple[Routine, Arguments, dict[str, Tensor]]:
    size = sum(map(len, members.values()))
    _check_head(parsed(members.pop(HEAD), size, HEAD))
    constants = {name: x.numpy() for name, x in _loaded(members.pop(CONSTANTS)).items()}
    for digest, array in constants.items():
        array.flags.writeable = False
        if Literal(array).digest != digest:
            raise FileError(f"the constant {digest:.40} has other elements than its name says")
    graph = parse_graph(str(members.pop(GRAPH), "utf-8"), constants)
    graph.verify()
    _check_ops(graph)
    data = parsed(members.pop(SIGNATURE), size, SIGNATURE)
    routine, arguments, learn = program_of_data(data, graph)
    state = _loaded(members.pop(STATE))
    _check_state(routine, arguments, state)
    places = routine.signature.places
    for number, of in routine.grads.items():
        state[places[of].name].grad = state.pop(places[number].name)
    for key in learn:
        state[key].requires_grad = True
    ordered = [places[i].name for i in routine.tensors[len(arguments.names) :]]
    return routine, arguments, {key: state[key] for key in ordered}


def _check_head(head: Any) -> None:
    if not isinstance(head, dict) or head.get("format") != FORMAT:
        raise FileError("it is no program")
    version = head.get("version")
    if version != VERSION or type(version) is not int:
        newer = isinstance(version, int) and version > VERSION
        raise FileError(
            f"it has version {version!r:.20} of the format, and this Weft reads {VERSION}",
            hint="use a newer Weft" if newer else "export it again",
        )
    ops = head.get("custom ops")
    if not isinstance(ops, list) or not all(isinstance(op, str) for op in ops):
        raise FileError("the list of its ops is none")
    missing = [op for op in ops if op not in OPS]
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
            if isinstance(kind, TensorType) and (kind.device != CPU or kind.layout != DENSE):
                raise FileError(f"a value of it is {kind}; programs are on the CPU")


def _check_state(routine: Routine, arguments: Arguments, state: Mapping[str, Tensor]) -> None:
    places = routine.signature.places[len(arguments.names) :]
    if sorted(place.name for place in places) != sorted(state):
        raise FileError("its state has other names than the signature")
    for place in places:
        found = type_of(state[place.name])
        if found != place.type:
            raise FileError(f"{place.name} in its state is {found}, not {place.type}")
    for number, of in routine.grads.items():
        grad, target = routine.signature.places[number], routine.signature.places[of]
        if grad.type != target.type:
            raise FileError(f"the gradient {grad.name} has another type than {target.name}")


def _loaded(content: bytes) -> dict[str, Tensor]:
    found = weights.load(io.BytesIO(content))
    if not isinstance(found, dict) or not all(isinstance(x, Tensor) for x in found.values()):
        raise FileError("its tensors are not a table of tensors")
    return found
