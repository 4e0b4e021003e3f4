"""A captured training step notices every change that is made between its calls.

Two models are trained side by side, one eagerly and one captured; after some steps the same change
is made to both. Then all is compared, and it is counted how often the step was recorded for it.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from training.table import compare

import weft
from weft import nn
from weft.core.counted import CountedDict, CountedList, CountedState
from weft.core.structure import structure
from weft.nn import functional as F

MODES = {"trace": weft.trace, "source": weft.compile}
by_mode = pytest.mark.parametrize("mode", MODES)


class Twin:
    """A model in training, with all that a change may touch."""

    def __init__(self, mode: str | None, adam: bool) -> None:
        weft.manual_seed(3)
        self.model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.3), nn.Tanh(), nn.Linear(4, 2))
        self.model.double()
        params = list(self.model.parameters())
        self.optimizer: Any = (
            weft.optim.Adam(params, lr=0.05)
            if adam
            else weft.optim.SGD(params, lr=0.05, momentum=0.9)
        )
        self.extra = nn.Parameter(weft.full((2,), 0.5, dtype=weft.float64))
        self.step: Any = self.plain if mode is None else MODES[mode](self.plain)
        self.kept: dict[str, Any] = {}

    def plain(self, x: Any, y: Any) -> Any:
        self.optimizer.zero_grad()
        loss = F.mse_loss(self.model(x) * self.extra, y)
        loss.backward()
        self.optimizer.step()
        return loss

    @property
    def group(self) -> Any:
        return self.optimizer.param_groups[0]

    @property
    def moments(self) -> Any:
        return self.optimizer.state[self.group["params"][0]]

    def seen(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, value in self.model.state_dict().items():
            found[name] = np.array(value.detach().numpy())
        for name, p in [*self.model.named_parameters(), ("extra", self.extra)]:
            found[f"{name}.grad"] = None if p.grad is None else np.array(p.grad.numpy())
        for i, state in self.optimizer.state_dict()["state"].items():
            found |= {f"state {i} {k}": np.array(v.numpy()) for k, v in state.items()}
        found["random"] = np.array(weft.get_rng_state().numpy())
        return found


def new_parameter(twin: Twin) -> None:
    twin.model[0].weight = nn.Parameter(twin.model[0].weight.detach() * 0.5)


def replace_both(twin: Twin) -> None:
    new_parameter(twin)
    twin.group["params"][0] = twin.model[0].weight


def add_layer(twin: Twin) -> None:
    twin.model.append(nn.Linear(2, 2).double())
    with weft.no_grad():
        for p in twin.model[4].parameters():
            p.copy_(weft.full(p.shape, 0.3, dtype=weft.float64))


def load(twin: Twin) -> None:
    halved = {k: v * 0.5 for k, v in twin.model.state_dict().items()}
    twin.model.load_state_dict(halved)


def load_optimizer(twin: Twin) -> None:
    saved = twin.optimizer.state_dict()
    for state in saved["state"].values():
        for key, value in state.items():
            state[key] = value * 2
    twin.optimizer.load_state_dict(saved)


def other_moment(twin: Twin) -> None:
    key = next(k for k in twin.moments if k != "step")
    twin.moments[key] = weft.full((4, 3), 0.01, dtype=weft.float64)


def write_moment(twin: Twin) -> None:
    key = next(k for k in twin.moments if k != "step")
    twin.moments[key] *= 3.0


def swap(twin: Twin) -> None:
    params = twin.group["params"]
    params[1], params[3] = params[3], params[1]


def take_away(twin: Twin) -> None:
    twin.group["params"].pop()


def forget(twin: Twin) -> None:
    twin.optimizer.state.clear()


def forget_one(twin: Twin) -> None:
    del twin.optimizer.state[twin.group["params"][2]]


def forget_part(twin: Twin) -> None:
    twin.moments.clear()


def tie(twin: Twin) -> None:
    twin.model[3].weight = nn.Parameter(twin.model[3].weight.detach())
    twin.group["params"][2] = twin.model[3].weight


def thaw(twin: Twin) -> None:
    twin.model[0].bias.requires_grad_(False)
    twin.model[0].bias.requires_grad_(True)


def assign_grads(twin: Twin) -> None:
    for p in twin.model.parameters():
        p.grad = weft.ones_like(p)


def other_optimizer(twin: Twin) -> None:
    twin.optimizer = weft.optim.SGD(twin.model.parameters(), lr=0.1)


#: name, what is done, how many recordings it may take: for the change, and for new moments
ROWS: list[tuple[str, Callable[[Twin], Any], int]] = [
    ("nothing", lambda t: None, 0),
    ("learning rate", lambda t: t.group.update(lr=0.5), 0),
    ("learning rate set", lambda t: t.group.__setitem__("lr", 0.5), 0),
    ("learning rate as an int", lambda t: t.group.update(lr=1), 1),
    ("weight decay", lambda t: t.group.update(weight_decay=0.1), 1),
    ("weight decay merged", lambda t: t.group.__ior__({"weight_decay": 0.1}), 1),
    ("maximize", lambda t: t.group.update(maximize=True), 1),
    ("new group", lambda t: t.optimizer.add_param_group({"params": [t.extra], "lr": 0.2}), 2),
    ("new parameter in the group", lambda t: t.group["params"].append(t.extra), 2),
    ("parameter taken away", take_away, 1),
    ("parameters swapped", swap, 1),
    ("new layer", add_layer, 2),  # its parameters have no gradient at first, and then one
    ("eval", lambda t: t.model.eval(), 1),
    ("another parameter in the model", new_parameter, 2),  # as above
    ("another parameter in both", replace_both, 2),
    ("another of the same", tie, 2),
    ("frozen", lambda t: t.model[0].bias.requires_grad_(False), 1),
    ("all frozen but one", lambda t: t.model[0].requires_grad_(False), 1),
    ("frozen and thawed", thaw, 0),
    ("state of the model", load, 0),
    ("state of the optimizer", load_optimizer, 0),
    ("gradients by hand", assign_grads, 0),
    ("another moment", other_moment, 0),
    ("a moment in place", write_moment, 0),
    ("no moments", forget, 2),
    ("one parameter's forgotten", forget_one, 2),
    ("one parameter's emptied", forget_part, 2),
    ("another optimizer", other_optimizer, 2),
]


@by_mode
@pytest.mark.parametrize("adam", [False, True], ids=["sgd", "adam"])
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_change_is_noticed(row: Any, adam: bool, mode: str) -> None:
    _, change, most = row
    batches = [
        (weft.asarray(np.sin(np.arange(12.0) + i).reshape(4, 3)), weft.zeros((4, 2), dtype="f8"))
        for i in range(3)
    ]
    seen, losses, counts = [], [], []
    for kind in (None, mode):
        twin = Twin(kind, adam)
        weft.manual_seed(5)
        losses.append([float(twin.step(*batches[i % 3])) for i in range(4)])
        if kind is not None:
            counts.append(len(twin.step.recordings))
        change(twin)
        losses[-1] += [float(twin.step(*batches[i % 3])) for i in range(4)]
        if kind is not None:
            counts.append(len(twin.step.recordings))
            before = counts[-1]
            twin.step(*batches[0])
            assert len(twin.step.recordings) == before  # it is settled
        else:
            twin.step(*batches[0])
        seen.append(twin.seen())
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-12)
    compare(seen[1], seen[0], 1e-9, 1e-12)
    assert counts[0] == 2
    assert counts[1] - counts[0] <= most


@by_mode
def test_a_gradient_set_by_hand_is_what_the_step_adds_to(mode: str) -> None:
    def run(captured: bool) -> Any:
        w = nn.Parameter(weft.ones(2))
        optimizer = weft.optim.SGD([w], lr=0.1)

        def step(x: Any) -> None:
            (w * x).sum().backward()
            optimizer.step()

        call: Any = MODES[mode](step) if captured else step
        out = []
        for i in range(6):
            if i == 3:
                w.grad = weft.full((2,), 10.0)
            if i == 5:
                w.grad = None
            call(weft.asarray([1.0, 2.0]))
            out.append((w.tolist(), w.grad.tolist()))
        return out

    assert run(True) == run(False)


@by_mode
def test_a_rate_that_the_step_looks_at(mode: str) -> None:
    """It is an input of the update, and a guard of the branch."""
    w = nn.Parameter(weft.ones(2))
    optimizer = weft.optim.SGD([w], lr=0.5)

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        ((w * x) ** 2).sum().backward()
        optimizer.step()
        return "large" if optimizer.param_groups[0]["lr"] > 0.1 else "small"

    captured = MODES[mode](step)
    x = weft.asarray([0.1, 0.2])
    assert [captured(x) for _ in range(3)] == ["large"] * 3
    optimizer.param_groups[0]["lr"] = 0.05
    assert [captured(x) for _ in range(3)] == ["small"] * 3
    optimizer.param_groups[0]["lr"] = 0.5
    assert captured(x) == "large"


@by_mode
def test_a_parameter_that_is_also_found_in_a_plain_list(mode: str) -> None:
    """That two places hold one tensor is true as long as neither changes, and only one of them
    tells when it does."""
    model = nn.Linear(2, 2)
    shelf, other = [model.weight], nn.Parameter(weft.full((2, 2), 7.0))  # made before: that counts

    def f(x: Any) -> Any:
        return (shelf[0] * 2).sum() + (model.weight * x).sum()

    captured = MODES[mode](f)
    x = weft.ones((2, 2))
    for _ in range(3):
        assert float(captured(x)) == float(f(x))
    shelf[0] = other
    for _ in range(3):
        assert float(captured(x)) == float(f(x))


@by_mode
def test_a_plain_tensor_in_an_optimizer_that_stops_learning(mode: str) -> None:
    w = weft.tensor([1.0, 1.0], requires_grad=True)
    v = weft.tensor([2.0, 2.0], requires_grad=True)
    optimizer = weft.optim.SGD([w, v], lr=0.1)

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        (w * v * x).sum().backward()
        optimizer.step()

    captured = MODES[mode](step)
    for _ in range(3):
        captured(weft.ones(2))
    v.requires_grad_(False)
    before = v.tolist()
    captured(weft.ones(2))
    assert v.tolist() == before
    assert v.grad is None


# --- what a step costs at a steady state ---------------------------------------------------------


def trained(layers: int, kind: Any, mode: str) -> Any:
    model = nn.Sequential(*[nn.Linear(3, 3) for _ in range(layers)])
    optimizer = kind(model.parameters())

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = model(x).sum()
        loss.backward()
        optimizer.step()
        return loss

    captured = MODES[mode](step)
    for _ in range(4):
        captured(weft.ones((2, 3)))
    return captured


KINDS = {
    "sgd": lambda params: weft.optim.SGD(params, lr=0.01),
    "momentum": lambda params: weft.optim.SGD(params, lr=0.01, momentum=0.9),
    "adam": lambda params: weft.optim.Adam(params, lr=0.01),
    "amsgrad": lambda params: weft.optim.AdamW(params, lr=0.01, amsgrad=True),
    "rmsprop": lambda params: weft.optim.RMSprop(params, lr=0.01),
    "adagrad": lambda params: weft.optim.Adagrad(params, lr=0.01),
}


@by_mode
@pytest.mark.parametrize("kind", KINDS)
def test_checks_do_not_grow_with_the_parameters(kind: str, mode: str) -> None:
    counts = []
    for layers in (2, 12):
        captured = trained(layers, KINDS[kind], mode)
        root = captured._roots[-1]
        assert root.fast_path is not None
        counts.append(len(root.enter.__doc__.splitlines()))
        assert len(captured.recordings) == 1
    assert counts[0] == counts[1] < 110


# --- containers that count -----------------------------------------------------------------------

CHANGES: list[tuple[Any, Callable[[Any], Any], bool]] = [
    (CountedList([1, 2]), lambda c: c.append(3), True),
    (CountedList([1, 2]), lambda c: c.__setitem__(0, 3), True),
    (CountedList([1, 2]), lambda c: c.__delitem__(0), True),
    (CountedList([1, 2]), lambda c: c.extend([3]), True),
    (CountedList([1, 2]), lambda c: c.__iadd__([3]), True),
    (CountedList([1, 2]), lambda c: c.__imul__(2), True),
    (CountedList([1, 2]), lambda c: c.insert(0, 3), True),
    (CountedList([1, 2]), lambda c: c.pop(), True),
    (CountedList([1, 2]), lambda c: c.remove(1), True),
    (CountedList([1, 2]), lambda c: c.reverse(), True),
    (CountedList([2, 1]), lambda c: c.sort(), True),
    (CountedList([1, 2]), lambda c: c.clear(), True),
    (CountedList([1, 2]), lambda c: (c[0], len(c), list(c), c.index(1), [*c, 1]), False),
    (CountedDict(a=1), lambda c: c.__setitem__("a", 2), False),
    (CountedDict(a=1), lambda c: c.__setitem__("a", 2.0), True),
    (CountedDict(a=1), lambda c: c.__setitem__("a", True), True),
    (CountedDict(a=1.0), lambda c: c.update(a=2.0), False),
    (CountedDict(a="x"), lambda c: c.update({"a": "y"}), True),
    (CountedDict(a=1), lambda c: c.update([("b", 1)]), True),
    (CountedDict(a=1), lambda c: c.__ior__({"b": 1}), True),
    (CountedDict(a=1), lambda c: c.setdefault("a", 5), False),
    (CountedDict(a=1), lambda c: c.setdefault("b", 5), True),
    (CountedDict(a=1), lambda c: c.pop("a"), True),
    (CountedDict(a=1), lambda c: c.popitem(), True),
    (CountedDict(a=1), lambda c: c.__delitem__("a"), True),
    (CountedDict(a=1), lambda c: c.clear(), True),
    (CountedDict(a=1), lambda c: (c["a"], c.get("b"), "a" in c, dict(c), c | {"b": 2}), False),
    (CountedState(), lambda c: c["a"], True),
    (CountedState(), lambda c: c.get("a"), False),
    (CountedState(), lambda c: c.__setitem__("a", {}), True),
    (CountedState(), lambda c: c.setdefault("a", {}), True),
    (CountedState(), lambda c: c.update(a={}), True),
]


@pytest.mark.parametrize("number", range(len(CHANGES)))
def test_a_container_counts(number: int) -> None:
    container, change, counts = CHANGES[number]
    plain: Any = copy.deepcopy(container)
    base = next(b for b in type(plain).__mro__ if b.__module__ in ("builtins", "collections"))
    twin = base(dict, plain) if isinstance(plain, CountedState) else base(plain)
    before = structure.version
    change(container)
    assert (structure.version != before) is counts
    change(twin)
    assert container == twin  # it does what the builtin one does


def test_copies_of_an_optimizer_count_too() -> None:
    w = nn.Parameter(weft.ones(2))
    optimizer = weft.optim.Adam([w], lr=0.1)
    w.sum().backward()
    optimizer.step()
    for made in (copy.deepcopy(optimizer), pickle.loads(pickle.dumps(optimizer))):
        assert type(made.param_groups) is CountedList
        assert type(made.param_groups[0]) is CountedDict
        assert type(made.state) is CountedState
        (kept,) = made.state.values()
        assert type(kept) is CountedDict
        assert kept["exp_avg"].tolist() == optimizer.state[w]["exp_avg"].tolist()


class Counting(weft.optim.Optimizer):
    """An optimizer of the user's own, with counts in Python and a plain dict as a state."""

    def __init__(self, params: Any) -> None:
        super().__init__(params, {"lr": 0.1})
        self.steps = 0
        self.half = False

    def step(self, closure: Any = None) -> Any:
        self.steps += 1
        return super().step(closure)

    def update(self, p: Any, grad: Any, state: Any, group: Any) -> None:
        if "sum" not in state:
            self.state[p] = state = {"sum": weft.zeros_like(p), "updates": 0}
        state["updates"] += 1
        state["sum"] += grad
        p -= group["lr"] * (0.5 if self.half else 1.0) * state["sum"]


@by_mode
def test_an_optimizer_of_ones_own(mode: str) -> None:
    def run(captured: bool) -> Any:
        w = nn.Parameter(weft.asarray([1.0, 2.0]))
        optimizer = Counting([w])

        def step(x: Any) -> Any:
            optimizer.zero_grad()
            ((w * x) ** 2).sum().backward()
            optimizer.step()

        call: Any = MODES[mode](step) if captured else step
        out = []
        for i in range(9):
            if i == 4:
                optimizer.half = True
            if i == 6:
                optimizer.state[w]["sum"] = weft.ones(2)  # of a dict that does not count
            if i == 7:
                optimizer.steps = 100
            call(weft.asarray([0.5, 0.25]))
            out.append((w.tolist(), optimizer.steps, optimizer.state[w]["updates"]))
        return out, len(getattr(call, "recordings", "abc"))

    want, got = run(False), run(True)
    assert got == want  # three recordings: the first step, the others, and those by halves
