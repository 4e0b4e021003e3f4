"""Functions in the style of other people's code, with what changes between their calls.

Each maker gives a function and a script: calls (tuples of arguments, or `Call`s) and changes of
the state that the function reads (functions without arguments). A script is run on two copies,
one eager, one captured. What both copies share is set, never counted up.
"""

from __future__ import annotations

import contextlib
import functools
import types
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any, ClassVar

from programs.table import Call, f64, wild

import weft
from weft import nn

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


@dataclass
class Settings:
    momentum: float = 0.9
    decay: weft.Tensor = field(default_factory=lambda: f64(0.5))
    tags: list[str] = field(default_factory=list)


def dataclass_settings():
    settings = Settings()

    def step(x, velocity):
        velocity = settings.momentum * velocity - x
        if "clip" in settings.tags and velocity.max() > 0.5:
            velocity = weft.clip(velocity, max=0.5)
        return x + velocity * settings.decay

    def tag():
        settings.tags.append("clip")

    def decay():
        settings.decay = f64(0.25)
        settings.momentum = 0.1

    given = (DOWN, UP)
    return step, [given, tag, given, decay, given, (UP, UP)]


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


class Filter:
    """A callable object with properties and private attributes."""

    def __init__(self, size):
        self._size = size
        self.gain = 1.0

    @property
    def window(self):
        return weft.ones(self._size, dtype=weft.float64) / self._size

    @property
    def gain(self):
        return self._gain

    @gain.setter
    def gain(self, value):
        self._gain = max(value, 0.5)

    def __call__(self, x):
        smooth = x
        for weight in self.window:
            smooth = smooth + self.gain * weight * weft.roll(smooth, 1)
        return smooth if smooth.sum() > 1 else smooth * 2


def callable_object():
    filtered = Filter(2)

    def louder():
        filtered.gain = 4.0

    def quiet():
        filtered.gain = -1.0

    return filtered, [(UP,), (DOWN,), louder, (UP,), quiet, (UP,), (DOWN,)]


class Layer:
    """A base class with class attributes, a class method and a static method."""

    slope: ClassVar[float] = 0.1
    registry: ClassVar[dict[str, type]] = {}

    def __init_subclass__(cls):
        Layer.registry[cls.__name__.lower()] = cls

    @classmethod
    def named(cls, name):
        return cls.registry[name]()

    @staticmethod
    def leak(x, slope):
        return x if x.sum() > 0 else slope * x

    def forward(self, x):
        raise NotImplementedError


class Leaky(Layer):
    def forward(self, x):
        return self.leak(x, self.slope)


class Doubled(Leaky):
    def forward(self, x):
        return 2 * super().forward(x)


def class_attributes():
    Layer.slope = 0.1
    layer = Layer.named("doubled")

    def steeper():
        Layer.slope = 0.5

    def own():
        layer.slope = 3.0

    return layer.forward, [(UP,), (DOWN,), steeper, (DOWN,), own, (DOWN,), (UP,)]


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


class Block(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.inner = nn.ModuleList([nn.Linear(width, width) for _ in range(depth)])
        self.scale = nn.Parameter(f64(1.0))

    def forward(self, x):
        for layer in self.inner:
            x = weft.tanh(layer(x))
        return x * self.scale


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(OrderedDict(a=Block(2, 1), b=Block(2, 2)))
        self.head = nn.Linear(2, 1)
        self.skip = False

    def forward(self, x):
        h = self.blocks(x)
        if self.skip or h.sum() > 0:
            h = h + x
        if self.training:
            h = h * 1.5
        return self.head(h)


def nested_modules():
    weft.manual_seed(2)
    net = Net().to(weft.float64)

    def skip():
        net.skip = True

    def evaluate():
        net.eval()

    def write():
        with weft.no_grad():
            net.head.weight += 1.0

    def replace():
        net.blocks.b.scale = nn.Parameter(f64(-2.0))

    return net, [(UP,), (DOWN,), skip, (DOWN,), evaluate, (UP,), write, (UP,), replace, (UP,)]


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


class Lazy:
    """Attributes made on demand by __getattr__, from a table."""

    def __init__(self):
        self.table = {"alpha": 2.0, "beta": f64([1.0, 3.0])}

    def __getattr__(self, name):
        if name == "table":
            raise AttributeError(name)
        try:
            return self.table[name]
        except KeyError:
            raise AttributeError(name) from None

    def apply(self, x):
        return x * self.alpha + self.beta if x.sum() > 0 else x * getattr(self, "gamma", 0.0)


def dynamic_attributes():
    lazy = Lazy()

    def alpha():
        lazy.table["alpha"] = -1.0

    def gamma():
        lazy.table["gamma"] = 9.0

    return lazy.apply, [(UP,), (DOWN,), alpha, (UP,), gamma, (DOWN,)]


class History:
    """A method that keeps tensors in its object."""

    def __init__(self):
        self.seen = 0
        self.average = weft.zeros(2, dtype=weft.float64)

    def update(self, x):
        self.seen += 1
        if self.seen == 1 or x.sum() > 2:
            self.average = x.detach()
        else:
            self.average = 0.5 * self.average + 0.5 * x.detach()
        return x - self.average, self.seen


def object_with_history():
    history = History()

    def reset():
        history.seen = 0

    return history.update, [(UP,), (DOWN,), (UP,), reset, (DOWN,), (DOWN,)]


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


class Vector:
    """An arithmetic class of the user's own, around a tensor; registered, so that graphs know it."""

    def __init__(self, data: Any):
        self.data = data

    def __add__(self, other):
        return Vector(self.data + (other.data if isinstance(other, Vector) else other))

    def __mul__(self, other):
        return Vector(self.data * (other.data if isinstance(other, Vector) else other))

    def __len__(self):
        return len(self.data)

    def __getitem__(self, i):
        return self.data[i]

    def __gt__(self, other):
        return self.data.sum() > other


weft.register_pytree(Vector, lambda v: ([v.data], None), lambda _, parts: Vector(parts[0]))


def operator_overloads():
    def f(x):
        v = Vector(x)
        v = v * 2 + v if v > 0 else v + 1.0
        total = v[0]
        for i in range(1, len(v)):
            total = total * v[i]
        return total

    return f, [(UP,), (DOWN,), (f64([1.0, 2.0, 3.0]),)]


def visitor():
    """Dispatch by the name of a type, as in an abstract syntax tree's visitor."""

    class Evaluator:
        def visit(self, node, env):
            return getattr(self, "visit_" + type(node).__name__)(node, env)

        def visit_str(self, node, env):
            return env[node]

        def visit_float(self, node, env):
            return node

        def visit_tuple(self, node, env):
            op, *rest = node
            parts = [self.visit(part, env) for part in rest]
            if op == "if":
                return parts[1] if parts[0].sum() > 0 else parts[2]
            return parts[0] + parts[1] if op == "+" else parts[0] * parts[1]

    evaluator = Evaluator()
    tree = ("if", "x", ("+", "x", "y"), ("*", "y", 3.0))

    def f(x, y, tree=tree):
        return evaluator.visit(tree, {"x": x, "y": y})

    return f, [(UP, DOWN), (DOWN, UP), (UP, DOWN, ("*", "x", "y")), (wild(2), wild(2, seed=1))]


STYLES = [
    closure_over_tensor,
    config_object,
    dataclass_settings,
    decorated,
    decorator_with_arguments,
    callable_object,
    class_attributes,
    registry_dict,
    lambda_table,
    partials,
    python_generator,
    context_manager,
    nested_modules,
    factory,
    dynamic_attributes,
    object_with_history,
    module_globals,
    star_everything,
    operator_overloads,
    visitor,
]
