"""Which values, steps and calls of two runs belong together."""
