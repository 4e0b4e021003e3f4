"""Functions recorded along each path they take."""
