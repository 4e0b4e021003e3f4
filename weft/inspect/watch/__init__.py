"""Looking on while code runs: the birth of a NaN, breakpoints, activations."""
