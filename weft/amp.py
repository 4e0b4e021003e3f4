"""Mixed precision: `autocast`, and the `GradScaler` that float16 needs."""

from weft.core.autocast import autocast as autocast
from weft.core.autocast import get_autocast_dtype as get_autocast_dtype
from weft.core.autocast import is_autocast_enabled as is_autocast_enabled
from weft.optim.grad_scaler import GradScaler as GradScaler
