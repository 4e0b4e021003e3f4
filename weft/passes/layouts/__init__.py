"""Programs over a mesh: a layout for each value (`propagate`), then one rank's part (`split`)."""
