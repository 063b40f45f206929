"""Runs once more: with operations replaced, with the inputs of another run, with fused operations written out."""
