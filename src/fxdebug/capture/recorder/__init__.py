"""Calls come in, in any thread; finished records go out."""
