"""Running functions on tensors whose sizes are symbolic, with the numbers alongside.

Each op call is seen twice: its type rule gets types with symbolic sizes, and its kernel gets the
numbers, with the sizes put in. What the rule promises must be what the kernel gives.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import weft
from weft.base.device import CPU
from weft.base.dim_algebra import replaced
from weft.base.dims import bind_dims, dims_in, substitute
from weft.base.dtypes import dtype_of_numpy, float_info
from weft.core.bind import Recorder, bind, recording
from weft.core.tensor import Tensor, type_of, wrap
from weft.ir.dispatch import Family, register_stand_in
from weft.ir.op import Op, Trait
from weft.ir.types import DENSE, TensorType

OpCall = tuple[Op, tuple[Tensor, ...], dict[str, Any], Any]  # with what came out


class Known:
    """An array whose sizes are symbolic to all who look at it; it holds the numbers as well."""

    def __init__(self, shape: tuple[Any, ...], tensor: Tensor) -> None:
        self.shape = shape
        self.dtype = tensor._data.dtype
        self.tensor = tensor

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return TensorType(dtype_of_numpy(self.dtype), self.shape).size


def _no_array(array: Any, device: Any) -> Any:
    raise NotImplementedError


register_stand_in(
    Family(
        *("known", DENSE, Known, None, _no_array),
        to_numpy=lambda array: array.tensor.numpy(),
        device_of=lambda array: CPU,
        refusal="a symbolic tensor left the recording",
    )
)


def symbolic(tensor: Tensor, shape: tuple[Any, ...]) -> Tensor:
    return wrap(Known(shape, numbers(tensor)))


def numbers(tensor: Tensor) -> Tensor:
    """The tensor with its numbers."""
    return tensor._data.tensor if isinstance(tensor._data, Known) else tensor


class Concolic(Recorder):
    """Checks each type rule with symbolic sizes against the kernel with numbers."""

    def __init__(self, bindings: dict[str, int]) -> None:
        self.bindings = bindings
        self.calls: list[OpCall] = []
        self.derived: set[str] = set()  # ops that derivatives called

    def call(self, op: Op, inputs: tuple[Tensor, ...], attrs: dict[str, Any]) -> Any:
        types = tuple(map(type_of, inputs))
        try:
            inferred = op.infer(*types, **attrs)
        except weft.errors.WeftError as error:
            raise error.about(op.name, types) from None
        given = bind(op, *map(numbers, inputs), **substitute(attrs, self.bindings))
        promised = inferred if isinstance(inferred, tuple) else (inferred,)
        results = given if isinstance(given, tuple) else (given,)
        if Trait.DATA_SHAPE in op.traits:
            promised = self._named(promised, results)
        out = []
        for want, got in zip(promised, results, strict=True):
            filled = want.like(shape=substitute(want.shape, self.bindings))
            assert filled == type_of(got), f"{op.name}: the rule says {want}, the kernel {got.type}"
            out.append(symbolic(got, want.shape))
        cost = op.estimate(types, promised, **attrs)
        assert substitute(cost.flops, self.bindings) >= 0
        assert substitute(cost.bytes, self.bindings) >= 0
        made = tuple(out) if isinstance(given, tuple) else out[0]
        self.calls.append((op, inputs, attrs, made))
        return made

    def _named(self, promised: Any, results: Any) -> Any:
        """Sizes that depend on values get names of their own."""
        found: dict[str, int] = {}
        for want, got in zip(promised, results, strict=True):
            bind_dims(want.shape, got.shape, found := {**self.bindings, **found})
        fresh = {}
        for name in sorted(found.keys() - self.bindings.keys()):
            assert name.startswith("_")
            fresh[name] = weft.dim(f"n{len(self.bindings)}")
            self.bindings[str(fresh[name])] = found[name]
        return [t.like(shape=tuple(replaced(size, fresh) for size in t.shape)) for t in promised]


def is_symbolic(call: OpCall) -> bool:
    """Whether a type rule was asked about a size that is not known."""
    _, inputs, attrs, _ = call
    return any(True for _ in dims_in([[x.shape for x in inputs], attrs]))


def mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """Nested arguments with `change` applied to each leaf."""
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return type(value)(mapped(part, change) for part in value)
    if isinstance(value, dict):
        return {key: mapped(part, change) for key, part in value.items()}
    return change(value)


def arrays_in(value: Any) -> list[np.ndarray[Any, Any]]:
    found: list[np.ndarray[Any, Any]] = []
    mapped(value, lambda leaf: found.append(leaf) if isinstance(leaf, np.ndarray) else None)
    return found


def tensors(value: Any) -> Any:
    """Nested arguments with arrays as tensors."""
    return mapped(value, lambda leaf: weft.asarray(leaf) if isinstance(leaf, np.ndarray) else leaf)


def close(mine: Any, theirs: Any) -> None:
    """Equal but for rounding."""
    got, want = (np.asarray(numbers(x).detach().numpy()) for x in (mine, theirs))
    assert got.shape == want.shape
    assert got.dtype == want.dtype
    if got.dtype.kind in "biu":
        np.testing.assert_array_equal(got, want)
        return
    wide = np.complex128 if got.dtype.kind == "c" else np.float64
    eps = 64 * float_info(dtype_of_numpy(want.dtype)).eps
    np.testing.assert_allclose(got.astype(wide), want.astype(wide), rtol=eps, atol=eps)


# --- derivatives -------------------------------------------------------------------------------


def check_derivatives(recorder: Concolic, call: OpCall, ambiguous: dict[str, str]) -> None:
    """Each derivative rule of an op call, on symbolic values and on numbers."""
    op, inputs, _, out = call
    results = out if isinstance(out, tuple) else (out,)
    floats = [y.dtype.kind in ("float", "complex") for y in results]
    if not op.vjp or not any(floats):
        return
    rng = np.random.default_rng(0)
    given = [
        symbolic(weft.asarray(rng.normal(size=numbers(y).shape)).astype(y.dtype), y.shape)
        for y in results
    ]
    for number, x in enumerate(inputs):
        if x.dtype.kind not in ("float", "complex"):
            continue
        if not isinstance(out, tuple):
            _check_rule(recorder, call, number, given[0], ambiguous)
            continue
        for part in range(len(results)):  # each gradient alone, and all
            alone = tuple(g if i == part and floats[i] else None for i, g in enumerate(given))
            if any(g is not None for g in alone):
                _check_rule(recorder, call, number, alone, ambiguous)
        every = tuple(g if is_float else None for g, is_float in zip(given, floats, strict=True))
        _check_rule(recorder, call, number, every, ambiguous)


def _check_rule(
    recorder: Concolic, call: OpCall, number: int, g: Any, ambiguous: dict[str, str]
) -> None:
    op, inputs, attrs, out = call
    fixed = len(op.inputs) - op.variadic
    rule = op.vjp[min(number, fixed)] if op.vjp else None
    if rule is None:
        return
    first = (number,) if op.variadic and number >= fixed else ()
    plain = mapped((g, out, *inputs), lambda t: None if t is None else numbers(t))
    try:
        want = rule(*first, weft, *plain, **substitute(attrs, recorder.bindings))
    except weft.errors.GradientError:
        return
    backward = Concolic(recorder.bindings)
    try:
        with recording(backward):
            got = rule(*first, weft, g, out, *inputs, **attrs)
    except weft.errors.ShapeError:
        if op.name not in ambiguous:
            raise
        return
    if want is None:
        assert got is None
        return
    close(got, want)
    x = inputs[number]
    assert op.elementwise or got.shape == x.shape, f"{op.name}: {got.type} for {x.type}"
    recorder.derived |= {seen[0].name for seen in backward.calls if is_symbolic(seen)}
