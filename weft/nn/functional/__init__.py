"""Layers, losses and activations as plain functions, under PyTorch's names."""

# ruff: noqa: F403 - it only exports

from weft.nn.functional.activation import *
from weft.nn.functional.attention import *
from weft.nn.functional.bags import *
from weft.nn.functional.classification import *
from weft.nn.functional.convolution import *
from weft.nn.functional.ctc import *
from weft.nn.functional.distance import *
from weft.nn.functional.dropout import *
from weft.nn.functional.fractional import *
from weft.nn.functional.linear import *
from weft.nn.functional.loss import *
from weft.nn.functional.margins import *
from weft.nn.functional.normalization import *
from weft.nn.functional.padding import *
from weft.nn.functional.resize import *
from weft.nn.functional.sampling import *
from weft.nn.functional.unfold import *
