"""Whole training steps: plain functions that go forward, backward and update, one row for each."""

from training import adaptive, details, generative, networks

CASES = [*networks.CASES, *generative.CASES, *adaptive.CASES, *details.CASES]
