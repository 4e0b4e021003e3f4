"""Functions with something outside of themselves to read and write, one row for each."""

from state import branches, gradients, objects, tensors

ROWS = [*objects.ROWS, *tensors.ROWS, *gradients.ROWS, *branches.ROWS]
