"""The ways to run a model: once, every forward, from the same start."""
