"""Runs as files that other programs open."""
