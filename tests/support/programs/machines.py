"""Sorting, searching, graphs and an interpreter, by reads and writes at computed places."""

from __future__ import annotations

import numpy as np

import weft
from programs.table import Program, f64, i64


def binary_search(values, wanted):
    """The place of a number in sorted values; -1 where it is not among them."""
    low, high = 0, values.shape[0] - 1
    while low <= high:
        middle = (low + high) // 2
        if values[middle] == wanted:
            return middle
        elif values[middle] < wanted:
            low = middle + 1
        else:
            high = middle - 1
    return -1


def bubble_sort(x):
    """By swaps, until a round without any."""
    x = x.clone()
    swapped = True
    n = x.shape[0]
    while swapped:
        swapped = False
        for i in range(n - 1):
            if x[i] > x[i + 1]:
                x[i], x[i + 1] = x[i + 1], x[i]
                swapped = True
        n -= 1
    return x


def insertion_sort(x):
    x = x.clone()
    for i in range(1, len(x)):
        value = x[i]
        j = i - 1
        while j >= 0 and x[j] > value:
            x[j + 1] = x[j]
            j -= 1
        x[j + 1] = value
    return x


PUSH, ADD, MUL, DUP, SWAP, JUMP_IF, HALT, DEC = range(8)


def stack_machine(code, x):
    """Interpret pairs (instruction, argument) on a stack of eight floats."""
    stack = weft.zeros(8, dtype=x.dtype)
    stack[0] = x
    top = weft.asarray(0)
    pc = weft.asarray(0)
    for _ in range(60):
        op, argument = code[pc, 0], code[pc, 1]
        pc = pc + 1
        if op == PUSH:
            top = top + 1
            stack[top] = argument.astype(x.dtype)
        elif op == ADD:
            stack[top - 1] = stack[top - 1] + stack[top]
            top = top - 1
        elif op == MUL:
            stack[top - 1] = stack[top - 1] * stack[top]
            top = top - 1
        elif op == DUP:
            stack[top + 1] = stack[top]
            top = top + 1
        elif op == SWAP:
            stack[top - 1], stack[top] = stack[top], stack[top - 1]
        elif op == DEC:
            stack[top] = stack[top] - 1
        elif op == JUMP_IF:
            if stack[top] > 0:
                pc = argument
        elif op == HALT:
            return stack[top - argument]
        else:
            raise ValueError("no such instruction")
    return stack[top]


def floyd_warshall(distance):
    d = distance.clone()
    n = d.shape[0]
    for k in range(n):
        for i in range(n):
            for j in range(n):
                if k in (i, j):
                    continue
                through = d[i, k] + d[k, j]
                if through < d[i, j]:
                    d[i, j] = through
    return d


def floyd_reference(distance):
    d = distance.copy()
    for k in range(len(d)):
        d = np.minimum(d, d[:, k, None] + d[k])
    return d


def flood_fill(grid, start):
    """Spread from a cell over zeros until nothing is added."""
    reached = weft.zeros(grid.shape, dtype=weft.bool)
    reached[start] = True
    free = grid == 0
    count = reached.sum()
    while True:
        grown = reached.clone()
        grown[1:] = grown[1:] | reached[:-1]
        grown[:-1] |= reached[1:]
        grown[:, 1:] |= reached[:, :-1]
        grown[:, :-1] |= reached[:, 1:]
        reached = grown & free
        new = reached.sum()
        if new == count:
            break
        count = new
    return reached


def union_find(pairs, n):
    """Labels of connected nodes: parents followed by a while loop with subscripts."""
    parent = weft.arange(n)
    for pair in pairs:
        a, b = pair[0], pair[1]
        while parent[a] != a:
            a = parent[a]
        while parent[b] != b:
            b = parent[b]
        if a != b:
            parent[weft.maximum(a, b)] = weft.minimum(a, b)
    for i in range(n):
        root = parent[i]
        while parent[root] != root:
            root = parent[root]
        parent[i] = root
    return parent


def union_reference(pairs, n):
    label = list(range(n))
    for a, b in pairs:
        old, new = max(label[a], label[b]), min(label[a], label[b])
        label = [new if x == old else x for x in label]
    return np.array(label)


POWERS = i64(
    [
        [PUSH, 1],
        [SWAP, 0],
        [DEC, 0],
        [SWAP, 0],
        [PUSH, 2],
        [MUL, 0],
        [SWAP, 0],
        [JUMP_IF, 2],
        [HALT, 1],
    ]
)
SQUARE = i64([[DUP, 0], [MUL, 0], [PUSH, 3], [ADD, 0], [HALT, 0]])
BAD = i64([[9, 0], [HALT, 0]])
FAR = f64([[0.0, 3.0, 9.0], [1.0, 0.0, 4.5], [5.0, 2.0, 0.0]])
WALLS = i64([[0, 1, 0], [0, 1, 0], [0, 0, 1]])

PROGRAMS = [
    Program(
        "binary search",
        binary_search,
        [(i64([1, 3, 5, 7, 9]), i64(w)) for w in (7, 1, 9, 4, 0, 11)],
        gradients=False,
        reference=lambda v, w: list(v).index(w) if w in v else -1,
    ),
    Program(
        "bubble sort",
        bubble_sort,
        [(f64([3.0, 1.0, 2.0]),), (f64([1.0, 2.0]),), (f64([4.0, 3.0, 2.0, 1.0]),)],
        second_order=True,
        reference=np.sort,
    ),
    Program(
        "insertion sort",
        insertion_sort,
        [(f64([3.0, 1.0, 2.0, 0.0]),), (f64([1.0, 2.0]),)],
        reference=np.sort,
    ),
    Program(
        "stack machine",
        stack_machine,
        [
            (POWERS, f64(3.5)),
            (POWERS, f64(0.5)),
            (SQUARE, f64(1.5)),
            (BAD, f64(1.0)),
            (i64([[JUMP_IF, 0]]), f64(1.0)),
        ],
        raises={3: ValueError},
        second_order=True,
    ),
    Program("floyd warshall", floyd_warshall, [(FAR,), (f64([[0.0]]),)], reference=floyd_reference),
    Program(
        "flood fill",
        flood_fill,
        [(WALLS, (0, 0)), (WALLS, (0, 2)), (0 * WALLS, (2, 2))],
        gradients=False,
    ),
    Program(
        "union find",
        union_find,
        [(i64([[0, 1], [2, 3], [1, 3]]), 5), (i64([[4, 3]]), 5), (i64([[0, 0], [1, 0]]), 2)],
        gradients=False,
        reference=union_reference,
    ),
]
