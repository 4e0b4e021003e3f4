"""Machine code that combines two arrays, element by element: the sums of `shared_code.py`."""

from __future__ import annotations

__all__ = ["combine_text"]

#: Vectors, then what is left, element by element: LLVM makes no vectors of loops here.
_COMBINE = """
define void @weft_combine(ptr %out, ptr %a, ptr %b, i64 %n) nounwind {{
entry:
  %whole = and i64 %n, -{lanes}
  %any = icmp sgt i64 %whole, 0
  br i1 %any, label %body, label %rest
{vectors}
rest:
  %some = icmp slt i64 %whole, %n
  br i1 %some, label %last, label %end
{singles}
end:
  ret void
}}
"""
_LOOP = """
{label}:
  %{p}i = phi i64 [ {start}, %{before} ], [ %{p}next, %{label} ]
  %{p}a = getelementptr {t}, ptr %a, i64 %{p}i
  %{p}b = getelementptr {t}, ptr %b, i64 %{p}i
  %{p}out = getelementptr {t}, ptr %out, i64 %{p}i
  %{p}x = load {kind}, ptr %{p}a, align {align}
  %{p}y = load {kind}, ptr %{p}b, align {align}
{lines}
  store {kind} %{p}z, ptr %{p}out, align {align}
  %{p}next = add nuw nsw i64 %{p}i, {lanes}
  %{p}more = icmp slt i64 %{p}next, {stop}
  br i1 %{p}more, label %{label}, label %{after}
"""
#: Bytes of a vector.
_VECTOR = 64
#: What is larger or smaller: a comparison of floats holds too where the first operand is NaN.
_EXTREMES = {"max": ("ogt", "sgt", "ugt"), "min": ("olt", "slt", "ult")}


def combine_text(op: str, family: str, itemsize: int) -> str:
    """`@weft_combine(out, a, b, n)`: two arrays as one; `out` may be `a`. `family`: "float", "int"
    or "uint"."""
    t = f"i{8 * itemsize}"
    if family == "float":
        t = "double" if itemsize == 8 else "float"
    lanes = _VECTOR // itemsize

    def loop(kind: str, lanes: int, p: str, **words: str) -> str:
        lines = "\n".join(f"  {line}" for line in _combined(op, family, kind, p))
        lines = lines.replace("BITS", "i1" if lanes == 1 else f"<{lanes} x i1>")
        return _LOOP.format(p=p, t=t, kind=kind, lanes=lanes, align=itemsize, lines=lines, **words)

    vectors = loop(
        f"<{lanes} x {t}>",
        lanes,
        p="v.",
        label="body",
        before="entry",
        start="0",
        stop="%whole",
        after="rest",
    )
    singles = loop(
        t, 1, p="s.", label="last", before="rest", start="%whole", stop="%n", after="end"
    )
    return _COMBINE.format(lanes=lanes, vectors=vectors, singles=singles)


def _combined(op: str, family: str, kind: str, p: str) -> list[str]:
    """The instructions that compute z of x and y."""
    floats = family == "float"
    if op not in _EXTREMES:
        word = {"sum": "add", "prod": "mul"}[op]
        return [f"%{p}z = {'f' if floats else ''}{word} {kind} %{p}x, %{p}y"]
    word = _EXTREMES[op][("float", "int", "uint").index(family)]
    choose = f"%{p}z = select BITS %{p}first, {kind} %{p}x, {kind} %{p}y"
    if not floats:
        return [f"%{p}first = icmp {word} {kind} %{p}x, %{p}y", choose]
    return [  # NaN if one of them is
        f"%{p}larger = fcmp {word} {kind} %{p}x, %{p}y",
        f"%{p}nan = fcmp uno {kind} %{p}x, %{p}x",
        f"%{p}first = or BITS %{p}larger, %{p}nan",
        choose,
    ]
