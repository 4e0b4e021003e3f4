"""Linear algebra in machine code: small matrices by code of ours, large ones by LAPACK."""
