"""Attention of a run: maps, numbers per head, the flow between tokens over the layers."""
