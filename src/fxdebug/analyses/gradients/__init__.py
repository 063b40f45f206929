"""Moved to ``features/shared/gradients``."""
