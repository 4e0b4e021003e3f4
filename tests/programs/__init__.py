"""All programs of the suite, theme by theme."""

from programs import (
    branches,
    chance,
    dynamics,
    fitting,
    integers,
    loops,
    matrices,
    networks,
    roots,
    scopes,
    sequences,
)

THEMES = [
    branches,
    loops,
    scopes,
    roots,
    matrices,
    dynamics,
    integers,
    sequences,
    fitting,
    networks,
    chance,
]
PROGRAMS = [program for theme in THEMES for program in theme.PROGRAMS]
