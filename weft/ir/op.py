"""The Op card: everything about one operator, in one place.

A card is data. It is read by the type checker (`infer`), by eager mode (`eval`, through the
kernel tables of `weft.ir.dispatch`), by autograd (`vjp`), by `vmap` (`batch`), by passes and the
scheduler (`traits`, `cost`), and by the completeness test, which names what a card lacks.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from dataclasses import field
from enum import Flag, auto
from functools import reduce
from typing import Any

from weft.base.dataclass import dataclass
from weft.base.dim_algebra import dim_max
from weft.base.parameters import NAMED, REST, parameters_of
from weft.ir.dispatch import Evaluation, KernelTables
from weft.ir.types import TensorType


class Trait(Flag):
    """What passes and engines may assume of an op."""

    NONE = 0
    ELEMENTWISE = auto()  # inputs broadcast; out[i] depends on in[i] only
    REDUCTION = auto()  # folds the axes of attribute `axis`
    COMMUTATIVE = auto()  # f(x, y) = f(y, x)
    LINEAR = auto()  # linear in each floating input
    JOINT = auto()  # linear in all floating inputs together: each fills elements of its own
    VIEW = auto()  # only selects and reorders elements: no arithmetic
    ALIAS = auto()  # the result has the elements of the first input, in the same places
    PRODUCT = auto()  # sums of products: of matrices, or a convolution
    COMPOSITE = auto()  # its evaluation calls other ops; machine code is made from these
    WIDEN = auto()  # narrow floats are computed in float32 and rounded once
    RANDOM = auto()  # never merged with an equal call
    DATA_SHAPE = auto()  # the result's shape depends on values
    ANYWHERE = auto()  # its evaluation uses no namespace: it runs on every device
    CREATION = auto()  # no inputs: attributes `dtype` and `device` choose the kernel
    EFFECT = auto()  # has an effect: its first operand and result are tokens; never dropped
    STACK = auto()  # has stacks as operands or results: evaluated as (run, *values)
    BRANCH = auto()  # runs one of its nested graphs, once
    LOOP = auto()  # runs the last of its nested graphs repeatedly
    PYTHON = auto()  # calls a Python function, which the text of a graph cannot express
    NEEDS_ELEMENTS = auto()  # fails if an axis that it reduces is empty
    COUNTS = auto()  # its integers are steps of counters, or checked against overflow
    CONDITIONAL = auto()  # the gradient of the last input is there only where the first holds
    COLLECTIVE = auto()  # all ranks of a group call it together: it stays where it is
    BUNDLED = auto()  # COLLECTIVE, element by element: calls on many tensors may be one on all
    OTHER_DTYPE = auto()  # elementwise, but the result may have another dtype


@dataclass(frozen=True, slots=True)
class Cost:
    """An estimate of the work of one call."""

    flops: int
    bytes: int


Types = tuple[TensorType, ...]
TypeRule = Callable[..., Any]  # (*types, **attrs) -> TensorType, or a tuple of them
#: (xp, g, out, *inputs, **attrs) -> cotangent of one input. `xp` is the namespace of the values:
#: NumPy for raw arrays, Weft for Tensors and symbolic values.
DerivativeRule = Callable[..., Any]

#: Ops with one of these traits have a result for all values of their operands, unless the card
#: says `may_fail`.
NEVER_FAILS = Trait.ELEMENTWISE | Trait.REDUCTION | Trait.VIEW | Trait.CREATION | Trait.PRODUCT
_ASKED = [
    (trait.name.lower(), trait.value)
    for trait in (
        *(Trait.ELEMENTWISE, Trait.REDUCTION, Trait.COMMUTATIVE, Trait.VIEW, Trait.ALIAS),
        *(Trait.CREATION, Trait.COMPOSITE, Trait.EFFECT, Trait.BRANCH, Trait.LOOP),
        *(Trait.RANDOM, Trait.DATA_SHAPE, Trait.COLLECTIVE),
    )
    if trait.name
]
#: Up to this, an elementwise op costs no more than reading its operands.
MOST_CHEAP_CYCLES = 2.0

OPS: dict[str, Op] = {}
#: Cards that programs do not call: only the schedule makes such nodes. Their text reads back, too.
SCHEDULED: dict[str, Op] = {}
#: Modules with cards that few programs need: imported when a name is met that no card has yet.
_LATER: list[str] = []


def use_later_cards(*modules: str) -> None:
    """Look for unknown cards in these modules, too."""
    _LATER.extend(modules)


def card(name: str) -> Op | None:
    """The card of an op, by name."""
    if name not in OPS and name not in SCHEDULED:
        for module in _LATER:
            importlib.import_module(module)
    return OPS.get(name) or SCHEDULED.get(name)


@dataclass(eq=False, slots=True)
class Op:
    """The card of one primitive operator.

    infer   the type rule: operand types and attributes -> result type(s), or an error
    eval    the reference evaluation: (xp, *arrays, **attrs) -> array(s), written against the Array
            API namespace `xp`; or the name of a function of `xp`; or a dictionary of these by kind
            of dtype, with "" for all other kinds
    numpy   the same as a function of NumPy arrays, if that is faster than going through `xp`
    in_place  (x, *rest, **attrs) -> None: writes the result into the NumPy array x
    kinds   the kinds of dtype ("numeric", "floating"…) that operand `dispatch_on` may have
    vjp     one derivative rule per input; None if the input has no gradient. Only the rules that
            are needed run, and only what they use is kept alive: parameters that a rule does not
            use start with an underscore, and those of which it only reads shape and dtype end in
            `_type`. The rule of a variadic input takes the number of the input first. With several
            results, g and out are tuples (parts of g may be None). ELEMENTWISE rules ignore
            broadcasting: the engine sums the cotangent to the input's shape. Without any rules,
            backward through the op is an error.
    batch   the batching rule, (op, size, mapped, inputs, attrs) -> result(s): see
            `weft.ops.batching`; ELEMENTWISE ops need none
    cost    (input types, output types, **attrs) -> Cost; None: one operation per element
    cycles  for an elementwise op: the time for one element, where an addition takes 1
    may_fail  whether a call can fail on values that its types allow, such as an index out of
            range; None: see `NEVER_FAILS`. What cannot fail may run speculatively.
    listed  if False, the card is in `SCHEDULED`, not in `OPS`
    flow    what a primitive of control flow does with frames, one of `weft.ir.contexts.FLOWS`
    ways    (input types, output types, **attrs) -> the ways to divide a call over ranks, see
            `weft.ir.ways`; None: those that follow from its traits
    terms   sets of operands: where those of a set are sums, of which each rank has a term, calls on
            the terms give terms of the results; None: as LINEAR or JOINT says
    local_attrs  (attrs, types, types of the parts) -> the attributes that differ where a call runs
            on parts; types of operands, then results. None: `shape` is that of the result

    Facts that few cards have:

    autocast  what `weft.autocast` does to floating operands: "lower" takes them to its dtype,
            "float32" widens narrow ones; "" leaves them as they are
    swap_rounds  kinds of dtype for which f(x, y) and f(y, x) of a COMMUTATIVE op may differ in
            rounding or in the sign of a zero
    keeps_one  kinds of dtype for which a REDUCTION of one element gives exactly this element
    scatters  for a VIEW: (**attrs) -> whether its elements are not contiguous and in order. A VIEW
            without this rule is an ALIAS or a reshape: it keeps the order of elements.
    graph_names  the names of its nested graphs
    says    what an op with an EFFECT does, in words, for `weft.explain`
    short   its name in a backward, if that is not the name of the op: "Mul" in MulBackward

    An op of control flow has nested graphs: its type rule takes them as `graphs`, and so does its
    evaluation, together with the function that runs a graph: (run, *arrays, graphs, **attrs).
    """

    name: str
    infer: TypeRule
    eval: Evaluation
    numpy: Callable[..., Any] | None = None
    in_place: Callable[..., None] | None = None
    kinds: str = "all"
    traits: Trait = Trait.NONE
    outputs: int = 1
    dispatch_on: int = 0
    vjp: tuple[DerivativeRule | None, ...] | None = None
    batch: Callable[..., Any] | None = None
    cost: Callable[..., Cost] | None = None
    cycles: float = 1.0
    may_fail: bool | None = None
    listed: bool = True
    autocast: str = ""
    swap_rounds: str = ""
    keeps_one: str = ""
    scatters: Callable[..., bool] | None = None
    graph_names: tuple[str, ...] = ()
    says: str = ""
    short: str = ""
    flow: str = ""
    ways: Callable[..., Iterable[Any]] | None = None
    terms: tuple[tuple[int, ...], ...] | None = None
    local_attrs: Callable[..., dict[str, Any]] | None = None
    inputs: tuple[str, ...] = field(init=False)
    variadic: bool = field(init=False)  # the last of `inputs` may be any number of operands
    # Traits that are tested for each node of a graph: testing a Flag takes 40 times as long.
    elementwise: bool = field(init=False)
    reduction: bool = field(init=False)
    commutative: bool = field(init=False)
    view: bool = field(init=False)
    alias: bool = field(init=False)
    creation: bool = field(init=False)
    composite: bool = field(init=False)
    effect: bool = field(init=False)
    random: bool = field(init=False)
    branch: bool = field(init=False)
    loop: bool = field(init=False)
    data_shape: bool = field(init=False)
    collective: bool = field(init=False)
    cheap: bool = field(init=False)  # elementwise, and costs no more than reading its operands
    plans: dict[Any, Any] = field(init=False, repr=False)  # see weft.autodiff.save_plan
    attrs: tuple[str, ...] = field(init=False)
    nested: bool = field(init=False)  # whether it has nested graphs
    kernels: KernelTables = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.name in OPS:
            raise ValueError(f"there is already an op named {self.name!r}")
        parameters = parameters_of(self.infer)
        self.variadic = any(p.kind == REST for p in parameters)
        self.inputs = tuple([p.name for p in parameters if p.kind != NAMED])
        named = [p.name for p in parameters if p.kind == NAMED]
        self.nested = "graphs" in named
        self.attrs = tuple(name for name in named if name != "graphs")
        traits = self.traits.value
        for name, flag in _ASKED:
            setattr(self, name, bool(traits & flag))
        self.cheap = self.elementwise and self.cycles <= MOST_CHEAP_CYCLES
        if self.may_fail is None:
            self.may_fail = not self.traits & NEVER_FAILS
        self.plans = {}
        self.kernels = KernelTables(
            self.name,
            self.eval,
            self.numpy,
            self.kinds,
            widen=Trait.WIDEN in self.traits,
            anywhere=Trait.ANYWHERE in self.traits,
        )
        (OPS if self.listed else SCHEDULED)[self.name] = self

    def estimate(self, inputs: Types, outputs: Types, **attrs: Any) -> Cost:
        """Flops and bytes moved by one call on operands of these types."""
        if self.cost is not None:
            return self.cost(inputs, outputs, **attrs)
        moved = sum(t.nbytes for t in inputs) + sum(t.nbytes for t in outputs)
        if Trait.VIEW in self.traits:
            return Cost(0, 0)
        work = inputs if Trait.REDUCTION in self.traits else outputs
        return Cost(reduce(dim_max, (t.size for t in work), 0), moved)

    def __repr__(self) -> str:
        return f"<op {self.name}({', '.join(self.inputs)}; {', '.join(self.attrs)})>"
