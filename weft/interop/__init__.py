"""What leaves the process, and comes back."""
