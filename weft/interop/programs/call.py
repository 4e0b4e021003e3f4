"""What a call of a program does. Captures follow this file like the code of modules, so that a
program can be called in compiled functions; it is never converted from the file of a program."""

from __future__ import annotations

from typing import Any

from weft.autodiff.transforms.vmap import vmap
from weft.core.counted import Counted, CountedDict
from weft.interop.programs.arguments import Arguments
from weft.interop.programs.run import Routine, run_routine


class ProgramBody(Counted):
    """The function that is compiled: takes the tensors among the arguments, in order."""

    def __init__(self, arguments: Arguments, routine: Routine, state: CountedDict) -> None:
        self.__name__ = arguments.function
        self.__signature__ = arguments.flat_signature
        self.arguments = arguments
        self.routine = routine
        self.state = state
        count = len(arguments.names)
        self.names = tuple([routine.signature.places[i].name for i in routine.tensors[count:]])

    def __call__(self, *inputs: Any) -> Any:
        self.arguments.check(inputs, self.routine)
        given = [*inputs, *[self.state[name] for name in self.names]]
        self.arguments.check_state(given, self.routine)
        return run_routine(self.routine, given)


class ProgramCall(Counted):
    """The call of a program: arguments as its function took them."""

    arguments: Arguments
    compiled: Any

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.compiled(*self.arguments.inputs(args, kwargs))


class ProgramBatch(Counted):
    """The function that runs a program for several calls at once: the tensors among their
    arguments, each stacked along a new first axis."""

    def __init__(self, program: ProgramCall) -> None:
        self.__name__ = f"{program.arguments.function}_batch"
        self.__signature__ = program.arguments.flat_signature
        self.mapped = vmap(program.compiled)

    def __call__(self, *inputs: Any) -> Any:
        return self.mapped(*inputs)
