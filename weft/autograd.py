"""Gradients of the dynamic graph, under the names PyTorch gave them."""

from weft.autodiff.api import *
from weft.autodiff.check import *
from weft.autodiff.custom_op import *
from weft.autodiff.function import *
from weft.core.grad_mode import *
