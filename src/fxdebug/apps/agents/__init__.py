"""Moved to ``features/mcp``."""
