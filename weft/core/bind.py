"""`bind`: the one point through which every op call goes.

An op call either runs now, through the kernel tables of its card, or is handed to the innermost
recorder of this thread. Nothing is checked that the kernel checks anyway: where it fails, the
card's type rule is asked what is wrong, and its answer, with the op, the operands and the user's
line, is the error.
"""

from __future__ import annotations

import builtins
import contextlib
import contextvars
import threading
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np

from weft.base.errors import DeviceError, IndexError, LinAlgError, MemoryError, WeftError
from weft.base.shapes import Shape
from weft.core.tensor import Tensor, own, type_of, wrap
from weft.ir.dispatch import family_for
from weft.ir.op import Op

ndarray = np.ndarray


class Recorder(Protocol):
    """What sees op calls instead of their being run: a tracer, a profiler, a transform.

    While `call` runs, the recorder is off: `bind` in it reaches the next outer recorder, or runs.
    """

    def call(self, op: Op, inputs: tuple[Tensor, ...], attrs: dict[str, Any]) -> Any: ...


class _Thread(threading.local):
    recorders: list[Recorder]

    def __init__(self) -> None:
        self.recorders = []


_thread = _Thread()
_recording = 0  # how many recorders are active in all threads: 0 is the common case
_lock = threading.Lock()

#: Contexts in which NumPy's floating-point error state is "ignore": 1/0 is inf here, not a
#: warning, while the user's own NumPy settings stay as they are. Entering a context is several
#: times cheaper than `np.errstate`. A call takes one from the pool and puts it back, so threads
#: and ops called inside kernels each have their own; after an error it is simply dropped.
_quiet: list[Callable[..., Any]] = []


def _new_quiet() -> Callable[..., Any]:
    context = contextvars.copy_context()
    context.run(np.seterr, all="ignore")
    return context.run


def bind(op: Op, *inputs: Tensor, **attrs: Any) -> Any:
    """Call `op`: run it now, or let the innermost recorder have it."""
    if _recording and _thread.recorders:
        return _hand_over(op, inputs, attrs)
    try:
        run = _quiet.pop() if _quiet else _new_quiet()
        if len(inputs) == 2 and not attrs:
            x, y = inputs
            a = x._data
            b = y._data
            if a.__class__ is not b.__class__:
                raise _mixed(inputs)
            out = run(op.kernels[a.__class__][a.dtype], a, b)
        elif len(inputs) == 1:
            a = inputs[0]._data
            out = run(op.kernels[a.__class__][a.dtype], a, **attrs)
        else:
            out = _run(run, op, inputs, attrs)
    except Exception as error:
        raise _explained(op, inputs, attrs, error) from _cause(error)
    _quiet.append(run)
    if out.__class__ is ndarray:
        tensor = Tensor()
        tensor._data = out
        return tensor
    return _wrapped(out)


def operator(op: Op, promote: Callable[[Any, Any], Any]) -> Callable[[Tensor, Any], Any]:
    """`bind` for a Python operator of two operands, in one frame where nothing is to be promoted.

    At 32 elements a further Python frame costs a third of the addition itself, so the common case
    (two NumPy-backed tensors of one dtype, nobody recording) takes the steps of `bind` right here.
    `promote` does all other cases, through `bind`.
    """
    kernel_of = op.kernels[ndarray].get

    def call(x: Tensor, y: Any, /) -> Any:
        if y.__class__ is Tensor:
            a = x._data
            b = y._data
            dtype = a.dtype
            if dtype is b.dtype and a.__class__ is b.__class__ is ndarray and not _recording:
                kernel = kernel_of(dtype)
                if kernel is not None and _quiet:
                    run = _quiet.pop()
                    try:
                        out = run(kernel, a, b)
                    except Exception as error:
                        raise _explained(op, (x, y), {}, error) from _cause(error)
                    _quiet.append(run)
                    if out.__class__ is not ndarray:
                        return _wrapped(out)
                    tensor = Tensor()
                    tensor._data = out
                    return tensor
        return promote(x, y)

    return call


def update(op: Op, target: Tensor, *inputs: Tensor, **attrs: Any) -> None:
    """Give `target` the value op(target, *inputs), in its own buffer where nobody else sees that.

    `inputs` must not hold `target`'s array. The result has the dtype and shape of `target`.
    """
    in_place = op.in_place
    if in_place is None or target._data.__class__ is not ndarray or _recording:
        target._data = bind(op, target, *inputs, **attrs)._data
        return
    try:
        run = _quiet.pop() if _quiet else _new_quiet()
        arrays = [tensor._data for tensor in inputs]
        run(in_place, own(target), *arrays, **attrs)
    except Exception as error:
        raise _explained(op, (target, *inputs), attrs, error) from _cause(error)
    _quiet.append(run)


def _run(run: Callable[..., Any], op: Op, inputs: tuple[Tensor, ...], attrs: dict[str, Any]) -> Any:
    """The general case of any number of inputs; without any, attributes choose the kernel."""
    arrays = [tensor._data for tensor in inputs]
    if not arrays:
        family = family_for(attrs["device"])
        kernel = op.kernels[family.array_type][attrs["dtype"].numpy]
        return run(kernel, **attrs)
    array_type = arrays[0].__class__
    for array in arrays:
        if array.__class__ is not array_type:
            raise _mixed(inputs)
    kernel = op.kernels[array_type][arrays[op.dispatch_on].dtype]
    return run(kernel, *arrays, **attrs)


def _wrapped(out: Any) -> Any:
    """Results other than one ndarray: several, NumPy's scalars, or arrays of other devices."""
    if isinstance(out, tuple):
        return tuple(_wrapped(part) for part in out)
    return wrap(np.asarray(out) if isinstance(out, np.generic) else out)


def _hand_over(op: Op, inputs: tuple[Tensor, ...], attrs: dict[str, Any]) -> Any:
    recorder = _thread.recorders.pop()
    try:
        return recorder.call(op, inputs, attrs)
    finally:
        _thread.recorders.append(recorder)


@contextlib.contextmanager
def recording(recorder: Recorder) -> Iterator[None]:
    """Hand this thread's op calls to `recorder`."""
    global _recording
    _thread.recorders.append(recorder)
    with _lock:
        _recording += 1
    try:
        yield
    finally:
        with _lock:
            _recording -= 1
        _thread.recorders.remove(recorder)


# --- errors ------------------------------------------------------------------------------------


def _mixed(inputs: tuple[Tensor, ...]) -> DeviceError:
    places = ", ".join(dict.fromkeys(str(t.device) for t in inputs))
    return DeviceError(
        f"operands are on different devices or layouts: {places}",
        hint="move them together with x.to_device(...)",
    )


def _cause(error: Exception) -> Exception | None:
    return None if isinstance(error, WeftError) else error


def _explained(
    op: Op, inputs: tuple[Tensor, ...], attrs: dict[str, Any], error: Exception
) -> Exception:
    """The error to show for what a kernel raised."""
    types = [type_of(tensor) for tensor in inputs]
    if isinstance(error, WeftError):
        return error.about(op.name, types)
    try:
        inferred = op.infer(*types, **attrs)
    except WeftError as clear:
        return clear.about(op.name, types)
    outputs = inferred if isinstance(inferred, tuple) else (inferred,)
    largest = max(outputs, key=lambda t: t.nbytes)
    if isinstance(error, builtins.MemoryError) or largest.nbytes > ADDRESSABLE:
        return out_of_memory(op.name, largest.shape, largest.nbytes).about(op.name, types)
    message = str(error)
    if isinstance(error, builtins.IndexError):
        return IndexError(message, op=op.name, operands=types)
    if isinstance(error, np.linalg.LinAlgError):
        return LinAlgError(message, op=op.name, operands=types)
    return error


#: No machine has more; NumPy refuses such arrays with a ValueError.
ADDRESSABLE = 2**62


def out_of_memory(op: str, shape: Shape, nbytes: int) -> MemoryError:
    amount = float(nbytes)
    for unit in ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"):
        if amount < 1024 or unit == "EiB":
            break
        amount /= 1024
    return MemoryError(
        f"a tensor of shape {shape} takes {amount:.4g} {unit}, more than there is",
        op=op,
        hint="use a smaller shape or a narrower dtype, or work in parts",
    )
