"""Quantised models: the error that each call adds, its effect on the result, and reasons that its weight shows."""
