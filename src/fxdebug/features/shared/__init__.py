"""Rooms that several features share and the core does not use: they reach the core by the same door as a feature."""
