"""The ways to run a model: once, every forward, with a wider shadow, isolated."""
