"""Running a function in all modes, and finding where they part."""
