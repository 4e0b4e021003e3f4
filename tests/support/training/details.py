"""What training steps do besides: hooks, clipping, schedules, several losses, checkpoints, …"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nn_samples.table import values

import weft
from training.table import Case, Setup, fill
from weft import nn
from weft.nn import functional as F
from weft.optim import lr_scheduler

BATCHES = [
    (weft.asarray(values(4, 3, seed=s)), weft.asarray(values(4, 2, seed=-s))) for s in (1, 2)
]
Make = Callable[[Any], Setup]


def net(*more: Any) -> Any:
    return fill(nn.Sequential(nn.Linear(3, 5), nn.Tanh(), *more, nn.Linear(5, 2)), weft.asarray)


def sgd(model: Any, **options: Any) -> Any:
    return weft.optim.SGD(model.parameters(), **{"lr": 0.05, "momentum": 0.9, **options})


# --- hooks and functions of one's own ---------------------------------------------------------


def hooks(_library: Any) -> Setup:
    """On a tensor, on a parameter, before and after a module, and on a module's backward."""
    model = net()
    optimizer = sgd(model)
    model[0].weight.register_hook(lambda g: g * 0.5)
    model[0].register_forward_pre_hook(lambda module, args: (args[0] * 2,))
    model[0].register_forward_hook(lambda module, args, out: out + 0.1)
    model[2].register_full_backward_hook(lambda module, grads, outs: (grads[0] * 0.7,))

    def train_step(x, y):
        optimizer.zero_grad()
        hidden = model[1](model[0](x))
        hidden.register_hook(lambda g: g.clip(-0.01, 0.01))
        loss = F.mse_loss(model[2](hidden), y)
        loss.backward()
        optimizer.step()
        return loss

    return Setup(train_step, BATCHES, [model], [optimizer])


class Straight(weft.Function):
    """Rounds, and passes the gradient on as if it had not."""

    @staticmethod
    def forward(ctx, x, steps):
        ctx.save_for_backward(x)
        return weft.round(x * steps) / steps

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return weft.where(weft.abs(x) < 0.95, g, 0 * g), None


def function(_library: Any) -> Setup:
    model = net()
    optimizer = sgd(model)

    def train_step(x, y):
        optimizer.zero_grad()
        loss = F.mse_loss(model[2](Straight.apply(model[1](model[0](x)), 64)), y)
        loss.backward()
        optimizer.step()
        return loss

    return Setup(train_step, BATCHES, [model], [optimizer])


# --- several passes ------------------------------------------------------------------------------


def retain_graph(_library: Any) -> Setup:
    """Two passes over one graph: their gradients add up."""
    model = net()
    optimizer = sgd(model)

    def train_step(x, y):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward(retain_graph=True)
        (0.5 * loss).backward()
        optimizer.step()
        return loss

    return Setup(train_step, BATCHES, [model], [optimizer])


def create_graph(_library: Any) -> Setup:
    """A penalty on the gradients themselves."""
    model = net()
    optimizer = sgd(model)
    params = list(model.parameters())

    def train_step(x, y):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        slopes = weft.autograd.grad(loss, params, create_graph=True)
        penalty = sum((slope**2).sum() for slope in slopes)
        (loss + 0.1 * penalty).backward()
        optimizer.step()
        return loss, penalty

    return Setup(train_step, BATCHES, [model], [optimizer])


def sensitivity(_library: Any) -> Setup:
    """backward(create_graph=True), and a second pass through the gradients it left."""
    model = net()
    optimizer = sgd(model)

    def train_step(x, y):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward(create_graph=True)
        slope = model[0].weight.grad
        model[0].weight.grad = None
        (slope**2).sum().backward()
        for p in model.parameters():
            p.grad = p.grad.detach()
        optimizer.step()
        return loss

    return Setup(train_step, BATCHES, [model], [optimizer])


def accumulation(_library: Any) -> Setup:
    """Gradients of four steps are one update; who calls the step says when."""
    model = net()
    optimizer = sgd(model)

    def train_step(x, y, last):
        loss = F.mse_loss(model(x), y) / 4
        loss.backward()
        if last:
            optimizer.step()
            optimizer.zero_grad()
        return loss

    batches = [(*BATCHES[i % 2], i == 3) for i in range(4)]
    return Setup(train_step, batches, [model], [optimizer])


def accumulation_inside(_library: Any) -> Setup:
    """The parts of a batch one after the other."""
    model = net()
    optimizer = sgd(model)

    def train_step(x, y):
        optimizer.zero_grad(set_to_none=False)
        total = 0.0
        for part in range(2):
            rows = slice(2 * part, 2 * part + 2)
            loss = F.mse_loss(model(x[rows]), y[rows]) / 2
            loss.backward()
            total = total + loss.detach()
        optimizer.step()
        return total

    return Setup(train_step, BATCHES, [model], [optimizer])


def several(_library: Any) -> Setup:
    """Two losses, three optimizers, one of which has two groups."""
    model, other = net(), net(nn.LayerNorm(5, dtype=weft.float64))
    first = weft.optim.Adam(model[0].parameters(), lr=0.01)
    last = sgd(model[2], lr=0.02)
    both = weft.optim.AdamW(
        [
            {"params": other[0].parameters(), "lr": 0.02},
            {"params": [*other[2].parameters(), *other[3].parameters()], "weight_decay": 0.1},
        ],
        lr=0.01,
    )

    def train_step(x, y):
        for optimizer in (first, last, both):
            optimizer.zero_grad()
        one, two = model(x), other(x)
        fit = F.mse_loss(one, y)
        agree = F.smooth_l1_loss(two, one.detach()) + 0.1 * F.mse_loss(one, two)
        fit.backward(retain_graph=True)
        agree.backward()
        for optimizer in (first, last, both):
            optimizer.step()
        return {"fit": fit, "agree": agree}

    return Setup(train_step, BATCHES, [model, other], [first, last, both])


# --- what happens to gradients and rates ------------------------------------------------------


def clipped(_library: Any) -> Setup:
    model = net()
    optimizer = sgd(model)

    def train_step(x, y):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        norm = weft.optim.clip_grad_norm_(model.parameters(), max_norm=0.3)
        weft.optim.clip_grad_value_(model[2].parameters(), 0.05)
        optimizer.step()
        return loss, norm

    return Setup(train_step, BATCHES, [model], [optimizer])


def scheduled(schedule: Callable[[Any], Any], inside: bool, rate: Any = 0.05) -> Make:
    def make(_library: Any) -> Setup:
        model = net()
        lr = weft.asarray(rate, dtype=weft.float64) if rate != 0.05 else rate
        optimizer = sgd(model, lr=lr)
        scheduler = schedule(optimizer)

        def train_step(x, y):
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            if inside:
                scheduler.step()
            return loss

        seen = lambda: (scheduler.last_epoch, scheduler.get_last_lr())  # noqa: E731
        between = (lambda: None) if inside else scheduler.step
        return Setup(train_step, BATCHES, [model], [optimizer], between, seen)

    return make


def in_stages(optimizer: Any) -> Any:
    return lr_scheduler.StepLR(optimizer, step_size=6, gamma=0.5)


def each_step(optimizer: Any) -> Any:
    return lr_scheduler.CosineAnnealingLR(optimizer, T_max=20)


def by_function(optimizer: Any) -> Any:
    return lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.9**epoch)


def in_turns(optimizer: Any) -> Any:
    warm_up = lr_scheduler.LinearLR(optimizer, start_factor=0.5, total_iters=4)
    decay = lr_scheduler.ExponentialLR(optimizer, gamma=0.9)
    return lr_scheduler.SequentialLR(optimizer, [warm_up, decay], [5])


def on_plateau(_library: Any) -> Setup:
    """It looks at the loss itself."""
    model = net()
    optimizer = sgd(model)
    scheduler = lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=2, threshold=0.1)

    def train_step(x, y):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        scheduler.step(loss)
        return loss

    seen = lambda: (scheduler.best, scheduler.num_bad_epochs, scheduler.get_last_lr())  # noqa: E731
    return Setup(train_step, BATCHES, [model], [optimizer], seen=seen)


def scheduled_first(rate: float) -> Make:
    """The new rate is used in the same step."""

    def make(_library: Any) -> Setup:
        model = net()
        lr = weft.asarray(rate, dtype=weft.float64) if rate != 0.05 else rate
        optimizer = sgd(model, lr=lr)
        scheduler = each_step(optimizer)

        def train_step(x, y):
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            scheduler.step()
            optimizer.step()
            return loss

        return Setup(train_step, BATCHES, [model], [optimizer], seen=scheduler.get_last_lr)

    return make


# --- the model --------------------------------------------------------------------------------


def checkpointed(_library: Any) -> Setup:
    """The middle is computed again in backward, with the same dropout."""
    model = net(nn.Dropout(0.3), nn.Linear(5, 5), nn.Tanh())
    optimizer = sgd(model)

    def train_step(x, y):
        optimizer.zero_grad()
        hidden = weft.checkpoint(lambda h: model[4](model[3](model[2](h))))(model[1](model[0](x)))
        loss = F.mse_loss(model[5](hidden), y)
        loss.backward()
        optimizer.step()
        return loss

    return Setup(train_step, BATCHES, [model], [optimizer])


def averaged(_library: Any) -> Setup:
    """A second model follows the first, and is evaluated in the same step; losses are kept."""
    model, follower = net(nn.BatchNorm1d(5, dtype=weft.float64)), net(nn.BatchNorm1d(5))
    for p in follower.parameters():
        p.requires_grad_(False)
    optimizer = sgd(model)
    history: list[Any] = []
    best = {"loss": weft.asarray(1e9, dtype=weft.float64)}

    def train_step(x, y):
        model.train()
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        with weft.no_grad():
            for mine, theirs in zip(follower.parameters(), model.parameters(), strict=True):
                mine *= 0.9
                mine += 0.1 * theirs
        model.eval()
        with weft.no_grad():
            now = F.mse_loss(model(x), y)
        best["loss"] = weft.minimum(best["loss"], now)
        history.append(now)
        return loss

    def seen() -> Any:
        return best, history

    return Setup(train_step, BATCHES, [model, follower], [optimizer], seen=seen)


def careful(_library: Any) -> Setup:
    """A step is left out where the loss jumps, and the number of those is counted in a tensor."""
    model = net()
    optimizer = sgd(model)
    skipped = weft.zeros((), dtype=weft.int64)

    def train_step(x, y):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        weft.optim.clip_grad_norm_(model.parameters(), 1.0)
        if loss > 0.5:
            skipped[...] = skipped + 1
        else:
            optimizer.step()
        return loss

    return Setup(train_step, BATCHES, [model], [optimizer], seen=lambda: skipped)


def inner_loop(_library: Any) -> Setup:
    """Descends on the input first, while that helps: gradients inside of a loop on a tensor."""
    model = net()
    optimizer = sgd(model)

    def train_step(x, y):
        optimizer.zero_grad()
        moved = x
        error = F.mse_loss(model(moved), y)
        while error > 0.4:
            at = moved.detach().requires_grad_()
            (slope,) = weft.autograd.grad(F.mse_loss(model(at), y), at)
            moved = moved - 2 * slope
            error = F.mse_loss(model(moved), y)
        error.backward()
        optimizer.step()
        return error

    return Setup(train_step, BATCHES, [model], [optimizer])


#: The rate that a schedule set is used afterwards: it is followed, and reads its own count.
EACH = (2, 2), (2, 2), "the count of the schedule is read"

GRADIENTS = "the second step finds gradients that the first has left"
CASES = [
    Case("hooks", hooks),
    Case("function", function),
    Case("retain_graph", retain_graph),
    Case("create_graph", create_graph),
    Case("sensitivity", sensitivity),
    Case("accumulation", accumulation, False, (3, 3), (8, 8), "a Python flag, and left gradients"),
    Case("accumulation inside", accumulation_inside, False, (2, 2), (2, 2), GRADIENTS),
    Case("several losses and optimizers", several, False),
    Case("clipped", clipped),
    Case("schedule outside, in stages", scheduled(in_stages, False)),
    Case("schedule outside, each step", scheduled(each_step, False)),
    Case("schedule outside, a tensor", scheduled(each_step, False, 0.06)),
    Case("schedule inside, in stages", scheduled(in_stages, True)),
    Case("schedule inside, each step", scheduled(each_step, True)),
    Case("schedule inside, a tensor", scheduled(each_step, True, 0.06)),
    Case("schedule inside, of one's own", scheduled(by_function, True)),
    Case("schedule inside, in turns", scheduled(in_turns, True)),
    Case("schedule inside, on a plateau", on_plateau),
    Case("schedule first", scheduled_first(0.05), False, *EACH),
    Case("schedule first, a tensor", scheduled_first(0.06), False, *EACH),
    Case("checkpointed", checkpointed),
    Case("averaged", averaged, False, (2, 2), (2, 2), "the step leaves the model in eval()"),
    Case("careful", careful, False, (3, 2), (3, 2), "a trace has a path for each side"),
    Case("inner loop", inner_loop, False, (5, 2), (6, 2), "a trace has a path for each depth"),
]
