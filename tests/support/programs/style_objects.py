"""Classes in the style of other people's code; what makers and scripts are stands in `styles`."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any, ClassVar

import weft
from programs.table import f64, wild
from weft import nn

UP, DOWN = f64([1.0, 2.0]), f64([-1.0, -2.0])


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


class Vector:
    """An arithmetic class of the user's own, registered so that graphs can take it apart."""

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
    dataclass_settings,
    callable_object,
    class_attributes,
    nested_modules,
    dynamic_attributes,
    object_with_history,
    operator_overloads,
    visitor,
]
