"""State machines and maps that are iterated."""

# ruff: noqa: SIM108 - both ways to write a choice are meant

from __future__ import annotations

import numpy as np

import weft
from programs.table import Program, f64, i64


def mandelbrot(re, im, limit=30):
    """Steps until a point escapes; `limit` where it never does."""
    x = y = weft.zeros_like(re)
    n = 0
    while n < limit and x * x + y * y <= 4:
        x, y = x * x - y * y + re, 2 * x * y + im
        n += 1
    return n


def mandelbrot_reference(re, im, limit=30):
    z, n = 0j, 0
    while n < limit and abs(z) <= 2:
        z, n = z * z + complex(re, im), n + 1
    return n


def mandelbrot_grid(re, im):
    """All points of a grid at once, until none is inside any more."""
    x, y = weft.zeros_like(re), weft.zeros_like(im)
    counts = weft.zeros(re.shape, dtype=weft.int64)
    inside = x * x + y * y <= 4
    for _ in range(12):
        if not inside.any():
            break
        x, y = weft.where(inside, x * x - y * y + re, x), weft.where(inside, 2 * x * y + im, y)
        counts += inside.astype(weft.int64)
        inside = x * x + y * y <= 4
    return counts


def logistic_map(r, x):
    """Iterate r x (1 - x) until it settles, or say that it does not."""
    for n in range(60):
        new = r * x * (1 - x)
        if abs(new - x) < 1e-6:
            return new, n
        x = new
    return x, -1


def game_of_life(board):
    """Until a board that was there before: still, or a blinker."""
    before = weft.zeros_like(board)
    generation = 0
    while generation < 10:
        around = weft.zeros_like(board)
        for dx in (-1, 0, 1):
            for dy in (-1, 0, 1):
                if dx or dy:
                    around = around + weft.roll(board, (dx, dy), axis=(0, 1))
        born = (around == 3) | ((around == 2) & (board == 1))
        new = born.astype(board.dtype)
        generation += 1
        if (new == board).all():
            return board, generation, 0
        if (new == before).all():
            return new, generation, 1
        before, board = board, new
    return board, generation, 2


def life_reference(board):
    before, generation = np.zeros_like(board), 0
    while generation < 10:
        shifts = [(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1) if i or j]
        around = sum(np.roll(board, s, axis=(0, 1)) for s in shifts)
        new = ((around == 3) | ((around == 2) & (board == 1))).astype(board.dtype)
        generation += 1
        if (new == board).all():
            return board, generation, 0
        if (new == before).all():
            return new, generation, 1
        before, board = board, new
    return board, generation, 2


def thermostat(outside):
    """A relay with hysteresis, stepping through a record; `on` is a Python bool at first."""
    on = False
    inside = outside[0]
    heat = weft.zeros_like(inside)
    for t in outside:
        if on:
            on = inside < 22.0
        else:
            on = inside < 18.0
        inside = inside + 0.3 * (t - inside)
        if on:
            inside = inside + 2.5
            heat = heat + 2.5
    return inside, heat


LIGHTS = {"green": ("yellow", 3), "yellow": ("red", 1), "red": ("green", 2)}


def traffic_light(cars):
    """A machine of Python states, moved on by Python counts; cars pass when it is green."""
    state, left = "red", 1
    waiting = weft.zeros_like(cars[0])
    for arriving in cars:
        waiting = waiting + arriving
        if state == "green":
            waiting = weft.relu(waiting - 2) if waiting > 2 else weft.zeros_like(waiting)
        left -= 1
        if left == 0:
            state, left = LIGHTS[state]
    return waiting, state


BLINKER = np.zeros((5, 5), int)
BLINKER[2, 1:4] = 1
BLOCK = np.zeros((5, 5), int)
BLOCK[1:3, 1:3] = 1
GLIDER = np.zeros((6, 6), int)
GLIDER[[0, 1, 2, 2, 2], [1, 2, 0, 1, 2]] = 1

PROGRAMS = [
    Program(
        "mandelbrot",
        mandelbrot,
        [
            (f64(0.0), f64(0.0)),
            (f64(0.4), f64(0.4)),
            (f64(2.0), f64(2.0)),
            (f64(-1.0), f64(0.3), 5),
        ],
        gradients=False,
        reference=mandelbrot_reference,
    ),
    Program(
        "mandelbrot grid",
        mandelbrot_grid,
        [(f64([0.0, 1.0, 2.0]), f64([0.1, 0.5, 0.0])), (f64([3.0, 4.0]), f64([3.0, 4.0]))],
        gradients=False,
    ),
    Program(
        "logistic map",
        logistic_map,
        [(f64(2.0), f64(0.3)), (f64(3.6), f64(0.3)), (f64(2.0), f64(0.5))],
        kinks=(1,),
        rtol=1e-4,
    ),
    Program(
        "game of life",
        game_of_life,
        [(i64(BLINKER),), (i64(BLOCK),), (i64(GLIDER),)],
        gradients=False,
        reference=life_reference,
    ),
    Program(
        "thermostat",
        thermostat,
        [
            (f64([15.0, 10.0, 5.0, 0.0]),),
            (f64([25.0, 24.0]),),
            (f64([19.0, 10.0, 10.0, 10.0, 30.0, 30.0, 10.0]),),
        ],
    ),
    Program(
        "traffic light", traffic_light, [(f64([1.0, 2.0, 0.5, 1.0, 2.5, 0.0]),), (f64([0.1, 0.2]),)]
    ),
]
