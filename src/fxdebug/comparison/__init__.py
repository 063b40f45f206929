"""Comparison of two traces: the steps of either side, their distances, the verdict."""
