"""Probes that look at each operation while a model runs: one question, one file."""
