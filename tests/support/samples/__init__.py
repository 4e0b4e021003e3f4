"""All rows of samples, family by family."""

from samples import (
    counting,
    creation,
    einsum,
    elementwise,
    fft,
    index,
    linalg,
    linalg_more,
    names,
    ranks,
    reduce,
    scatter,
    shape,
    signals,
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
    *counting.ROWS,
    *creation.ROWS,
    *linalg.ROWS,
    *linalg_more.ROWS,
    *einsum.ROWS,
    *fft.ROWS,
    *signals.ROWS,
    *special.ROWS,
    *names.ROWS,
    *special_functions.ROWS,
]
