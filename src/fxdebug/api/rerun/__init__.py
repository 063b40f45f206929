"""Recorded runs that are made again by their models."""
