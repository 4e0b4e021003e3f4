"""What a module is made of: parameters, buffers and submodules, and the walk over their tree.

A member is an ordinary attribute, as fast to read as any other; `_member_kinds` only notes, in
order, which attributes are members and of what kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Self, TypeVar

from weft.base.errors import DTypeError
from weft.core.structure import changed
from weft.core.tensor import Tensor
from weft.nn.parameter import Buffer, Parameter

PARAMETER, BUFFER, MODULE = "parameter", "buffer", "submodule"

T = TypeVar("T", bound="Members")


class Members:
    """A node of a tree of modules. Users derive from `Module`, not from this."""

    _member_kinds: dict[str, str]  # name -> kind, in the order of registration
    _transient_buffers: set[str]  # buffers that are no part of the state
    training: bool

    def __new__(cls, *_args: Any, **_kwargs: Any) -> Self:
        # Here, not in __init__: a subclass that forgets super().__init__() works too.
        self = super().__new__(cls)
        self.__dict__.update(
            training=True, _member_kinds={}, _transient_buffers=set(), _module_hooks=None
        )
        return self

    def __copy__(self: T) -> T:
        twin: T = type(self).__new__(type(self))
        twin.__dict__.update(
            self.__dict__,
            _member_kinds=dict(self._member_kinds),
            _transient_buffers=set(self._transient_buffers),
        )
        return twin

    # --- attributes ---------------------------------------------------------------------------

    def __setattr__(self, name: str, value: Any) -> None:
        had = self._member_kinds.get(name)
        if isinstance(value, Parameter):
            kind: str | None = PARAMETER
        elif isinstance(value, Members):
            kind = MODULE
        elif isinstance(value, Buffer):
            kind = BUFFER
        else:
            kind = had
        if kind is None:
            # Plain attributes count, too: a recorded forward may have read them.
            old = self.__dict__.get(name, self)
            object.__setattr__(self, name, value)
            if old is not value:
                changed()
        elif kind == had:
            _check(self, name, value, kind)
            if self.__dict__[name] is not value:
                self.__dict__[name] = value
                changed()
        else:
            _forget(self, name)
            self.__dict__.pop(name, None)  # a plain attribute, say None, makes way
            _register(self, name, value, kind)
            if isinstance(value, Buffer) and not value.persistent:
                self._transient_buffers.add(name)

    def __delattr__(self, name: str) -> None:
        object.__delattr__(self, name)
        if name in self._member_kinds:
            _forget(self, name)
        else:
            changed()

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Make `param` a parameter under a name; None keeps the place free."""
        _register(self, name, param, PARAMETER)

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Keep a tensor that is not learned; a persistent one is part of the state."""
        _register(self, name, tensor, BUFFER)
        if not persistent:
            self._transient_buffers.add(name)

    def add_module(self, name: str, module: Any) -> None:
        """Add a submodule under a name; None keeps the place free."""
        _register(self, name, module, MODULE)

    def register_module(self, name: str, module: Any) -> None:
        """The same as `add_module`."""
        _register(self, name, module, MODULE)

    @property
    def _parameters(self) -> dict[str, Parameter | None]:
        return _of_kind(self, PARAMETER)

    @property
    def _buffers(self) -> dict[str, Tensor | None]:
        return _of_kind(self, BUFFER)

    @property
    def _modules(self) -> dict[str, Any]:
        return _of_kind(self, MODULE)

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

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """The parameters of this module and of all below it, with dotted names."""
        return _named(self, PARAMETER, prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """The parameters of this module and of all below it, each once."""
        return (parameter for _, parameter in self.named_parameters(recurse=recurse))

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """The buffers of this module and of all below it, with dotted names."""
        return _named(self, BUFFER, prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """The buffers of this module and of all below it, each once."""
        return (buffer for _, buffer in self.named_buffers(recurse=recurse))

    def get_submodule(self, target: str) -> Any:
        """The module at a dotted path; "" is this one."""
        module: Any = self
        for name in target.split(".") if target else ():
            module = _own(module, name, MODULE)
        return module

    def get_parameter(self, target: str) -> Parameter:
        """The parameter at a dotted path."""
        path, _, name = target.rpartition(".")
        found: Parameter = _own(self.get_submodule(path), name, PARAMETER)
        return found

    def get_buffer(self, target: str) -> Tensor:
        """The buffer at a dotted path."""
        path, _, name = target.rpartition(".")
        found: Tensor = _own(self.get_submodule(path), name, BUFFER)
        return found

    def set_submodule(self, target: str, module: Any) -> None:
        """Put a module at a dotted path, in the place of another one."""
        path, _, name = target.rpartition(".")
        parent = self.get_submodule(path)
        if parent._member_kinds.get(name) != MODULE:
            raise AttributeError(f"{type(parent).__name__} has no submodule {name!r}")
        setattr(parent, name, module)

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


# Functions, not methods: a module of the user's may have methods of any name.


def _forget(module: Members, name: str) -> None:
    if module._member_kinds.pop(name, None) is not None:
        module._transient_buffers.discard(name)
        changed()


def _check(module: Members, name: str, value: Any, kind: str) -> None:
    expected, fix = _EXPECTED[kind]
    if value is not None and not isinstance(value, expected):
        raise DTypeError(
            f"{type(value).__name__} cannot be the {kind} {name!r} of {type(module).__name__}",
            hint=fix.format(name=name),
        )


def _register(module: Members, name: Any, value: Any, kind: str) -> None:
    if not isinstance(name, str) or not name or "." in name:
        raise DTypeError(f"{name!r} cannot be the name of a {kind}", hint="use a name, no dots")
    taken = name not in module._member_kinds and name in module.__dict__
    if taken or hasattr(type(module), name):
        raise KeyError(f"{type(module).__name__} already has an attribute {name!r}")
    _check(module, name, value, kind)
    module._transient_buffers.discard(name)
    module._member_kinds[name] = kind
    module.__dict__[name] = value
    changed()


def _of_kind(module: Members, kind: str) -> dict[str, Any]:
    own = module.__dict__
    return {name: own[name] for name, its in module._member_kinds.items() if its == kind}


def _named(
    module: Members, kind: str, prefix: str, recurse: bool, remove_duplicate: bool
) -> Iterator[tuple[str, Any]]:
    seen: set[Any] = set()
    tree = module.named_modules(prefix=prefix, remove_duplicate=remove_duplicate)
    for path, part in tree if recurse else [(prefix, module)]:
        for name, tensor in _of_kind(part, kind).items():
            if tensor is None or tensor in seen:
                continue
            if remove_duplicate:
                seen.add(tensor)
            yield f"{path}.{name}" if path else name, tensor


def _own(module: Members, name: str, kind: str) -> Any:
    if module._member_kinds.get(name) != kind:
        raise AttributeError(f"{type(module).__name__} has no {kind} {name!r}")
    return module.__dict__[name]
