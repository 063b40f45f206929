"""Pairing: the values, steps and calls of two runs that belong together."""
