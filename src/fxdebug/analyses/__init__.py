"""Answers about a trace that need no model and no torch: what is wrong with its numbers."""
