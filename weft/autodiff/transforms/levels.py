"""Levels: what `jvp` and `vmap` have in common.

Each of them runs a function on tensors of its own level. Such a tensor is an ordinary `Tensor`
whose array stands for tensors of the level below: for `jvp` a value and its tangent, for `vmap` a
value with one axis more. A level is a recorder: it sees each op call, does what is to be done by op
calls on the level below, and lets the tape note the call on its own level. So transforms nest in
any order, and each level has its own histories: the tape of tensors of this level, and, in the
tensors they stand for, the tape of the level below.

All that is computed while a level is open is of that level, also what does not depend on an
argument of the function. Tensors from outside are taken as they are.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from weft.autodiff.node import count
from weft.base.dtypes import dtype_of_numpy
from weft.base.errors import CaptureError
from weft.base.shapes import Shape, size_of
from weft.core import bind as binding
from weft.core.bind import Recorder, recorder, recording
from weft.core.grad_mode import mode
from weft.core.tensor import UNASKED, StateTensor, Tensor
from weft.ir.dispatch import Family, register_stand_in
from weft.ir.op import Op
from weft.ir.types import DENSE, TensorType

__all__: list[str] = []


class LevelArray:
    """Stands where an array would; `tensor` is what it stands for on the level below."""

    __slots__ = ("dtype", "level", "shape", "tensor")

    word = ""  # what tensors of such a level are called

    def __init__(self, tensor: Tensor, level: Level, shape: Shape) -> None:
        self.tensor = tensor
        self.level = level
        self.shape = shape
        self.dtype: np.dtype[Any] = tensor._data.dtype

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return size_of(self.shape)

    @property
    def type(self) -> TensorType:
        return TensorType(dtype_of_numpy(self.dtype), self.shape, self.tensor.device)

    def __repr__(self) -> str:
        return f"<{self.word} {self.type}>"


def register_level(kind: type[LevelArray], function: str) -> None:
    """Make a class of arrays known that cannot be computed with where its level is closed."""

    def numbers(array: LevelArray) -> Any:
        raise CaptureError(
            f"this tensor ({array.type}) lives inside of a function that {function} runs, and has "
            "no numbers of its own",
            hint="return it from the function",
        )

    def never(_array: Any, _device: Any) -> Any:
        raise CaptureError(f"such a tensor is made by {function}, not from numbers")

    register_stand_in(
        Family(
            function,
            DENSE,
            kind,
            None,
            never,
            numbers,
            lambda array: array.tensor.device,
            refusal=f"a tensor from inside of a function that {function} ran is used outside of "
            "it: let the function return it",
        )
    )


class SavedTensor:
    """What a tensor from outside held before the function gave it something else."""

    __slots__ = ("data", "grad", "node", "tensor")

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor
        self.data = tensor._data
        self.node = tensor._node
        self.grad = getattr(tensor, "_grad", None)

    def restore(self) -> None:
        self.tensor._data, self.tensor._node = self.data, self.node
        if hasattr(self.tensor, "_grad"):
            self.tensor._grad = self.grad


class SavedTensors:
    """What tensors held before they were written to, by their id."""

    def __init__(self) -> None:
        self.entries: dict[int, SavedTensor] = {}

    def restore(self) -> None:
        for held in self.entries.values():
            held.restore()


class Stays(Exception):
    """A value that cannot leave its level."""


class Unlowered(Exception):
    """A node on the level below cannot hold something: a history that began on the level itself."""

    def __init__(self, level: Level) -> None:
        super().__init__(level.function)
        self.level = level


class _Graphs:
    """How functions are run by their graphs: `weft.record.control.on_level`, by `weft.wiring`.

    run       runs a function on the innermost level by a graph that is recorded of it
    effects   counts what was written to Python objects
    """

    run: Callable[[Callable[[], Any]], Any] | None = None
    effects: Callable[[], int] = staticmethod(lambda: 0)


def use_graphs(run: Callable[[Callable[[], Any]], Any], effects: Callable[[], int]) -> None:
    _Graphs.run = staticmethod(run)
    _Graphs.effects = staticmethod(effects)


class Level(Recorder):
    """A recorder of op calls on the tensors of one level."""

    function = ""  # as users call it

    def __init__(self) -> None:
        #: Without gradients outside, what is computed on the level below has no history there.
        self.linked = mode.enabled
        self.start = next(count)  # histories with higher numbers began in here
        self.lowered = 0  # how many nested recordings below run functions of this level
        self.refusal = ""  # why a write outside could not be kept
        #: While the function runs that could run by its graph: how many effects it began with.
        self._effects: int | None = None
        self._held: dict[int, SavedTensor] = {}  # by id of the tensor, which the entry keeps alive
        self._journals: list[SavedTensors] = []

    @contextlib.contextmanager
    def opened(self) -> Iterator[None]:
        """Record; what tensors from outside were given is theirs when it is over."""
        try:
            with recording(self):
                yield
        finally:
            self._give_back()

    def run(self, function: Callable[[], Any]) -> Any:
        """What a function gives on this level.

        Where a gradient that is taken in it passes control flow of a recorded graph, it is recorded
        as a graph by itself, which is run then; but if Python asks for values in it, as it is.
        """
        journal, before = SavedTensors(), self._effects
        self._effects = _Graphs.effects()
        try:
            with self.journal(journal):
                return function()
        except Unlowered as refusal:
            if refusal.level is not self or _Graphs.run is None:
                raise
            journal.restore()
        finally:
            self._effects = before
        try:
            return _Graphs.run(function)
        except CaptureError:
            return function()

    def asks(self) -> bool:
        """Whether Python is asked which way control flow goes that cannot be recorded below."""
        return self._effects is None or self._effects != _Graphs.effects()

    def call(self, op: Op, inputs: tuple[Tensor, ...], attrs: dict[str, Any]) -> Any:
        enabled = mode.enabled
        mode.enabled = enabled and self.linked
        try:
            out = self.compute(op, inputs, attrs, enabled)
        finally:
            mode.enabled = enabled
        if not enabled or all(x._node is None for x in inputs):
            return out
        return binding.tape(op, tuple(map(self._kept, inputs)), attrs, out)

    def _kept(self, tensor: Tensor) -> Tensor:
        """What the tape keeps of an input: one from outside as a tensor of this level."""
        if self.has(tensor):
            return tensor
        made = self.lifted(tensor)
        made._node = tensor._node
        return made

    def lifted(self, tensor: Tensor) -> Tensor:
        """A tensor from outside as one of this level."""
        raise NotImplementedError

    def compute(
        self, op: Op, inputs: tuple[Tensor, ...], attrs: dict[str, Any], enabled: bool
    ) -> Any:
        """The result of an op call, of this level; `enabled`: whether gradients are on here."""
        raise NotImplementedError

    def has(self, tensor: Tensor) -> bool:
        """Whether a tensor is of this level."""
        data = tensor._data
        return isinstance(data, LevelArray) and data.level is self

    def below(self, tensor: Tensor) -> Tensor:
        """What a tensor stands for; a tensor from outside for itself."""
        data = tensor._data
        if isinstance(data, LevelArray) and data.level is self:
            return data.tensor
        return tensor

    # --- for `Function`: see weft.autodiff.transforms.custom -----------------------------------

    def custom(self, call: Any) -> list[Tensor]:
        """A call whose derivative its author gave: its results, of this level."""
        raise NotImplementedError

    # --- writes -------------------------------------------------------------------------------

    @contextlib.contextmanager
    def journal(self, journal: SavedTensors) -> Iterator[None]:
        """Have a journal note what is written to."""
        self._journals.append(journal)
        try:
            yield
        finally:
            self._journals.remove(journal)

    def write(self, target: Tensor) -> None:
        for journal in self._journals:
            journal.entries.setdefault(id(target), SavedTensor(target))
        if not self.has(target):
            self._held.setdefault(id(target), SavedTensor(target))
            super().write(target)

    def keeps_gradient(self, target: Tensor) -> bool:
        return self.has(target) or super().keeps_gradient(target)

    def lower_states(self) -> None:
        """Let the states of random generators hold what they are on the level below.

        They are no level's own: a node that is recorded there writes them, too.
        """
        for held in self._held.values():
            target = held.tensor
            if isinstance(target, StateTensor) and self.has(target):
                try:
                    target._data = self.leaving(target, "a random generator")._data
                except Stays as refusal:
                    self.refusal = self.refusal or str(refusal)

    def _give_back(self) -> None:
        """Let tensors from outside hold values of the level below, or what they held before."""
        for held in self._held.values():
            target = held.tensor
            try:
                if self.has(target):
                    value = self.leaving(target, "a tensor from outside")
                    target._data = value._data
                    if target._node is not held.node:
                        target._node = value._node
                grad = getattr(target, "_grad", None)
                if grad is not None and grad is not held.grad and self.has(grad):
                    target._grad = self.leaving(grad, "the gradient of a tensor from outside")
            except Stays as refusal:
                self.refusal = self.refusal or str(refusal)
        if self.refusal:
            for held in self._held.values():
                held.restore()
        self._held.clear()

    def leaving(self, tensor: Tensor, what: str) -> Tensor:
        """The value of the level below that a tensor from outside is given; or `Stays`."""
        return self.below(tensor)

    # --- questions, and what outer recorders are to know ---------------------------------------

    def ask(self, tensor: Tensor, question: str) -> Any:
        if not self.has(tensor):
            return super().ask(tensor, question)
        if question == "repr":
            return UNASKED
        value = self.asked(tensor, question)
        return value.numpy() if question == "numpy" else value._answer(question)

    def asked(self, tensor: Tensor, question: str) -> Tensor:
        """What answers for a tensor that Python asks for its value."""
        return self.below(tensor)

    def read_grad(self, tensor: Tensor) -> None:
        if not self.has(tensor) and id(tensor) not in self._held:
            super().read_grad(tensor)


@contextlib.contextmanager
def left(level: Level) -> Iterator[None]:
    """Be on the level below for a while."""
    recorders = binding._thread.recorders
    at = len(recorders) - 1 - recorders[::-1].index(level)
    inner = recorders[at:]
    del recorders[at:]
    try:
        yield
    finally:
        recorders[at:] = inner


class ClosedLevel(CaptureError):
    """A tensor of a level is used where that is closed, or left."""


def check_open(tensor: Tensor) -> None:
    """Refuse a tensor of a level that this thread is not on."""
    data = tensor._data
    if isinstance(data, LevelArray) and data.level not in binding._thread.recorders:
        raise ClosedLevel(
            f"a tensor ({tensor.type}) from inside of a function that {data.level.function} runs "
            "is used outside of it",
            hint="hand it to the function as an argument",
        )


def all_elements(tensor: Tensor) -> Tensor:
    """What a tensor is without any level: for checks that all elements of an axis must pass."""
    while isinstance(tensor._data, LevelArray):
        tensor = tensor._data.tensor
    return tensor


def level_active() -> bool:
    """Whether this thread is inside of a function that a transform runs, or is going to run."""
    return any(isinstance(found, Level) or found.marks_all for found in binding._thread.recorders)


def open_levels() -> list[Level]:
    """The levels that this thread is on, outermost first."""
    return [found for found in binding._thread.recorders if isinstance(found, Level)]


def innermost_level() -> Level | None:
    """The innermost recorder, if it is a level."""
    here = recorder()
    return here if isinstance(here, Level) else None
