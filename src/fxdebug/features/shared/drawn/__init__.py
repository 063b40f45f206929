"""Weights as they were drawn: which matrices are, and whether a model is trained."""
