"""Passes that only graphs which become kernels go through, after all others."""
