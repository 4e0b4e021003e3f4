"""sort and argsort: stable, NaN last.

The values of a row become unsigned integers in the order that is asked for, each with its position
behind it: a pair is one integer, no two are equal, and one routine serves all dtypes of a size.
Short rows are sorted by insertion, long ones byte by byte (a radix sort, which is stable). The
values are then read anew by their positions, so that -0.0 and the bits of NaNs stay what they are.
"""

from __future__ import annotations

from weft.codegen.cancel import asks, end_where_asked, long_loop, takes_long
from weft.codegen.indexing.access import element, words
from weft.codegen.kernel import PARAMS, Kernel, argument
from weft.codegen.sorting.keys import has_keys, load_key
from weft.codegen.sorting.layout import Axis, axis_of
from weft.codegen.text import Function, Module
from weft.ir.graph import Node

__all__ = ["argsort", "sort"]

_SHORT = 48  # rows up to this length are sorted by insertion
_GROUPS = 32  # items at most: each has memory of its own for one row after the other


def sort(module: Module, name: str, node: Node) -> list[Kernel] | None:
    return _sorted(module, name, node, positions=False)


def argsort(module: Module, name: str, node: Node) -> list[Kernel] | None:
    return _sorted(module, name, node, positions=True)


def _sorted(module: Module, name: str, node: Node, *, positions: bool) -> list[Kernel] | None:
    x = node.inputs[0].tensor_type
    dtype, size = x.dtype, x.dtype.itemsize
    axis = axis_of(x.shape, node.attrs["axis"]) if x.shape else Axis(1, 1, 1)
    if not has_keys(dtype) or axis.length >= 2**31:
        return None
    rows = axis.outer * axis.inner if axis.length else 0
    pair = "i128" if size == 8 else "i64"
    pair_size = 16 if size == 8 else 8
    items = min(rows, _GROUPS)
    room = -(-axis.length * pair_size // 64) * 64
    f = module.function(name, "i32", PARAMS)
    source, out, scratch = (argument(f, i) for i in range(3))
    per_element = 6.0 if axis.length <= _SHORT else 3.0 + 2.5 * size
    each = axis.length * per_element
    cost = each * rows / max(items, 1)
    asking = asks(f, 3, cost)
    run = asking if takes_long(each) else None  # where a row takes long, it asks itself
    between = asking if run is None else None
    with f.loop("%begin", "%end") as item:
        pairs = element(f, scratch, f(f"mul i64 {item}, {2 * room}"), 1)
        spare = element(f, pairs, str(room), 1)
        first = f(f"udiv i64 {f(f'mul i64 {item}, {rows}')}, {max(items, 1)}")
        after = f(f"mul i64 {f(f'add i64 {item}, 1')}, {rows}")
        last = f(f"udiv i64 {after}, {max(items, 1)}")
        with long_loop(f, between, first, last, each=each) as row:
            start = axis.row_start(f, row)
            with long_loop(f, run, "0", str(axis.length)) as k:
                place = _at(f, start, k, axis)
                key = load_key(f, dtype, source, place, node.attrs["descending"])
                key ^= -(1 << (8 * size - 1))  # unsigned, in the same order
                half = 8 * pair_size // 2
                high = f(f"shl {pair} {key.convert('zext', pair)}, {half}")
                low = k if pair == "i64" else f(f"zext i64 {k} to {pair}")
                both = f(f"or {pair} {high}, {low}")
                f.do(f"store {pair} {both}, ptr {element(f, pairs, k, pair_size)}, align 8")
            ordered = pairs
            if axis.length <= _SHORT:
                module.once(f"weft.insertion.{pair}", lambda m: _add_insertion(m, pair))
                f.do(f"call void @weft.insertion.{pair}(ptr {pairs}, i64 {axis.length})")
            else:
                radix = f"weft.radix.{pair}{'.long' if run else ''}"
                module.once(radix, lambda m: _add_radix(m, radix, pair))
                given = f"ptr {pairs}, ptr {spare}, i64 {axis.length}, i64 {size}"
                ordered = f(f"call ptr @{radix}({given}, ptr {run or 'null'})")
                if run is not None:
                    with f.when(f(f"icmp eq ptr {ordered}, null")):
                        end_where_asked(f, run)
            with long_loop(f, run, "0", str(axis.length)) as k:
                low = f(f"load {words(pair_size // 2)}, ptr {element(f, ordered, k, pair_size)}")
                at = low if pair == "i128" else f(f"zext i32 {low} to i64")
                if positions:
                    to = element(f, out, _at(f, start, k, axis), 8)
                    f.do(f"store i64 {at}, ptr {to}, align 8")
                else:
                    origin = element(f, source, _at(f, start, at, axis), size)
                    value = f(f"load {words(size)}, ptr {origin}, align {size}")
                    to = element(f, out, _at(f, start, k, axis), size)
                    f.do(f"store {words(size)} {value}, ptr {to}, align {size}")
    f.do("ret i32 0")
    return [Kernel(name, items, cost, items * 2 * room, stops=asking is not None)]


def _at(f: Function, start: str, k: str, axis: Axis) -> str:
    step = k if axis.inner == 1 else f(f"mul i64 {k}, {axis.inner}")
    return f(f"add i64 {start}, {step}")


# --- routines over pairs -------------------------------------------------------------------------


def _add_insertion(module: Module, pair: str) -> None:
    params = [("ptr", "pairs"), ("i64", "n")]
    f = module.function(f"weft.insertion.{pair}", "void", params, "nounwind noinline")
    size = 16 if pair == "i128" else 8
    hole = f.var("i64")
    with f.loop("1", "%n") as i:
        new = f(f"load {pair}, ptr {element(f, '%pairs', i, size)}, align 8")
        f.set("i64", hole, i)
        head, look, move, end = (f.fresh(word) for word in ("head", "look", "move", "end"))
        f.jump(head)
        f.block(head)
        at = f.get("i64", hole)
        f.branch(f(f"icmp sgt i64 {at}, 0"), look, end)
        f.block(look)
        before = f(f"sub i64 {at}, 1")
        old = f(f"load {pair}, ptr {element(f, '%pairs', before, size)}, align 8")
        f.branch(f(f"icmp ult {pair} {new}, {old}"), move, end)
        f.block(move)
        f.do(f"store {pair} {old}, ptr {element(f, '%pairs', at, size)}, align 8")
        f.set("i64", hole, before)
        f.jump(head)
        f.block(end)
        place = element(f, "%pairs", f.get("i64", hole), size)
        f.do(f"store {pair} {new}, ptr {place}, align 8")
    f.do("ret void")


def _add_radix(module: Module, name: str, pair: str) -> None:
    """Sorts by the upper halves of pairs, from their lowest byte up; gives where they then are, or
    null where the run shall end."""
    params = [("ptr", "pairs"), ("ptr", "spare"), ("i64", "n"), ("i64", "bytes"), ("ptr", "run")]
    f = module.function(name, "ptr", params, "nounwind noinline")
    run = "%run" if name.endswith(".long") else None
    size = 16 if pair == "i128" else 8
    counts = f.var("i64", count=256, align=64)
    source, target = f.var("ptr", "%pairs"), f.var("ptr", "%spare")
    most, total = f.var("i64"), f.var("i64")

    def count_of(digit: str) -> str:
        return f(f"getelementptr i64, ptr {counts}, i64 {digit}")

    with f.loop("0", "%bytes") as byte:
        given, to = f.get("ptr", source), f.get("ptr", target)
        digits = element(f, given, f(f"add i64 {byte}, {size // 2}"), 1)
        with f.loop("0", "256") as i:
            f.do(f"store i64 0, ptr {count_of(i)}")
        with long_loop(f, run, "0", "%n", result="ptr null") as i:
            digit = f(f"load i8, ptr {element(f, digits, i, size)}")
            place = count_of(f(f"zext i8 {digit} to i64"))
            old = f(f"load i64, ptr {place}")
            f.do(f"store i64 {f(f'add i64 {old}, 1')}, ptr {place}")
        f.set("i64", most, "0")
        f.set("i64", total, "0")
        with f.loop("0", "256") as i:
            here = f(f"load i64, ptr {count_of(i)}")
            so_far = f.get("i64", total)
            f.do(f"store i64 {so_far}, ptr {count_of(i)}")
            f.set("i64", total, f(f"add i64 {so_far}, {here}"))
            old = f.get("i64", most)
            larger = f(f"icmp ugt i64 {here}, {old}")
            f.set("i64", most, f(f"select i1 {larger}, i64 {here}, i64 {old}"))
        # Where all have the same byte, they are in order of it.
        with f.when(f(f"icmp ult i64 {f.get('i64', most)}, %n")):
            with long_loop(f, run, "0", "%n", result="ptr null") as i:
                digit = f(f"load i8, ptr {element(f, digits, i, size)}")
                value = f(f"load {pair}, ptr {element(f, given, i, size)}, align 8")
                place = count_of(f(f"zext i8 {digit} to i64"))
                at = f(f"load i64, ptr {place}")
                f.do(f"store {pair} {value}, ptr {element(f, to, at, size)}, align 8")
                f.do(f"store i64 {f(f'add i64 {at}, 1')}, ptr {place}")
            f.set("ptr", source, to)
            f.set("ptr", target, given)
    f.do(f"ret ptr {f.get('ptr', source)}")
