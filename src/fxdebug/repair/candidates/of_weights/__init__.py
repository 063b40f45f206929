"""Candidates of causes that are weights: turned, exchanged, scaled, or those of another module."""
