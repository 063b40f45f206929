"""Findings of isolating mode: values that were replaced, and one judge for it and the plain runs."""
