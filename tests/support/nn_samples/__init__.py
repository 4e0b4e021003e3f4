"""All rows of the nn tests, family by family."""

from nn_samples import activations, functions, images, layers, losses, sequences

ROWS = [
    *layers.ROWS,
    *sequences.ROWS,
    *activations.ROWS,
    *losses.ROWS,
    *functions.ROWS,
    *images.ROWS,
]
