"""All programs of the suite, theme by theme."""

from programs import (
    automata,
    branches,
    chance,
    dynamics,
    fitting,
    integers,
    loop_state,
    loops,
    machines,
    matrices,
    modules,
    networks,
    recursion,
    roots,
    scopes,
    sequences,
    statements,
    training,
)

THEMES = [
    branches,
    statements,
    loops,
    loop_state,
    scopes,
    recursion,
    roots,
    matrices,
    dynamics,
    automata,
    integers,
    machines,
    sequences,
    fitting,
    training,
    networks,
    modules,
    chance,
]
PROGRAMS = [program for theme in THEMES for program in theme.PROGRAMS]
