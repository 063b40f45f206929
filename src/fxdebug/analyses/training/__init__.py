"""A watched training: spikes, trends, and the report of it."""
