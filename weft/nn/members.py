"""What a module is made of: parameters, buffers and submodules, and the walk over their tree.

A member is an ordinary attribute, as fast to read as any other; `_members` only notes, in order,
which attributes are members and of what kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from weft.base.errors import DTypeError
from weft.core.tensor import Tensor
from weft.nn.parameter import Parameter
from weft.nn.structure import changed

PARAMETER, BUFFER, MODULE = "parameter", "buffer", "submodule"

T = TypeVar("T", bound="Members")


class Members:
    """A node of a tree of modules. Users derive from `Module`, not from this."""

    _members: dict[str, str]  # name -> kind, in the order of registration
    _transient: set[str]  # buffers that are no part of the state
    training: bool

    def __new__(cls, *_args: Any, **_kwargs: Any) -> Any:
        # Here, not in __init__: a subclass that forgets super().__init__() works too.
        self = super().__new__(cls)
        self.__dict__.update(training=True, _members={}, _transient=set(), _hooks=None)
        return self

    # --- attributes ---------------------------------------------------------------------------

    def __setattr__(self, name: str, value: Any) -> None:
        had = self._members.get(name)
        if isinstance(value, Parameter):
            kind: str | None = PARAMETER
        elif isinstance(value, Members):
            kind = MODULE
        else:
            kind = had
        if kind is None:
            if name == "training" and value != self.training:
                changed()
            object.__setattr__(self, name, value)
        elif kind == had:
            self._check(name, value, kind)
            if self.__dict__[name] is not value:
                self.__dict__[name] = value
                changed()
        else:
            self._forget(name)
            self.__dict__.pop(name, None)  # a plain attribute, say None, makes way
            self._register(name, value, kind)

    def __delattr__(self, name: str) -> None:
        object.__delattr__(self, name)
        self._forget(name)

    def _forget(self, name: str) -> None:
        if self._members.pop(name, None) is not None:
            self._transient.discard(name)
            changed()

    def _check(self, name: str, value: Any, kind: str) -> None:
        expected, fix = _EXPECTED[kind]
        if value is not None and not isinstance(value, expected):
            raise DTypeError(
                f"{type(value).__name__} cannot be the {kind} {name!r} of {type(self).__name__}",
                hint=fix.format(name=name),
            )

    def _register(self, name: Any, value: Any, kind: str) -> None:
        if not isinstance(name, str) or not name or "." in name:
            raise DTypeError(f"{name!r} cannot be the name of a {kind}", hint="use a name, no dots")
        taken = name in self.__dict__ if name not in self._members else False
        if taken or hasattr(type(self), name):
            raise KeyError(f"{type(self).__name__} already has an attribute {name!r}")
        self._check(name, value, kind)
        self._transient.discard(name)
        self._members[name] = kind
        self.__dict__[name] = value
        changed()

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Make `param` a parameter under a name; None keeps the place free."""
        self._register(name, param, PARAMETER)

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Keep a tensor that is not learned; a persistent one is part of the state."""
        self._register(name, tensor, BUFFER)
        if not persistent:
            self._transient.add(name)

    def add_module(self, name: str, module: Any) -> None:
        """Add a submodule under a name; None keeps the place free."""
        self._register(name, module, MODULE)

    def register_module(self, name: str, module: Any) -> None:
        """The same as `add_module`."""
        self._register(name, module, MODULE)

    def _of_kind(self, kind: str) -> dict[str, Any]:
        own = self.__dict__
        return {name: own[name] for name, its in self._members.items() if its == kind}

    @property
    def _parameters(self) -> dict[str, Parameter | None]:
        return self._of_kind(PARAMETER)

    @property
    def _buffers(self) -> dict[str, Tensor | None]:
        return self._of_kind(BUFFER)

    @property
    def _modules(self) -> dict[str, Any]:
        return self._of_kind(MODULE)

    # --- walking the tree ---------------------------------------------------------------------

    def named_modules(
        self, memo: set[Any] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Any]]:
        """This module and all below it, each once, with dotted names."""
        seen: set[Any] = set() if memo is None else memo
        if self in seen:
            return
        if remove_duplicate:
            seen.add(self)
        yield prefix, self
        for name, child in self._modules.items():
            if child is not None:
                below = f"{prefix}.{name}" if prefix else name
                yield from child.named_modules(seen, below, remove_duplicate)

    def modules(self) -> Iterator[Any]:
        """This module and all below it, each once."""
        return (module for _, module in self.named_modules())

    def named_children(self) -> Iterator[tuple[str, Any]]:
        """The direct submodules, each once."""
        seen = set()
        for name, child in self._modules.items():
            if child is not None and child not in seen:
                seen.add(child)
                yield name, child

    def children(self) -> Iterator[Any]:
        """The direct submodules, each once."""
        return (child for _, child in self.named_children())

    def _named(
        self, kind: str, prefix: str, recurse: bool, remove_duplicate: bool
    ) -> Iterator[tuple[str, Any]]:
        seen: set[Any] = set()
        tree = self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate)
        for path, module in tree if recurse else [(prefix, self)]:
            for name, tensor in module._of_kind(kind).items():
                if tensor is None or tensor in seen:
                    continue
                if remove_duplicate:
                    seen.add(tensor)
                yield f"{path}.{name}" if path else name, tensor

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """The parameters of this module and of all below it, with dotted names."""
        return self._named(PARAMETER, prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """The parameters of this module and of all below it, each once."""
        return (parameter for _, parameter in self.named_parameters(recurse=recurse))

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """The buffers of this module and of all below it, with dotted names."""
        return self._named(BUFFER, prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """The buffers of this module and of all below it, each once."""
        return (buffer for _, buffer in self.named_buffers(recurse=recurse))

    def get_submodule(self, target: str) -> Any:
        """The module at a dotted path; "" is this one."""
        module: Any = self
        for name in target.split(".") if target else ():
            module = module._get_own(name, MODULE)
        return module

    def get_parameter(self, target: str) -> Parameter:
        """The parameter at a dotted path."""
        path, _, name = target.rpartition(".")
        found: Parameter = self.get_submodule(path)._get_own(name, PARAMETER)
        return found

    def get_buffer(self, target: str) -> Tensor:
        """The buffer at a dotted path."""
        path, _, name = target.rpartition(".")
        found: Tensor = self.get_submodule(path)._get_own(name, BUFFER)
        return found

    def _get_own(self, name: str, kind: str) -> Any:
        if self._members.get(name) != kind:
            raise AttributeError(f"{type(self).__name__} has no {kind} {name!r}")
        return self.__dict__[name]

    def apply(self: T, fn: Callable[[Any], Any]) -> T:
        """Call `fn` with each submodule, children first, and at last with this module."""
        for child in self.children():
            child.apply(fn)
        fn(self)
        return self


#: What may be assigned to a member of each kind, and what to do otherwise.
_EXPECTED: dict[str, tuple[type, str]] = {
    PARAMETER: (Parameter, "assign nn.Parameter(tensor); `del self.{name}` makes it free"),
    BUFFER: (Tensor, "assign a tensor; `del self.{name}` makes the name free"),
    MODULE: (Members, "assign a module; `del self.{name}` makes the name free"),
}
