"""What a row of the training tests is: a step in plain code, run in several ways from one start."""

from __future__ import annotations

import types
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from nn_samples.table import filled

import weft
import weft.nn.functional

Array = np.ndarray[Any, Any]
STEPS = 20


def of_weft() -> Any:
    """The names that rows use, of Weft."""
    return types.SimpleNamespace(
        nn=weft.nn,
        F=weft.nn.functional,
        optim=weft.optim,
        clip_grad_norm_=weft.optim.clip_grad_norm_,
        autograd=weft.autograd,
        make=weft.asarray,
        run_gru=lambda gru, x, lengths: gru(x, lengths=lengths)[1],
        all=weft,
    )


def of_torch(torch: Any) -> Any:
    """The same names, of PyTorch."""

    def run_gru(gru: Any, x: Any, lengths: Any) -> Any:
        pack = torch.nn.utils.rnn.pack_padded_sequence
        return gru(pack(x, lengths, batch_first=True, enforce_sorted=False))[1]

    return types.SimpleNamespace(
        nn=torch.nn,
        F=torch.nn.functional,
        optim=torch.optim,
        clip_grad_norm_=torch.nn.utils.clip_grad_norm_,
        autograd=torch.autograd,
        make=torch.tensor,
        run_gru=run_gru,
        all=torch,
    )


@dataclass
class Setup:
    """A step with all that it works on.

    step        called once for each batch; gives a loss, or several
    batches     the arguments of the steps, one after the other and again from the start
    models      their parameters, gradients and buffers are compared, and
    optimizers  their state
    between     what is done outside, after each step
    seen        further things that the step leaves behind
    """

    step: Callable[..., Any]
    batches: list[tuple[Any, ...]]
    models: list[Any] = field(default_factory=list)
    optimizers: list[Any] = field(default_factory=list)
    between: Callable[[], None] = lambda: None
    seen: Callable[[], Any] = tuple


@dataclass(frozen=True)
class Case:
    """A row.

    make        makes the setup of a library: `of_weft()`, or `of_torch(torch)`
    torch       whether PyTorch can do the same
    recordings  how many recordings it takes at most: in a trace, and from the source
    settled     after which step nothing is recorded any more, where that is not the second
    why         why it takes more than one recording
    """

    name: str
    make: Callable[[Any], Setup]
    torch: bool = False
    recordings: tuple[int, int] = (1, 1)
    settled: tuple[int, int] = (2, 2)
    why: str = ""
    rtol: float = 1e-9
    atol: float = 1e-11


def fill(model: Any, make: Callable[[Array], Any], scale: float = 1.0) -> Any:
    """A model in float64 with the same numbers in every library."""
    model = model.double()
    state = model.state_dict()
    learned = {
        name: make(filled(name, tuple(value.shape)) * scale)
        for name, value in state.items()
        if "float" in str(value.dtype)
    }
    model.load_state_dict({**state, **learned})
    return model


def train(
    case: Case, library: Any, capture: Callable[[Any], Any] | None = None
) -> tuple[dict[str, Any], list[int]]:
    """All that is seen of some steps, by name; and how many recordings there were after each."""
    setup = case.make(library)
    step = setup.step if capture is None else capture(setup.step)
    if library.all is weft:
        weft.manual_seed(11)
    found: dict[str, Any] = {}
    counts: list[int] = []
    for i in range(STEPS):
        found |= _leaves(f"loss{i}", step(*setup.batches[i % len(setup.batches)]))
        setup.between()
        counts.append(len(getattr(step, "recordings", ())))
    for m, model in enumerate(setup.models):
        found |= {f"{m}.{name}": _array(value) for name, value in model.state_dict().items()}
        for name, p in model.named_parameters():
            found[f"{m}.{name}.grad"] = None if p.grad is None else _array(p.grad)
    for o, optimizer in enumerate(setup.optimizers):
        found |= _leaves(f"optimizer{o}", optimizer.state_dict()["state"])
        found |= _leaves(f"rates{o}", [group["lr"] for group in optimizer.param_groups])
    found |= _leaves("seen", setup.seen())
    if library.all is weft:
        found["random state"] = _array(weft.get_rng_state())
    return found, counts


def _leaves(name: str, tree: Any) -> dict[str, Any]:
    if isinstance(tree, dict):
        parts = [_leaves(f"{name}.{key}", value) for key, value in tree.items()]
        return {key: value for part in parts for key, value in part.items()}
    if isinstance(tree, (list, tuple)):
        return _leaves(name, dict(enumerate(tree)))
    return {name: tree if tree is None or isinstance(tree, str) else _array(tree)}


def _array(value: Any) -> Array:
    return np.array(value.detach().numpy() if hasattr(value, "detach") else value)


def compare(got: dict[str, Any], want: dict[str, Any], rtol: float, atol: float) -> None:
    """Everything in both: the same shapes, dtypes, and numbers to rounding; None where None is."""
    assert got.keys() == want.keys()
    for name, mine in got.items():
        theirs = want[name]
        if theirs is None or mine is None or isinstance(mine, str):
            assert mine is theirs or mine == theirs, f"{name}: {mine} instead of {theirs}"
            continue
        assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape), name
        if mine.dtype.kind == "f":
            np.testing.assert_allclose(mine, theirs, rtol=rtol, atol=atol, err_msg=name)
        else:
            np.testing.assert_array_equal(mine, theirs, err_msg=name)
