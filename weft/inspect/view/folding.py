"""Folds items into boxes: by nested graph, module, line or kernel.

A folding is a forest over the items of a drawing. The items of a module form one fold per role, so
a folded model is three boxes: forward, backward and update. If a fold has many children, they are
grouped by source line, then by order, so that 5,000 ops open as a few dozen boxes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Any

from weft.inspect.view.drawing import Drawing, Item, Scope
from weft.inspect.view.folds import Fold, split_large_folds

__all__ = ["Folding", "folded_by"]

MOST_RESULTS = 8  # results of a graph that are drawn one by one; more are folded, except the first
FIRST_VIEW = 30  # boxes that are drawn initially


@dataclass(eq=False)
class Folding:
    """
    folds   (kind, label, role, parent, head); the parent of the outermost is -1
    of      the fold of each item, or -1
    open    the folds that are open initially
    """

    name: str
    folds: list[dict[str, Any]]
    of: list[int]
    open: list[int]

    def as_json(self) -> dict[str, Any]:
        return {"name": self.name, "folds": self.folds, "of": self.of, "open": self.open}


#: One step of a path to a fold: its kind, label and role, and the key that its items share.
Step = tuple[str, str, str, Any]
#: Kinds of folds that are removed if they contain only one or two items.
LOOSE = frozenset({"module", "update", "kernel", "derivative", "chain"})
#: Kinds of folds that only the user opens.
CLOSED = frozenset({"derivative", "chain", "results", "kernel"})


def folded_by(drawing: Drawing, name: str) -> Folding:
    """The folding of this name: "modules" or "kernels"."""
    root = _Forest(drawing, name).root
    _tidy(root, drawing)
    split_large_folds(root, drawing)
    return _numbered(name, root, drawing)


class _Forest:
    """Puts items and scopes into folds, by the paths from a rule."""

    def __init__(self, drawing: Drawing, name: str) -> None:
        self.drawing = drawing
        self.root = Fold("root", drawing.name)
        self.scopes = [self.root]
        self._rule = _RULES[name]
        self._places: dict[Any, Fold] = {}
        self._prefixes = _prefixes(drawing)
        homes = _homes(drawing)
        self._roles = _kernel_roles(drawing, homes)
        for number, scope in enumerate(drawing.scopes[1:], 1):
            self._add_scope(number, scope)
        results = [i for i, x in enumerate(drawing.items) if x.kind == "result" and not x.scope]
        folded = set(results[1:]) if len(results) > MOST_RESULTS else set()
        for i, item in enumerate(drawing.items):
            if i in folded:
                fold = self._place(0, [("results", "results", item.role, "")])
            elif item.kind == "control":
                fold = self.scopes[item.scope]
            else:
                fold = self._place(item.scope, self._path(drawing.items[homes[i]], item.scope))
            fold.items.append(i)

    def _add_scope(self, number: int, scope: Scope) -> None:
        """Add the fold of a scope. An op of control flow is folded like the ops around it."""
        parent = self.scopes[scope.parent]
        fold = Fold("graph", scope.label, parent.role)
        if scope.head is not None:
            head = self.drawing.items[scope.head]
            parent = self._place(scope.parent, self._path(head, scope.parent))
            fold = Fold("control", scope.label, head.role, scope.head)
        self.scopes.append(fold)
        parent.folds.append(fold)

    def _path(self, item: Item, scope: int) -> list[Step]:
        return self._rule(item, self._prefixes[scope], self._roles if scope == 0 else {})

    def _place(self, scope: int, path: list[Step]) -> Fold:
        """The fold at the end of a path; missing folds on the path are created."""
        fold = self.scopes[scope]
        at: tuple[Any, ...] = (scope,)
        for kind, label, role, same in path:
            at = (*at, kind, role, same)
            found = self._places.get(at)
            if found is None:
                found = self._places[at] = Fold(kind, label, role)
                fold.folds.append(found)
            fold = found
        return fold


# --- what an item is folded by -----------------------------------------------------------------


def _by_module(item: Item, prefix: tuple[str, ...], _roles: dict[str, str]) -> list[Step]:
    path = item.path
    if path[: len(prefix)] == prefix:
        path = path[len(prefix) :]
    found: list[Step] = [("module", part, item.role, part) for part in path]
    where = item.location
    if where is not None and item.kind in ("op", "constant"):
        if item.role == "update" and not found:
            text = where.text or f"line {where.line}"
            found.append(("update", text, item.role, where.line))
        elif item.role == "backward" and where.of:
            label = "to .grad" if where.of == "AccumulateGrad" else f"∂ {where.of}"
            found.append(("derivative", label, item.role, (where.of, where.forward)))
    return found


def _by_kernel(item: Item, _prefix: tuple[str, ...], roles: dict[str, str]) -> list[Step]:
    role = roles.get(item.kernel, item.role)
    found: list[Step] = [("role", role, role, "")] if roles else []
    if item.kernel:
        found.append(("kernel", item.kernel, role, item.kernel))
    return found


_RULES = {"modules": _by_module, "kernels": _by_kernel}


def _kernel_roles(drawing: Drawing, homes: list[int]) -> dict[str, str]:
    """The most common role of the ops of each kernel; none, where roles are no order of kernels.

    A kernel of the update may compute what the forward uses, too: then forward and update would be
    boxes with arrows both ways, and kernels are better drawn beside each other.
    """
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for item in drawing.items:
        if item.kernel and item.kind == "op":
            counts[item.kernel][item.role] += 1
    found = {kernel: roles.most_common(1)[0][0] for kernel, roles in counts.items()}
    roles_of = [found.get(item.kernel, item.role) for item in drawing.items]
    after: dict[str, set[str]] = defaultdict(set)
    for start, end, _ in drawing.edges:
        if drawing.items[start].scope == drawing.items[end].scope == 0:
            after[roles_of[homes[start]]].add(roles_of[homes[end]])
    return {} if any(_leads(after, role, role) for role in after) else found


def _leads(after: dict[str, set[str]], start: str, goal: str) -> bool:
    """Whether other roles lead from one to another, or back to it."""
    waiting, seen = [role for role in after[start] if role != start], {start}
    while waiting:
        role = waiting.pop()
        if goal in after.get(role, ()):
            return True
        seen.add(role)
        waiting += [next_role for next_role in after.get(role, ()) if next_role not in seen]
    return False


def _prefixes(drawing: Drawing) -> list[tuple[str, ...]]:
    """The module of each scope, which its items need not repeat."""
    found: list[tuple[str, ...]] = [()]
    for scope in drawing.scopes[1:]:
        head = None if scope.head is None else drawing.items[scope.head]
        found.append(found[scope.parent] if head is None or not head.path else head.path)
    return found


def _homes(drawing: Drawing) -> list[int]:
    """For each item, the item whose fold it joins: parameters join their first user.

    Arguments of the function stay outside, where they are visible.
    """
    users = drawing.users()
    named = any(_is_argument(item) for item in drawing.items if item.scope == 0)
    homes = list(range(len(drawing.items)))
    for i, item in enumerate(drawing.items):
        if item.kind not in ("input", "leaf") or not users[i]:
            continue
        first = _in_scope(drawing, min(users[i]), item.scope)
        updated = any(drawing.items[user].role == "update" for user in users[i])
        stays = item.scope != 0 or _is_argument(item) or not (named or updated)
        if item.kind == "leaf" or not stays:
            homes[i] = first
    return homes


def _in_scope(drawing: Drawing, item: int, scope: int) -> int:
    """The item itself, or the head of the control flow in this scope that contains it."""
    head = item
    for around in drawing.enclosing(drawing.items[item].scope):
        if around == scope:
            break
        head = drawing.scopes[around].head or head
    return head


def _is_argument(item: Item) -> bool:
    return item.kind == "input" and item.argument


# --- the shape of the forest -------------------------------------------------------------------


def _tidy(fold: Fold, drawing: Drawing) -> None:
    """Remove folds around a single item, and merge folds whose only child is a fold."""
    for inner in fold.folds:
        _tidy(inner, drawing)
    kept: list[Fold] = []
    for inner in fold.folds:
        if inner.kind == "module":
            while len(inner.folds) == 1 and not inner.items and inner.folds[0].kind == "module":
                only = inner.folds[0]
                label = _joined(inner.label, only.label)
                inner = Fold("module", label, only.role, None, only.folds, only.items)
            if fold.kind == "module" or fold.kind == "root":
                inner.label = _joined(fold.label, inner.label, only_number=True)
        ops = [i for i in inner.items if drawing.items[i].kind in ("op", "control")]
        free = inner.kind in LOOSE and not inner.folds
        if free and len(ops) < 2 and len(inner.items) < 4:
            fold.items += inner.items
        else:
            kept.append(inner)
    fold.folds = kept
    fold.items.sort()


def _joined(outer: str, inner: str, only_number: bool = False) -> str:
    """blocks and 0: blocks[0]"""
    if inner.isdecimal():
        return f"{outer.rsplit('.', 1)[-1] if only_number else outer}[{inner}]"
    return inner if only_number else f"{outer}.{inner}"


def _numbered(name: str, root: Fold, drawing: Drawing) -> Folding:
    found = Folding(name, [], [-1] * len(drawing.items), [])
    order: list[tuple[Fold, int]] = [(fold, -1) for fold in root.folds]
    for fold, parent in order:  # grows during the loop: breadth first
        fold.number = len(found.folds)
        found.folds.append(
            {"kind": fold.kind, "label": fold.label, "role": fold.role, "parent": parent}
            | ({} if fold.item is None else {"item": fold.item})
        )
        for i in fold.items:
            found.of[i] = fold.number
        order += [(inner, fold.number) for inner in fold.folds]
    seen = _children(root, drawing)
    for fold, parent in order:
        more = _children(fold, drawing) - 1
        if fold.kind in CLOSED or (fold.role == "update" and len(fold.folds) > 4):
            continue
        if (parent < 0 or parent in found.open) and seen + more <= FIRST_VIEW:
            found.open.append(fold.number)
            seen += more
    return found


def _children(fold: Fold, drawing: Drawing) -> int:
    return len(fold.folds) + sum(not drawing.items[i].hidden for i in fold.items)
