"""`bind`: the one point through which every op call goes.

An op call either runs now, through the kernel tables of its card, or is passed to the innermost
recorder of this thread. Under `weft.autocast` its operands are cast first, as its card says; ops
that the call leads to, such as rules of transforms, compute in the dtypes of their operands.

Nothing is checked that the kernel checks anyway. If the kernel fails, the card's type rule finds
out what is wrong, and the error has its answer, the op, the operands and the user's line.
"""

from __future__ import annotations

import builtins
import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from weft.base.device import Device
from weft.base.dtypes import float32
from weft.base.errors import GradientError
from weft.core.call_errors import cause, check_devices, explained, mixed
from weft.core.grad_mode import mode
from weft.core.large import large
from weft.core.operand_dtypes import in_dtype
from weft.core.parts import Parts, lie_over_ranks
from weft.core.placement import common_place
from weft.core.quiet import contexts, new_context, quietly
from weft.core.tensor import (
    UNASKED,
    Tensor,
    labelled,
    own,
    result_class_of,
    type_of,
    witness,
    wrap,
)
from weft.ir.dispatch import family_for, family_of
from weft.ir.literal import CONSTANT, constant_attrs
from weft.ir.op import OPS, Op

ndarray = np.ndarray
generic = np.generic
asarray = np.asarray


class Recorder:
    """Gets op calls instead of running them: a tracer, a profiler, a transform.

    While one of its methods runs, the recorder is off: `bind` then reaches the next outer recorder,
    or runs the op.
    """

    #: Whether backward passes leave all histories as they are: what is recorded may be recorded
    #: again, or never run.
    keeps_histories = False

    def spend(self, node: Any, keep: bool) -> bool:
        return False  # a pass goes through a node that is left as it is: was it freed before?

    #: Is told each node of a history that a backward pass is about to free, if set.
    freeing: Callable[[Any], None] | None = None
    #: Whether it only observes: op calls run as without a recorder, and `recorder()` skips it.
    observes = False
    #: Whether its recording will run inside of a transform, whose tangents and histories it does
    #: not see. Then all code under no_grad() is marked, also if no tensor has a history.
    marks_all = False
    #: For recorders of graphs: values that several op calls share, by keys of their own.
    memo: dict[Any, Any] | None = None
    #: Whether it tries to record a loop that can be unrolled instead.
    unrolls = False

    def call(self, op: Op, inputs: tuple[Tensor, ...], attrs: dict[str, Any]) -> Any:
        """Record the op call, and return its result."""
        return bind(op, *inputs, **attrs)

    def ask(self, tensor: Tensor, question: str) -> Any:
        """Answer a question of Python for the value: "numpy", "item", "bool", "int", "float"."""
        return _ask(tensor, question)

    def write(self, target: Tensor) -> None:
        """Note that a tensor is about to get another value, history or gradient."""
        _tell_outer("write", target)

    def keeps_gradient(self, target: Tensor) -> bool:
        """Whether a write under no_grad() needs an op that keeps the target's history."""
        return bool(_tell_outer("keeps_gradient", target))

    def adopt_value(self, value: Tensor) -> Any:
        """The data for a tensor that gets the value of another."""
        return _held(value)

    def leaf_before(self, target: Tensor) -> Any:
        """The history of a leaf before the recorded code took it away, to be given back to it."""
        return _tell_outer("leaf_before", target)

    def wrote_grad(self, tensor: Tensor) -> None:
        """Note that the gradient of a tensor is about to be set, perhaps to the same one."""
        _tell_outer("wrote_grad", tensor)

    def read_grad(self, tensor: Tensor) -> None:
        """Note that the gradient of a tensor is about to be read."""
        _tell_outer("read_grad", tensor)

    def read_history(self, nodes: Sequence[Any], of_leaves: bool) -> None:
        """Note that Python asks for a history, or with `of_leaves` whether a tensor is a leaf."""
        _tell_outer("read_history", nodes, of_leaves)

    def adopt(self, array: np.ndarray[Any, Any]) -> Tensor | None:
        """The tensor for an array from outside; None if its numbers become a constant."""
        found: Tensor | None = _tell_outer("adopt", array)
        return found

    def looked(self, reached: Iterable[Any], targets: Sequence[Any]) -> None:
        """Note that a backward pass searched paths from these history nodes to its targets."""
        _tell_outer("looked", reached, targets)

    def taped(self, op: Op, inputs: tuple[Tensor, ...], attrs: dict[str, Any], out: Any) -> Any:
        """Put a call whose result is already known on the tape."""
        return taped(op, inputs, attrs, out)

    def met(self, node: Any, goes_on: bool) -> None:
        """Note that a backward pass reaches a history node, whose hooks run; `goes_on`: whether it
        continues to what the node was computed from."""
        _tell_outer("met", node, goes_on)

    def followed(self, function: Any) -> Any:
        """The function to call for a user's function that was registered earlier: a hook."""
        found = _tell_outer("followed", function)
        return function if found is None else found

    def hook(self, tensor: Tensor, hook: Any) -> Any:
        """Register a gradient hook; returns its handle, or None to use the default.

        The recorder stays on during this method.
        """
        return None

    def decide(self, condition: Tensor) -> bool:
        """Whether to treat a value that exists only under a condition as existing."""
        found = _tell_outer("decide", condition)
        return found is None or bool(found)

    def again(self, begins: bool) -> None:
        """Begin or end a recomputation, whose ops must not be merged with earlier ones."""
        _tell_outer("again", begins)

    def refuse(self, reason: str) -> None:
        """Note something that a recording cannot hold."""
        _tell_outer("refuse", reason)


class _Thread(threading.local):
    recorders: list[Recorder]

    def __init__(self) -> None:
        self.recorders = []


_thread = _Thread()
_NO_ATTRS: dict[str, Any] = {}  # never written to
#: How many recorders and autocasts are active in all threads: 0 is the common case.
_recording = 0
_lock = threading.Lock()
_classes = False  # whether there are classes of tensors whose results are of that class


_quiet = contexts  # methods of an imported name are called more slowly


def runs_now() -> bool:
    """Whether op calls of this thread run, and nobody observes or casts them."""
    return not _recording or not (_thread.recorders or mode.autocast is not None)


def _no_tape(op: Op, inputs: tuple[Tensor, ...], attrs: dict[str, Any], out: Any) -> Any:
    return out


def recorder() -> Recorder | None:
    """The innermost recorder of this thread, without those that only observe."""
    if _recording:
        for found in reversed(_thread.recorders):
            if not found.observes:
                return found
    return None


#: What notes an op call for `backward`: (op, inputs, attributes, result) -> result. `weft.wiring`
#: puts autodiff's here.
tape: Callable[[Op, tuple[Tensor, ...], dict[str, Any], Any], Any] = _no_tape


def use_tape(record: Callable[[Op, tuple[Tensor, ...], dict[str, Any], Any], Any]) -> None:
    global tape
    tape = record


def register_result_class(cls: type[Tensor]) -> None:
    """Give results of op calls on tensors of a subclass that class, also together with others.

    Without such a class a call costs nothing more.
    """
    global _classes
    cls._result_class = cls
    _classes = True


def bind(op: Op, *inputs: Tensor, **attrs: Any) -> Any:
    """Call `op`: run it now, or pass it to the innermost recorder."""
    if _recording and mode.autocast is not None:
        return _autocast(op, inputs, attrs)
    if _recording and _thread.recorders:
        out = _tell("call", op, inputs, attrs)
        return labelled(out, result_class_of(inputs)) if _classes else out
    try:
        run = _quiet.pop()
    except builtins.IndexError:
        run = new_context()
    note = tape
    try:
        if len(inputs) == 1:
            a = inputs[0]._data
            kernel = op.kernels[a.__class__][a.dtype]
            if a.__class__ is ndarray and a.size >= large.start:
                kernel, note = large.kernel(op, kernel), large.tape
            out = run(kernel, a, **attrs)
        elif len(inputs) == 2 and not attrs and inputs[0]._data.__class__ is ndarray:
            a = inputs[0]._data
            b = inputs[1]._data
            if b.__class__ is not ndarray:
                return _brought_together(op, inputs, attrs)
            kernel = op.kernels[ndarray][a.dtype]
            if a.size >= large.start or b.size >= large.start:
                kernel, note = large.kernel(op, kernel), large.tape
            out = run(kernel, a, b)
        elif inputs:
            arrays = [tensor._data for tensor in inputs]
            a = arrays[0]
            for array in arrays:
                if array.__class__ is not a.__class__:
                    return _brought_together(op, inputs, attrs)
            if a.__class__ is not ndarray:
                check_devices(inputs)
            kernel = op.kernels[a.__class__][arrays[op.dispatch_on].dtype]
            if a.__class__ is ndarray:
                for array in arrays:
                    if array.size >= large.start:
                        kernel, note = large.kernel(op, kernel), large.tape
                        break
            out = run(kernel, *arrays, **attrs)
        else:  # no operands: attributes choose the kernel
            family = family_for(attrs["device"])
            out = run(op.kernels[family.array_type][attrs["dtype"].numpy], **attrs)
    except Exception as error:
        if lie_over_ranks(error, inputs):
            return Parts.calls().bound(op, inputs, attrs, tape)
        raise explained(op, inputs, attrs, error) from cause(error)
    _quiet.append(run)
    if out.__class__ is not ndarray:
        if not isinstance(out, generic):
            return note(op, inputs, attrs, labelled(_wrapped(out), result_class_of(inputs)))
        out = asarray(out)  # NumPy's scalars are 0-d arrays to us
    tensor = Tensor() if not _classes else result_class_of(inputs)()
    tensor._data = out
    tensor._node = None
    for x in inputs:
        if x._node is not None:
            return note(op, inputs, attrs, tensor)
    return tensor


def _brought_together(op: Op, inputs: tuple[Tensor, ...], attrs: dict[str, Any]) -> Any:
    """The call on operands of several devices: single numbers go to where the others are."""
    refused = any(family_of(x._data).refusal for x in inputs)
    place = None if refused else common_place(op, [type_of(x) for x in inputs])
    if place is None:
        raise mixed(inputs)
    moved = [x if x.device == place else bind(OPS["to_device"], x, device=place) for x in inputs]
    return bind(op, *moved, **attrs)


def operator(op: Op, promote: Callable[[Any, Any], Any]) -> Callable[[Tensor, Any], Any]:
    """`bind` for a binary Python operator, in one frame if no promotion is needed.

    At 32 elements a further Python frame costs a third of the addition itself. So the common case
    (two NumPy-backed tensors of one dtype, no recorder) repeats the steps of `bind` here. All other
    cases go through `promote` and `bind`.
    """
    kernel_of = op.kernels[ndarray].get

    def call(x: Tensor, y: Any, /) -> Any:
        if y.__class__ is Tensor or isinstance(y, Tensor):  # the first is faster
            a = x._data
            b = y._data
            dtype = a.dtype
            if dtype is b.dtype and a.__class__ is b.__class__ is ndarray and not _recording:
                kernel = kernel_of(dtype)
                if kernel is not None:
                    if a.size >= large.start or b.size >= large.start:
                        return bind(op, x, y)
                    try:
                        run = _quiet.pop()
                    except builtins.IndexError:
                        run = new_context()
                    try:
                        out = run(kernel, a, b)
                    except Exception as error:
                        raise explained(op, (x, y), {}, error) from cause(error)
                    _quiet.append(run)
                    if out.__class__ is not ndarray:
                        if not isinstance(out, generic):
                            out = labelled(_wrapped(out), result_class_of((x, y)))
                            return tape(op, (x, y), _NO_ATTRS, out)
                        out = asarray(out)
                    tensor = Tensor() if not _classes else result_class_of((x, y))()
                    tensor._data = out
                    tensor._node = None
                    if x._node is not None or y._node is not None:
                        return tape(op, (x, y), _NO_ATTRS, tensor)
                    return tensor
        return promote(x, y)

    return call


def unary(op: Op, otherwise: Callable[[Any], Any]) -> Callable[[Tensor], Tensor]:
    """`bind` for a function of one tensor, in one frame as `operator` is."""
    kernel_of = op.kernels[ndarray].get

    def call(x: Tensor, /) -> Tensor:
        if x.__class__ is Tensor or isinstance(x, Tensor):
            a = x._data
            if a.__class__ is ndarray and not _recording:
                kernel = kernel_of(a.dtype)
                if kernel is not None and a.size < large.start:
                    try:
                        run = _quiet.pop()
                    except builtins.IndexError:
                        run = new_context()
                    try:
                        out = run(kernel, a)
                    except Exception as error:
                        raise explained(op, (x,), _NO_ATTRS, error) from cause(error)
                    _quiet.append(run)
                    tensor = x._result_class()
                    tensor._data = out if out.__class__ is ndarray else asarray(out)
                    tensor._node = None
                    if x._node is not None:
                        tape(op, (x,), _NO_ATTRS, tensor)
                    return tensor
        promoted: Tensor = otherwise(x)
        return promoted

    return call


def short(
    op: Op,
    kernel: Callable[[Any, Any], Any],
    x: Tensor,
    argument: Any,
    attrs: Callable[[Any], dict[str, Any]],
) -> Tensor | None:
    """`bind` for the most common form of an op of one tensor: `kernel(array, argument)`.

    Passing attributes by name through three calls costs more than a slice or a small sum. `attrs`
    builds the attributes from the argument, for the tape. Returns None to fall back to `bind`:
    there is a recorder, it is not a NumPy array, or the kernel failed and `bind` finds out why.
    """
    a = x._data
    if _recording or a.__class__ is not ndarray or op.kernels.overridden:
        return None
    if a.size >= large.start and not op.view:
        return None
    try:
        run = _quiet.pop()
    except builtins.IndexError:
        run = new_context()
    try:
        out = run(kernel, a, argument)
    except Exception:
        return None
    _quiet.append(run)
    tensor = x._result_class()
    tensor._data = out if out.__class__ is ndarray else asarray(out)
    tensor._node = None
    if x._node is not None:
        tape(op, (x,), attrs(argument), tensor)
    return tensor


def update(op: Op, *operands: Tensor, **attrs: Any) -> None:
    """Assign the results of the op to its first `op.outputs` operands.

    They are written in place if nothing else holds these buffers and the card has a kernel for it.
    The results have the dtypes and shapes of those operands.
    """
    outputs = op.outputs
    in_place = None if _recording or op.kernels.overridden else op.in_place
    for x in operands:
        if x._data.__class__ is not ndarray or (x._node is not None and mode.enabled):
            in_place = None
    if in_place is None:
        out = bind(op, *operands, **attrs)
        for target, value in zip(operands, out if outputs > 1 else (out,), strict=False):
            rebind(target, value, op.name)
        return
    if operands[0]._data.size >= large.start and large.update(op, operands, attrs):
        return
    arrays = [x._data for x in operands[outputs:]]  # before `own`: these must not be written
    try:
        quietly(in_place, *map(own, operands[:outputs]), *arrays, **attrs)
    except Exception as error:
        raise explained(op, operands, attrs, error) from cause(error)


def rebind(target: Tensor, value: Tensor, op: str) -> None:
    """Give `target` the value of another tensor, and its history unless gradients are off."""
    written(target)
    if mode.enabled and (target._node is not None or value._node is not None):
        if target._node is not None and target._node.is_leaf:
            raise GradientError(
                "a leaf that requires a gradient is written to",
                op=op,
                operands=[type_of(target)],
                hint="update it under weft.no_grad(), or write to a copy: y = x.clone()",
            )
        target._node = value._node
    elif not mode.enabled and _recording and _thread.recorders:
        value = _without_gradient(target, value)
    target._data = _held(value) if _recording else value._data


def _without_gradient(target: Tensor, value: Tensor) -> Tensor:
    """The value of a recorded write under no_grad(), without the value's gradient.

    An op passes the gradient on to the tensor's old value. A leaf stays a leaf.
    """
    if target._data.dtype.kind in "biu":
        return value
    is_leaf = target._node is not None and target._node.is_leaf
    if is_leaf or not _tell("keeps_gradient", target):
        return bind(OPS["stop_gradient"], value) if _tell("keeps_gradient", value) else value
    mode.enabled = True
    try:
        made: Tensor = bind(OPS["with_gradient_of"], value, target)
    finally:
        mode.enabled = False
    target._node = made._node
    return made


def _wrapped(out: Any) -> Any:
    """Several results, or arrays of other devices, as tensors."""
    if isinstance(out, tuple):
        return tuple(_wrapped(part) for part in out)
    return wrap(asarray(out) if isinstance(out, generic) else out)


def written(target: Tensor) -> None:
    """Tell recorders that a tensor is about to get another value, history or gradient."""
    if _recording and _thread.recorders:
        _tell("write", target)


def _held(value: Tensor) -> Any:
    return _tell("adopt_value", value) if _thread.recorders else value._data


def _ask(tensor: Tensor, question: str) -> Any:
    return _tell("ask", tensor, question) if _thread.recorders else UNASKED


def _tell(method: str, *args: Any) -> Any:
    """Call a method of the innermost recorder, which is off during the call."""
    recorder = _thread.recorders.pop()
    try:
        return getattr(recorder, method)(*args)
    finally:
        _thread.recorders.append(recorder)


def _tell_outer(method: str, *args: Any) -> Any:
    """Pass a call that a recorder does not need to the outer one."""
    return _tell(method, *args) if _thread.recorders else None


def taped(op: Op, inputs: tuple[Tensor, ...], attrs: dict[str, Any], out: Any) -> Any:
    """Put a call whose result is already known on the tape; returns the result."""
    if _recording and _thread.recorders:
        return _tell("taped", op, inputs, attrs, out)
    return tape(op, inputs, attrs, out)


def decide(condition: Tensor) -> bool:
    """Whether to treat a value that exists only under a condition as existing.

    A recorded graph computes both cases, with zeros for a missing value.
    """
    return bool(_tell("decide", condition)) if _recording and _thread.recorders else True


def computes_again(begins: bool) -> None:
    """A context for recomputation: its ops must not be merged with earlier ones."""
    if _recording and _thread.recorders:
        _tell("again", begins)


def get_grad(tensor: Tensor) -> Tensor | None:
    """The accumulated gradient, or None."""
    if _recording and _thread.recorders:
        _tell("read_grad", tensor)
    try:
        return tensor._grad
    except AttributeError:
        return None


def leaf_before(tensor: Tensor) -> Any:
    """While a recorder is active: the history of a leaf that the recorded code took away."""
    return _tell("leaf_before", tensor) if _recording and _thread.recorders else None


def set_grad(tensor: Tensor, value: Tensor | None) -> None:
    written(tensor)
    if _recording and _thread.recorders:
        _tell("wrote_grad", tensor)
    tensor._grad = value


def refused(reason: str) -> None:
    """Tell recorders about something that a recording cannot hold."""
    if _recording and _thread.recorders:
        _tell("refuse", reason)


def new_tensor(array: np.ndarray[Any, Any], device: Device, source: Any = None) -> Tensor:
    """A tensor of an array; while recording, a constant, or the tensor for the array's source."""
    if _recording and _thread.recorders:
        adopted: Tensor | None = None
        if isinstance(source, ndarray):
            adopted = _tell("adopt", source)
        if adopted is None:
            adopted = bind(CONSTANT, **constant_attrs(array, device))
        return adopted
    return wrap(family_for(device).from_numpy(array, device))


# --- mixed precision ---------------------------------------------------------------------------


def _autocast(op: Op, inputs: tuple[Tensor, ...], attrs: dict[str, Any]) -> Any:
    """Call `op` on operands in the dtype that its card asks for under the mode of this thread."""
    wanted = mode.autocast
    mode.autocast = None  # what the call leads to is as the call found it
    try:
        if op.autocast:
            to = wanted if op.autocast == "lower" else float32
            inputs = in_dtype(inputs, to)
        return bind(op, *inputs, **attrs)
    finally:
        mode.autocast = wanted


def count_autocast(change: int) -> None:
    """Autocast is entered (1) or left (-1) in some thread."""
    global _recording
    with _lock:
        _recording += change


@contextlib.contextmanager
def recording(recorder: Recorder) -> Iterator[None]:
    """Pass op calls of this thread to `recorder`."""
    global _recording
    _thread.recorders.append(recorder)
    with _lock:
        _recording += 1
        witness.ask = _ask
    try:
        yield
    finally:
        with _lock:
            _recording -= 1
            if not _recording:
                witness.ask = None
        _thread.recorders.remove(recorder)
