"""Causes of a difference that are tried: runs with operations replaced, until b returns what a returns."""
