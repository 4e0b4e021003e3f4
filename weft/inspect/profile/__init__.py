"""Profiles: where time and memory go, eagerly and in compiled functions."""
