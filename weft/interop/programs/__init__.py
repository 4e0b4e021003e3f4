"""Programs: functions as a graph, its constants and its state, to be saved and run elsewhere."""
