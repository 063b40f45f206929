"""The tensors of a run: which are the same value, the description of each value, and its statistics."""
