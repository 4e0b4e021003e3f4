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
from weft.optim.lr_scheduler.more import ChainedScheduler as ChainedScheduler
from weft.optim.lr_scheduler.more import ConstantLR as ConstantLR
from weft.optim.lr_scheduler.more import CyclicLR as CyclicLR
from weft.optim.lr_scheduler.more import MultiplicativeLR as MultiplicativeLR
from weft.optim.lr_scheduler.more import PolynomialLR as PolynomialLR
from weft.optim.lr_scheduler.plateau import ReduceLROnPlateau as ReduceLROnPlateau
