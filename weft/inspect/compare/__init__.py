"""Runs a function in all modes, and finds the first op whose results differ."""
