"""Weft: a deep-learning framework whose dynamic and static graphs are two views of one program."""

from math import e as e
from math import inf as inf
from math import nan as nan
from math import pi as pi

from weft import autograd as autograd
from weft import data as data
from weft import errors as errors
from weft import fft as fft
from weft import inspect as inspect
from weft import linalg as linalg
from weft import nn as nn
from weft import optim as optim
from weft.autodiff.api import detect_anomaly as detect_anomaly
from weft.autodiff.api import stop_gradient as stop_gradient
from weft.autodiff.check import *
from weft.autodiff.function import *
from weft.base.device import *
from weft.base.dtypes import *
from weft.base.promotion import *
from weft.core.grad_mode import *
from weft.core.tensor import *
from weft.ir.dispatch import *
from weft.ops.cast import *
from weft.ops.creation import *
from weft.ops.elementwise import *
from weft.ops.functions import *
from weft.ops.identity import *
from weft.ops.index import *
from weft.ops.info import ARRAY_API_VERSIONS as ARRAY_API_VERSIONS
from weft.ops.info import array_namespace_info as __array_namespace_info__
from weft.ops.matmul import *
from weft.ops.random import *
from weft.ops.reduce import *
from weft.ops.select import *
from weft.ops.shape import *
from weft.ops.sorting import *
from weft.ops.special import *

newaxis = None
__version__ = "0.1.0"
__array_api_version__ = "2024.12"
