"""Optimizers, learning-rate schedules, and clipping of gradients."""

from weft.nn.utils.clip import clip_grad_norm_ as clip_grad_norm_
from weft.nn.utils.clip import clip_grad_value_ as clip_grad_value_
from weft.optim import lr_scheduler as lr_scheduler
from weft.optim import swa_utils as swa_utils
from weft.optim.adagrad import Adadelta as Adadelta
from weft.optim.adagrad import Adagrad as Adagrad
from weft.optim.adam import Adam as Adam
from weft.optim.adam import AdamW as AdamW
from weft.optim.adam_family import Adamax as Adamax
from weft.optim.adam_family import NAdam as NAdam
from weft.optim.adam_family import RAdam as RAdam
from weft.optim.averaging import EMA as EMA
from weft.optim.lbfgs import LBFGS as LBFGS
from weft.optim.matrices import Adafactor as Adafactor
from weft.optim.matrices import Muon as Muon
from weft.optim.optimizer import Optimizer as Optimizer
from weft.optim.optimizer import OptimizerError as OptimizerError
from weft.optim.rmsprop import RMSprop as RMSprop
from weft.optim.sgd import SGD as SGD
from weft.optim.signs import ASGD as ASGD
from weft.optim.signs import Lion as Lion
from weft.optim.signs import Rprop as Rprop
