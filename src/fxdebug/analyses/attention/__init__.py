"""Moved to ``features/attention``."""
