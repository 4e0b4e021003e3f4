"""All rows of samples, family by family."""

from samples import elementwise, index, reduce, shape

ROWS = [
    *elementwise.ROWS,
    *reduce.ROWS,
    *shape.ROWS,
    *index.ROWS,
]
