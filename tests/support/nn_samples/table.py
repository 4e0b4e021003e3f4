"""What a row of the nn tests is: a module, made and called the same way in Weft and in PyTorch."""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from peer import figures

import weft

Array = np.ndarray[Any, Any]

STEP = 1e-3  # of the ten steps: small, so that probabilities stay between 0 and 1


def values(*shape: int, seed: float = 0.0, low: float = -1.0, high: float = 1.0) -> Array:
    """Numbers that look random, the same with every version of NumPy."""
    count = np.arange(int(np.prod(shape)), dtype=np.float64)
    wild = np.sin(count * 12.9898 + seed * 78.233 + 1) * 43758.5453
    return np.asarray((wild - np.floor(wild)) * (high - low) + low).reshape(shape)


def indices(*shape: int, below: int, seed: float = 0.0) -> Array:
    return values(*shape, seed=seed, low=0, high=below).astype(np.int64)


@dataclass(frozen=True)
class Row:
    """One comparison with PyTorch.

    module   the name of the module in weft.nn and torch.nn
    args, kwargs   to make it; NumPy arrays in them become tensors
    inputs   arguments of the call; floating arrays get gradients
    call     further arguments of the call, by name
    prepare  what is done to the module before the call: eval, say
    """

    module: str
    args: tuple[Any, ...] = ()
    inputs: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    call: dict[str, Any] = field(default_factory=dict)
    prepare: Callable[[Any], Any] | None = None
    is_function: bool = False  # of nn.functional
    label: str = ""
    steps: bool = True  # also ten steps of training; not where a step leaves what is allowed
    rtol: float = 1e-9
    atol: float = 1e-11

    @property
    def name(self) -> str:
        kind = "nn_functional" if self.is_function else "nn"
        return f"{kind}_{self.module}{'_' if self.label else ''}{self.label}"


def row(module: str, *args: Any, to: Any, label: str = "", **more: Any) -> Row:
    """A row: `row("Linear", 3, 2, to=values(5, 3))`; `make=` holds arguments by name."""
    inputs = to if isinstance(to, tuple) else (to,)
    make, call = more.pop("make", {}), more.pop("call", {})
    return Row(module, args, inputs, make, call, label=label, **more)


def function(name: str, *inputs: Any, label: str = "", **call: Any) -> Row:
    """A row of nn.functional: `function("pad", values(2, 3), (1, 1), mode="reflect")`."""
    return Row(name, (), inputs, {}, call, is_function=True, label=label)


def filled(name: str, shape: tuple[int, ...]) -> Array:
    """The value of a parameter or buffer of this name in both libraries."""
    seed = zlib.crc32(name.encode()) % 1000
    if name.endswith("running_var"):
        return values(*shape, seed=seed, low=0.5, high=1.5)
    return values(*shape, seed=seed, low=-0.7, high=0.7)


def tensors(value: Any, make: Callable[[Array], Any]) -> Any:
    if isinstance(value, np.ndarray):
        return make(value)
    if isinstance(value, (list, tuple)):
        return type(value)(tensors(part, make) for part in value)
    if isinstance(value, dict):
        return {key: tensors(part, make) for key, part in value.items()}
    return value


def flat(value: Any) -> list[Any]:
    """The tensors in a result, one after the other."""
    if isinstance(value, (list, tuple)):
        return [part for one in value for part in flat(one)]
    return [] if value is None else [value]


def _run(row: Row, library: Any, make: Callable[[Array], Any]) -> dict[str, Any]:
    """Outputs, gradients and the state after, by either library."""
    inputs, call = tensors(row.inputs, make), tensors(row.call, make)
    if row.is_function:
        return _outcome(getattr(library.nn.functional, row.module), inputs, call, make)
    module = getattr(library.nn, row.module)(
        *tensors(row.args, make), **tensors(row.kwargs, make)
    ).double()
    state = module.state_dict()
    learned = {k: make(filled(k, tuple(v.shape))) for k, v in state.items() if _floats(v)}
    module.load_state_dict({**state, **learned})
    if row.prepare is not None:
        row.prepare(module)
    found = _outcome(module, inputs, call, make)
    named = module.named_parameters()
    found |= {f"{name}.grad": p.grad for name, p in named if p.grad is not None}
    found |= {f"after.{name}": buffer for name, buffer in module.named_buffers()}
    found["state"] = [f"{name} {tuple(v.shape)}" for name, v in state.items()]
    return found | (_ten_steps(row, module, library, make) if row.steps else {})


def _ten_steps(row: Row, module: Any, library: Any, make: Callable[[Array], Any]) -> dict[str, Any]:
    """The parameters and the first floating input after ten steps of gradient descent on both."""
    inputs, call = tensors(row.inputs, make), tensors(row.call, make)
    moved = [x for x in flat(inputs) if _floats(x)][:1]
    for x in moved:
        x.requires_grad = True
    moved += [p for p in module.parameters() if p.requires_grad]
    if not moved:
        return {}
    optimizer = library.optim.SGD(moved, lr=STEP)
    for _ in range(10):
        optimizer.zero_grad()
        loss = _loss(flat(module(*inputs, **call)), make)
        if loss is None:
            return {}
        loss.backward()
        optimizer.step()
    return {f"ten{i}": x for i, x in enumerate(moved)}


def _outcome(
    function: Callable[..., Any], inputs: Any, call: dict[str, Any], make: Callable[[Array], Any]
) -> dict[str, Any]:
    """What a call returns, and the gradients of its inputs."""
    given = [x for x in flat(inputs) if _floats(x)]
    for x in given:
        x.requires_grad = True
    out = flat(function(*inputs, **call))
    found = {f"out{i}": y for i, y in enumerate(out)}
    loss = _loss(out, make)
    if loss is not None:
        loss.backward()
        found |= {f"input{i}.grad": x.grad for i, x in enumerate(given) if x.grad is not None}
    return found


def _loss(out: list[Any], make: Callable[[Array], Any]) -> Any:
    """A number made of all that came out; None where nothing of it has a gradient."""
    loss = None
    for i, y in enumerate(out):
        if _floats(y) and y.requires_grad:
            part = (y * make(values(*y.shape, seed=i + 3))).sum()
            loss = part if loss is None else loss + part
    return loss


def _floats(tensor: Any) -> bool:
    return "float" in str(getattr(tensor, "dtype", ""))


def _numpy(value: Any) -> Array:
    return np.asarray(value.detach().numpy() if hasattr(value, "detach") else value)


def quiet_figures(name: str, work: Callable[[Any], dict[str, Any]]) -> dict[str, Array]:
    """`figures`, without PyTorch's warnings about its own fast paths."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return figures(name, work)


def compare(row: Row) -> None:
    """The same module, weights and inputs in both libraries: all that comes out agrees."""
    want = quiet_figures(row.name, lambda torch: _run(row, torch, torch.tensor))
    got = {key: _numpy(value) for key, value in _run(row, weft, weft.asarray).items()}
    assert got.keys() == want.keys()
    for key, mine in got.items():
        assert mine.shape == want[key].shape, key
        if mine.dtype.kind in "fc":
            np.testing.assert_allclose(
                mine, want[key], rtol=row.rtol, atol=row.atol, err_msg=f"{row.name}: {key}"
            )
        else:
            np.testing.assert_array_equal(mine, want[key], err_msg=f"{row.name}: {key}")
