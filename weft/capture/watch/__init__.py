"""What a run reads from outside and writes to it."""
