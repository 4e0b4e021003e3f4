"""Module: what models are built of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from weft.base.device import Device, as_device
from weft.base.dtypes import DTYPES, DType, as_dtype, bfloat16, float16, float32, float64
from weft.base.errors import DTypeError
from weft.base.notebook import html_of
from weft.core.bind import rebind
from weft.core.grad_mode import no_grad
from weft.core.structure import changed
from weft.core.tensor import Tensor
from weft.nn.compiled_forward import CompiledForward
from weft.nn.hooks import HookHandle, ModuleHooks, call_with_hooks
from weft.nn.members import Members
from weft.nn.state import Loaded, load_state_dict, state_dict

__all__ = ["Module"]

M = TypeVar("M", bound="Module")


class Module(Members):
    """Base of all layers and models: assign parameters and submodules, and define `forward`.

    >>> class Model(weft.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.scale = weft.nn.Parameter(weft.ones(3))
    ...
    ...     def forward(self, x):
    ...         return x * self.scale
    >>> Model()(weft.asarray([1.0, 2.0, 3.0])).detach()
    tensor([1., 2., 3.])
    """

    _module_hooks: (
        ModuleHooks | None
    )  # None, the common case: calling the module is calling forward

    def __init__(self) -> None:
        pass

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._module_hooks is None:
            return self.forward(*args, **kwargs)
        return call_with_hooks(self, self._module_hooks, args, kwargs)

    def _forward(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(
            f"{type(self).__name__} has no forward: define `def forward(self, x): ...`"
        )

    forward: Callable[..., Any] = _forward  # so declared, subclasses may have any signature

    # --- modes --------------------------------------------------------------------------------

    def train(self: M, mode: bool = True) -> M:
        """Set training mode (dropout drops, batch norm learns its statistics) for all below."""
        for module in self.modules():
            module.training = bool(mode)
        return self

    def eval(self: M) -> M:
        """Leave training mode: `train(False)`."""
        return self.train(False)

    def requires_grad_(self: M, requires_grad: bool = True) -> M:
        """Freeze all parameters, or have them learn again."""
        for parameter in self.parameters():
            if parameter.requires_grad != requires_grad:
                parameter.requires_grad = requires_grad
                changed()
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients of all parameters, or make them zero."""
        for parameter in self.parameters():
            if parameter.grad is not None:
                parameter.grad = None if set_to_none else parameter.grad.detach().zero_()

    # --- dtype and device ---------------------------------------------------------------------

    def to(self: M, *args: Any, dtype: Any = None, device: Any = None) -> M:
        """Bring parameters and buffers to a device, and the floating ones to a dtype."""
        for given in args:
            if isinstance(given, Tensor):
                dtype, device = given.dtype, given.device
            elif isinstance(given, Device) or (isinstance(given, str) and given not in DTYPES):
                device = given
            elif given is not None:
                dtype = given
        wanted = None if dtype is None else as_dtype(dtype)
        place = None if device is None else as_device(device)
        if wanted is not None and wanted.kind not in ("float", "complex"):
            name = f"{type(self).__name__}.to"
            raise DTypeError(f"parameters need a floating dtype, not {wanted.name}", op=name)

        def convert(tensor: Tensor) -> Tensor:
            if wanted is not None and tensor.dtype.kind in ("float", "complex"):
                tensor = tensor.astype(wanted, copy=False)
            return tensor if place is None else tensor.to_device(place)

        with no_grad():
            for tensor in (*self.parameters(), *self.buffers()):
                grad = tensor.grad
                rebind(tensor, convert(tensor), "to")  # the same object, of another type
                if grad is not None:
                    tensor.grad = convert(grad).detach()
        changed()
        return self

    def type(self: M, dst_type: DType) -> M:
        """`to(dtype)`."""
        return self.to(dst_type)

    def float(self: M) -> M:
        """Floating parameters and buffers in float32."""
        return self.to(float32)

    def double(self: M) -> M:
        """Floating parameters and buffers in float64."""
        return self.to(float64)

    def half(self: M) -> M:
        """Floating parameters and buffers in float16."""
        return self.to(float16)

    def bfloat16(self: M) -> M:
        """Floating parameters and buffers in bfloat16."""
        return self.to(bfloat16)

    def cpu(self: M) -> M:
        """Parameters and buffers on the CPU."""
        return self.to(device="cpu")

    def cuda(self: M, device: Any = None) -> M:
        """Parameters and buffers on a GPU: `to("cuda")`, or the GPU with a number."""
        return self.to(device=f"cuda:{device}" if isinstance(device, int) else device or "cuda")

    def to_empty(self: M, *, device: Any, recurse: bool = True) -> M:
        """Bring the module to a device without regard to its values: they are not defined then."""
        return self.to(device=device)

    def compile(self: M, **options: Any) -> M:
        """Compile this module's forward, in place: `weft.compile` with the same options."""
        self.forward = CompiledForward(self, options)
        return self

    # --- state --------------------------------------------------------------------------------

    def state_dict(self, *, prefix: str = "", keep_vars: bool = False) -> dict[str, Tensor]:
        """Parameters and persistent buffers by dotted name.

        The values are those of now: training goes on without changing them. With `keep_vars` they
        are the module's own tensors.
        """
        return state_dict(self, prefix, keep_vars)

    def load_state_dict(self, state_dict: Any, strict: bool = True, assign: bool = False) -> Loaded:
        """Take over the values of a state, all of them or, where any does not fit, none.

        Names that are missing or unexpected are an error unless `strict` is False; shapes must
        agree in any case. Values are cast to the module's dtypes; with `assign` its tensors take
        the dtype of the state.
        """
        return load_state_dict(self, state_dict, strict, assign)

    # --- hooks --------------------------------------------------------------------------------

    def register_forward_pre_hook(
        self, hook: Any, *, prepend: bool = False, with_kwargs: bool = False
    ) -> HookHandle:
        """Call `hook(module, args)` before forward; what it returns replaces the arguments.

        With `with_kwargs`, it is `hook(module, args, kwargs)`, returning (args, kwargs) or None.
        """
        return HookHandle(self, "forward_pre", hook, prepend=prepend, with_kwargs=with_kwargs)

    def register_forward_hook(
        self,
        hook: Any,
        *,
        prepend: bool = False,
        with_kwargs: bool = False,
        always_call: bool = False,
    ) -> HookHandle:
        """Call `hook(module, args, output)` after forward; what it returns replaces the output.

        With `with_kwargs`, it is `hook(module, args, kwargs, output)`. With `always_call` it is
        also called, with None as the output, when forward raises.
        """
        return HookHandle(
            self, "forward", hook, prepend=prepend, with_kwargs=with_kwargs, always=always_call
        )

    def register_full_backward_pre_hook(self, hook: Any, prepend: bool = False) -> HookHandle:
        """Call `hook(module, grad_output)` before gradients pass back through the module.

        What it returns, a tensor or a tuple of them, replaces grad_output.
        """
        return HookHandle(self, "backward_pre", hook, prepend=prepend)

    def register_full_backward_hook(self, hook: Any, prepend: bool = False) -> HookHandle:
        """Call `hook(module, grad_input, grad_output)` when the gradients of the inputs are known.

        What it returns, a tensor or a tuple of them, replaces grad_input.
        """
        return HookHandle(self, "backward", hook, prepend=prepend)

    # --- text ---------------------------------------------------------------------------------

    def extra_repr(self) -> str:
        """What stands between the brackets of this module's repr: its sizes and options."""
        return ""

    def _get_name(self) -> str:
        return self.__class__.__name__

    def __repr__(self) -> str:
        extra = self.extra_repr()
        children = [f"({name}): {_indented(repr(c))}" for name, c in self._modules.items()]
        if not children:
            return f"{self._get_name()}({_indented(extra)})"
        lines = [*([_indented(extra)] if extra else []), *children]
        return "\n  ".join([f"{self._get_name()}(", *lines]) + "\n)"

    def _repr_html_(self) -> str | None:
        """What a notebook shows."""
        return html_of(self)


def _indented(text: str) -> str:
    return text.replace("\n", "\n  ")
