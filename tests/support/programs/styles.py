"""Functions in the style of other people's code, with what changes between their calls.

Each maker gives a function and a script: calls (tuples of arguments, or `Call`s) and changes of
the state that the function reads (functions without arguments). A script is run on two copies,
one eager, one captured. What both copies share is set, never counted up.
"""

from __future__ import annotations

import contextlib
import functools
import types

import weft
from programs import style_objects
from programs.table import Call, f64

UP, DOWN = f64([1.0, 2.0]), f64([-1.0, -2.0])


def closure_over_tensor():
    """A closure over a tensor and a number, both rebound by a setter."""
    scale, bias = f64(2.0), 1.0

    def apply(x):
        return x * scale + bias if x.sum() > 0 else x - bias

    def change():
        nonlocal scale, bias
        scale, bias = f64(5.0), -1.0

    return apply, [(UP,), (DOWN,), change, (UP,), (DOWN,)]


def config_object():
    """A configuration with attributes that are set from outside."""
    config = types.SimpleNamespace(rate=0.1, steps=3, mode="fast")

    def train(x):
        for _ in range(config.steps):
            step = config.rate * x
            if config.mode == "careful" and step.max() > 0.3:
                step = step / 2
            x = x - step
        return x

    def careful():
        config.mode = "careful"

    def longer():
        config.steps, config.rate = 5, 0.4

    return train, [(UP,), careful, (UP,), (DOWN,), longer, (UP,)]


def logged(function):
    """A decorator with functools.wraps that keeps a count."""

    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        wrapper.calls += 1
        return function(*args, **kwargs) * wrapper.gain

    wrapper.calls = 0
    wrapper.gain = 1.0
    return wrapper


def decorated():
    @logged
    def f(x, power=2):
        return x**power if x.sum() > 0 else -x

    def louder():
        f.gain = 3.0

    return f, [(UP,), (DOWN,), Call(UP, power=3), louder, (UP,), (DOWN,)]


def with_retries(times):
    """A decorator with arguments."""

    def decorate(function):
        @functools.wraps(function)
        def wrapper(x, *rest, **named):
            for _ in range(times):
                x = function(x, *rest, **named)
                if weft.abs(x).max() < 1:
                    break
            return x

        return wrapper

    return decorate


def decorator_with_arguments():
    @with_retries(times=4)
    def shrink(x, factor=0.5, *, offset=0.0):
        return x * factor + offset

    return shrink, [(UP,), (DOWN,), Call(UP, 0.9), Call(UP, offset=0.1), (8 * UP,)]


def registry_dict():
    """Functions registered under names, looked up by an argument; one is replaced later."""
    registry = {}

    def register(name):
        def keep(function):
            registry[name] = function
            return function

        return keep

    @register("relu")
    def _relu(x):
        return weft.relu(x)

    @register("gate")
    def _gate(x):
        return x * weft.sigmoid(x) if x.max() > 0 else x * 0

    def apply(x, name):
        return registry[name](x) + len(registry)

    def replace():
        registry["relu"] = lambda x: x * 7

    return apply, [(UP, "relu"), (DOWN, "gate"), (UP, "gate"), replace, (UP, "relu"), (UP, "none")]


def lambda_table():
    table = [lambda x: x + 1, lambda x: x * 2, lambda x: x if x.sum() > 0 else -x]

    def run(x, order):
        for i in order:
            x = table[i](x)
        return x

    def swap():
        table[0], table[1] = table[1], table[0]

    return run, [(UP, (0, 1)), (DOWN, (2, 0)), swap, (UP, (0, 1)), (DOWN, [2])]


def partials():
    """functools.partial over a function with star arguments."""

    def blend(*parts, weight, power=1):
        total = parts[0] * weight
        for part in parts[1:]:
            total = total + part**power if part.sum() > 0 else total - part
        return total

    half = functools.partial(blend, weight=0.5)
    return half, [(UP, DOWN), (DOWN, UP), Call(UP, UP, power=2), (UP,), Call(UP, weight=f64(2.0))]


def python_generator():
    """A generator of Python values drives the loop."""

    def schedule(steps, start=1.0):
        rate = start
        for k in range(steps):
            yield k, rate
            rate *= 0.5

    def descend(x, steps):
        for k, rate in schedule(steps):
            x = x - rate * x if x.max() > 0.2 else x + k
        return x

    return descend, [(UP, 2), (DOWN, 3), (UP, 2), (UP, 0)]


def context_manager():
    """A context manager of the user's own that switches a flag."""
    state = {"noisy": False}

    @contextlib.contextmanager
    def noisy():
        before = state["noisy"]
        state["noisy"] = True
        try:
            yield
        finally:
            state["noisy"] = before

    def layer(x):
        return x * 3 if state["noisy"] else x

    def model(x):
        y = layer(x)
        with noisy():
            y = y + layer(x) if x.sum() > 0 else layer(y)
        return y + layer(x)

    def always():
        state["noisy"] = True

    return model, [(UP,), (DOWN,), always, (UP,), (DOWN,)]


def factory():
    """A function made by a factory, with defaults bound at that time."""

    def make(kind, *, clip=None):
        activation = {"tanh": weft.tanh, "sin": weft.sin}[kind]

        def f(x, clip=clip):
            y = activation(x)
            if clip is not None and y.max() > clip:
                y = y * 0 + clip
            return y

        return f

    f, g = make("tanh"), make("sin", clip=0.5)

    def both(x, first=True):
        return f(x) if first else g(x)

    return both, [(UP,), (UP, False), (DOWN, False), (DOWN,)]


THRESHOLD = 0.5


TABLE = {"scale": 2.0}


def module_globals():
    """Globals of the module, rebound and written to."""
    global THRESHOLD
    THRESHOLD = 0.5
    TABLE["scale"] = 2.0

    def f(x):
        return x * TABLE["scale"] if x.max() > THRESHOLD else x

    def higher():
        global THRESHOLD
        THRESHOLD = 5.0

    def scale():
        TABLE["scale"] = 10.0

    return f, [(UP,), higher, (UP,), scale, (UP,), (8 * UP,)]


def star_everything():
    def inner(*args, key=None, **named):
        total = args[0]
        for arg in args[1:]:
            total = total + arg if isinstance(arg, float) or arg.sum() > 0 else total - arg
        for name, value in named.items():
            total = total * value if name != "skip" else total
        return total if key is None else total * key

    def outer(first, *rest, **named):
        options = {"key": 2.0, **named}
        return inner(first, *rest, *[first] * 2, **options)

    return outer, [(UP,), (DOWN, UP, 3.0), Call(UP, times=f64(2.0)), Call(DOWN, skip=1, key=None)]


STYLES = [
    closure_over_tensor,
    config_object,
    decorated,
    decorator_with_arguments,
    registry_dict,
    lambda_table,
    partials,
    python_generator,
    context_manager,
    factory,
    module_globals,
    star_everything,
    *style_objects.STYLES,
]
