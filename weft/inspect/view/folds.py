"""Folds, and how folds with too many children are split.

Children are grouped by source line, updates of an optimizer by parameter, and what is still too
much by order.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

from weft.inspect.view.drawing import Drawing

__all__ = ["Fold", "split_large_folds"]

MOST_CHILDREN = 48  # of one fold
PART = 24  # the size of parts, if there are more children


@dataclass(eq=False)
class Fold:
    """A box that can be opened. `item` is the head of an op of control flow."""

    kind: str
    label: str
    role: str = ""
    item: int | None = None
    folds: list[Fold] = field(default_factory=list)
    items: list[int] = field(default_factory=list)
    number: int = -1

    def first(self) -> int:
        """The first item in it."""
        return min([*self.items[:1], *(fold.first() for fold in self.folds)], default=0)


def split_large_folds(fold: Fold, drawing: Drawing) -> None:
    """Group the children of folds that have too many: by line, then by order."""
    if fold.kind == "update":
        _by_chain(fold, drawing)
    for inner in fold.folds:
        split_large_folds(inner, drawing)
    shown = [i for i in fold.items if not drawing.items[i].hidden]
    if len(shown) + len(fold.folds) > MOST_CHILDREN and fold.kind not in ("lines", "part"):
        _by_line(fold, drawing)
    while len(fold.folds) + len(fold.items) > MOST_CHILDREN:
        if len(fold.folds) + sum(not drawing.items[i].hidden for i in fold.items) <= MOST_CHILDREN:
            break
        _by_order(fold, drawing)


def _by_line(fold: Fold, drawing: Drawing) -> None:
    lines: dict[Any, list[int]] = defaultdict(list)
    rest: list[int] = []
    for i in fold.items:
        item = drawing.items[i]
        where = item.location
        if item.kind in ("op", "constant") and where is not None:
            at = where.forward or where
            lines[at.file, at.line, at.function, item.role].append(i)
        else:
            rest.append(i)
    for (_, line, function, role), members in lines.items():
        if len(members) < 3 or len(lines) == 1:
            rest += members
            continue
        where = drawing.items[members[0]].location
        assert where is not None
        text = (where.forward or where).text or f"{function}, line {line}"
        made = Fold("lines", text, role, items=members)
        split_large_folds(made, drawing)
        fold.folds.append(made)
    fold.items = sorted(rest)


def _by_chain(fold: Fold, drawing: Drawing) -> None:
    """Group the updates of an optimizer: connected ops are the update of one parameter."""
    joined = {i: i for i in fold.items if drawing.items[i].kind in ("op", "constant")}

    def find(i: int) -> int:
        while joined[i] != i:
            joined[i] = i = joined[joined[i]]
        return i

    for start, end, _ in drawing.edges:
        if start in joined and end in joined:
            joined[find(end)] = find(start)
    chains: dict[int, list[int]] = defaultdict(list)
    for i in joined:
        chains[find(i)].append(i)
    # Items with a single user join it: the moments of that parameter.
    used: dict[int, set[int]] = defaultdict(set)
    for start, end, _ in drawing.edges:
        if end in joined and start not in joined:
            used[start].add(find(end))
    for i in fold.items:
        if i not in joined and len(used[i]) == 1:
            chains[used[i].copy().pop()].append(i)
    for members in chains.values():
        ops = [drawing.items[i] for i in members if drawing.items[i].kind == "op"]
        if len(ops) < 2 or len(chains) == 1:
            continue
        last = max(ops, key=lambda item: (item.title.endswith("_update"), item.flops or 0))
        label = f"{last.title} {last.outputs[0][1] if last.outputs else ''}".strip()
        fold.folds.append(Fold("chain", label, fold.role, items=members))
        gone = set(members)
        fold.items = [i for i in fold.items if i not in gone]


def _by_order(fold: Fold, drawing: Drawing) -> None:
    """Group neighbours. Items are in topological order, so there are no cycles between parts."""
    entries: list[tuple[int, int | Fold]] = [(i, i) for i in fold.items]
    entries += [(inner.first(), inner) for inner in fold.folds]
    entries.sort(key=lambda entry: entry[0])
    size = max(PART, -(-len(entries) // MOST_CHILDREN))
    fold.items, fold.folds = [], []
    for start in range(0, len(entries), size):
        part = Fold("part", "")
        for _, entry in entries[start : start + size]:
            if isinstance(entry, Fold):
                part.folds.append(entry)
            else:
                part.items.append(entry)
        names = [inner.label for inner in part.folds]
        part.label = " … ".join(dict.fromkeys([*names[:1], *names[-1:]]))
        if not part.folds:
            part.label = f"part {start // size + 1} of {-(-len(entries) // size)}"
        part.role = _main_role(part, drawing)
        split_large_folds(part, drawing)
        fold.folds.append(part)


def _main_role(fold: Fold, drawing: Drawing) -> str:
    shown = [drawing.items[i] for i in fold.items]
    roles = Counter(item.role for item in shown if item.kind not in ("input", "leaf"))
    roles.update(inner.role for inner in fold.folds)
    return roles.most_common(1)[0][0] if roles else ""
