"""What the fuzzer found once, reduced: each case runs in every mode as eagerly."""

from __future__ import annotations

from typing import Any

import pytest
from found_programs import FIRST
from fuzzing.case import Argument, Case
from fuzzing.check import check

Y, VECTOR, MATRIX = Argument("y", ()), Argument("v", (4,)), Argument("q", (4, 3))


def graph(*body: str, given: tuple[Argument, ...], transform: str = "none") -> Case:
    return Case("graph", 0, body, given, transform=transform, calls=(0, 1, 2))


#: Graphs: what was wrong, and the case.
GRAPHS = {
    "a write of one value by a mask, under vmap": graph(
        "t = v * 1", "t[t > 0] = y", "return (t,)", given=(VECTOR, Y), transform="vmap"
    ),
    "a reshape of a repeated tensor without elements, before a product": Case(
        "graph",
        0,
        ("return (weft.vecdot(t, weft.broadcast_to(v.mean(), (1, 0, 2, 2))),)",),
        (VECTOR, Argument("t", (1, 1, 0, 2, 2))),
        optimized=False,
    ),
    "a write of one row by a mask of rows, under grad(vmap)": graph(
        "t = q * 1",
        "t[v > 0] = q[0] * y",
        "return (t,)",
        given=(VECTOR, MATRIX, Y),
        transform="grad(vmap)",
    ),
}


def program(*body: str, transform: str = "none", **how: Any) -> Case:
    given = (*FIRST[:2], Argument("q", (3, 3)), *FIRST[2:])
    return Case("program", 0, body, given, transform=transform, calls=(0, 1, 2), **how)


ONE, NUMBER = Argument("v", (1,), "float64"), Argument("k", (), "int64", below=4)

#: Reduced programs: what was wrong, and the case.
REDUCED = {
    "elements by a mask, recorded for their number": Case(
        "program", 0, ("b = v[v > 1.29]", "return (b,)"), (ONE,), calls=(520, 521, 522)
    ),
    "a write by a mask, recorded for the number of its elements": Case(
        "program", 0, ("w = v * 0.5", "w[w > 0.94] *= 0.5", "return (w,)"), (ONE,), calls=(244, 245)
    ),
    "stacks of a loop with sizes that data decide": Case(
        "program",
        0,
        ("for c1 in range(2):", "    b = v[:k].sum()", "v = stepped(q, x)", "return (b,)"),
        (Argument("x", (), "float64"), ONE, Argument("q", (1, 1), "float64"), NUMBER),
        transform="grad",
        calls=(82,),
    ),
    "the verifier of plans knew no sizes that data had decided before": program(
        "w = v * 0.5",
        "w[w > 0.2] *= 0.5",
        "b = v[:k]",
        "return (w, b)",
    ),
    "the square of a residual that is 0, of elements of a list": program(
        "items = [x * 1.0]",
        "for c in range(3):",
        "    items.append(weft.tanh(items[-1] * x))",
        "return (items[1] * items[3],)",
        transform="minimum",
    ),
    "a third derivative of a loop whose first iteration has an infinite slope": program(
        "a = x * 1.0",
        "for c in range(3):",
        "    a = weft.sqrt(weft.abs(x) * c)",
        "return (a,)",
        transform="grad(jacrev(jacrev))",
    ),
    "a Hessian of a branch that saves values of a size that the data decides": program(
        "b = v.sum()",
        "w = v * 0.5",
        "w[-1] += x",
        "if x > 0.3:",
        "    x = weft.tanh(x)",
        "else:",
        "    b = w[:k].sum()",
        "return (x, b)",
        transform="hessian",
    ),
    "a list that a loop under no_grad appends to keeps the gradients of what it had": program(
        "items = [x * 2]",
        "with weft.no_grad():",
        "    for c in v:",
        "        items.append(c * x)",
        "        items.append(x)",
        "return (weft.stack(items).sum(), items[0], items[-1])",
    ),
    "a row that a loop under no_grad goes over has no gradient, wherever it ends up": program(
        "items = [x * 2]",
        "with weft.no_grad():",
        "    for c in v:",
        "        w = c",
        "        items.append(c)",
        "return (w, c * x, weft.stack(items).sum())",
    ),
    "rows and results of a scan under no_grad": program(
        "with weft.no_grad():",
        "    last, ys = weft.scan(lambda c, r: (c, (r, x)), x, v)",
        "return (last, ys[0] * x, ys[1])",
    ),
    "a gradient taken under no_grad in a loop has no history": program(
        "for c in range(3):",
        "    with weft.no_grad():",
        "        a = weft.grad(lambda t: t * x)(x)",
        "        w = weft.grad(lambda t: (t * v).sum())(v)",
        "return (a, w)",
    ),
    "an inner gradient of a function that uses values of the outer jvp": program(
        "a = x * 2",
        "b = weft.grad(lambda t: weft.sin(t) * a)(x)",
        "return (a * b,)",
        transform="jvp",
    ),
    "the same under jacobian, in a loop": program(
        "a = x * 2",
        "for c in range(2):",
        "    a = a - 0.1 * weft.grad(lambda t: weft.sin(t) * a)(x)",
        "return (a,)",
        transform="jacobian",
    ),
    "a stack in the body of a scan that might be cut into rows": program(
        "w, m = v * 1.0, 2",
        "for c in range(3):",
        "    if not x < x:",
        "        b = 1.0",
        "    else:",
        "        for d in range(m % 4):",
        "            w = F.layer_norm(q[0], (3,), eps=0.1)",
        "            w[0] += b",
        "    m = m + 1",
        "return (w,)",
    ),
    "a loop over a value of a branch, in a function that the branch calls": program(
        "def grown(z):",
        "    while z.sum() < 3:",
        "        z = z + weft.abs(z) + 0.3",
        "    return z",
        "a = v * 1.0",
        "for c in range(2):",
        "    if a.sum() > 0.1:",
        "        if x > 0:",
        "            a = grown(a * 0.3)",
        "        else:",
        "            a = grown(a * 0.4)",
        "return (a,)",
    ),
    "while_loop over a value of a branch": program(
        "a = v * 1.0",
        "if x > 0:",
        "    body = lambda c: (c[0] + 0.3, c[1] * 2)",
        "    a = weft.while_loop(lambda c: c[0].sum() < 3, body, (a * 2, v * 1))[1]",
        "return (a,)",
    ),
    "what a list gives under no_grad has its own gradient": program(
        "items = [x * 2]",
        "for c in v:",
        "    items.append(c * x)",
        "with weft.no_grad():",
        "    last = items[-1]",
        "    a = items.pop()",
        "    stacked = weft.stack(items)",
        "return (last, a * x, stacked)",
    ),
    "a number that changes, in a vmap that runs its elements one by one, is weak there": program(
        "a = x * 1.0",
        "b = weft.sin(v.sum()) + 0.1 * n",
        "w = v * 0.5",
        "c1 = 0",
        "while not (x > 0.3) and c1 < 3:",
        "    c1 = c1 + 1",
        "    for c2 in v:",
        "        a = a + c2 * b",
        "        b = weft.roll(w, 1).mean()",
        "return (a, b)",
        transform="vmap(grad)",
        growing=True,
    ).but(calls=(36, 37, 38)),
    "an attribute that one side of a branch makes a number of the graph, and is None": program(
        "if x > 0:",
        "    s.last = x.item()",
        "return (x * 2,)",
        effects=True,
    ),
    "an attribute that a loop makes a tensor, and is a Python number": program(
        "c = weft.zeros((), dtype=weft.int64)",
        "while x > 0 and c < 4:",
        "    c = c + 1",
        "    s.item.first = v.sum()",
        "    v = v * 0.5",
        "    print(c, s.item.first.item())",
        "return (x * 2,)",
        effects=True,
    ),
    "the last item of a list of two loops, differentiated twice": Case(
        "program",
        700018812,
        (
            "b = v.sum()",
            "w = v * 0.5",
            "p = q * 0.5",
            "ok = x > 0.3",
            "items = [x * 1.0]",
            "for c1, c1e in zip(v, p):",
            "    items.append(weft.where(b > x, b, x))",
            "    b = b + c1 * c1e.sum()",
            "c2 = 0",
            "while True:",
            "    c2 = c2 + 1",
            "    if c2 > 3 or not ok:",
            "        break",
            "    items.append(weft.minimum(b, b))",
            "return (b + weft.exp(items[-1] * 0.3), w)",
        ),
        (
            Argument("x", (), "float64", values="special"),
            Argument("v", (1,), "float64", values="special"),
            Argument("q", (1, 1), "float64", values="special"),
        ),
        transform="minimum",
        calls=(812,),
    ),
}


@pytest.mark.parametrize("why", REDUCED)
def test_reduced(why: str) -> None:
    result = check(REDUCED[why])
    assert result.state == "same", result.text


@pytest.mark.parametrize("why", GRAPHS)
def test_graphs(why: str) -> None:
    result = check(GRAPHS[why])
    assert result.state == "same", result.text
