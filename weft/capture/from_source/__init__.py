"""Control flow captured from the source."""
