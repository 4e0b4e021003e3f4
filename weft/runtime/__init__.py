"""Runs graphs: as machine code, or op by op."""
