"""All rows of samples, family by family."""

from samples import (
    creation,
    elementwise,
    fft,
    index,
    linalg,
    ranks,
    reduce,
    scatter,
    shape,
    special,
    special_functions,
)

ROWS = [
    *elementwise.ROWS,
    *reduce.ROWS,
    *shape.ROWS,
    *index.ROWS,
    *scatter.ROWS,
    *ranks.ROWS,
    *creation.ROWS,
    *linalg.ROWS,
    *fft.ROWS,
    *special.ROWS,
    *special_functions.ROWS,
]
