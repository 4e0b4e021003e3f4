"""What the fuzzer found once, reduced or as it was: each case runs in every mode as eagerly."""

from __future__ import annotations

from typing import Any

import pytest
from fuzzing.case import Argument, Case
from fuzzing.check import check

#: The arguments of programs that were found before there was a matrix among them.
FIRST = (
    Argument("x", ()),
    Argument("v", (3,)),
    Argument("n", None, below=4),
    Argument("k", (), "int64", below=4),
)

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


#: Reduced programs: what was wrong, and the case.
REDUCED = {
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
}


@pytest.mark.parametrize("why", REDUCED)
def test_reduced(why: str) -> None:
    result = check(REDUCED[why])
    assert result.state == "same", result.text


@pytest.mark.parametrize("why", GRAPHS)
def test_graphs(why: str) -> None:
    result = check(GRAPHS[why])
    assert result.state == "same", result.text


#: Programs: what was wrong, and the lines.
PROGRAMS = {
    "a swap after which the other way has returned is no alias": """
a = x * 1.0
b = v.sum()
w = v * 0.5
m = n
ok = x > 0.3
a = 1.0 * (weft.tanh(b) * x if x <= 0.731 and b < x else weft.tanh(b) * x)
for c1 in range(3):
    if m % 2 == 0:
        a -= a
        m += 2
        continue
    elif ok:
        w[k % 3] = x - 0.5 * b
        m = m + 1
        ok = x > -1.227
        return a, b, w, m
    a, b = b, a
    w[c1 % 3] += 0.1
return a, b, w, m
""",
    "what a loop returns is held by no other name where it did not return": """
a = x * 1.0
b = v.sum()
w = v * 0.5
m = n
ok = x > 0.3
if (a <= 0.026 or m > 1):
    w[1] += a
    if not (b < w.max()):
        a, b = b, a
        return a, b, w, m
elif x >= -1.181:
    w[1] += b
else:
    a, b = b, a
    b = v[1] - 0.5 * weft.sin(w[k % 3])
    if m < 3:
        m = m + 1
    else:
        b *= 0.8
c1 = 0
while True:
    c1 = c1 + 1
    if c1 > 1 or b >= 1.087 and b < b:
        break
    if ok:
        b += (v * w).sum()
        break
    a -= b + 0.1 * m
if b >= 0.714 and b < b:
    if a < w.max():
        c2 = weft.zeros((), dtype=weft.int64)
        while c2 < 1 and b >= 0.714:
            c2 = c2 + 1
            a, b = b, a
    else:
        b -= (a if n > 1 else b)
return a, b, w, m
""",
    "an index of a loop that is not entered, in its backward": """
a = x * 1.0
b = v.sum()
w = v * 0.5
m = n
ok = x > 0.3
w = v * b
for c1 in range(0):
    a = v[m]
    w = weft.roll(v, 1)
    a = v[m]
    w[c1 % 3] += 0.1
c2 = 0
while c2 < 2:
    c2 = c2 + 1
    for c3 in v:
        a, b = b, a
        a = a + c3 * b
    c4 = 0
    while -1.0 < v[1] < 0.9 and c4 < 3:
        c4 = c4 + 1
        c5 = weft.zeros((), dtype=weft.int64)
        while True:
            c5 = c5 + 1
            if c5 > 2 or a < x:
                break
            m = m + 1
c6 = 0
while k % 2 == 0 and c6 < 3:
    c6 = c6 + 1
    for c7 in range(k):
        a = 0.9 * a + c7
        c8 = 0
        while c8 < 4 and a < b:
            c8 = c8 + 1
            b = v[m]
            w[1] += w[k % 3]
            a += weft.minimum(a, b)
        else:
            w[k % 3] = 0.7 * (x) + -1.337
            m = m + 1
        if -1.0 < a < 0.9:
            a -= weft.minimum(x, x)
            w = v - weft.mean(v)
            break
        else:
            a = v[m]
            ok = a > 0.013
return a, b, w, m
""",
    "what an earlier loop of unrolled ones has returned": """
a = x * 1.0
b = v.sum()
w = v * 0.5
m = n
ok = x > 0.3
m = m + 1
b *= 0.8
for c1 in range(2):
    a = a + 0.1 * c1
    for c2 in reversed(w):
        b = 0.5 * b + c2
        if x >= -0.284 and a < x:
            b = 1.0 * a
            a, b = b, a
            w[m % 3] = weft.sin((v * w).sum())
            return a, b, w, m
        else:
            a, b = b, a
            ok = a > -0.403
        m += 2
c3 = 0
while c3 < 4 and a < -0.61 and a < x:
    c3 = c3 + 1
    c4 = 0
    while True:
        c4 = c4 + 1
        if c4 > 2 or ok:
            break
        a += weft.minimum(a, a)
        w[1] += b
    for c5 in range(4):
        a = a + 0.1 * c5
        b *= 0.8
if not (b < b):
    c6 = 0
    while c6 < 2 and k % 2 == 0:
        c6 = c6 + 1
        m = m + 1
        b *= 0.8
    else:
        w[1] += x
        w[1] += b
        m = m + 1
    a *= 0.8
elif -1.0 < a < 0.9:
    a = a - 0.5 * x + b + 0.1 * m
return a, b, w, m
""",
    "the size of a stacked list that only a branch knows, in its backward": """
a = x * 1.0
b = v.sum()
w = v * 0.5
m = n
ok = x > 0.3
items = [a * 1.0]
if w[0] < 0.415:
    a = (b + b) / (1 + (weft.sin(x)) ** 2)
    for c1 in range(m % 4):
        b = b - 0.2 * c1
        if n == 0:
            w = weft.where(w > -1.263, v, w)
            break
        elif -1.0 < x < 0.9:
            b = b + x - 0.5 * a
            m += 2
            return b, a, v * a, m
        b *= 0.8
    return b, a, v * a, m
elif n > 1:
    c2 = weft.zeros((), dtype=weft.int64)
    while True:
        c2 = c2 + 1
        if c2 > 3 or b < b:
            break
        a -= x - 0.5 * a
        ok = x > -1.111
    b = w[0] - 0.5 * x + weft.sin(x)
c3 = weft.zeros((), dtype=weft.int64)
while (x < 0.041 or m > 1) and c3 < 2:
    c3 = c3 + 1
    items.append(weft.minimum(x, (v * w).sum()))
a, b = b, a
for c4 in range(m % 4):
    items.append(1.0 * (w.sum() if n == 0 else x))
    b = b - 0.2 * c4
else:
    ok = x > -0.79
m = m + 1
b = b + weft.stack(items).sum()
return a, b, w, m
""",
    "an index out of range in the first iteration of a loop that is not entered": """
a = x * 1.0
b = v.sum()
w = v * 0.5
m = n
ok = x > 0.3
w = w - weft.mean(w)
if v[1] < 0.031:
    b = v[m]
    a += weft.tanh(w[k % 3]) * b
    a -= a
else:
    extra = 1.0 * (b if m > n else x)
    if not (a < w.max()):
        for c1 in range(k):
            a = 0.9 * a + c1
            m = m + 1
            a = v[m]
    elif m > n:
        extra = 1.0 * b
        assert b < 1.2, 'too large'
        if x > -0.394:
            extra = 0.7 * (b) + -0.041
            w = w - weft.mean(w)
            b = b + 0.1 * extra
        elif n in (0, 2):
            a = weft.sin(b) - 0.5 * a + b
        b = b + 0.1 * extra
    else:
        c2 = 0
        while c2 < 3 and (a > 0.498 or m > 1):
            c2 = c2 + 1
            m += 2
            a = weft.sin(x + v[1])
            b = v[m]
        assert b < 1.2, 'too large'
        return b, a, v * a, m
    a = v[m]
    b = b + 0.1 * extra
a = a + extra
return a, b, w, m
""",
    "a write to what one of two names holds, on a way that excludes the other": """
a = x * 1.0
b = v.sum()
w = v * 0.5
m = n
ok = x > 0.3
if (x < 0.884 or m > 1):
    a, b = b, a
    a = 1.0 * (weft.tanh(b) * x if not (b < x) else w.sum() + 0.1 * m)
else:
    for c1 in range(m % 4):
        b = b - 0.2 * c1
        a *= 0.8
    w = weft.roll(v, 1)
    m = m + 1
if n in (0, 2):
    if m % 2 == 0:
        a += a
        return b, a, v * a, m
    if (w > 0.325).any():
        if n == 0:
            b = 0.7 * (w[0] + 0.1 * m) + -0.607
            w[-1] = a + 0.1 * m
            w[1] = a
        elif x > 0.923:
            b = weft.sin(0.7 * (b) + 0.358)
            ok = a > 0.062
        else:
            ok = x > -1.192
            ok = b > -1.096
        m = m + 1
    else:
        a += a + b
else:
    c2 = 0
    while True:
        c2 = c2 + 1
        if c2 > 4 or k % 2 == 0:
            break
        c3 = weft.zeros((), dtype=weft.int64)
        while True:
            c3 = c3 + 1
            if c3 > 4 or k % 2 == 0:
                break
            a = 0.7 * (x) + -1.098 + x - 0.5 * w[0]
            w[1] += w.sum()
        if n == 0:
            a = v.max() + x + 0.1 * m
            m += 2
        else:
            a, b = b, a
if m > n:
    if not ok:
        m += 2
    else:
        for c4 in range(1):
            a = a + 0.1 * c4
            b += weft.sin(b)
        if -1.0 < v.max() < 0.9:
            w[1] += w[0]
    for c5 in reversed(w):
        b = 0.5 * b + c5
        if ok:
            w[k % 3] = (v[1]) / (1 + (a) ** 2)
            w[1] = 0.7 * (w[k % 3]) + -0.099
        else:
            w[1] = (x if not ok else a)
        a *= 0.8
elif b > -1.048 and b < x:
    m += 2
    if m % 2 == 0:
        b = a - 0.5 * b + b
    w[1] += a
else:
    a = weft.sin(b + 0.1 * m)
    w[k % 3] = (a if a < 0.698 and a < x else b)
    w[1] += a
w[1] += w[k % 3]
return a, b, w, m
""",
    "a loop whose body stops half-way": """
a = x * 1.0
b = v.sum()
w = v * 0.5
m = n
ok = x > 0.3
w[0] = a
w[0] = (w.sum() if ok else a)
for c1 in range(k):
    a = 0.9 * a + c1
    c2 = weft.zeros((), dtype=weft.int64)
    while c2 < 4:
        c2 = c2 + 1
        ok = b > 1.119
        if -1.0 < (v * w).sum() < 0.9:
            a, b = b, a
        a = v[m]
    else:
        if a < 0.964 and a < b:
            m = m + 1
        elif k % 2 == 0:
            a = v[m]
            break
        else:
            b = v[m]
        a, b = b, a
    assert b < 1.2, 'too large'
else:
    if b < 1.181:
        w[-1] = (a) / (1 + (w.sum()) ** 2)
        w[1] = 0.7 * (a) + 0.481
        a = v[m]
    w = weft.where(w > 0.341, v, w)
w[1] += x
return a, b, w, m
""",
    "a name that is dead where a loop is left, and that its condition reads": """
a = x * 1.0
b = v.sum()
w = v * 0.5
m = n
ok = x > 0.3
b = weft.minimum(weft.sin(b), weft.minimum(a, x))
if b < b:
    b -= v[1] + (v * w).sum()
    a = 0.7 * (weft.sin(x)) + 1.257
    return b, a, v * a, m
else:
    ok = x > 0.894
c1 = weft.zeros((), dtype=weft.int64)
while c1 < 1 and ok:
    c1 = c1 + 1
    if (w > -1.378).any():
        c2 = 0
        while c2 < 3 and ok:
            c2 = c2 + 1
            w[1] += b
            m = m + 1
        if w.sum() >= 0.229:
            m = m + 1
        else:
            a *= 0.8
            break
    elif m < 3:
        b = 1.0 * a
        w[1] += b
        break
    else:
        c3 = 0
        while True:
            c3 = c3 + 1
            if c3 > 2 or a >= -0.485 and a < w.max():
                break
            ok = a > 1.026
        break
if m < 3:
    a, b = b, a
    w[1] += b
return a, b, w, m
""",
    "the same, behind a loop in the loop": """
a = x * 1.0
b = v.sum()
w = v * 0.5
m = n
ok = x > 0.3
c1 = weft.zeros((), dtype=weft.int64)
while True:
    c1 = c1 + 1
    if c1 > 3 or not ok:
        break
    c2 = weft.zeros((), dtype=weft.int64)
    while c2 < 4:
        c2 = c2 + 1
        if m % 2 == 0:
            ok = w[0] > 0.375
        else:
            w = w * 0.5 + v
    b += weft.sin((v * w).sum())
    if x >= 0.47:
        if -1.0 < a < 0.9:
            b = weft.sin(x) + a
            ok = b > 1.082
            break
        elif (w > -0.731).any():
            b = v[m]
            w[1] += b
            ok = b > -0.458
        else:
            a, b = b, a
            assert a < 1.2, 'too large'
        m += 2
        break
m += 2
return a, b, w, m
""",
    "a name without a value, read in a part of a function that is one of its own": """
a = x * 1.0
b = v.sum()
w = v * 0.5
m = n
ok = x > 0.3
a *= 0.8
if (w > -1.31).any():
    a, b = b, a
    m += 2
    ok = a > 1.022
else:
    extra = x - 0.5 * x
    c1 = weft.zeros((), dtype=weft.int64)
    while b < w.max() and c1 < 4:
        c1 = c1 + 1
        ok = x > -0.075
        w[1] = weft.sin(a)
    b *= 0.8
    a += x + 0.1 * m
    b = b + 0.1 * extra
    return a, b, w, m
if k % 2 == 0:
    w[-1] = x + 0.1 * m
else:
    extra = weft.sin(a)
    a, b = b, a
    b = b + 0.1 * extra
    return a, b, w, m
w[-1] = weft.minimum(x, a)
for c2 in reversed(w):
    b = 0.5 * b + c2
    a, b = b, a
a = a + extra
return a, b, w, m
""",
    "a name that a loop leaves without a value, and its `else` gives anew": """
a = x * 1.0
b = v.sum()
w = v * 0.5
m = n
ok = x > 0.3
if b >= -0.303 and a < x:
    extra = 1.0 * (b if not (b < b) else w[k % 3])
    m += 2
    if b > 0.454:
        m += 2
        if not ok:
            extra = weft.sin(b)
            b = v.max()
            b = b + 0.1 * extra
        else:
            a, b = b, a
            m = m + 1
        for c1 in range(0):
            w[1] += x
            b -= (x if m > n else b)
            a = weft.sin(weft.tanh(b) * a)
            a = a + 0.1 * c1
    else:
        extra = v[1] + 0.1 * m
        a = 1.0 * (a if a >= 1.271 and b < b else a) + 0.1 * m
        w[k % 3] = weft.minimum(a, a)
        w[1] += w[0]
        b = b + 0.1 * extra
    b = b + 0.1 * extra
    return b, a, v * a, m
if m % 2 == 0:
    w[1] += w[0]
    w[1] += b
    a, b = b, a
else:
    assert b < 1.2, 'too large'
    return a, b, w, m
w[1] += x
if not ok:
    extra = (a) / (1 + (a) ** 2)
    b -= a
    assert a < 1.2, 'too large'
    w = v * 0.5 + v
    b = b + 0.1 * extra
elif b <= 0.677:
    if (w > 0.96).any():
        extra = 0.7 * (x) + 0.651
        m += 2
        m = m + 1
        for c2, c2e in enumerate(w):
            assert a < 1.2, 'too large'
            ok = b > 0.229
            a = weft.sin(a) + c2 * c2e
        b = b + 0.1 * extra
    elif n in (0, 2):
        extra = weft.tanh(b) * a
        assert b < 1.2, 'too large'
        if not ok:
            extra = weft.minimum(x, x)
            w[1] += x
            w[k % 3] = a
            b = b + 0.1 * extra
        m = m + 1
        b = b + 0.1 * extra
    else:
        extra = 1.0 * a
        b = v[m]
        if k % 2 == 0:
            extra = 1.0 * b
            b = 1.0 * a
            b = b + 0.1 * extra
        a -= b + 0.1 * m
        b = b + 0.1 * extra
    for c3 in range(2):
        a, b = b, a
        c4 = 0
        while c4 < 4 and b < -0.401 and a < w.max():
            c4 = c4 + 1
            b += weft.tanh(w[0]) * v[1]
            b = 1.0 * x
            w[1] += x
        w[c3 % 3] += 0.1
else:
    c5 = 0
    while ok and c5 < 3:
        c5 = c5 + 1
        for c6, c6e in zip(v, w):
            b = b + c6 * c6e
            a = v[m]
            m = m + 1
        b = 1.0 * x
    else:
        w[1] += b
        a = v[m]
a = a + extra
return a, b, w, m
""",
}


@pytest.mark.parametrize("why", PROGRAMS)
def test_programs(why: str) -> None:
    body = tuple(PROGRAMS[why].strip().splitlines())
    case = Case("program", 0, body, FIRST, calls=tuple(range(5)), second=True)
    result = check(case)
    assert result.state in ("same", "refused"), result.text  # a name that one way lacks is refused
