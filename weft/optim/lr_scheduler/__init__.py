"""Learning-rate schedules."""

from weft.optim.lr_scheduler.base import LRScheduler as LRScheduler
from weft.optim.lr_scheduler.cycles import (
    CosineAnnealingWarmRestarts as CosineAnnealingWarmRestarts,
)
from weft.optim.lr_scheduler.cycles import OneCycleLR as OneCycleLR
from weft.optim.lr_scheduler.decay import CosineAnnealingLR as CosineAnnealingLR
from weft.optim.lr_scheduler.decay import ExponentialLR as ExponentialLR
from weft.optim.lr_scheduler.decay import LambdaLR as LambdaLR
from weft.optim.lr_scheduler.decay import LinearLR as LinearLR
from weft.optim.lr_scheduler.decay import MultiStepLR as MultiStepLR
from weft.optim.lr_scheduler.decay import SequentialLR as SequentialLR
from weft.optim.lr_scheduler.decay import StepLR as StepLR
from weft.optim.lr_scheduler.plateau import ReduceLROnPlateau as ReduceLROnPlateau
