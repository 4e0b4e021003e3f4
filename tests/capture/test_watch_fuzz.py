"""Random programs over outside state, recorded and used again, against plain Python."""

from __future__ import annotations

import collections
import importlib
import random
import re
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from replay_world import Item, Recorded, Settings, World, outcome, state, world

#: Values that a program may look at.
READS = """
w.x | w.d.get('k') | len(w.data) | w.item.n | w.limit | G | w.data[0] | w.data[-1] | w.d['z']
w.nested[0][0] | sum(w.a) | len(w.d) | len(w.names) | w.item.total() | 'q' in w.d | 2 in w.data
'x' in w.names | w.q[0] | w.cfg.sizes[0] | w.cfg.rate | sorted(w.data)[0] | max(w.a + [0])
w.od['a'] | len(w.groups) | str(w.a) | w.alias is w.a | w.other == w.item | w.a == w.b | bool(w.b)
list(w.d)[0] | [v * 2 for v in w.data][0] | sum(i.n for i in w.items) | dict(w.d, q=1)['q']
w.data[1:2] | next(iter(w.od)) | getattr(w, 'maybe', 7) | hasattr(w, 'maybe') | w.pair[1]
w.pair[0][0] | helper(w.x) | w.add(1) | tuple(w.q)[0] | f'{w.x}-{w.a}' | w.f(3)
any(v > 2 for v in w.data) | w.array[0].item() | float(w.array.sum())
"""
#: What it may write there.
NUMBERS = "w.x | 1 | w.item.n | len(w.a) | w.data[0] | w.limit"
#: What it may do. N is a number, E any value.
WRITES = """
w.x = N | w.x += N | w.data.append(N) | w.a.append(N) | w.d['k'] = N | w.d['new'] = [N]
w.d.pop('k', None) | w.d.update(z=N) | w.item.n = N | w.item.n += 1 | w.a, w.b = w.b, w.a
w.names.add(str(N)) | w.names.discard('x') | w.data.sort() | w.data.reverse() | w.data[0] = N
w.nested[0].append(N) | w.nested.append([N]) | w.groups['g'].append(N) | w.od.move_to_end('a')
w.od['b'] = N | w.q.append(N) | w.q.rotate(1) | w.maybe = N | w.alias.append(N) | w.alias = w.a
w.alias = w.b | w.other = w.item | w.cfg.sizes.append(N) | w.cfg.rate = N | w.cfg.sizes = list(w.a)
w.items[0].n = N | w.items.append(w.item) | w.items.reverse() | w.d.setdefault('s', []).append(N)
w.a += [N] | w.a[:] = [N, 5] | w.b.extend(w.a[:2]) | w.b.clear() | w.b.insert(0, N)
w.data = w.data + [N] | out.append(E) | G = N | w.cache[N] = w.cache.get(N, 0) + 1 | w.limit = N
w.a.pop() if w.a else None | w.array[0] = N | w.pair[0].append(N) | w.cells[0] += N
"""
HEAD = """G = 1


def helper(n, k=2):
    return n, k * G


def f(w):
    global G
    out = []
"""


def rows(text: str) -> list[str]:
    return [part.strip() for line in text.strip().splitlines() for part in line.split(" | ")]


def value(r: random.Random, depth: int = 0) -> str:
    if depth < 2 and r.random() < 0.4:
        a, b, c = (value(r, depth + 1) for _ in range(3))
        forms = (f"({a}, {b})", f"({a} if {b} else {c})", f"({a} or {b})", f"({a} and {b})")
        return r.choice(forms)
    return f"({r.choice(rows(READS))})"


def statement(r: random.Random, depth: int = 1) -> str:
    indent = "    " * depth
    if depth < 3 and r.random() < 0.3:
        body, other = (
            "\n".join(statement(r, depth + 1) for _ in range(r.randint(1, 2))) for _ in range(2)
        )
        errors = "(TypeError, KeyError, IndexError, AttributeError)"
        return r.choice(
            [
                f"{indent}if {value(r)}:\n{body}\n{indent}else:\n{other}",
                f"{indent}for v in list(w.data)[:3]:\n{body}",
                f"{indent}for k, v in list(w.d.items()):\n{body}",
                f"{indent}try:\n{body}\n{indent}except {errors}:\n{other}",
            ]
        )
    text = r.choice(rows(WRITES))
    text = re.sub(r"\bN\b", r.choice(rows(NUMBERS)), text)
    return indent + re.sub(r"\bE\b", value(r), text)


def program(r: random.Random) -> str:
    lines = [statement(r) for _ in range(r.randint(2, 6))]
    return "\n".join([HEAD.rstrip(), *lines, f"    out.append({value(r)})", "    return out\n"])


def widened() -> World:
    w = world()
    vars(w).update(limit=3, alias=w.a, cfg=Settings(), pair=([1], 2), f=lambda v, k=w.x: (v, k))
    return w


def setter(**values: Any) -> Callable[[Any], None]:
    """Give the world other values; functions make them, from the world itself."""
    return lambda w: [setattr(w, k, v(w)) for k, v in values.items()] and None


CHANGES: list[Callable[[Any], Any]] = [
    *[lambda w: None] * 4,
    setter(x=lambda w: 1),
    setter(x=lambda w: 2),
    setter(alias=lambda w: w.a),
    setter(alias=lambda w: w.b),
    setter(alias=lambda w: list(w.a)),
    setter(data=lambda w: [3, 1, 2]),
    setter(a=lambda w: [1, 2], b=lambda w: [3]),
    setter(other=lambda w: w.item),
    setter(other=lambda w: Item(1)),
    setter(names=lambda w: {"x"}),
    setter(d=lambda w: {"k": 4, "z": 1}),
    setter(nested=lambda w: [[1], [2, 3]]),
    setter(cfg=lambda w: Settings()),
    setter(items=lambda w: [Item(3), Item(1)]),
    setter(items=lambda w: [w.item, w.item]),
    setter(array=lambda w: np.array([1.0, 2.0, 3.0])),
    setter(cache=lambda w: {}, pair=lambda w: ([1], 2)),
    setter(od=lambda w: collections.OrderedDict(a=1, k=2)),
    setter(q=lambda w: collections.deque([1, 2], maxlen=3)),
    lambda w: w.d.pop("k", None),
    lambda w: vars(w).pop("maybe", None),
    lambda w: setattr(w.item, "n", 1),
    lambda w: w.cells.__setitem__(0, 0),
]


@pytest.mark.parametrize("first", range(0, 60, 10))
def test_random_programs(first: int, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    hits = 0
    for seed in range(first, first + 10):
        r = random.Random(seed)
        source = program(r)
        modules = []
        for side in ("plain", "mine"):  # each world has globals of its own
            name = f"weft_fuzz_{seed}_{side}"
            (tmp_path / f"{name}.py").write_text(source)
            importlib.invalidate_caches()
            modules.append(importlib.import_module(name))
            monkeypatch.delitem(sys.modules, name)
        plain, mine = widened(), widened()
        recorded = Recorded(modules[1].f)
        for change in [lambda w: None, *(r.choice(CHANGES) for _ in range(12))]:
            change(plain)
            change(mine)
            want, got = outcome(modules[0].f, plain), outcome(recorded, mine)
            assert repr(got) == repr(want), source
            assert state(mine) == state(plain), source
            assert modules[0].G == modules[1].G, source
        assert not recorded.refused, source
        hits += recorded.hits
    assert hits
