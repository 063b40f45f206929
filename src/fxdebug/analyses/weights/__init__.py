"""Weights of a model: their sizes and units, their initialisation, and their change between checkpoints."""
