"""All rows of samples, family by family."""

from samples import creation, elementwise, fft, index, linalg, names, reduce, shape, special

ROWS = [
    *elementwise.ROWS,
    *reduce.ROWS,
    *shape.ROWS,
    *index.ROWS,
    *creation.ROWS,
    *linalg.ROWS,
    *fft.ROWS,
    *special.ROWS,
    *names.ROWS,
]
