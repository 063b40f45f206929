"""A watched training on disk: its file, and what a list of trainings shows of it."""
