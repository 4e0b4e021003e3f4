"""Ready-made parametrizations."""

from weft.nn.utils.norms import parametrized_spectral_norm as spectral_norm
from weft.nn.utils.norms import parametrized_weight_norm as weight_norm

__all__ = ["spectral_norm", "weight_norm"]
