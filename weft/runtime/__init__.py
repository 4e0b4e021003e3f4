"""Executors: what runs graphs."""
