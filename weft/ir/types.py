"""The types of values: everything that is known of them before they are computed."""

from __future__ import annotations

from weft.base.dataclass import dataclass
from weft.base.device import CPU, Device
from weft.base.dim_algebra import Dim
from weft.base.dtypes import DType
from weft.base.pytree import value_class
from weft.base.shapes import Shape, size_of
from weft.ir.cuts import Cuts

DENSE = "dense"


@value_class
@dataclass(frozen=True, slots=True)
class TensorType:
    """dtype, shape, device and layout. Prints as `f32[2,3]`.

    cuts    how it lies over a mesh; None: all of it on each rank. Type rules know nothing of cuts:
            they get types without, and give such; see `weft/passes/layouts`.
    """

    dtype: DType
    shape: Shape
    device: Device = CPU
    layout: str = DENSE
    cuts: Cuts | None = None

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return size_of(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    def like(self, *, dtype: DType | None = None, shape: Shape | None = None) -> TensorType:
        """This type with another dtype or shape."""
        return TensorType(
            self.dtype if dtype is None else dtype,
            self.shape if shape is None else shape,
            self.device,
            self.layout,
        )

    def cut(self, cuts: Cuts | None) -> TensorType:
        """This type with another layout over the mesh."""
        return TensorType(self.dtype, self.shape, self.device, self.layout, cuts or None)

    def __str__(self) -> str:
        place = "" if self.device == CPU else f"@{self.device}"
        layout = "" if self.layout == DENSE else f":{self.layout}"
        cuts = self.cuts
        shape = cuts.shape_text(self.shape) if cuts else f"[{','.join(map(str, self.shape))}]"
        return f"{self.dtype.short}{shape}{layout}{place}"


@dataclass(frozen=True, slots=True)
class TokenType:
    """The type of a token: it has no value, and only orders effects."""

    def __str__(self) -> str:
        return "token"


@dataclass(frozen=True, slots=True)
class StackType:
    """The type of a stack that grows and shrinks at its top. Prints as `stack<f32[3]>`.

    Loops push on stacks what their backward needs; how much that is depends on the run.
    """

    element: TensorType | StackType

    @property
    def innermost(self) -> TensorType:
        """The type of the tensors in it, or in its nested stacks."""
        element = self.element
        while isinstance(element, StackType):
            element = element.element
        return element

    @property
    def depth(self) -> int:
        """The number of nested stacks."""
        return 1 + (self.element.depth if isinstance(self.element, StackType) else 0)

    @property
    def device(self) -> Device:
        return self.innermost.device

    @property
    def layout(self) -> str:
        return self.innermost.layout

    def __str__(self) -> str:
        return f"stack<{self.element}>"


TOKEN = TokenType()
Type = TensorType | TokenType | StackType


def undivided(kind: Type) -> Type:
    """A type without its layout over a mesh, as type rules see it."""
    return kind.cut(None) if isinstance(kind, TensorType) and kind.cuts is not None else kind


def fits(one: Type, two: Type) -> bool:
    """Whether values of one type may be used where the other is expected.

    Stacks may differ in the names of sizes that depend on data: each element has its own sizes,
    and a graph that is recorded again gives them other names.
    """
    if one == two or not (isinstance(one, StackType) and isinstance(two, StackType)):
        return one == two
    a, b = one.innermost, two.innermost
    if one.depth != two.depth or a.ndim != b.ndim or a.like(shape=b.shape) != b:
        return False
    pairs = zip(a.shape, b.shape, strict=True)
    return all(m == n or (isinstance(m, Dim) and isinstance(n, Dim)) for m, n in pairs)
