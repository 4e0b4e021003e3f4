"""A function's source, rewritten so that every read, write, call and branch calls a hook."""
