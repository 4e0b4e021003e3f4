"""All rows of the nn tests, family by family."""

from nn_samples import activations, functions, layers, losses, sequences

ROWS = [
    *layers.ROWS,
    *sequences.ROWS,
    *activations.ROWS,
    *losses.ROWS,
    *functions.ROWS,
]
