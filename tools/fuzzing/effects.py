"""Statements that act on objects outside of a program: see `fuzzing.world`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fuzzing.programs import ProgramWriter

#: Values of all kinds. T is a scalar tensor, N a Python integer.
NUMBERS = ["1", "n", "m", "s.n", "len(s.log)", "G", "n + m", "s.item.second", "len(s.d)"]
TENSORS = ["a", "b", "x", "(a * 2)", "w.sum()", "(p @ w)[0]"]
VALUES = ["N"] * 3 + ["T"] * 4 + ["T.item()", "float(T)", "T.detach()", "w * 1.0", "p[0]", "w", "k"]
VALUES += ["(T, N)", "[T, w * 2.0]", "{'t': T, 'n': N}", "f'{T.item()} and {N}'", "'text'", "None"]
VALUES += ["Item(T, N)", "T.item() + N", "tick()", "s.last", "s.numbers[-1]", "bool(ok)", "int(k)"]
VALUES += ["v.shape[0]", "noted('f', T)", "noted('g', N)"]
#: What is done with them. V is such a value, O one of an old kind.
LINES = ["s.log.append(V)"] * 4 + ["s.log.extend([V, V])", "s.log += [V]", "s.log.insert(0, N)"]
LINES += ["s.numbers.append(N)", "s.numbers[0] += 1", "s.numbers[-1] = N", "s.numbers.pop()"]
LINES += ["s.numbers.reverse()", "s.numbers = [N, *s.numbers]", "s.log = s.log[-3:]"]
LINES += ["s.d['k'] = V", "s.d['c'] = s.d.get('c', 0) + 1", "s.d[N] = V", "s.d.pop('k', None)"]
LINES += ["s.d.setdefault('l', []).append(V)", "s.d.update(u=V)", "s.d |= {'o': V}"]
LINES += ["s.d = {**s.d, 'z': N}", "s.d.clear()", "del s.numbers[1:]"]
LINES += ["s.n += 1", "s.n = s.n + N", "s.n -= 2", "s.last = V", "s.last = V"]
LINES += ["s.total = s.total + T.astype(weft.float64).detach()", "s.total += 0.5", "s.total = T"]
LINES += ["s.item.first = V", "s.item.second += N", "s.item = Item(V, N)", "s.item = Item(N)"]
LINES += ["setattr(s, 'last', V)", "grow(N)", "m = m + tick()", "tick(N)", "tick()"]
LINES += ["print('n', N)", "print('t', T.item(), N, sep=', ')", "print(f'{T.item()}: {N}')"]
LINES += ["print(s.n, tick(), end=';')", "logger.info('at %s of %s', N, T.item())", "print(V)"]
LINES += ["logger.info(f'n is {N}')", "noted('c', N)", "a = a + noted('b', T)"]
#: What reads the world.
LINES += ["a = a + 0.1 * s.n", "b = b * 0.5 + s.total.astype(b.dtype)", "a = a - 0.1 * len(s.log)"]
LINES += ["a = a + 0.01 * sum(s.numbers)", "m = m + len(s.numbers)", "b = b + 0.1 * s.numbers[0]"]


def effect(w: ProgramWriter, sure: bool) -> str:
    """A statement with an effect."""
    line: str = w.pick(LINES)
    for letter, options in (("V", VALUES), ("T", TENSORS), ("N", NUMBERS)):
        line = _filled(w, line, letter, options)
    return line


def _filled(w: ProgramWriter, line: str, letter: str, options: list[Any]) -> str:
    """With a value in each place of a letter that stands alone."""
    parts: list[str] = []
    for i, one in enumerate(line):
        around = (line[i - 1 : i], line[i + 1 : i + 2])
        alone = one == letter and not any(x.isalnum() or (x in "_'" and x) for x in around)
        parts.append(w.pick(options) if alone else one)
    return "".join(parts)
