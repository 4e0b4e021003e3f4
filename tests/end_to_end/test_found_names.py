"""What the fuzzer found once, as it was: names that some ways leave without a value."""

from __future__ import annotations

import pytest
from found_programs import check_program

#: Programs: what was wrong, and the lines.
PROGRAMS = {
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
    check_program(PROGRAMS[why])
