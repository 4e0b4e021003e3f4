"""New tensors, with PyTorch's arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import weft.core.tensor as core
from weft.base.device import Device, as_device
from weft.base.dtypes import as_dtype, get_default_dtype
from weft.ops import creation, like, random
from weft.ops.generator import Generator as CoreGenerator
from weft.ops.generator import get_rng_state as core_rng_state
from weft.torch.shapes import _sizes
from weft.torch.tensor import TYPE_NAMES, Tensor, as_type, held, labelled, method

__all__ = [
    *("Generator", "arange", "as_tensor", "asarray", "bernoulli", "device", "empty", "empty_like"),
    *(
        "eye",
        "from_numpy",
        "get_rng_state",
        "full",
        "full_like",
        "linspace",
        "logspace",
        "normal",
        "ones",
        "ones_like",
        "rand",
    ),
    *("rand_like", "randint", "randint_like", "randn", "randn_like", "randperm", "tensor", "zeros"),
    *("zeros_like", *sorted(TYPE_NAMES.values())),
]


class _DeviceClass(type):
    def __instancecheck__(cls, obj: Any) -> bool:
        return isinstance(obj, Device)


class device(metaclass=_DeviceClass):
    """A device: `torch.device("cpu")` is Weft's."""

    def __new__(cls, type: Any = None, index: int | None = None) -> Any:
        return as_device(type if index is None else f"{type}:{index}")


class Generator(CoreGenerator):
    """A source of random numbers; they are not those that PyTorch draws."""

    def __init__(self, device: Any = None) -> None:
        super().__init__(None, device)

    def manual_seed(self, seed: int) -> Generator:
        self.state = CoreGenerator(seed).state
        return self


def get_rng_state() -> Any:
    """The state of the default generator, for `set_rng_state`."""
    return labelled(core_rng_state())


def _made(out: Any, requires_grad: bool) -> Any:
    labelled(out)
    if requires_grad:
        out.requires_grad = True
    return out


def tensor(
    data: Any,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Any:
    """A new tensor of these values."""
    if isinstance(data, (list, tuple)) and _holds_tensors(data):
        data = _numbers(data)
    wanted = None if dtype is None else as_type(dtype)
    return _made(creation.tensor(data, dtype=wanted, device=device), requires_grad)


def _holds_tensors(data: Any) -> bool:
    return any(
        isinstance(part, core.Tensor)
        or (isinstance(part, (list, tuple)) and _holds_tensors(part))
        for part in data
    )  # fmt: skip


def _numbers(data: Any) -> Any:
    """Nested lists with the numbers of tensors in them."""
    if isinstance(data, core.Tensor):
        return data.tolist()
    return [_numbers(part) for part in data] if isinstance(data, (list, tuple)) else data


def as_tensor(data: Any, dtype: Any = None, device: Any = None) -> Any:
    """The tensor itself where it is one of this dtype, else a new one."""
    if isinstance(data, Tensor):
        return data.to(dtype=dtype, device=device)
    if isinstance(data, core.Tensor):
        data = data.clone()  # not the caller's own: it stays what it is
    return tensor(data, dtype=dtype, device=device) if not _is(data) else labelled(data)


def _is(data: Any) -> bool:
    return isinstance(data, core.Tensor)


asarray = as_tensor


def from_numpy(array: Any) -> Any:
    """A tensor of a copy of the array: later writes to the array do not show."""
    if not isinstance(array, np.ndarray):
        raise TypeError(f"expected np.ndarray (got {type(array).__name__})")
    return tensor(array)


def _shaped(core_function: Callable[..., Any], name: str, *, draws: bool = False) -> Any:
    """`f(2, 3)`, `f((2, 3))` or `f(size=(2, 3))`."""

    def function(
        *size: Any,
        dtype: Any = None,
        device: Any = None,
        requires_grad: bool = False,
        generator: Any = None,
        layout: Any = None,
        pin_memory: bool = False,
        **given: Any,
    ) -> Any:
        sizes = _sizes((given.pop("size"),) if "size" in given else size)
        if given:
            raise TypeError(f"{name}() has no argument {next(iter(given))!r}")
        options = {"generator": generator} if draws else {}
        wanted = None if dtype is None else as_type(dtype)
        out = core_function(tuple(sizes), dtype=wanted, device=device, **options)
        return _made(out, requires_grad)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"`weft.{name}`; the sizes one by one or as a tuple."
    return function


zeros = _shaped(creation.zeros, "zeros")
ones = _shaped(creation.ones, "ones")
empty = _shaped(creation.empty, "empty")
rand = _shaped(random.rand, "rand", draws=True)
randn = _shaped(random.randn, "randn", draws=True)


def _alike(name: str, core_function: Callable[..., Any]) -> Any:
    """A new tensor of the shape and dtype of another."""

    def function(
        input: Any,
        *values: Any,
        dtype: Any = None,
        device: Any = None,
        requires_grad: bool = False,
        memory_format: Any = None,
    ) -> Any:
        wanted = None if dtype is None else as_type(dtype)
        given = [held(value, wanted or input.dtype) for value in values]
        out = core_function(input, *given, dtype=wanted, device=device)
        return _made(out, requires_grad)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"`weft.{name}`."
    return function


zeros_like = _alike("zeros_like", creation.zeros_like)
ones_like = _alike("ones_like", creation.ones_like)
empty_like = _alike("empty_like", creation.empty_like)
full_like = _alike("full_like", creation.full_like)
rand_like = _alike("rand_like", random.rand_like)
randn_like = _alike("randn_like", random.randn_like)


def _typed(dtype: Any) -> dict[str, Any]:
    return {} if dtype is None else {"dtype": as_type(dtype)}


def full(
    size: Any,
    fill_value: Any,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Any:
    """A tensor of one value; the dtype is that of the value."""
    wanted = None if dtype is None else as_type(dtype)
    value = fill_value if wanted is None else held(fill_value, wanted)
    out = creation.full(tuple(size), value, dtype=wanted, device=device)
    return _made(out, requires_grad)


def arange(
    *bounds: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False, **named: Any
) -> Any:
    """`arange(end)`, `arange(start, end)` or `arange(start, end, step)`."""
    if named:
        given = list(bounds)
        if len(given) == 1 and "end" not in named:
            given.insert(0, 0)  # one bound is the end
        names = ("start", "end", "step")[len(given) :]
        bounds = (*given, *[named.pop(name, 1 if name == "step" else 0) for name in names])
        if named:
            raise TypeError(f"arange() has no argument {next(iter(named))!r}")
    numbers = [b.item() if isinstance(b, core.Tensor) else b for b in bounds]
    out = creation.arange(*numbers, dtype=dtype and as_type(dtype), device=device)
    return _made(out, requires_grad)


def linspace(
    start: Any, end: Any, steps: int, *, dtype: Any = None, device: Any = None,
    requires_grad: bool = False,
) -> Any:  # fmt: skip
    """So many values, evenly spaced, both ends included."""
    out = creation.linspace(start, end, steps, dtype=dtype and as_type(dtype), device=device)
    return _made(out, requires_grad)


def logspace(
    start: Any, end: Any, steps: int, base: Any = 10.0, *, dtype: Any = None, device: Any = None,
    requires_grad: bool = False,
) -> Any:  # fmt: skip
    """base to the power of so many evenly spaced values."""
    kind = dtype and as_type(dtype)
    out = like.logspace(start, end, steps, base=base, dtype=kind, device=device)
    return _made(out, requires_grad)


def eye(
    n: int, m: int | None = None, *, dtype: Any = None, device: Any = None,
    requires_grad: bool = False,
) -> Any:  # fmt: skip
    """Ones on the diagonal."""
    out = creation.eye(n, m, dtype=dtype and as_type(dtype), device=device)
    return _made(out, requires_grad)


def randint(
    *bounds: Any, size: Any = None, dtype: Any = None, device: Any = None, generator: Any = None,
    requires_grad: bool = False, **named: Any,
) -> Any:  # fmt: skip
    """`randint(high, size)` or `randint(low, high, size)`."""
    given = list(bounds)
    size = given.pop() if size is None else size
    if "high" in named or "low" in named:
        given = [named.get("low", 0), named.get("high", given[-1] if given else None)]
    low, high = given if len(given) == 2 else (0, given[0])
    wanted = None if dtype is None else as_type(dtype)
    kind = wanted if wanted is None or wanted.kind in ("int", "uint") else None
    out = random.randint(low, high, tuple(size), dtype=kind, device=device, generator=generator)
    return _made(out if kind is wanted else out.astype(wanted), requires_grad)


def randint_like(input: Any, *bounds: int, dtype: Any = None) -> Any:
    """Integers in the shape and dtype of another tensor."""
    return randint(*bounds, size=input.shape, dtype=dtype or input.dtype)


def randperm(n: int, *, dtype: Any = None, device: Any = None, generator: Any = None) -> Any:
    """The numbers 0 … n - 1 in random order."""
    out = labelled(random.permutation(n, device=device, generator=generator))
    return out if dtype is None else out.to(dtype)


def normal(
    mean: Any = 0.0, std: Any = 1.0, size: Any = None, *, generator: Any = None, dtype: Any = None,
    device: Any = None, requires_grad: bool = False,
) -> Any:  # fmt: skip
    """Numbers of a normal distribution."""
    shape = None if size is None else tuple(size)
    out = random.normal(mean, std, shape, dtype=dtype, device=device, generator=generator)
    return _made(out, requires_grad)


@method()
def bernoulli(input: Any, p: float | None = None, *, generator: Any = None) -> Any:
    """1 with the probability that each element says, else 0."""
    if p is not None:
        return labelled(random.bernoulli(p, input.shape, dtype=input.dtype, generator=generator))
    return random.bernoulli(input, generator=generator)


def _of_dtype(name: str, dtype: str) -> Any:
    """`torch.LongTensor([1, 2])`, `torch.FloatTensor(2, 3)`."""

    def function(*given: Any) -> Any:
        if given and all(isinstance(size, int) for size in given):
            return zeros(*given, dtype=dtype)
        return tensor(given[0] if given else [], dtype=dtype)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"A tensor of dtype {dtype}."
    function.of_dtype = as_dtype(dtype)  # type: ignore[attr-defined]
    return function


for _dtype, _name in TYPE_NAMES.items():
    globals()[_name] = _of_dtype(_name, _dtype)


def _new(make: Callable[..., Any], name: str) -> Any:
    def function(self: Any, *given: Any, dtype: Any = None, device: Any = None, **more: Any) -> Any:
        return make(*given, dtype=dtype or self.dtype, device=device or self.device, **more)

    function.__name__ = function.__qualname__ = name
    return method(name)(function)


for _name, _make in {
    "new_tensor": tensor,
    "new_zeros": zeros,
    "new_ones": ones,
    "new_empty": empty,
    "new_full": full,
}.items():
    _new(_make, _name)


def default_float() -> Any:
    """The dtype of new floating tensors."""
    return get_default_dtype()
