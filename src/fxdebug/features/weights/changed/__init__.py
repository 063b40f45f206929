"""Two checkpoints, or a checkpoint and its model: what changed, what kind of state it is, and what was not loaded."""
