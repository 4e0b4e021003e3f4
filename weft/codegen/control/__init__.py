"""Control flow and stacks in generated code."""
