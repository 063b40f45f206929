"""Moved to ``features/shared/units``."""
