"""What generated code calls in Python: cards of nodes without an emitter, on memory of the run.

A card whose results have a size that depends on data is called twice: the first call computes them
and writes the size to the table of the run, the second one copies them to the memory that the run
has found for them. Steps in which a tensor turned out to be empty come here, too: kernels rely on
sizes of at least 1. Collectives come here once: where the group has machine code for a call, that
is called from the second time on.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.base.dim_algebra import Dim
from weft.base.dims import bind_all, substitute
from weft.base.errors import ShapeError, WeftError
from weft.base.frames import through
from weft.codegen.contract import EMPTY, SECOND, UNDONE, Status
from weft.core.autocast import as_recorded
from weft.core.bind import bind
from weft.core.grad_mode import no_grad
from weft.core.tensor import Tensor, wrap
from weft.ir.concrete import sized_type
from weft.ir.graph import Graph, Node, Value
from weft.ir.interpret import located, run_node
from weft.ir.types import TensorType
from weft.ops.collective import compare_graphs
from weft.ops.messages import direct_call, raise_undone

if TYPE_CHECKING:
    from weft.schedule.plan import Step

__all__ = ["CardCalls", "unboxed"]

Sizes = Mapping[str, int]


class CardCalls:
    """
    calls   the nodes, by the number of the call
    late    the place in the table of sizes of each name that the run tells
    graph   what is run
    empty   returns the steps that may have an empty tensor, with the values behind their arguments
    errors  what a call raised, by thread
    """

    def __init__(
        self,
        calls: Sequence[Node],
        late: Mapping[str, int],
        graph: Graph,
        empty: Callable[[], Sequence[tuple[Step, Sequence[Any]]]],
    ) -> None:
        self.calls = calls
        self.errors: dict[int, BaseException] = {}
        self._late = late
        self._graph = graph
        self._empty = empty
        self._waiting: dict[tuple[int, int], list[Any]] = {}

    def call(self, sizes: Sizes, direct: Any, number: int, args: int) -> int:
        """What generated code calls: a status. `sizes` are those of the inputs; `direct` gets the
        address of what is called in place of a card from then on."""
        node: Node | None = None
        try:
            known = {**sizes, **self._told(args)} if self._late else sizes
            if number >= UNDONE:
                node = self.calls[number - UNDONE]
                raise_undone(node)
            if number >= EMPTY:
                try:
                    _run_empty(*self._empty()[number - EMPTY], args, known)
                except WeftError:  # the graph as it was captured may do without this op
                    return Status.SIZES
                return 0
            node = _sized_node(self.calls[number % SECOND], known)
            if node.op.collective:
                compare_graphs(node, self._graph)
            waiting = threading.get_ident(), number % SECOND
            outs = self._waiting.pop(waiting) if number >= SECOND else _run_card(node, args, known)
            if node.op.data_shape and number < SECOND:
                self._waiting[waiting] = outs
                self._tell(args, node, outs, known)
                return 0
            if len(outs) != len(node.outputs):
                raise _other(node, f"{len(outs)} results", f"{len(node.outputs)} were planned")
            for place, (value, out) in enumerate(zip(node.outputs, outs, strict=True)):
                _check(node, value, out, known)
                array = _array(_pointer(args, len(node.inputs) + place), _kind(value, out))
                if array is not None:
                    array[...] = out._data
            if node.op.collective and not self._late:
                kinds = [sized_type(value.type, known) for value in node.inputs]
                direct[number] = direct_call(node, kinds)
        except BaseException as error:
            found: BaseException = error
            if node is not None:
                found = located(error, node) if isinstance(error, WeftError) else error
                through(found, node.location)
            self.errors[threading.get_ident()] = found
            return Status.RAISED
        return 0

    def _told(self, args: int) -> dict[str, int]:
        """The numbers of the sizes that the run has told so far."""
        table = _table(args)
        return {name: table[place] for name, place in self._late.items()}

    def _tell(self, args: int, node: Node, outs: Sequence[Any], known: Sizes) -> None:
        kinds = [
            (v.tensor_type.shape, x.shape, "") for v, x in zip(node.outputs, outs, strict=True)
        ]
        found = {name: size for name, size in known.items() if name not in self._late}
        bind_all(kinds, found)
        table = _table(args)
        for name, place in self._late.items():
            if name in found:
                table[place] = found[name]


def _table(args: int) -> Any:
    """The table of sizes, which precedes the arguments of a kernel."""
    return ctypes.cast(_pointer(args, -1), ctypes.POINTER(ctypes.c_int64))


def _pointer(args: int, place: int) -> int:
    return ctypes.c_void_p.from_address(args + 8 * place).value or 0


def _check(node: Node, value: Value, out: Any, sizes: Sizes) -> None:
    """A kernel from outside may give what its card does not say: it has no room in the memory."""
    wanted = sized_type(value.type, sizes)
    if not isinstance(wanted, TensorType):
        return
    made: tuple[Any, ...] = tuple(out.shape) if isinstance(out, Tensor) else (None,)
    told = [m if isinstance(n, Dim) else n for m, n in zip(made, wanted.shape, strict=False)]
    if len(made) != wanted.ndim or list(made) != told:
        raise _other(node, str(getattr(out, "type", type(out).__name__)), f"{wanted} was planned")


def _other(node: Node, found: str, wanted: str) -> WeftError:
    return ShapeError(
        f"its kernel gave {found}, and {wanted}",
        op=node.op.name,
        hint="a kernel must give what the type rule of the op says",
    )


def _kind(value: Value, out: Any) -> Any:
    """The type of a result, with the sizes of this run."""
    kind = value.type
    return kind.like(shape=out.shape) if isinstance(kind, TensorType) else kind


def _run_card(node: Node, args: int, sizes: Sizes) -> list[Any]:
    arrays = [
        _array(_pointer(args, i), sized_type(value.type, sizes))
        for i, value in enumerate(node.inputs)
    ]
    given = [None if array is None else wrap(array) for array in arrays]
    with no_grad(), as_recorded():
        return list(run_node(node, given, bind))


def _run_empty(step: Step, values: Sequence[Any], args: int, sizes: Sizes) -> None:
    """Compute a step node by node, from the values that it reads."""
    group = step.group
    read = set(group.reads())
    known: dict[Value, Any] = {}
    for place, value in enumerate(values):
        if isinstance(value, Value) and value in read:
            array = _array(_pointer(args, place), sized_type(value.type, sizes))
            known[value] = None if array is None else wrap(array)

    def computed(value: Value) -> Any:
        if value not in known:
            node = value.node
            assert node is not None, value
            given = [computed(x) for x in node.inputs]
            outs = run_node(node, given, bind, sizes)
            known.update(zip(node.outputs, outs, strict=True))
        return known[value]

    with no_grad(), as_recorded():
        for place, value in enumerate(values):
            if isinstance(value, Value) and value in group.outputs and _pointer(args, place):
                array = _array(_pointer(args, place), sized_type(value.type, sizes))
                if array is not None:
                    array[...] = computed(value)._data


def _sized_node(node: Node, sizes: Sizes) -> Node:
    """A node with numbers for named sizes in its attributes."""
    attrs = substitute(node.attrs, sizes, partly=True) if sizes else node.attrs
    if attrs is node.attrs:
        return node
    kinds = [sized_type(value.type, sizes) for value in node.outputs]
    return Node(node.op, node.inputs, attrs, kinds, node.graphs, node.location)


def _array(address: int, kind: Any) -> np.ndarray[Any, Any] | None:
    if not isinstance(kind, TensorType):
        return None  # a token
    size = kind.nbytes
    if size == 0:
        return np.empty(kind.shape, kind.dtype.numpy)
    memory = (ctypes.c_char * size).from_address(address)
    array: np.ndarray[Any, Any] = np.ndarray(kind.shape, kind.dtype.numpy, memoryview(memory))
    return array


def unboxed(box: np.ndarray[Any, Any], kind: TensorType) -> Any:
    """A copy of the value behind a box (`weft.codegen.control.boxes`)."""
    address, *sizes = box.tolist()
    array = np.empty(sizes[: kind.ndim], kind.dtype.numpy)
    if array.nbytes:
        ctypes.memmove(array.ctypes.data, address, array.nbytes)
    return wrap(array)
