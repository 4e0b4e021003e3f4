"""Eager calls on large arrays, by machine code."""
