"""Observes running code: NaN detection, breakpoints, activations, gradients."""
