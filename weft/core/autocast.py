"""`weft.autocast`: products in a narrow dtype, and in float32 what needs its range or precision.

It is a mode of the thread, as `no_grad` is. The `autocast` field of a card says what becomes of the
operands of an op, and `bind` does it. Functions that are made of several ops, and are one for users
(a loss), decide for all of them by `@autocasts`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar

from weft.base.dtypes import DTYPES, DType, as_dtype, bfloat16, float16, float32
from weft.base.errors import DTypeError
from weft.core import bind as binding
from weft.core.bind import count_autocast
from weft.core.grad_mode import Switch, decorated, mode
from weft.core.operand_dtypes import in_dtype

__all__ = ["autocast", "get_autocast_dtype", "is_autocast_enabled"]

F = TypeVar("F", bound=Callable[..., Any])
#: What products may be computed in.
NARROW = (bfloat16, float16)


def is_autocast_enabled(device_type: Any = None) -> bool:
    """Whether op calls in this thread are cast by `weft.autocast`."""
    return mode.autocast is not None


def get_autocast_dtype(device_type: Any = None) -> DType:
    """The dtype of products under `weft.autocast`; outside of it, its default."""
    return mode.autocast or bfloat16


class autocasting(Switch):
    """A context that sets the mode while it is entered; None is off."""

    def __init__(self, wanted: DType | None) -> None:
        super().__init__()
        self._wanted = wanted

    def __enter__(self) -> None:
        self._before.append(mode.autocast)
        mode.autocast = self._wanted
        if self._wanted is not None:
            count_autocast(1)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._wanted is not None:
            count_autocast(-1)
        mode.autocast = self._before.pop()

    def __call__(self, function: F) -> F:
        return decorated(function, autocasting, self._wanted)


class autocast(autocasting):
    """In it, products are computed in `dtype`: `with weft.autocast("bfloat16"):`, or as decorator.

    Products are those of matrices, convolutions, `linear`, `einsum`, attention and recurrent
    layers. Exponentials, logarithms, powers, sums, norms and losses take narrow operands to
    float32. All else computes in the dtypes that it is given. float64, complex numbers and integers
    are left as they are. Parameters keep their dtype, and so do their gradients; a backward
    computes in the dtypes of its forward, in or outside of the context.

    enabled       False: off, also inside of another autocast
    device_type   PyTorch's name for where it applies; all devices do alike here

    >>> x, w = weft.ones(2, 3), weft.ones(3, 2)
    >>> with weft.autocast("bfloat16"):
    ...     y = x @ w
    ...     print(y.dtype.name, weft.exp(y).dtype.name, (y + 1).dtype.name)
    bfloat16 float32 bfloat16
    """

    def __init__(
        self,
        dtype: Any = None,
        enabled: bool = True,
        *,
        device_type: Any = None,
        cache_enabled: Any = None,
    ) -> None:
        if isinstance(dtype, str) and dtype not in DTYPES:
            raise DTypeError(
                f"the first argument is a dtype, not {dtype!r}",
                op="autocast",
                hint='weft.autocast("bfloat16"); weft.torch.autocast takes a device first',
            )
        wanted = bfloat16 if dtype is None else as_dtype(dtype)
        if enabled and wanted not in NARROW:
            raise DTypeError(
                f"products cannot be cast down to {wanted.name}",
                op="autocast",
                hint='"bfloat16" or "float16"; enabled=False turns it off',
            )
        super().__init__(wanted if enabled else None)


class as_recorded:
    """What runs inside was cast when it was recorded: a graph, or the way back."""

    def __enter__(self) -> None:
        self._before = mode.autocast
        mode.autocast = None

    def __exit__(self, *_error: object) -> None:
        mode.autocast = self._before


def autocasts(rule: str) -> Callable[[F], F]:
    """For a function of several ops that is one for users: what autocast does to it as a whole.

    "float32" and "lower" cast its operands, as the field of a card says; "" leaves them alone. Its
    ops compute in the dtypes that they are given then. Without autocast a call costs about 0.1 µs
    more.
    """

    return lambda function: casting(function, rule)


def casting(function: F, rule: str) -> F:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        asked = _asked(rule)
        if asked is None:
            return function(*args, **kwargs)
        given, named = _given(rule, args, kwargs)
        with as_recorded():
            return function(*given, **named)

    return call  # type: ignore[return-value]


def _given(rule: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The arguments of a call in the dtype that the rule asks for."""
    asked = _asked(rule)
    if not rule or asked is None:
        return args, kwargs
    with as_recorded():
        found = in_dtype((*args, *kwargs.values()), asked)
    return found[: len(args)], dict(zip(kwargs, found[len(args) :], strict=True))


def _asked(rule: str) -> DType | None:
    """The dtype that a rule asks for now; any where it asks for none. None: autocast is off."""
    if not binding._recording or mode.autocast is None:
        return None
    return float32 if rule == "float32" else mode.autocast


def lowered(*operands: Any) -> Any:
    """Tensors as products take them: in the dtype of autocast, if it is on."""
    asked = _asked("lower")
    return operands if asked is None else in_dtype(operands, asked)
