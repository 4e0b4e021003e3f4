"""A loader of a library for Python: ctypes and NumPy, without Weft."""

from __future__ import annotations

from weft.base.errors import GraphError
from weft.interop.library.functions import Library
from weft.interop.library.program import LibraryProgram, Slot

__all__ = ["python_loader"]

_TEMPLATE = '''\
"""{word}: made by Weft. Needs NumPy; do not edit."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np

ARGUMENTS = {arguments}
RESULTS = {results}
STATE = {state}


class Error(RuntimeError):
    """A status of the library; `status` is its number."""

    def __init__(self, status: int) -> None:
        super().__init__(_library.{p}_error_text(status).decode())
        self.status = status


_library = ctypes.CDLL(str(Path(__file__).with_name({file!r})))
_library.{p}_error_text.restype = ctypes.c_char_p
_library.{p}_code.restype = ctypes.c_char_p
_library.{p}_code.argtypes = [ctypes.c_void_p]


def _check(status: int) -> None:
    if status:
        raise Error(status)


_RANKS = {{"b": 0, "i": 1, "u": 1, "f": 2, "c": 3}}


def _array(
    name: str, given: object, shape: tuple[int, ...], dtype: str, written: bool = False
) -> np.ndarray:
    wanted = np.dtype(dtype)
    array = np.asarray(given)
    number = type(given) in (bool, int, float, complex) and shape == ()
    if number and _RANKS.get(array.dtype.kind, 4) <= _RANKS[wanted.kind]:
        array = np.asarray(given, wanted)
    if array.dtype.newbyteorder("=") != wanted:
        raise TypeError(
            f"{{name}} is {{array.dtype}}, where {{dtype}} is expected: "
            f"x.astype({{dtype!r}}) converts it; x.view({{dtype!r}}) is the bits of bfloat16"
        )
    array = np.ascontiguousarray(array, wanted)
    if written and array is not given:
        raise ValueError(f"{{name}} is written to: give a contiguous array of {{dtype}}")
    array = array.reshape(shape) if array.size == 1 and shape == () else array
    if array.shape != shape:
        raise ValueError(f"{{name}} has the shape {{array.shape}}, not {{shape}}")
    return array


def _pointer(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)
{shaped}

class Model:
    """An instance of the library. `file`: a file of state that it works on, without changing it."""

    def __init__(self, file: str | Path | None = None) -> None:
        self._made = ctypes.c_void_p()
        if file is None:
{create}
        else:
            name = str(file).encode()
            _check(_library.{p}_create_from(ctypes.c_char_p(name), ctypes.byref(self._made)))

    def __del__(self) -> None:
        if self._made:
            _library.{p}_destroy(self._made)

    def {word}(self{parameters}):
        given = []
{size}        for (name, shape, dtype, written), array in zip(ARGUMENTS, [{words}], strict=True):
            given.append(_array(name, array, {shape}, dtype, written))
        made = [np.empty({shape}, dtype) for _, shape, dtype in RESULTS]
        arrays = [*given, *made]
        pairs = [part for x in arrays for part in (_pointer(x), ctypes.c_size_t(x.size))]
        _check(_library.{p}_{word}(self._made, {passed}*pairs))
        return {returned}

    __call__ = {word}

    def get_state(self, name: str) -> np.ndarray:
        shape, dtype = STATE[name]
        made = np.empty(shape, dtype)
        given = ctypes.c_char_p(name.encode()), _pointer(made), ctypes.c_size_t(made.nbytes)
        _check(_library.{p}_get_state(self._made, *given))
        return made

    def set_state(self, name: str, value: object) -> None:
        array = _array(name, value, *STATE[name])
        given = ctypes.c_char_p(name.encode()), _pointer(array), ctypes.c_size_t(array.nbytes)
        _check(_library.{p}_set_state(self._made, *given))

    def save(self, file: str | Path) -> None:
        _check(_library.{p}_save(self._made, ctypes.c_char_p(str(file).encode())))

    def load(self, file: str | Path) -> None:
        _check(_library.{p}_load(self._made, ctypes.c_char_p(str(file).encode())))

    @property
    def code(self) -> str:
        """Which version of the code runs."""
        return _library.{p}_code(self._made).decode()
'''


def _entry(slot: Slot) -> tuple[str, tuple[int | str, ...], str]:
    shape = tuple(size if type(size) is int else str(size) for size in slot.type.shape)
    return slot.name, shape, numpy_name(slot)


def _size_of(program: LibraryProgram) -> str:
    """The lines that find the size that a call chooses, in the shape of an argument."""
    chosen = program.run_size
    assert chosen is not None
    for slot in program.arguments:
        for axis, size in enumerate(slot.type.shape):
            if type(size) is not int and str(size) == chosen.name:
                return _SIZE.format(
                    word=slot.word,
                    axis=axis,
                    name=chosen.name,
                    least=chosen.least,
                    most=chosen.most,
                )
    raise GraphError(
        f"no argument has an axis of size {chosen.name}: Python cannot tell what a call chooses",
        op="build_library",
        hint="build an archive (.a), which has no loader for Python",
    )


_SIZE = """\
        if np.ndim({word}) <= {axis}:
            raise ValueError("{word} has no axis {axis}")
        size = np.shape({word})[{axis}]
        if not {least} <= size <= {most}:
            raise ValueError(f"{name} is {{size}}, not {least} to {most}")
"""
_SHAPED = '''

def _shape(shape: tuple, size: int) -> tuple[int, ...]:
    """Expressions of {name} become numbers."""
    known = {{"{name}": size, "max": max, "min": min, "__builtins__": {{}}}}
    return tuple(eval(part, known) if isinstance(part, str) else part for part in shape)
'''


def numpy_name(slot: Slot) -> str:
    """A dtype of NumPy itself; of bfloat16 and others that it has not, the bits."""
    dtype = slot.type.dtype
    plain = dtype.numpy.kind in "biufc"
    return dtype.numpy.name if plain else f"uint{dtype.bits}"


def python_loader(library: Library, file: str) -> str:
    """The text of the module."""
    p, program = library.prefix, library.program
    words = [slot.word for slot in program.arguments]
    if library.inside:
        create = f"            _check(_library.{p}_create(ctypes.byref(self._made)))"
    else:
        create = (
            f"            raise ValueError(\"the weights are in a file: Model('{p}.safetensors')\")"
        )
    chosen = program.run_size
    returned = {0: "None", 1: "made[0]"}.get(len(program.results), "tuple(made)")
    return _TEMPLATE.format(
        p=p,
        word=library.word,
        file=file,
        arguments=repr([(*_entry(slot), slot.written) for slot in program.arguments]),
        results=repr([_entry(slot) for slot in program.results]),
        state=repr({slot.name: _entry(slot)[1:] for slot in program.state}),
        create=create,
        parameters="".join(f", {word}" for word in words),
        words=", ".join(words),
        returned=returned,
        size="" if chosen is None else _size_of(program),
        shape="shape" if chosen is None else "_shape(shape, size)",
        shaped="" if chosen is None else _SHAPED.format(name=chosen.name),
        passed="" if chosen is None else "ctypes.c_size_t(size), ",
    )
