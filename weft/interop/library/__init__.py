"""Libraries of compiled functions: machine code, headers and loaders (docs/libraries.md)."""
