"""The fuzzer: random graphs and programs, run in every mode (docs/fuzzing.md)."""
