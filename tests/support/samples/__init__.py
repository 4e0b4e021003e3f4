"""All rows of samples, family by family."""

from samples import (
    creation,
    elementwise,
    fft,
    index,
    linalg,
    reduce,
    shape,
    special,
    special_functions,
)

ROWS = [
    *elementwise.ROWS,
    *reduce.ROWS,
    *shape.ROWS,
    *index.ROWS,
    *creation.ROWS,
    *linalg.ROWS,
    *fft.ROWS,
    *special.ROWS,
    *special_functions.ROWS,
]
