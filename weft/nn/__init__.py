"""What models are built of: modules, layers, losses, and the same as plain functions."""

# ruff: noqa: F403 - it only exports

from weft.nn import functional as functional
from weft.nn import init as init
from weft.nn import utils as utils
from weft.nn.activations import *
from weft.nn.adaptive_softmax import *
from weft.nn.attention import *
from weft.nn.containers import *
from weft.nn.conv import *
from weft.nn.dropout import *
from weft.nn.embedding import *
from weft.nn.lazy import *
from weft.nn.linear import *
from weft.nn.losses import *
from weft.nn.margin_losses import *
from weft.nn.module import *
from weft.nn.normalization import *
from weft.nn.padding import *
from weft.nn.parameter import *
from weft.nn.pooling import *
from weft.nn.recurrent import *
from weft.nn.recurrent_cell import *
from weft.nn.state import *
from weft.nn.stateless import *
from weft.nn.transformer import *
from weft.nn.unfold import *
from weft.nn.uninitialized import *
from weft.nn.upsample import *
