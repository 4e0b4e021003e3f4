"""Steps through a compiled function, op by op or line by line."""
