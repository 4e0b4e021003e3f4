"""Requests and responses of the Open Inference Protocol (KServe v2) as bytes: JSON, and the binary
tensor extension, where tensors follow the JSON as their elements in row-major order.

Every number in a request is checked before memory is taken for it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from weft.base.dtypes import DType
from weft.interop.programs.program import Port
from weft.interop.serve.datatypes import DATATYPES, NAMES, Array, BadRequest, array_of, json_of

__all__ = ["HEADER_LENGTH", "Request", "Response", "Tensors", "read_request", "write_response"]

#: The header that says how many bytes of the body are JSON.
HEADER_LENGTH = "Inference-Header-Content-Length"
#: Parameters that ask for something that is not done here, and must not be passed over.
REFUSED = ("classification", "sequence_id", "shared_memory_region")
_BINARY, _BINARY_SIZE, _ALL_BINARY = "binary_data", "binary_data_size", "binary_data_output"


@dataclass(frozen=True)
class Tensors:
    """The tensors that a program takes or gives, as the protocol describes them."""

    ports: tuple[Port, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "_numbers", {port.name: i for i, port in enumerate(self.ports)})

    def number(self, name: Any) -> int | None:
        found: int | None = self._numbers.get(name) if type(name) is str else None  # type: ignore[attr-defined]
        return found

    def metadata(self) -> list[dict[str, Any]]:
        return [
            {"name": port.name, "datatype": NAMES[port.type.dtype], "shape": shape_of(port)}
            for port in self.ports
        ]

    def __str__(self) -> str:
        return ", ".join(port.name for port in self.ports) or "none"


def shape_of(port: Port) -> list[int]:
    """Its shape in the protocol: sizes that calls may choose are -1."""
    return [size if type(size) is int else -1 for size in port.type.shape]


@dataclass(frozen=True)
class Request:
    """A request that fits its program, apart from what its named sizes must be.

    arrays   the inputs, in the order of the program
    outputs  which results are asked for, and whether as bytes
    """

    id: str | None
    arrays: list[Array]
    outputs: list[tuple[int, bool]]


@dataclass(frozen=True)
class Response:
    """The parts of the body; `json` is the length of the first if others follow, else None."""

    parts: list[bytes]
    json: int | None = None


def _no_constant(text: str) -> NoReturn:
    raise BadRequest(
        f"{text} is not JSON: send tensors with such elements with the binary tensor extension"
    )


_DECODER = json.JSONDecoder(parse_constant=_no_constant)


def read_request(
    body: bytes, json_length: int | None, inputs: Tensors, results: Tensors, most: int
) -> Request:
    """The request in a body. `json_length`: of the header, if it was given. `most`: the largest
    number of bytes that a tensor may have."""
    end = len(body) if json_length is None else json_length
    if end > len(body):
        raise BadRequest(f"{HEADER_LENGTH} is {end}, and the body has {len(body)} bytes")
    said = _object(_decoded(body[:end]), "the request")
    parameters = _parameters(said, "the request")
    rest = memoryview(body)[end:]
    arrays = _arrays(said.get("inputs"), rest, inputs, most)
    all_binary = _flag(parameters, _ALL_BINARY, "the request", False)
    made_id = said.get("id")
    if made_id is not None and type(made_id) is not str:
        raise BadRequest(f"id is {made_id!r:.40}, where a text is expected")
    return Request(made_id, arrays, _outputs(said.get("outputs"), results, all_binary))


def _decoded(text: bytes) -> Any:
    try:
        return _DECODER.decode(text.decode())
    except RecursionError:
        raise BadRequest("the request is nested too deeply") from None
    except ValueError as error:  # no UTF-8, no JSON, an int of thousands of digits
        raise BadRequest(f"the request is not JSON: {str(error)[:200]}") from None


def _object(data: Any, what: str) -> dict[str, Any]:
    if type(data) is not dict:
        raise BadRequest(f"{what} is {data!r:.40}, where a JSON object is expected")
    return data


def _parameters(data: dict[str, Any], what: str) -> dict[str, Any]:
    given = data.get("parameters")
    found = {} if given is None else _object(given, f"parameters of {what}")
    for name in REFUSED:
        if name in found:
            raise BadRequest(f"{what} has the parameter {name}, which this server does not have")
    return found


def _flag(parameters: Mapping[str, Any], name: str, what: str, default: bool) -> bool:
    found = parameters.get(name, default)
    if type(found) is not bool:
        raise BadRequest(f"{name} of {what} is {found!r:.40}, where true or false is expected")
    return found


# --- inputs ---------------------------------------------------------------------------------------


def _arrays(given: Any, rest: memoryview, inputs: Tensors, most: int) -> list[Array]:
    if type(given) is not list:
        raise BadRequest(f"inputs is {given!r:.40}, where a list of tensors is expected")
    found: list[Array | None] = [None] * len(inputs.ports)
    place = 0
    for number, said in enumerate(given):
        data = _object(said, f"input {number}")
        name = data.get("name")
        at = inputs.number(name)
        if at is None:
            raise BadRequest(
                f"input {number} has the name {name!r:.60}, and the model takes: {inputs}"
            )
        if found[at] is not None:
            raise BadRequest(f"input {name} is given twice")
        port = inputs.ports[at]
        shape, dtype = _checked_type(data, port, most)
        size = _parameters(data, f"input {name}").get(_BINARY_SIZE)
        if size is None:
            found[at] = array_of(data.get("data"), shape, dtype, port.name)
            continue
        if "data" in data:
            raise BadRequest(f"input {name} has data, and {_BINARY_SIZE}, too")
        found[at] = _array_of_bytes(rest, place, size, shape, port)
        place += size
    if place != len(rest):
        raise BadRequest(
            f"{len(rest)} bytes follow the JSON, where the inputs say {place}: {_BINARY_SIZE}"
        )
    missing = [p.name for p, x in zip(inputs.ports, found, strict=True) if x is None]
    if missing:
        raise BadRequest(f"input {missing[0]} is missing; the model takes: {inputs}")
    return found  # type: ignore[return-value]


def _checked_type(data: dict[str, Any], port: Port, most: int) -> tuple[tuple[int, ...], DType]:
    """The shape and dtype that are said, if they fit."""
    datatype, shape = data.get("datatype"), data.get("shape")
    expected = NAMES[port.type.dtype]
    if datatype != expected:
        known = type(datatype) is str and (datatype in DATATYPES or datatype == "BYTES")
        raise BadRequest(
            f"input {port.name} has datatype {datatype!r:.40}"
            f"{'' if known else ', which there is not'}; {expected} is expected"
        )
    wanted = shape_of(port)
    said = " (-1: any size)" if -1 in wanted else ""
    if type(shape) is not list or any(type(size) is not int or size < 0 for size in shape):
        why = ", and sizes are integers, 0 or more" if type(shape) is list else ""
        raise BadRequest(
            f"input {port.name} has shape {shape!r:.80}{why}; {wanted}{said} is expected"
        )
    fits = len(shape) == len(wanted) and all(
        wish in (-1, size) for size, wish in zip(shape, wanted, strict=True)
    )
    if not fits:
        raise BadRequest(f"input {port.name} has shape {shape!r:.80}; {wanted}{said} is expected")
    # Also of tensors without elements: what is computed from their other sizes takes memory.
    if math.prod([max(size, 1) for size in shape]) * port.type.dtype.itemsize > most:
        raise BadRequest(f"input {port.name} has shape {shape!r:.80}: more than {most} bytes", 413)
    return tuple(shape), port.type.dtype


def _array_of_bytes(
    rest: memoryview, place: int, size: Any, shape: tuple[int, ...], port: Port
) -> Array:
    dtype = port.type.dtype
    count = math.prod(shape)
    if type(size) is not int or size != count * dtype.itemsize:
        raise BadRequest(
            f"{_BINARY_SIZE} of input {port.name} is {size!r:.40}; {count * dtype.itemsize} bytes "
            f"are expected for {NAMES[dtype]}{list(shape)}"
        )
    if place + size > len(rest):
        raise BadRequest(
            f"{len(rest)} bytes follow the JSON, and input {port.name} ends at {place + size}"
        )
    if dtype.kind == "bool":
        values = np.frombuffer(rest, np.uint8, count, place)
        if count and values.max() > 1:
            raise BadRequest(f"input {port.name}: a byte of BOOL is neither 0 nor 1")
        return values.view(np.bool_).reshape(shape)
    made = np.frombuffer(rest[place : place + size], dtype.numpy, count)
    if not made.flags.aligned:  # a copy by NumPy would hand the GIL to the other thread
        made = np.frombuffer(bytes(rest[place : place + size]), dtype.numpy, count)
    return made.reshape(shape)


# --- outputs --------------------------------------------------------------------------------------


def _outputs(given: Any, results: Tensors, all_binary: bool) -> list[tuple[int, bool]]:
    if given is None or given == []:
        return [(number, all_binary) for number in range(len(results.ports))]
    if type(given) is not list:
        raise BadRequest(f"outputs is {given!r:.40}, where a list is expected")
    found: dict[int, bool] = {}
    for number, said in enumerate(given):
        data = _object(said, f"output {number}")
        name = data.get("name")
        at = results.number(name)
        if at is None:
            raise BadRequest(
                f"output {number} has the name {name!r:.60}, and the model gives: {results}"
            )
        if at in found:
            raise BadRequest(f"output {name} is asked for twice")
        parameters = _parameters(data, f"output {name}")
        found[at] = _flag(parameters, _BINARY, f"output {name}", all_binary)
    return list(found.items())


def write_response(
    head: dict[str, Any], request: Request, results: Tensors, arrays: Sequence[Array]
) -> Response:
    """The response, from the arrays of all results."""
    parts: list[bytes] = []
    outputs = []
    for number, binary in request.outputs:
        port = results.ports[number]
        dtype, array = port.type.dtype, np.ascontiguousarray(arrays[number])
        said: dict[str, Any] = {
            "name": port.name,
            "datatype": NAMES[dtype],
            "shape": list(arrays[number].shape),
        }
        if binary:
            said["parameters"] = {_BINARY_SIZE: array.nbytes}
            parts.append(array.tobytes())
        else:
            said["data"] = json_of(array, dtype, port.name)
        outputs.append(said)
    if request.id is not None:
        head["id"] = request.id
    text = json.dumps({**head, "outputs": outputs}, allow_nan=False).encode()
    return Response([text, *parts], len(text) if any(b for _, b in request.outputs) else None)
