"""The derivative of one op call in a direction, from the same rules that serve reverse mode.

Reverse mode's rule of an input maps a cotangent g of the result to Jᵀg. Forward mode wants Jt, for
a tangent t of the input:

- of an ELEMENTWISE op of reals J is diagonal, so Jᵀ is J: the rule itself, applied to t;
- of a LINEAR op J is the op itself; of one that is linear in each of several inputs (a product),
  Jt is a sum, and of one that is linear in all of them JOINTly (concat) one call;
- of all others Jt is found by transposing twice: g ↦ Jᵀg is linear, and its own transpose is
  t ↦ Jt. Only the tape of this one rule is made, and gone at once.

With complex numbers, Jᵀ is the transpose for the inner product Re⟨a, b⟩, and so is its transpose.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.autodiff import engine
from weft.autodiff.node import as_array, weft_namespace
from weft.autodiff.transforms.history import seed
from weft.base.errors import GradientError
from weft.core.bind import bind, recorder
from weft.core.grad_mode import enable_grad
from weft.core.quiet import quietly
from weft.core.tensor import Tensor, wrap
from weft.ir.op import DerivativeRule, Op, Trait
from weft.ops.cards import ASTYPE, BROADCAST_TO
from weft.ops.creation import zeros_like
from weft.ops.stacks import zero_like

__all__: list[str] = []

Tangent = Tensor | None


def is_float(tensor: Tensor) -> bool:
    return tensor._data.dtype.kind not in "biu"


def rule_of(op: Op, number: int) -> tuple[DerivativeRule | None, bool]:
    """The derivative rule of an input, and whether it takes the number of the input first."""
    if not op.vjp:
        return None, False
    fixed = len(op.inputs) - op.variadic
    return op.vjp[min(number, fixed)], op.variadic and number >= fixed


def active(op: Op, inputs: Sequence[Tensor], has: Sequence[bool], out: Any) -> bool:
    """Whether tangents of some inputs pass through an op call to a result."""
    if not any(has):
        return False
    results = out if isinstance(out, tuple) else (out,)
    if not any(map(is_float, results)):
        return False
    if op.vjp is None:
        raise GradientError(
            f"{op.name} has no derivative",
            op=op.name,
            operands=[x.type for x in inputs],
            hint="use x.detach() or weft.stop_gradient where no derivative is meant",
        )
    return any(h and rule_of(op, i)[0] is not None for i, h in enumerate(has))


def push(
    op: Op, inputs: Sequence[Tensor], tangents: Sequence[Tangent], attrs: dict[str, Any], out: Any
) -> tuple[Tangent, ...]:
    """The tangents of the results of an op call; None for zero."""
    has = [t is not None and rule_of(op, i)[0] is not None for i, t in enumerate(tangents)]
    given = [t if h else None for t, h in zip(tangents, has, strict=True)]
    if Trait.JOINT in op.traits:
        together = _jointly(op, inputs, given, attrs)
        return together if isinstance(together, tuple) else (together,)
    if not isinstance(out, tuple):
        found = _short_way(op, inputs, given, attrs, out)
        if found is not None:
            return (found,)
    return _transposed(op, inputs, given, attrs, out)


def _short_way(
    op: Op,
    inputs: Sequence[Tensor],
    tangents: Sequence[Tangent],
    attrs: dict[str, Any],
    out: Tensor,
) -> Tensor | None:
    """The tangent by a rule or by the op itself; None where neither is meant for that."""
    if op is ASTYPE:
        made: Tensor = bind(op, *[t for t in tangents if t is not None], **attrs)
        return made
    if op.elementwise:
        real = out.dtype.kind == "float" and all(
            x.dtype is out.dtype for x, t in zip(inputs, tangents, strict=True) if t is not None
        )
        return _diagonal(op, inputs, tangents, attrs, out) if real else None
    if Trait.LINEAR in op.traits and not op.data_shape:  # another call has sizes of its own
        parts = []
        for i, t in enumerate(tangents):
            if t is not None:
                parts.append(bind(op, *inputs[:i], t, *inputs[i + 1 :], **attrs))
        return _total(parts)
    return None


def _diagonal(
    op: Op,
    inputs: Sequence[Tensor],
    tangents: Sequence[Tangent],
    attrs: dict[str, Any],
    out: Tensor,
) -> Tensor:
    if _is_plain((*inputs, *tangents, out)):  # by NumPy itself: with a third of the work
        arrays = [x._data for x in inputs]
        directions = [None if t is None else t._data for t in tangents]
        made = quietly(_by_rules, np, op, out._data, arrays, directions, attrs)
        return wrap(as_array(made))
    total: Tensor = _by_rules(weft_namespace(), op, out, inputs, tangents, attrs)
    return total


def _by_rules(
    xp: Any, op: Op, out: Any, inputs: Sequence[Any], tangents: Sequence[Any], attrs: dict[str, Any]
) -> Any:
    total: Any = None
    for i, t in enumerate(tangents):
        rule, _ = rule_of(op, i)
        if t is not None and rule is not None:
            g = xp.broadcast_to(t, out.shape) if t.shape != out.shape else t
            part = rule(xp, g, out, *inputs, **attrs)
            total = part if total is None else total + part
    return total


def _is_plain(tensors: Sequence[Tangent]) -> bool:
    """Whether NumPy can compute with tensors: dense on the CPU, not narrow, and nobody looks."""
    return recorder() is None and all(
        t is None or (t._node is None and t._data.__class__ is np.ndarray and t._data.itemsize > 2)
        for t in tensors
    )


def _jointly(
    op: Op, inputs: Sequence[Tensor], tangents: Sequence[Tangent], attrs: dict[str, Any]
) -> Any:
    given = [
        (zero_like(x) if is_float(x) else x) if t is None else t
        for x, t in zip(inputs, tangents, strict=True)
    ]
    return bind(op, *given, **attrs)


def _transposed(
    op: Op,
    inputs: Sequence[Tensor],
    tangents: Sequence[Tangent],
    attrs: dict[str, Any],
    out: Any,
) -> tuple[Tangent, ...]:
    """By the transpose of the rules, on the tape of these rules alone."""
    xp = weft_namespace()
    results = out if isinstance(out, tuple) else (out,)
    seeds = [seed(zeros_like(part)) if is_float(part) else None for part in results]
    g: Any = tuple(seeds) if isinstance(out, tuple) else seeds[0]
    pulled: list[tuple[Tensor, Tensor]] = []
    with enable_grad():
        for i, t in enumerate(tangents):
            rule, numbered = rule_of(op, i)
            if t is None or rule is None:
                continue
            first = (i, xp) if numbered else (xp,)
            pulled.append((rule(*first, g, out, *inputs, **attrs), t))
    create = recorder() is not None or any(
        x is not None and x._node is not None for x in (*inputs, *tangents, *results)
    )
    return transpose(seeds, pulled, create)


def transpose(
    seeds: Sequence[Tensor | None],
    pulled: Sequence[tuple[Tensor | None, Tensor]],
    create: bool,
) -> tuple[Tangent, ...]:
    """Of linear maps that were applied to `seeds`: their transposes, applied to tangents."""
    roots: list[Any] = []
    with enable_grad():
        for p, t in pulled:
            if p is not None and p._node is not None:
                start = _spread(t, p.shape)  # elementwise rules know nothing of broadcasting
                roots.append((p._node, start if create else start._data))
        targets = [s._node for s in seeds if s is not None]
        found = engine.run(roots, keep=False, create=create, targets=targets)
    made: list[Tangent] = []
    for s in seeds:
        g = None if s is None else found.get(s._node)
        made.append(g if g is None or isinstance(g, Tensor) else wrap(as_array(g)))
    return tuple(made)


def _spread(t: Tensor, shape: Any) -> Tensor:
    if t.shape == shape:
        return t
    out: Tensor = bind(BROADCAST_TO, t, shape=shape)
    return out


def _total(parts: Sequence[Tensor]) -> Tensor:
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total
