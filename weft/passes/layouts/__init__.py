"""Programs over a mesh: a layout for every value (`propagate`), then the part of one rank (`split`)."""
