"""Simulations: steps whose size, number or rule depends on the state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

import weft
from programs.table import Program, f64

#: The coefficients of Dormand and Prince.
STAGES = [
    [1 / 5],
    [3 / 40, 9 / 40],
    [44 / 45, -56 / 15, 32 / 9],
    [19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729],
    [9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656],
    [35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84],
]
ERROR = [71 / 57600, 0.0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40]


def rk45(y, end, rate):
    """y' = rate · (sin(y rolled) - y), with an adaptive step; rejected steps are tried again."""

    def f(y):
        return rate * (weft.sin(weft.roll(y, 1)) - y)

    t = weft.zeros_like(end)
    h = end / 4
    accepted = rejected = 0
    while t < end:
        h = weft.minimum(h, end - t)
        ks = [f(y)]
        for row in STAGES:
            ks.append(f(y + h * sum(c * k for c, k in zip(row, ks, strict=True))))
        new = y + h * sum(c * k for c, k in zip(STAGES[-1], ks, strict=False))
        error = weft.abs(h * sum(c * k for c, k in zip(ERROR, ks, strict=True))).max()
        if error <= 1e-6:
            t = t + h
            y = new
            accepted += 1
        else:
            rejected += 1
        h = h * weft.clip(0.9 * (1e-6 / (error + 1e-12)) ** 0.2, 0.2, 5.0)
        if accepted + rejected > 20:
            raise RuntimeError("too many steps")
    return y, accepted, rejected


def adaptive_euler(x, end):
    """x' = -x, by step doubling."""
    t, h = f64(0.0), f64(0.25)
    while t < end:
        if t + h > end:
            h = end - t
        full = x - h * x
        half = x - h / 2 * x
        twice = half - h / 2 * half
        if weft.abs(full - twice) > 1e-2:
            h = h / 2
            continue
        x, t = twice, t + h
    return x


class Ball(NamedTuple):
    height: weft.Tensor
    speed: weft.Tensor


def bouncing_ball(height, bounces):
    """A ball that is dropped: it loses a tenth of its speed in each bounce."""
    ball = Ball(height, weft.zeros_like(height))
    hits = 0
    time = 0
    while hits < bounces:
        ball = Ball(ball.height + 0.05 * ball.speed, ball.speed - 0.05 * 9.81)
        time += 1
        if ball.height < 0:
            ball = Ball(-ball.height, -0.9 * ball.speed)
            hits += 1
    return ball, time


def bouncing_reference(height, bounces):
    speed, hits, time = 0.0, 0, 0
    while hits < bounces:
        height, speed, time = height + 0.05 * speed, speed - 0.05 * 9.81, time + 1
        if height < 0:
            height, speed, hits = -height, -0.9 * speed, hits + 1
    return Ball(height, speed), time


@dataclass
class Controller:
    gain: float
    integral: weft.Tensor
    last: weft.Tensor


def pid(target, start):
    """A heater under a PID controller, with a limited output and anti-windup."""
    state = Controller(2.0, weft.zeros_like(start), target - start)
    temperature = start
    for _ in range(40):
        error = target - temperature
        output = state.gain * error + 0.5 * state.integral + 0.1 * (error - state.last)
        if output > 5:
            output = weft.full_like(output, 5.0)
        elif output < 0:
            output = weft.zeros_like(output)
        else:
            state.integral = state.integral + 0.1 * error
        state.last = error
        temperature = temperature + 0.1 * (output - 0.2 * temperature)
        if weft.abs(error) < 1e-3:
            break
    return temperature


def kalman(measured, seen, noise):
    """A constant-velocity filter; measurements that are not seen are skipped."""
    x = weft.zeros(2, dtype=measured.dtype)
    cov = weft.eye(2, dtype=measured.dtype)
    move = f64([[1.0, 1.0], [0.0, 1.0]])
    look = f64([1.0, 0.0])
    track = []
    for z, is_seen in zip(measured, seen, strict=True):
        x = move @ x
        cov = move @ cov @ move.T + 0.01 * weft.eye(2, dtype=cov.dtype)
        if is_seen:
            residual = z - look @ x
            spread = look @ cov @ look + noise
            gain = cov @ look / spread
            x = x + gain * residual
            cov = cov - gain[:, None] * (look @ cov)
        track.append(x[0])
    return weft.stack(track), cov


def kalman_reference(measured, seen, noise):
    x, cov, track = np.zeros(2), np.eye(2), []
    move, look = np.array([[1.0, 1.0], [0.0, 1.0]]), np.array([1.0, 0.0])
    for z, is_seen in zip(measured, seen, strict=True):
        x, cov = move @ x, move @ cov @ move.T + 0.01 * np.eye(2)
        if is_seen:
            gain = cov @ look / (look @ cov @ look + noise)
            x, cov = x + gain * (z - look @ x), cov - np.outer(gain, look @ cov)
        track.append(x[0])
    return np.array(track), cov


def predator_prey(prey, predators):
    """Until one kind is nearly gone, at most 50 steps."""
    steps = 0
    while prey > 0.2 and predators > 0.2:
        prey, predators = (
            prey + 0.05 * prey * (1.1 - predators),
            predators + 0.05 * predators * (prey - 2.0),
        )
        steps += 1
        if steps == 50:
            break
    return prey, predators, steps


def leapfrog(q, p, dt):
    """An orbit; the step is halved near the centre. Half steps of momentum around a drift."""

    def force(at):
        return -at / (at * at).sum() ** 1.5

    for _ in range(12):
        r = weft.sqrt((q * q).sum())
        h = dt / 2 if r < 0.8 else dt
        p = p + 0.5 * h * force(q)
        q = q + h * p
        p += 0.5 * h * force(q)
    return q, p


PROGRAMS = [
    Program(
        "rk45",
        rk45,
        [
            (f64([1.0, 0.2]), f64(1.0), f64(1.0)),
            (f64([3.0, -2.0]), f64(0.4), f64(4.0)),
            (f64([1.0, 0.0]), f64(0.0), f64(1.0)),
            (f64([3.0, -2.0]), f64(1.0), f64(999.0)),
        ],
        smooth=False,
        raises={3: RuntimeError},
    ),
    Program(
        "adaptive euler",
        adaptive_euler,
        [(f64(1.0), f64(0.9)), (f64(9.0), f64(0.3)), (f64(1.0), f64(0.0))],
        kinks=(2,),
    ),
    Program(
        "bouncing ball",
        bouncing_ball,
        [(f64(1.0), 2), (f64(0.3), 4), (f64(1.0), 0)],
        second_order=True,
        reference=bouncing_reference,
    ),
    Program(
        "pid",
        pid,
        [(f64(5.0), f64(1.0)), (f64(20.0), f64(1.0)), (f64(0.0), f64(3.0)), (f64(0.0), f64(0.0))],
        kinks=(3,),
    ),
    Program(
        "kalman",
        kalman,
        [
            (f64([1.0, 2.1, 2.9]), weft.asarray([True, True, True]), f64(0.1)),
            (f64([1.0, 0.0, 3.2, 4.1]), weft.asarray([True, False, False, True]), f64(0.5)),
        ],
        second_order=True,
        reference=kalman_reference,
    ),
    Program(
        "predator prey",
        predator_prey,
        [(f64(2.0), f64(1.0)), (f64(0.1), f64(1.0)), (f64(1.0), f64(8.0))],
        second_order=True,
    ),
    Program(
        "leapfrog",
        leapfrog,
        [(f64([1.0, 0.0]), f64([0.0, 1.0]), 0.1), (f64([0.7, 0.1]), f64([0.0, 0.6]), 0.05)],
        second_order=True,
    ),
]
