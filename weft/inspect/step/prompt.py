"""The prompt of the debugger."""

from __future__ import annotations

import cmd
import linecache
import re
import sys
from typing import TYPE_CHECKING, Any

from weft.base.errors import WeftError
from weft.inspect.step.breaks import Break
from weft.inspect.step.worker import Quit

if TYPE_CHECKING:
    from weft.inspect.step.stepper import Stepper

__all__ = ["Prompt", "add_break", "open_prompt"]

INTRO = "A compiled function stands still. `help` lists the commands."
_NORM = re.compile(r"norm\s*>\s*([-+.\deE]+)")


class Prompt(cmd.Cmd):
    """Reads commands while a run is stopped."""

    prompt = "(weft) "
    use_rawinput = True

    def __init__(self, stepper: Stepper) -> None:
        super().__init__()
        self.stepper = stepper
        if not sys.stdin.isatty():  # input is not visible, so echo it
            self.use_rawinput = False

    def preloop(self) -> None:
        stepper = self.stepper
        if stepper.reason is not None:
            self._say(f"breakpoint: {stepper.reason}")
        if stepper.error is not None:
            self._say(f"error: {type(stepper.error).__name__}: {stepper.error}")
        self._say(stepper.place)

    def precmd(self, line: str) -> str:
        if not self.use_rawinput and line != "EOF":
            self._say(line.rstrip())
        return line

    def _say(self, what: Any) -> None:
        print(what, file=self.stdout, flush=True)

    # --- moving -------------------------------------------------------------------------------

    def do_next(self, _line: str) -> bool:
        """n(ext), s(tep): go to the next op, into branches and bodies"""
        self.stepper.next()
        return True

    def do_over(self, _line: str) -> bool:
        """o(ver): go to the next op of this graph, over branches and bodies"""
        self.stepper.over()
        return True

    def do_line(self, _line: str) -> bool:
        """line: go to the next line of the program"""
        self.stepper.line()
        return True

    def do_out(self, _line: str) -> bool:
        """out, r(eturn): go to the end of this branch or body"""
        self.stepper.out()
        return True

    def do_continue(self, _line: str) -> bool:
        """c(ontinue): go to the next breakpoint"""
        self.stepper.run()
        return True

    def do_quit(self, _line: str) -> bool:
        """q(uit): end the program"""
        raise Quit

    # --- breakpoints --------------------------------------------------------------------------

    def do_break(self, line: str) -> None:
        """b(reak) FILE:LINE [ITERATION] | op:NAME | nan | inf | norm>NUMBER; alone: list them"""
        if line.strip():
            self._say(f"stops at {add_break(self.stepper, line.strip())}")
            return
        for number, found in enumerate(self.stepper.breaks):
            self._say(f"{number}  {found}  (met {found.hits} times)")

    def do_clear(self, line: str) -> None:
        """clear [NUMBER]: remove a breakpoint; alone: remove all, after asking"""
        breaks = self.stepper.breaks
        if line.strip().isdigit() and int(line) < len(breaks):
            self._say(f"removed {breaks.pop(int(line))}")
        elif line.strip():
            self._say(f"no breakpoint {line.strip()!r}; `break` lists them")
        elif not breaks:
            self._say("there are no breakpoints")
        elif self._agrees(f"remove all {len(breaks)} breakpoints? (y/n) "):
            breaks.clear()

    def _agrees(self, question: str) -> bool:
        if self.use_rawinput:
            answer = input(question)
        else:
            answer = self.stdin.readline().strip()
            self._say(question + answer)
        return answer.strip().lower() in ("y", "yes")

    # --- looking ------------------------------------------------------------------------------

    def do_print(self, line: str) -> None:
        """p(rint) EXPRESSION: evaluate a Python expression of the variables"""
        self._say(repr(self.stepper.eval(line)))

    def do_names(self, _line: str) -> None:
        """names: the visible variables"""
        self._say(", ".join(self.stepper.names()))

    def do_gradient(self, line: str) -> None:
        """gradient NAME: the gradient of a variable, in backward"""
        self._say(repr(self.stepper.gradient(line.strip())))

    def do_inputs(self, _line: str) -> None:
        """inputs: the operands of the op"""
        for value in self.stepper.inputs:
            self._say(repr(value))

    def do_outputs(self, _line: str) -> None:
        """outputs: the results of the op, after it has run"""
        for value in self.stepper.outputs:
            self._say(repr(value))

    def do_where(self, _line: str) -> None:
        """w(here), bt: the call stack, the loops and the op"""
        self._say(self.stepper.where())

    def do_list(self, _line: str) -> None:
        """l(ist): the lines of the program around this one"""
        location = self.stepper.location
        lines = [] if location is None else linecache.getlines(location.file)
        if location is None or not lines:
            self._say("there is no source for this op")
            return
        for number in range(max(1, location.line - 5), min(len(lines), location.line + 5) + 1):
            arrow = "->" if number == location.line else "  "
            self._say(f"{number:4} {arrow} {lines[number - 1].rstrip()}")

    def do_graph(self, line: str) -> None:
        """g(raph) [N]: N nodes before and after, with an arrow at the current one"""
        self._say(self.stepper.listing(int(line) if line.strip().isdigit() else 5))

    def do_set(self, line: str) -> None:
        """set NAME EXPRESSION: change the value of a variable from here on"""
        name, _, expression = line.strip().partition(" ")
        self.stepper[name] = self.stepper.eval(expression)

    def default(self, line: str) -> None:
        if line == "EOF":
            raise Quit
        self._say(f"no command {line.split()[0]!r}; `help` lists them")

    def emptyline(self) -> bool:
        return False

    def onecmd(self, line: str) -> bool:
        """Run a command; show its error, if any, and go on."""
        word, space, rest = line.partition(" ")
        try:
            return bool(super().onecmd(SHORT.get(word, word) + space + rest))
        except WeftError as error:  # its line is a line of the prompt
            self._say(f"{error.message}; {error.hint}" if error.hint else error.message)
        except Exception as error:
            self._say(f"{type(error).__name__}: {error}")
        return False


SHORT = {
    "n": "next",
    "o": "over",
    "s": "next",
    "step": "next",
    "l": "list",
    "ll": "list",
    "r": "out",
    "return": "out",
    "c": "continue",
    "cont": "continue",
    "q": "quit",
    "exit": "quit",
    "b": "break",
    "p": "print",
    "pp": "print",
    "w": "where",
    "bt": "where",
    "g": "graph",
    "grad": "gradient",
}


def add_break(stepper: Stepper, text: str) -> Break:
    """Add a breakpoint from the text of the command `break`, or of `weft debug -b`."""
    word, _, rest = text.partition(" ")
    norm = _NORM.fullmatch(text)
    if word in ("nan", "inf"):
        return stepper.break_when(nan=word == "nan", inf=word == "inf")
    if norm:
        return stepper.break_when(norm_above=float(norm[1]))
    if word.startswith("op:"):
        return stepper.break_on(word[3:])
    iteration = int(rest) if rest.strip().isdigit() else None
    if word.isdigit() and stepper.place is not None and stepper.location is not None:
        word = f"{stepper.location.file}:{word}"
    return stepper.break_at(word, iteration=iteration, backward=None)


def open_prompt(stepper: Stepper) -> None:
    """Read commands until one of them resumes the run."""
    Prompt(stepper).cmdloop()
