"""State that all functions of one source-captured run share: open journals, loops, counters."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from weft.base.errors import CaptureError, InternalError, WeftError
from weft.base.source import raised_location
from weft.capture.from_source.journal import Entry, Journal, Parts, Variable, entry_for
from weft.capture.from_source.may_alias import Aliases, SourceNested
from weft.ops.effects import FAIL, Raised
from weft.record.control.nested import NestedRecorder
from weft.record.effects import effect
from weft.record.recorder import GraphRecorder

if TYPE_CHECKING:
    from weft.capture.watch.watch import Watch
    from weft.record.control.recorded_loop import RecordedLoop


#: Errors of the recording itself. All other errors are the program's: the graph raises them.
OF_RECORDING = (CaptureError, InternalError, RecursionError)


@contextlib.contextmanager
def own_work() -> Iterator[None]:
    """A context for work of the recording itself, without code of the program.

    An error that is not Weft's own is a bug of Weft there.
    """
    try:
        yield
    except (WeftError, RecursionError, MemoryError):
        raise
    except Exception as error:
        raise InternalError(
            f"a {type(error).__name__} while control flow is recorded: {error}",
            hint="report it; weft.trace or plain Python may run the function meanwhile",
        ) from error


def uncatchable(error: Exception, where: str) -> CaptureError:
    return CaptureError(
        f"a {type(error).__name__} is raised {where}, inside of `try`, which cannot catch it in a "
        "graph",
        hint="raise outside of try, or decide by a Python value",
    )


class Unreachable(BaseException):
    """Both sides of an `if` raise, so the code after it is unreachable."""


class Flow:
    """The state of one run."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch
        watch.flow = self
        self.journals: list[Journal] = []
        self.created_in: dict[int, tuple[Any, int]] = {}  # objects made while journals were open
        #: In a branch of which Python may decide, too: nothing is called there that acts outside.
        self.careful = False
        self.tries = 0  # number of open `try` statements outside of the innermost branch
        self.undecided = False  # whether any object has contents that the graph decides
        self.split_objects: dict[int, Any] = {}  # objects with a Split among their attributes
        self.iterators: dict[int, tuple[Any, int]] = {}
        self.aliases = Aliases(watch)
        self.fallback = "error"  # or "python": what to do with foreign code that gets tensors
        self.leveled = 0  # number of functions that transforms ran by their graphs
        self.drawn = 0  # number of loops over the elements of a vmap that draw random numbers
        self.asked = 0  # how often a tensor decided the path
        self.loops: list[RecordedLoop] = []  # loops whose bodies are being recorded
        self._tries: list[int] = []

    # --- journals -----------------------------------------------------------------------------

    def open(self, journal: Journal) -> None:
        self.journals.append(journal)
        self._tries.append(self.tries)

    def close(self) -> None:
        self.journals.pop()
        self.tries = self._tries.pop()

    @contextlib.contextmanager
    def recording(self, nested: NestedRecorder) -> Iterator[Journal]:
        """Record a branch or body; at the end its writes are undone."""
        journal = Journal(self.watch)
        self.open(journal)
        try:
            with nested.opened():
                yield journal
        finally:
            self.close()
            journal.undo()

    def nested(self, here: GraphRecorder, name: str) -> SourceNested:
        """A recorder for a branch or body."""
        return SourceNested(here, name, self.aliases)

    @property
    def depth(self) -> int:
        return len(self.journals)

    def save(self, obj: Any) -> None:
        """Save an object that is about to be written in all open journals."""
        if self.journals:
            self.save_entry(entry_for(obj))

    def created(self, obj: Any) -> None:
        """Note a new object: journals that are open need not save it."""
        if self.journals:
            self.created_in[id(obj)] = (obj, len(self.journals))

    def save_entry(self, entry: Entry) -> None:
        first = self.created_in.get(id(entry.obj), (entry.obj, 0))[1]
        before: Parts | None = None
        for journal in reversed(self.journals[first:]):
            if id(entry.obj) in journal.entries:
                break
            before = entry.parts() if before is None else before
            journal.add(entry, before)

    def save_variable(self, cell: Any, name: str, outside: Any = None) -> None:
        self.save_entry(Variable(cell, name, outside))

    # --- effects ---------------------------------------------------------------------------

    def fail(self, error: Exception) -> None:
        """The graph raises an error here."""
        effect(FAIL, [], {"error": Raised(error)}, raised_location(error))


def standing_for(function: Any, like: Any) -> Any:
    """Give a function the name and line of another, for errors: that of the user."""
    code = getattr(like, "__code__", None)
    if code is None:
        return function
    owner = code.co_qualname.split(".<locals>.__weft")[0].rpartition(".")[2]
    function.__code__ = function.__code__.replace(
        co_firstlineno=code.co_firstlineno,
        co_filename=code.co_filename,
        co_name=owner,
        co_qualname=code.co_qualname,
    )
    return function
