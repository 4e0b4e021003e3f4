"""Profiles of time and memory, in eager code and in compiled functions."""
