"""Builtin functions in captured code: one row has everything that is special about each.

A function that is not in the table is followed into its source, or called after guards on all of
its arguments (`watch/library.py`).
"""

from __future__ import annotations

import bisect
import dataclasses
import functools
import heapq
import itertools
import operator
import re
import sys
import warnings
from collections import deque
from types import BuiltinMethodType, FunctionType, MethodType
from typing import Any

import numpy as np

from weft.base.dataclass import dataclass
from weft.capture import drawn_numbers, result_numbers
from weft.capture.from_source import graph_builtins as graph
from weft.capture.from_source import iteration, show
from weft.capture.watch import attributes, library, operators, printing
from weft.capture.watch import builtin_calls as calls
from weft.capture.watch.builtin_calls import Handler, as_it_is, by_method, calling, through
from weft.core.changing_numbers import number_in
from weft.core.operands import as_number
from weft.core.structure import changed
from weft.ops.numpy_protocol import COUNTERPARTS
from weft.ops.shape import concat, stack
from weft.record import effects, make_graph
from weft.record.control import branches, loops


@dataclass(frozen=True, slots=True)
class Builtin:
    """What a builtin does in captured code.

    call    makes the call: guards what the builtin reads, follows what it calls, and notes what it
            writes. None: it is called like any other function
    graph   its behaviour on tensors of a graph; returns NotImplemented if there are none: then
            `call` is used
    shows   it prints its arguments at each replay: f-strings among them are kept in parts
    always  `graph` counts in traces, too, where control flow is no part of the graph
    """

    call: Handler | None = None
    graph: Handler | None = None
    shows: bool = False
    always: bool = False


def _rows(make: Any, *functions: Any) -> dict[Any, Builtin]:
    return {function: Builtin(make(function)) for function in functions}


BUILTINS: dict[Any, Builtin] = {
    # attributes and identity
    getattr: Builtin(calls.get_attribute),
    hasattr: Builtin(calls.has_attribute),
    setattr: Builtin(attributes.store),
    delattr: Builtin(attributes.delete),
    vars: Builtin(calls.variables),
    dir: Builtin(calls.names),
    dataclasses.replace: Builtin(calls.replaced),
    hash: Builtin(calls.hash_of),
    id: Builtin(calls.id_of),
    type: Builtin(calls.type_of, graph.type_of, always=True),
    isinstance: Builtin(calls.is_instance, graph.is_instance, always=True),
    # values
    len: Builtin(operators.length, graph.len_),
    bool: Builtin(calls.truth, graph.bool_),
    int: Builtin(by_method(int, "__int__", "__index__", "__trunc__"), graph.int_, always=True),
    float: Builtin(by_method(float, "__float__", "__index__"), graph.float_, always=True),
    complex: Builtin(by_method(complex, "__complex__", "__float__")),
    abs: Builtin(by_method(abs, "__abs__")),
    round: Builtin(by_method(round, "__round__"), graph.round_, always=True),
    operator.index: Builtin(by_method(operator.index, "__index__")),
    sum: Builtin(calls.total, graph.sum_),
    any: Builtin(calls.quantifier(True), graph.quantifier(False)),
    all: Builtin(calls.quantifier(False), graph.quantifier(True)),
    sorted: Builtin(calls.comparing(sorted)),
    min: Builtin(calls.comparing(min), graph.extreme(min), always=True),
    max: Builtin(calls.comparing(max), graph.extreme(max), always=True),
    # text and effects
    str: Builtin(printing.string),
    repr: Builtin(printing.representation),
    ascii: Builtin(by_method(ascii, "__repr__")),
    format: Builtin(printing.format_of),
    print: Builtin(printing.showing(print), show.print_, shows=True),
    changed: Builtin(printing.showing(changed), shows=True),
    warnings.warn: Builtin(printing.warn, show.warn, shows=True),
    # iteration
    range: Builtin(graph=graph.range_),
    iter: Builtin(calls.iterator),
    next: Builtin(calls.advance, graph.next_),
    zip: Builtin(through(zip), graph.zip_),
    enumerate: Builtin(through(enumerate), graph.enumerate_),
    reversed: Builtin(calls.backwards, graph.reversed_),
    filter: Builtin(calls.filtered),
    itertools.chain.from_iterable: Builtin(calls.flattened),
    **_rows(through, list, tuple, deque, itertools.chain, itertools.product, itertools.zip_longest),
    **_rows(through, itertools.islice, itertools.cycle, itertools.pairwise),
    **_rows(through, itertools.combinations, itertools.permutations),
    # functions that call others
    **_rows(calling, map, functools.reduce, functools.cmp_to_key, itertools.starmap),
    **_rows(calling, itertools.takewhile, itertools.dropwhile, itertools.filterfalse),
    itertools.accumulate: Builtin(calling(itertools.accumulate, 1, "func")),
    itertools.groupby: Builtin(calling(itertools.groupby, 1, "key")),
    **_rows(calls.calling_back, bisect.bisect_left, bisect.bisect_right, bisect.insort_left),
    **_rows(calls.calling_back, bisect.insort_right, heapq.nlargest, heapq.nsmallest, heapq.merge),
    **_rows(calls.calling_back, re.sub, re.subn),
    **_rows(calls.calling_back, np.vectorize, np.apply_along_axis, np.fromfunction, np.piecewise),
    # functions that do not look into their arguments
    **_rows(as_it_is, callable, issubclass, object, super, property, staticmethod, classmethod),
    **_rows(as_it_is, functools.partial, functools.wraps, functools.update_wrapper),
    **_rows(as_it_is, functools.lru_cache, functools.cache, itertools.repeat, itertools.count),
    **_rows(as_it_is, operator.itemgetter, operator.attrgetter, slice),
    # numbers
    **{
        function: Builtin(graph=call, always=True) for function, call in result_numbers.MATH.items()
    },
    **{
        function: Builtin(graph=call, always=True)
        for function, call in drawn_numbers.CLOCKS.items()
    },
    # functions of NumPy that Weft has, too
    **{function: Builtin(graph=graph.numpy_function(function)) for function in COUNTERPARTS},
    np.prod: Builtin(graph=graph.numpy_product),
    # Weft's own
    number_in: Builtin(library.number_from_outside),
    as_number: Builtin(graph=result_numbers.number_of, always=True),
    concat: Builtin(graph=graph.concat),
    stack: Builtin(graph=graph.stack),
    effects.print: Builtin(graph=show.print_),
    effects.py_call: Builtin(graph=as_it_is(effects.py_call)),
    iteration.unroll: Builtin(graph=as_it_is(iteration.unroll)),
    make_graph.spec: Builtin(graph=as_it_is(make_graph.spec)),
    branches.cond: Builtin(graph=graph.cond),
    branches.switch: Builtin(graph=graph.with_functions(branches.switch)),
    loops.while_loop: Builtin(graph=graph.while_loop),
    loops.scan: Builtin(graph=graph.with_functions(loops.scan)),
    loops.map: Builtin(graph=graph.with_functions(loops.map)),
    loops.fori_loop: Builtin(graph=graph.with_functions(loops.fori_loop)),
}
#: The classes of functions in the table. Hashing an object of another class might run user code.
_KINDS = frozenset(map(type, BUILTINS)) | {MethodType, BuiltinMethodType}
#: Modules whose rows are entered once they are loaded.
_LATER = set(drawn_numbers.DRAWING)


def _enter_later() -> bool:
    """Enter the rows of modules that have been loaded since; whether there were any."""
    here = [name for name in tuple(_LATER) if name in sys.modules]
    for name in here:
        for function, call in drawn_numbers.draws_of(name).items():
            BUILTINS[function] = Builtin(graph=call, always=True)
        _LATER.discard(name)
    return bool(here)


def row_of(function: Any) -> Builtin | None:
    if type(function) not in _KINDS:
        return None
    found = BUILTINS.get(function)
    if found is None and _LATER and _enter_later():
        found = BUILTINS.get(function)
    if found is None and type(function) is FunctionType and function.__name__ == "set_trace":
        # pdb is slow to import, so it is known by its name.
        return BUILTINS.get(breakpoint) if function.__module__ == "pdb" else None
    return found


def looks_on(function: Any, instead_of: Any = None) -> Any:
    """Run a function of Weft without following it: it reads nothing from outside, and records its
    own effects."""
    name = function if instead_of is None else instead_of
    BUILTINS[name] = Builtin(graph=as_it_is(function))
    return function
