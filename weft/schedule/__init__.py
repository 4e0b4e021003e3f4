"""From graphs to plans: what is fused, in what order it runs, and where it lies in memory."""
