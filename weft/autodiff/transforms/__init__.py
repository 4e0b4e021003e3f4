"""Function transforms: derivatives of functions, forward and backward, and mapping over an axis."""
