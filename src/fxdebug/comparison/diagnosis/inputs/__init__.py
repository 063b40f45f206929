"""Inputs that differ between two runs: where, and what made it so."""
