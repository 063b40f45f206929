"""Asking a trace: find, walk, fold; the whole run as one graph."""
