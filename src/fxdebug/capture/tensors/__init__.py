"""The tensors of a run: the identity of their values, and the description and statistics of each value."""
