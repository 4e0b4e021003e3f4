"""Weft: a deep-learning framework whose dynamic and static graphs are two views of one program."""

# Made by `make generate` from weft/__init__.py.

from weft.base.gc_pause import while_importing as _while_importing  # isort: skip
import typing as _typing
from math import e as e
from math import inf as inf
from math import nan as nan
from math import pi as pi

from weft import autograd as autograd
from weft import errors as errors
from weft import fft as fft
from weft import inspect as inspect
from weft import linalg as linalg
from weft import random as random
from weft import special as special
from weft.autodiff.api import detect_anomaly as detect_anomaly
from weft.autodiff.api import stop_gradient as stop_gradient
from weft.autodiff.check import *
from weft.autodiff.checkpoint import *
from weft.autodiff.custom_op import *
from weft.autodiff.function import *
from weft.autodiff.in_place import *
from weft.autodiff.transforms.forward import *
from weft.autodiff.transforms.jacobian import *
from weft.autodiff.transforms.reverse import *
from weft.autodiff.transforms.vmap import *
from weft.base.device import *
from weft.base.dims import *
from weft.base.dtype_names import *
from weft.base.dtypes import *
from weft.base.lazy import lazily as _lazily
from weft.base.precision import *
from weft.base.promotion import *
from weft.base.pytree import *
from weft.capture.from_source.iteration import *
from weft.capture.trace.captured import *
from weft.compile import *
from weft.core.autocast import *
from weft.core.device_switch import *
from weft.ops.public_functions import *
from weft.core.grad_mode import *
from weft.core.tensor import *
from weft.inspect.watch.gradients import *
from weft.inspect.watch.stop import *
from weft.ir.dispatch import *
from weft.ir.graph import *
from weft.ir.order import *
from weft.ir.parse import *
from weft.ops.info import ARRAY_API_VERSIONS as ARRAY_API_VERSIONS
from weft.ops.info import array_namespace_info as __array_namespace_info__
from weft.record.control.branches import *
from weft.record.control.loops import *
from weft.record.declared import *
from weft.record.effects import *
from weft.record.make_graph import *
from weft.wiring import CALLS as _CALLS

if _typing.TYPE_CHECKING:
    from weft import amp as amp
    from weft import cuda as cuda
    from weft import data as data
    from weft import distributed as distributed
    from weft import distributions as distributions
    from weft import nn as nn
    from weft import onnx as onnx
    from weft import optim as optim
    from weft import passes as passes
    from weft.inspect.compare.compare import compare as compare
    from weft.inspect.explain.explain import explain as explain
    from weft.inspect.profile.profile import profile as profile
    from weft.inspect.step.stepper import step as step
    from weft.inspect.view.view import view as view
    from weft.inspect.watch.activations import activations as activations
    from weft.inspect.watch.nan import detect_nan as detect_nan
    from weft.interop.checkpoint import Checkpoint as Checkpoint
    from weft.interop.library.build import build_library as build_library
    from weft.interop.programs.export import export as export
    from weft.interop.programs.program import Program as Program
    from weft.interop.programs.program import load_program as load_program
    from weft.interop.serve.server import serve as serve
    from weft.interop.weights import load as load
    from weft.interop.weights import save as save
    from weft.nn.stateless import functional_call as functional_call
    from weft.passes.contract import graph_pass as graph_pass
    from weft.passes.pipeline import optimize as optimize
    from weft.passes.rewrite import rewrite as rewrite
    from weft.runtime.dataflow.options import Dataflow as Dataflow
    from weft.runtime.dataflow.schedulers import register_scheduler as register_scheduler
    from weft.runtime.dataflow.schedulers import unregister_scheduler as unregister_scheduler
    from weft.runtime.split.devices import Engine as Engine
    from weft.runtime.split.devices import Rates as Rates
    from weft.runtime.split.devices import register_engine as register_engine
    from weft.runtime.split.devices import unregister_engine as unregister_engine
    from weft.runtime.split.options import Split as Split
    from weft.runtime.split.place import place as place
    from weft.runtime.threads import get_num_threads as get_num_threads
    from weft.runtime.threads import set_num_threads as set_num_threads
    from weft.session import Session as Session
newaxis: None
__version__: str
__array_api_version__: str
