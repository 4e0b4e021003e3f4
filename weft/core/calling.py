"""The ways in which a public function may be called, from its signature alone.

A function is written once, as the Array API has it: `sum(x, /, *, axis=None, keepdims=False)`. This
module makes of it the function that users call, which also takes

- the names that PyTorch and NumPy have for a parameter: `dim` for `axis` (`SPELLINGS`)
- parameters by position that the standard takes by keyword only: `sum(x, 0)` (`PLACED`)
- a shape as several numbers: `zeros(2, 3)`, `x.permute(0, 2, 1)` (`SPREAD`)
- `requires_grad`, for a function that makes tensors: one with the keywords `dtype` and `device`

Other functions are not changed. For these, a call costs about 40 ns more: a small function with the
parameters of the public call passes them on. It does more only if an argument has another name than
the function's parameter.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from inspect import Parameter, Signature, signature, unwrap
from types import CodeType, FunctionType
from typing import Any

from weft.base.errors import DTypeError
from weft.base.lazy import Lazy

difflib = Lazy("difflib")

#: What else a parameter may be called. The first one is shown in signatures.
SPELLINGS: dict[str, tuple[str, ...]] = {
    "axis": ("dim", "dims"),
    "axes": ("dims", "dim", "axis"),
    "start_axis": ("start_dim",),
    "end_axis": ("end_dim",),
    "keepdims": ("keepdim",),
    "shape": ("size",),
    "shift": ("shifts",),
    "repetitions": ("dims", "reps"),
    "ord": ("p",),
    "correction": ("unbiased", "ddof"),
    "k": ("diagonal",),
    "num": ("steps",),
    "split_size_or_sections": ("split_size",),
}
#: Keyword-only parameters that may be given by position, where no other keyword stands before them.
#: Signatures have them in the order of NumPy and PyTorch; where those two differ, one that is not
#: named here stands between.
PLACED = frozenset({"axis", "axes", "keepdims", "descending", "n", "s", "norm", "d", "ord", "k"})
#: Parameters that may be several numbers: the first one, or the first one after a tensor.
SPREAD = frozenset({"shape", "axes", "repetitions"})
_VALUES: dict[str, Callable[[Any], Any]] = {"unbiased": int}
_KEYWORDS = (Parameter.KEYWORD_ONLY,)
_POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
#: What other libraries have and values cannot: said instead of "unknown keyword".
_REFUSED = {
    "out": "a tensor is a value, so there is nothing to write into: y = {name}(...)",
    "inplace": "say x = {name}(x)",
    "input": "give the tensor first, without a name: {name}(x, ...)",
}


class Calling:
    """How one function may be called, from its signature; used for calls in another form."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.name = function.__name__
        self.signature = signature(function)
        parameters = self.parameters = self.signature.parameters
        self.spread = _spread(parameters)
        keywords = {name for name, p in parameters.items() if p.kind in _KEYWORDS}
        self.makes_tensors = {"dtype", "device"} <= keywords
        self.others = {
            other: own
            for own in parameters
            for other in (own, *SPELLINGS.get(own, ()))
            if other == own or other not in parameters
        }
        self.placed = _placed(parameters)
        self.required = _required(parameters, self.spread)

    @property
    def is_plain(self) -> bool:
        renamed = any(own in SPELLINGS for own in self.parameters)
        return not (renamed or self.placed or self.spread or self.makes_tensors)

    def shown(self) -> Signature:
        """The signature that help() shows: with the names that other libraries use."""
        shown = []
        for name, parameter in self.parameters.items():
            kind = Parameter.POSITIONAL_OR_KEYWORD if name in self.placed else parameter.kind
            shown.append(parameter.replace(kind=kind))
        for name, parameter in self.parameters.items():
            other = SPELLINGS.get(name, ("",))[0]
            named = parameter.kind is not Parameter.VAR_POSITIONAL and name != self.spread
            if named and parameter.default is not Parameter.empty and other in self.others:
                shown.append(_named(other, parameter))
        if self.makes_tensors and "requires_grad" not in self.parameters:
            shown.append(_flag("requires_grad", False))
        return self.signature.replace(parameters=shown)

    def several(self) -> Signature | None:
        """The signature of calls like zeros(2, 3); None where a call has no such form."""
        if not self.spread:
            return None
        shown = self.shown()
        parameters = []
        for name, parameter in shown.parameters.items():
            if name == self.spread:
                kind = Parameter.VAR_POSITIONAL
                parameter = Parameter(name, kind, annotation="int | Sequence[int]")
            parameters.append(parameter)
        return shown.replace(parameters=parameters)

    def code(self) -> CodeType:
        """The code of the function that users call."""
        first: list[str] = []
        plain: list[str] = []
        keywords: list[str] = []
        handed: list[str] = []
        rest = ""
        for name, parameter in self.parameters.items():
            has_default = parameter.default is not Parameter.empty or name in self.required
            declared = f"{name}=None" if has_default else name
            if name == self.spread or parameter.kind is Parameter.VAR_POSITIONAL:
                rest = f"*{name}"
                handed.append(f"{name}[0]" if name == self.spread else rest)
            elif parameter.kind in _POSITIONAL:
                (first if parameter.kind is Parameter.POSITIONAL_ONLY else plain).append(declared)
                handed.append(name)
            else:
                (plain if name in self.placed else keywords).append(declared)
                handed.append(f"{name}={name}")
        first += ["/"] * bool(first)
        head = [*first, *plain, *([rest or "*"] if rest or keywords else []), *keywords]
        doubts = [f"{name} is missing" for name in self.required]
        if self.spread:
            doubts.append(f"len({self.spread}) != 1")
        if "keepdims" in self.placed:
            doubts.append("keepdims.__class__ is not bool")
        values = ", ".join(f"{name!r}: {name}" for name in self.parameters)
        lines = [f"def call({', '.join(head)}, **names):", "    if names:"]
        for own, other in self.common_names().items():
            lines.append(f"        if {other!r} in names and {own} is {own}_default:")
            lines.append(f"            {own} = names.pop({other!r})")
        lines += ["        if names:", f"            return other({{{values}}}, names)"]
        if doubts:
            lines += [
                f"    if {' or '.join(doubts)}:",
                f"        return other({{{values}}}, names)",
            ]
        return _compiled("\n".join([*lines, f"    return function({', '.join(handed)})"]))

    def common_names(self) -> dict[str, str]:
        """Parameters with the name that PyTorch has for them: calls with it are plain, too."""
        return {
            own: SPELLINGS[own][0]
            for own, parameter in self.parameters.items()
            if own in SPELLINGS
            and own != self.spread
            and parameter.kind is not Parameter.VAR_POSITIONAL
            and self.others.get(SPELLINGS[own][0]) == own
            and SPELLINGS[own][0] not in _VALUES
        }

    def default(self, own: str) -> Any:
        """The default of a parameter."""
        return _MISSING if own in self.required else self.parameters[own].default

    def call(self, values: dict[str, Any], names: dict[str, Any]) -> Any:
        """A call with arguments that have other names, or that must be checked."""
        wants_grad = self.makes_tensors and names.pop("requires_grad", False)
        if self.spread:
            self._gather(values, names)
        for name, value in names.items():
            own = self.others.get(name)
            if own is None:
                raise self._unknown(name)
            if self._is_given(own, values[own]):
                raise DTypeError(
                    f"got both {own} and {name}", op=self.name, hint="they are one parameter"
                )
            values[own] = _VALUES.get(name, _as_it_is)(value)
        for name in self.required:
            if values[name] is _MISSING:
                raise DTypeError(f"{name} is missing", op=self.name)
        if "keepdims" in self.placed:
            self._check_flag(values["keepdims"])
        placed: list[Any] = []
        named = {}
        for name, parameter in self.parameters.items():
            if parameter.kind is Parameter.VAR_POSITIONAL:
                several = isinstance(values[name], (tuple, list))
                placed += values[name] if several else [values[name]]
            elif parameter.kind in _KEYWORDS:
                named[name] = values[name]
            else:
                placed.append(values[name])
        made = self.function(*placed, **named)
        if wants_grad:
            made.requires_grad = True
        return made

    def _is_given(self, own: str, value: Any) -> bool:
        parameter = self.parameters[own]
        if own == self.spread or own in self.required:
            return value is not _MISSING
        if parameter.kind is Parameter.VAR_POSITIONAL:
            return bool(value)
        return value is not parameter.default

    def _gather(self, values: dict[str, Any], names: dict[str, Any]) -> None:
        """One sequence of several numbers; none at all, where the shape has another name."""
        own = self.spread
        given = values[own]
        if not given:
            if not any(self.others.get(name) == own for name in names):
                raise DTypeError(f"{own} is missing", op=self.name, hint="give ints or a tuple")
            values[own] = _MISSING
        elif len(given) == 1:
            values[own] = given[0]
        elif all(map(_is_number, given)):
            values[own] = given
        else:
            listed = ", ".join(map(repr, given))
            raise DTypeError(
                f"{own} may be several ints or one tuple of them, not {listed}",
                op=self.name,
                hint=f"give what is no part of it by name: {self._keywords()}",
            )

    def _keywords(self) -> str:
        keywords = [name for name, p in self.parameters.items() if p.kind in _KEYWORDS]
        names = [name for name in keywords if name not in self.placed] or keywords
        return ", ".join(f"{name}=..." for name in names)

    def _check_flag(self, value: Any) -> None:
        if value.__class__ is bool or value.__class__.__name__ == "bool":  # NumPy's, too
            return
        raise DTypeError(
            f"keepdims must be True or False, not {value!r}",
            op=self.name,
            hint=f"give other arguments by name: {self._keywords()}",
        )

    def _unknown(self, name: str) -> DTypeError:
        known = [*self.others, *(("requires_grad",) if self.makes_tensors else ())]
        hint = _REFUSED.get(name, "").format(name=self.name)
        if not hint:
            near = difflib.get_close_matches(name, known, 1)
            takes = ", ".join(n for n, p in self.shown().parameters.items() if _has_name(p))
            hint = f"did you mean {near[0]}?" if near else f"{self.name} takes {takes}"
        return DTypeError(f"there is no argument {name!r}", op=self.name, hint=hint)


_MISSING: Any = object()


def callable_as(function: Callable[..., Any], calling: Calling) -> Callable[..., Any]:
    """The function that users call, for one that is written as the Array API has it."""
    if calling.is_plain or calling.function is not function:
        return function
    made: FunctionType = FunctionType(
        _first_call.__code__,
        {"compiled": lambda: _compile_call(made, calling), "__name__": function.__module__},
        function.__name__,
    )
    made.__doc__ = function.__doc__
    made.__qualname__ = function.__qualname__
    made.__annotations__ = function.__annotations__
    made.__wrapped__ = function  # type: ignore[attr-defined]
    made.__signature__ = calling.shown()  # type: ignore[attr-defined]
    made.calling = calling  # type: ignore[attr-defined]
    return made


def _first_call(*args: Any, **kwargs: Any) -> Any:
    """The code of a public function before its first call."""
    return compiled()(*args, **kwargs)  # type: ignore[name-defined]  # noqa: F821


def _compile_call(made: FunctionType, calling: Calling) -> FunctionType:
    """Give a public function its code: few programs call most of them."""
    positional = [p for n, p in calling.parameters.items() if _is_placed(calling, n, p)]
    keywords = [
        p for n, p in calling.parameters.items() if p.kind in _KEYWORDS and n not in calling.placed
    ]
    made.__globals__.update(
        {f"{own}_default": calling.default(own) for own in calling.common_names()},
        function=calling.function,
        other=calling.call,
        missing=_MISSING,
    )
    made.__kwdefaults__ = {p.name: p.default for p in keywords if p.default is not Parameter.empty}
    made.__defaults__ = tuple(
        calling.default(p.name)
        for p in positional
        if p.name in calling.required or p.default is not Parameter.empty
    )
    # Last: another thread may call it meanwhile, as it was.
    code = calling.code().replace(co_name=made.__name__, co_qualname=made.__qualname__)
    made.__code__ = code
    return made


def may_vary(function: Callable[..., Any]) -> bool:
    """Whether a function may have a parameter that calls can give in another form: a quick test."""
    code: CodeType | None = getattr(unwrap(function), "__code__", None)
    if code is None or hasattr(function, "calling"):
        return True
    names = {*code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]}
    return not names.isdisjoint(_VARYING) or {"dtype", "device"} <= names


_VARYING = {*SPELLINGS, *PLACED, *SPREAD}


def calling_of(function: Callable[..., Any]) -> Calling:
    """How a function is called, be it as it was written or as `callable_as` made it."""
    found: Calling | None = getattr(function, "calling", None)
    return found or Calling(function)


def _is_placed(calling: Calling, name: str, parameter: Parameter) -> bool:
    return name != calling.spread and (parameter.kind in _POSITIONAL or name in calling.placed)


def _placed(parameters: Any) -> tuple[str, ...]:
    """The keyword-only parameters that may be given by position."""
    if any(p.kind is Parameter.VAR_POSITIONAL for p in parameters.values()) or _spread(parameters):
        return ()
    found = []
    for name, parameter in parameters.items():
        if parameter.kind in _KEYWORDS:
            if name not in PLACED:
                break
            found.append(name)
    return tuple(found)


def _spread(parameters: Any) -> str:
    """The parameter that may be given as several numbers; "" for none."""
    positional = [p.name for p in parameters.values() if p.kind in _POSITIONAL]
    if len(positional) > 2 or not positional or positional[-1] not in SPREAD:
        return ""
    is_first = len(positional) == 1 or positional[0] == "x"
    return positional[-1] if is_first else ""


def _named(other: str, parameter: Parameter) -> Parameter:
    """A parameter as it is shown under another name."""
    if other == "unbiased":
        return _flag(other, bool(parameter.default))
    return parameter.replace(name=other, kind=Parameter.KEYWORD_ONLY)


def _flag(name: str, default: bool) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation="bool")


def _required(parameters: Any, spread: str) -> tuple[str, ...]:
    """Parameters without a default that may be given under another name, and those after them."""
    found: list[str] = []
    for name, parameter in parameters.items():
        if parameter.kind is Parameter.POSITIONAL_OR_KEYWORD and name != spread:
            needed = parameter.default is Parameter.empty
            if needed and (found or name in SPELLINGS):
                found.append(name)
    return tuple(found)


def _has_name(parameter: Parameter) -> bool:
    return parameter.kind in (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)


def _is_number(value: Any) -> bool:
    return hasattr(type(value), "__index__")


def _as_it_is(value: Any) -> Any:
    return value


@cache
def _compiled(text: str) -> CodeType:
    module = compile(text, __file__, "exec", dont_inherit=True)
    return next(part for part in module.co_consts if isinstance(part, CodeType))
