"""What a GPU has instructions of its own for: a table with the meaning of each on a CPU.

    products of tiles      the 32 threads of a warp multiply 16 × 16 by 16 × 8 elements, which they
                           hold in registers together (`mma.sync`)
    fragments              a warp reads four 8 × 8 tiles of shared memory, turned or not
    copies                 from global to shared memory, while the threads go on
    exchanges              a thread reads the register of another one of its warp

On a GPU a primitive is an intrinsic of LLVM's NVPTX target. In the emulation it is a function in
plain IR, which does the same for the threads of a block that take turns: what threads exchange goes
through the memory that they share. All threads of a block must call primitives equally often.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from weft.base.dtypes import DType, bfloat16, float16, float32
from weft.codegen.cuda.builder import EMULATED, EXCHANGE, KernelBuilder
from weft.codegen.elementwise import emit, literal, load, memory_type, store
from weft.codegen.index import Index, Ptr
from weft.codegen.scalar.forms import rounded
from weft.codegen.scalar.vec import Vec
from weft.codegen.text import Function, Module

__all__ = ["LANES", "PRIMITIVES", "Device", "Primitive"]

#: Threads of a warp.
LANES = 32
#: exp2(x) = exp(x * LN2)
LN2 = 0.6931471805599453
_FOUR = "{float, float, float, float}"
_TILES = "{i32, i32, i32, i32}"


@dataclass(frozen=True, slots=True)
class Primitive:
    """
    result    the type of the result of the intrinsic
    name      the intrinsic
    params    what it takes; "shared" and "global" are pointers
    body      writes the function of the emulation, given its parameters; it returns what the
              intrinsic does, but for pairs of narrow floats, which are an i32 there
    more      arguments of the intrinsic that are always the same
    """

    result: str
    name: str
    params: tuple[str, ...]
    body: Callable[[Function, Sequence[str]], None]
    more: str = ""


def _thread(f: Function) -> tuple[Index, Index]:
    """The number of the thread in its block, and in its warp."""
    thread = f.index("%thread")
    lane = thread % LANES
    assert isinstance(lane, Index)
    return thread, lane


def _room(f: Function, kind: str) -> Ptr:
    return f.ptr("%shared", kind).bytes(EXCHANGE)


def _wait(f: Function) -> None:
    f.do("call void %wait()")


def _return(f: Function, kind: str, element: str, parts: Sequence[str]) -> None:
    made = "poison"
    for place, part in enumerate(parts):
        made = f(f"insertvalue {kind} {made}, {element} {part}, {place}")
    f.do(f"ret {kind} {made}")


def _multiply(dtype: DType) -> Callable[[Function, Sequence[str]], None]:
    """A thread puts its elements where all see them, and computes its four of the result."""

    def body(f: Function, given: Sequence[str]) -> None:
        thread, lane = _thread(f)
        own = _room(f, "i32") + thread * 6
        for place, part in enumerate(given[:6]):
            (own + place).store(part)
        _wait(f)
        elements = _room(f, memory_type(dtype)) + (thread - lane) * 12
        row, column = lane // 4, lane % 4 * 2
        sums = []
        for place, start in enumerate(given[6:]):
            total = f.var("float", start)
            lower, right = divmod(place, 2)
            with f.loop(0, 16) as k:
                term, half = k % 8 // 2, k % 2
                left = (row * 4 + term) * 12 + (k // 8 * 4 + half + lower * 2)
                other = ((column + right) * 4 + term) * 12 + (k // 8 * 2 + half + 8)
                a, b = (load(f, dtype, elements + at, 1) for at in (left, other))
                total.store(f(f"fadd float {total.load()}, {f(f'fmul float {a}, {b}')}"))
            sums.append(total.load())
        _wait(f)
        _return(f, _FOUR, "float", sums)

    return body


def _tiles(*, turned: bool) -> Callable[[Function, Sequence[str]], None]:
    """Thread i says where row i % 8 of tile i / 8 lies."""

    def body(f: Function, given: Sequence[str]) -> None:
        thread, lane = _thread(f)
        room = _room(f, "ptr")
        (room + thread).store(given[0])
        _wait(f)
        first = thread - lane
        parts = []
        for tile in range(4):
            if not turned:
                row = (room + (first + lane // 4 + 8 * tile)).load_ptr("i32")
                parts.append((row + lane % 4).load())
                continue
            pair = []
            for half in range(2):
                row = (room + (first + lane % 4 * 2 + (8 * tile + half))).load_ptr("i16")
                pair.append(f(f"zext i16 {(row + lane // 4).load()} to i32"))
            parts.append(f(f"or i32 {pair[0]}, {f(f'shl i32 {pair[1]}, 16')}"))
        _wait(f)
        _return(f, _TILES, "i32", parts)

    return body


def _copy(size: int) -> Callable[[Function, Sequence[str]], None]:
    def body(f: Function, given: Sequence[str]) -> None:
        to, source, count = given
        kind = f"<{size // 4} x i32>"
        f.do(f"store {kind} zeroinitializer, ptr {to}, align 4")
        ends = [f(f"ptrtoint ptr {one} to i64") for one in (to, source)]
        past = f(f"and i64 {f(f'or i64 {ends[0]}, {ends[1]}')}, {size - 1}")
        with f.when(f(f"icmp ne i64 {past}, 0")):  # a GPU stops the kernel: NaN
            f.do(f"store {kind} splat (i32 -1), ptr {to}, align 4")
            f.do("ret void")
            f.block(f.fresh("never"))
        with f.when(f(f"icmp ne i32 {count}, 0")):
            f.do(f"store {kind} {f(f'load {kind}, ptr {source}, align 4')}, ptr {to}, align 4")
        f.do("ret void")

    return body


def _exchange(f: Function, given: Sequence[str]) -> None:
    thread, _ = _thread(f)
    value, step = given
    room = _room(f, "float")
    (room + thread).store(value)
    _wait(f)
    wide = f(f"zext i32 {step} to i64")
    found = (room + f.index(f(f"xor i64 {thread}, {wide}"))).load()
    _wait(f)
    f.do(f"ret float {found}")


def _exp2(f: Function, given: Sequence[str]) -> None:
    scaled = f(f"fmul float {given[0]}, {literal(float32, LN2, 1)}")
    made = emit(f, "exp", [(float32, scaled)], float32, 1, {})
    f.do(f"ret float {made}")


def _pack(dtype: DType) -> Callable[[Function, Sequence[str]], None]:
    def body(f: Function, given: Sequence[str]) -> None:
        room = f.var("i32")
        high, low = given
        for place, value in enumerate((low, high)):
            narrow = rounded(Vec(f, "float", 1, value), dtype).name
            store(f, dtype, room.of(memory_type(dtype)) + place, narrow, 1)
        f.do(f"ret i32 {room.load()}")

    return body


def _nothing(f: Function, _given: Sequence[str]) -> None:
    f.do("ret void")


_MMA, _LDMATRIX = "llvm.nvvm.mma.m16n8k16.row.col", "llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4"
_ASYNC = "llvm.nvvm.cp.async"
_COPIED = ("shared", "global", "i32")
PRIMITIVES: dict[str, Primitive] = {
    # Elements: 8 of the left tile and 4 of the right one, in pairs; 4 of what is added.
    "multiply.bfloat16": Primitive(
        _FOUR, f"{_MMA}.bf16", ("i32",) * 6 + ("float",) * 4, _multiply(bfloat16)
    ),
    "multiply.float16": Primitive(
        _FOUR, f"{_MMA}.f32.f32", ("<2 x half>",) * 6 + ("float",) * 4, _multiply(float16)
    ),
    "tiles": Primitive(_TILES, f"{_LDMATRIX}.b16.p3", ("shared",), _tiles(turned=False)),
    "tiles.turned": Primitive(
        _TILES, f"{_LDMATRIX}.trans.b16.p3", ("shared",), _tiles(turned=True)
    ),
    # To, from, and how many bytes of them are read: all or none; what is not read is 0.
    "copy.16": Primitive("void", f"{_ASYNC}.cg.shared.global.16.s", _COPIED, _copy(16)),
    "copy.8": Primitive("void", f"{_ASYNC}.ca.shared.global.8.s", _COPIED, _copy(8)),
    "wait for copies": Primitive("void", f"{_ASYNC}.wait.all", (), _nothing),
    # The number of the thread whose own differs in the bits of the second argument.
    "exchange": Primitive(
        "float", "llvm.nvvm.shfl.sync.bfly.f32", ("float", "i32"), _exchange, ", i32 31"
    ),
    "exp2": Primitive("float", "llvm.nvvm.ex2.approx.ftz.f", ("float",), _exp2),
    # Two float32, the second one comes first in memory.
    "pack.bfloat16": Primitive(
        "<2 x bfloat>", "llvm.nvvm.ff2bf16x2.rn", ("float",) * 2, _pack(bfloat16)
    ),
    "pack.float16": Primitive(
        "<2 x half>", "llvm.nvvm.ff2f16x2.rn", ("float",) * 2, _pack(float16)
    ),
}
_SPACES = {"shared": 3, "global": 1}


class Device:
    """Writes calls of primitives into a kernel."""

    def __init__(self, builder: KernelBuilder) -> None:
        self.builder = builder
        self.f = builder.f
        self.module: Module = builder.f.module

    def multiply(
        self, dtype: DType, left: Sequence[str], right: Sequence[str], more: Sequence[str]
    ) -> list[str]:
        """left · right + more, of a thread's elements."""
        return self._parts(self._call(f"multiply.{dtype.name}", *left, *right, *more), _FOUR)

    def tiles(self, at: Ptr, *, turned: bool) -> list[str]:
        name = "tiles.turned" if turned else "tiles"
        return self._parts(self._call(name, str(at)), _TILES)

    def copy(self, to: Ptr, source: Ptr, count: object, size: int = 16) -> None:
        """Start to copy `size` bytes, or to clear them where `count` is 0."""
        self._call(f"copy.{size}", str(to), str(source), str(count))

    def wait_for_copies(self) -> None:
        """Wait for those of this thread."""
        self._call("wait for copies")

    def exchange(self, value: str, step: int) -> str:
        return self._call("exchange", value, str(step))

    def exp2(self, value: str) -> str:
        return self._call("exp2", value)

    def pack(self, dtype: DType, low: str, high: str) -> str:
        """Two numbers as an i32, rounded to a narrow dtype."""
        return self._call(f"pack.{dtype.name}", high, low)

    def _parts(self, value: str, kind: str) -> list[str]:
        return [self.f(f"extractvalue {kind} {value}, {place}") for place in range(4)]

    def _call(self, name: str, *given: str) -> str:
        one, f = PRIMITIVES[name], self.f
        if self.builder.machine.emulated:
            kinds = [_plain(kind) for kind in one.params]
            own = self.module.once(f"emulated.{name}".replace(" ", "."), _made(name))
            more = [(kind, f"%{param}") for kind, param in EMULATED if param != "block"]
            pairs = [*zip(kinds, given, strict=True), *more]
            call = f"call {_plain(one.result)} @{own}({_listed(pairs)})"
        else:
            kinds = [_pointer(kind) for kind in one.params]
            values = [self._as(kind, value) for kind, value in zip(one.params, given, strict=True)]
            first, types = "", ", ".join(kinds)
            if one.more:  # an exchange: a mask of threads precedes, and their bits follow
                first, types = "i32 -1, ", ", ".join(["i32", *kinds, "i32"])
            result = self.module.declare(one.result, one.name, types)
            pairs = list(zip(kinds, values, strict=True))
            call = f"call {one.result} @{result}({first}{_listed(pairs)}{one.more})"
        if one.result == "void":
            f.do(call)
            return ""
        made = f(call)
        if not self.builder.machine.emulated and one.result.startswith("<"):
            return f(f"bitcast {one.result} {made} to i32")
        return made

    def _as(self, kind: str, value: str) -> str:
        if kind in _SPACES:
            return self.f(f"addrspacecast ptr {value} to {_pointer(kind)}")
        return self.f(f"bitcast i32 {value} to {kind}") if kind.startswith("<") else value


def _listed(pairs: Sequence[tuple[str, str]]) -> str:
    return ", ".join(f"{kind} {value}" for kind, value in pairs)


def _pointer(kind: str) -> str:
    return f"ptr addrspace({_SPACES[kind]})" if kind in _SPACES else kind


def _plain(kind: str) -> str:
    """The type of a parameter or a result in the emulation."""
    return "ptr" if kind in _SPACES else "i32" if kind.startswith("<") else kind


def _made(name: str) -> Callable[[Module], None]:
    def make(module: Module) -> None:
        one = PRIMITIVES[name]
        params = [(_plain(kind), f"p{place}") for place, kind in enumerate(one.params)]
        more = [pair for pair in EMULATED if pair[1] != "block"]
        own = f"emulated.{name}".replace(" ", ".")
        f = module.function(own, _plain(one.result), [*params, *more], "nounwind noinline")
        one.body(f, [f"%{param}" for _, param in params])

    return make
