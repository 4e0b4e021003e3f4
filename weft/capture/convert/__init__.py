"""From a function's source to code that tells what it does."""
