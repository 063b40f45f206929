"""Wrappers and patches that are in place while a run is on, and their restoration."""
