"""Control flow as nodes, and its derivatives."""
