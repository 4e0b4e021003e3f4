"""More programs with values that change from call to call: where numbers live, lengths, texts."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

import weft
from tests.support.number_rows import Settings, World, program

# --- where numbers live --------------------------------------------------------------------------


@program(2)
def class_attribute(o: World, x: Any) -> Any:
    o.kind.count += 1
    o.kind.rate *= 0.5
    return x * o.kind.count * o.kind.rate


@program(2)
def attribute_of_a_base_class(o: World, x: Any) -> Any:
    o.kind.count += 1
    return x * o.derived.count + o.derived().rate


@program(2)
def default_of_a_function_made_for_the_call(o: World, x: Any) -> Any:
    o.n += 1

    def scaled(y: Any, by: int = o.n, *, plus: float = o.n / 2) -> Any:
        return y * by + plus

    return o.apply(scaled, x)


@program(2)
def item_from_the_back(o: World, x: Any) -> Any:
    o.pairs[0] += 1
    o.pairs[-1] *= 0.5
    return x * o.pairs[0] * o.pairs[1]


@program(1)
def inner_function_that_reads_nothing(o: World, x: Any) -> Any:
    def given() -> Any:
        return x

    return (lambda: x)() + given()


@program(2)
def arguments_of_transforms(o: World, x: Any) -> Any:
    o.n += 1
    grad = weft.grad(lambda a, b: (a * b) ** 2)(o.n / 2, 3.0)
    both = weft.value_and_grad(lambda a, b: (a * b).sum(), argnums=(0, 1))(x, o.n * 1.5)
    aux = weft.grad(lambda y: ((y * o.n).sum(), o.n + 1), has_aux=True)(x)
    mapped = weft.vmap(lambda y, b: y * b, in_axes=(0, None))(x, o.n)
    moved = weft.jvp(lambda y, b: y * b, (x, o.n / 4), (x, 1.0))
    tree = weft.grad(lambda p: p["a"] * p["b"] ** 2)({"a": 2.0, "b": o.n / 8})
    return grad, both, aux, mapped, moved, tree


@program(6)  # the dtype of what is made of them is that of NumPy
def tensors_of_scalars(o: World, x: Any) -> Any:
    o.scalar = o.scalar * 0.5
    return weft.tensor([o.scalar, 1.0]), weft.asarray(o.scalar), x * o.scalar


@program(2)
def scalars_of_numpy(o: World, x: Any) -> Any:
    o.scalar = o.scalar * 0.5 + np.float64(1.0)
    o.whole += 1
    rate = 0.1 * np.cos(np.pi * o.whole / 10) + np.clip(o.scalar, 0.25, 1.5)
    print(o.scalar, f"{o.scalar!r} {o.whole:3d}")
    kinds = type(rate), float if isinstance(o.scalar, float) else None, type(o.whole + 1)
    part = weft.arange(20.0)[o.whole : o.whole + 3]
    return x * rate + o.whole, part * o.scalar, [kind.__name__ for kind in kinds], o.scalar / 3


@program(2)
def tuples_and_dataclasses(o: World, x: Any) -> Any:
    o.record = o.record._replace(step=o.record.step + 1)
    o.settings = dataclasses.replace(o.settings, rate=o.settings.rate * 0.5)
    o.log.append(Settings(f"step {o.record.step}", x.sum().item()))
    return x * o.record.step * o.settings.rate, o.settings.name


@program(2)
def dropped(o: World, x: Any) -> Any:
    o.n += 1
    weft.manual_seed(0)
    return weft.nn.functional.dropout(x, o.n / 10)


# --- how often a loop runs -----------------------------------------------------------------------


@program(2, 6)
def range_of_a_number(o: World, x: Any) -> Any:
    o.n += 1
    for i in range(o.n + 1):
        x = x * 0.5 + i
    for j in reversed(range(2, 2 * o.n + 2)):
        x = weft.sin(x) + j
    return x


@program(2, 6)
def total_that_begins_with_zero(o: World, x: Any) -> Any:
    o.n += 1
    total: Any = 0
    seen = None
    for i in range(o.n + 1):
        total = total + x * i
        seen = x if seen is None else seen * 0.5 + x
    return total, seen


# --- lengths -------------------------------------------------------------------------------------


@program(2)
def length_of_a_list(o: World, x: Any) -> Any:
    o.log.append(x.sum().item())
    return x / len(o.log) + o.log[-1], len(o.log)


@program(3)
def truth_of_a_list(o: World, x: Any) -> Any:
    before = o.log[-1] if o.log else 0.0
    o.log += [x.sum().item() + before]
    o.log.extend([before, 1.0])
    return x * len(o.log), before


@program(2)
def length_of_a_deque(o: World, x: Any) -> Any:
    o.recent.append(x.sum().item())
    return x / len(o.recent)


@program(2)
def length_by_a_method(o: World, x: Any) -> Any:
    o.held.parts.append(1)
    return x * len(o.held), bool(o.held)


@program(3)  # what is decided by it
def every_third_of_a_list(o: World, x: Any) -> Any:
    o.log.append(1)
    return x * 2 if len(o.log) % 3 == 0 else x


# --- texts and keys ------------------------------------------------------------------------------


@program(2)
def texts_that_are_stored(o: World, x: Any) -> Any:
    o.n += 1
    message = f"step {o.n}: {x.sum().item():.3f} {o.n / 2!r:>6}"
    o.shown.append(message)
    o.shown.append("n=" + str(o.n))
    o.shown.append("%03d of %s" % (o.n, "it"))  # noqa: UP031
    o.shown.append(f"{o.n:>4}|{o.n / 2}")
    o.shown.append(", ".join([repr(o.n), "x"]) + "!")
    o.last = message  # type: ignore[attr-defined]
    print(message)
    return f"{o.n}", x


@program(1)
def text_of_a_tensor(o: World, x: Any) -> Any:
    loss = x.sum()
    message = f"loss {loss:.3f}"
    print(message)
    o.shown.append(message)
    return loss


@program(2)
def text_in_a_function(o: World, x: Any) -> Any:
    def say(text: str, level: str = "info") -> None:
        o.shown.append(f"[{level}] {text}")

    o.n += 1
    say(f"step {o.n}")
    for i in range(3):
        say(f"{o.n}.{i}", "debug")
    return x


@program(2)
def keys(o: World, x: Any) -> Any:
    o.n += 1
    o.kept[o.n] = x.sum().item()
    o.kept[f"loss/{o.n}"] = x.sum()
    o.kept["name"] = f"run {o.n}"
    return x


@program(2)
def ring(o: World, x: Any) -> Any:
    o.places[o.n] = x.sum().item()
    o.n = (o.n + 1) % 4
    return x


@program(6)  # what it reads may be what it has just written
def key_that_is_read(o: World, x: Any) -> Any:
    o.n = (o.n + 1) % 3
    o.places[o.n] = o.n + 0.5
    return x * o.places[1]


@program(6)
def text_that_is_asked(o: World, x: Any) -> Any:
    o.n += 1
    text = f"{o.n}"
    if text == "3" or text.endswith("5") or "4" in text or not isinstance(text, str):
        return x * 2
    return x * len(text), {text: x}, sorted([text, "2"]), "".join(t for t in [text, text])


# --- numbers of tensors where errors may be caught ----------------------------------------------


@program(1)
def item_in_a_try(o: World, x: Any) -> Any:
    try:
        o.log.append(x.sum().item())
    except ValueError:
        o.log.append(None)
    return x
