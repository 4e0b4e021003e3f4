"""Weft: a deep-learning framework whose dynamic and static graphs are two views of one program."""

from math import e, inf, nan, pi

from weft.base import errors
from weft.base.device import Device
from weft.base.dtypes import (
    DType,
    bfloat16,
    bool,
    complex64,
    complex128,
    float16,
    float32,
    float64,
    get_default_dtype,
    int8,
    int16,
    int32,
    int64,
    register_dtype,
    set_default_dtype,
    uint8,
    uint16,
    uint32,
    uint64,
)
from weft.base.promotion import set_promotion
from weft.core.tensor import Tensor
from weft.ir.dispatch import register_device, register_kernel, unregister_device

# from weft.ops import fft, linalg
from weft.ops.cast import *
from weft.ops.creation import *
from weft.ops.elementwise import *
from weft.ops.functions import *
from weft.ops.index import *
from weft.ops.info import ARRAY_API_VERSIONS
from weft.ops.info import array_namespace_info as __array_namespace_info__
from weft.ops.matmul import *

# from weft.ops.random import *
from weft.ops.reduce import *
from weft.ops.select import *
from weft.ops.shape import *
from weft.ops.sorting import *

newaxis = None
__version__ = "0.1.0"
__array_api_version__ = "2024.12"
