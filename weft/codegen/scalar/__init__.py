"""Numbers in registers: their forms, arithmetic on them, and casts between them."""
