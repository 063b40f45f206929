"""Answers about the numbers of a trace, without the model and without torch: what is wrong, and where."""
