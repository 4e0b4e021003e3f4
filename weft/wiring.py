"""What lower layers call of higher ones: the one place where layers are wired to each other.

A layer imports only from those before it. Eight times one must call what lies behind it, and two of
the classes that users hold do things that only later layers know how to do. All of that is filled
in here, once, when `weft` is imported; no other module reaches into a layer that is not its own.
So it does not matter which module is imported first.

(Tables that layers fill as they are loaded are another thing, and need no wiring: cards and the
methods of tensors that are made of them (`weft.core.public`), families of arrays, levels of
transforms, trees, rules for calls.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.autodiff import rows
from weft.autodiff.tape import record
from weft.autodiff.transforms.levels import use_graphs
from weft.base.notebook import use_html
from weft.base.tracebacks import use_short_tracebacks
from weft.capture.trace.captured import Captured
from weft.core.bind import use_tape
from weft.core.parts import Parts
from weft.inspect.attach import HTML, METHODS, module_html
from weft.ir.dispatch import use_opener
from weft.ir.graph import Graph
from weft.ir.op import use_later_cards
from weft.ir.parse import parse_graph
from weft.ops.control import use_rows
from weft.record.control.level_run import RUN
from weft.record.control.on_level import on_level, python_effects, use_run
from weft.record.declared import enter, leave
from weft.record.make_graph import run_graph
from weft.runtime.cuda.opening import open_cuda
from weft.runtime.eager.use import use_kernels
from weft.runtime.lazy_imports import spread_calls
from weft.runtime.split.devices import use_engines

#: Engines that are opened when they are asked for, and the modules that open them.
ENGINES = {"ort": "weft.interop.engines.ort", "openvino": "weft.interop.engines.openvino"}
#: What a layer calls, and what is called.
CALLS: list[tuple[Callable[..., None], tuple[Any, ...]]] = [
    (use_kernels, ()),  # core.bind: what computes calls on large arrays
    (use_tape, (record,)),  # core.bind notes op calls for backward
    (use_graphs, (on_level, python_effects)),  # autodiff.transforms: a function run by its graph
    (use_html, (module_html,)),  # nn.module: what notebooks show of modules
    (use_short_tracebacks, ()),  # Python's own: uncaught errors show the user's frames
    # ir.op: cards met in the text of a graph
    (
        use_later_cards,
        (
            "weft.optim",
            "weft.ops.flow",
            "weft.ops.collective",
            "weft.ops.layout",
            "weft.ops.messages",
            "weft.ops.ring_attention",
            "weft.ops.placed",
        ),
    ),
    (use_rows, (rows,)),  # ops.control: rows of a scan that is run op by op
    (use_opener, ("cuda", "cupy", open_cuda)),  # ir.dispatch: the device that CuPy's arrays are on
    (use_engines, (ENGINES,)),  # runtime.split: devices that take models in ONNX
    (use_run, (RUN,)),  # record.control: control flow in the graph that control flow is run by
]
#: What is given to classes of other layers.
ATTRIBUTES: list[tuple[type, dict[str, Any]]] = [
    (Graph, {"parse": staticmethod(parse_graph), "__call__": run_graph}),
    (Graph, {"__enter__": enter, "__exit__": leave}),  # with weft.Graph() as g
    (Parts, {"calls": staticmethod(spread_calls)}),  # ops called one by one on parts
    (Captured, METHODS),  # tools that look at compiled functions
    *HTML,
]

for _use, _given in CALLS:
    _use(*_given)
for _class, _attributes in ATTRIBUTES:
    for _name, _attribute in _attributes.items():
        setattr(_class, _name, _attribute)
