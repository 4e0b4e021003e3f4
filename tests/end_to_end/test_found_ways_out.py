"""What the fuzzer found once, as it was: ways out of loops, indices on ways not taken."""

from __future__ import annotations

import pytest
from found_programs import check_program

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
}


@pytest.mark.parametrize("why", PROGRAMS)
def test_programs(why: str) -> None:
    check_program(PROGRAMS[why])
