"""Values in registers: their forms, arithmetic, and casts."""
