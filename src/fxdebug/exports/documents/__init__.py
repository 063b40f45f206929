"""Runs as text for people."""
