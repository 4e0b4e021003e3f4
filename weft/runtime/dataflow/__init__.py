"""The dataflow executor: nodes run when their inputs are there, in frames, by a scheduler."""
