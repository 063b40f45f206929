"""Runs once more: operations replaced, inputs of another run (isolating mode), fused operations written out."""
