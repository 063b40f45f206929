"""Activations of a run: distributions, outliers, saturation, units that do nothing."""
