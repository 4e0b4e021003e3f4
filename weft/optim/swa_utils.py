"""Averages of weights, under PyTorch's names; `SWALR` is the schedule that goes with them."""

from weft.optim.averaging import AveragedModel as AveragedModel
from weft.optim.averaging import get_ema_avg_fn as get_ema_avg_fn
from weft.optim.averaging import get_ema_multi_avg_fn as get_ema_multi_avg_fn
from weft.optim.averaging import get_swa_avg_fn as get_swa_avg_fn
from weft.optim.averaging import get_swa_multi_avg_fn as get_swa_multi_avg_fn
from weft.optim.averaging import update_bn as update_bn
from weft.optim.lr_scheduler.swa import SWALR as SWALR
