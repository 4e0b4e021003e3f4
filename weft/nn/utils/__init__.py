"""Helpers around modules: gradients, parameters, sequences of different lengths."""

from weft.nn.utils import parametrizations as parametrizations
from weft.nn.utils import parametrize as parametrize
from weft.nn.utils import rnn as rnn
from weft.nn.utils import stateless as stateless
from weft.nn.utils.clip import clip_grad_norm_ as clip_grad_norm_
from weft.nn.utils.clip import clip_grad_value_ as clip_grad_value_
from weft.nn.utils.clip import clip_grads_with_norm_ as clip_grads_with_norm_
from weft.nn.utils.clip import get_total_norm as get_total_norm
from weft.nn.utils.first_values import skip_init as skip_init
from weft.nn.utils.fusion import fuse_conv_bn_eval as fuse_conv_bn_eval
from weft.nn.utils.fusion import fuse_conv_bn_weights as fuse_conv_bn_weights
from weft.nn.utils.fusion import fuse_linear_bn_eval as fuse_linear_bn_eval
from weft.nn.utils.norms import remove_spectral_norm as remove_spectral_norm
from weft.nn.utils.norms import remove_weight_norm as remove_weight_norm
from weft.nn.utils.norms import spectral_norm as spectral_norm
from weft.nn.utils.norms import weight_norm as weight_norm
from weft.nn.utils.vectors import parameters_to_vector as parameters_to_vector
from weft.nn.utils.vectors import vector_to_parameters as vector_to_parameters
