"""Attention on a GPU: which become one kernel, forward, and two backward."""
