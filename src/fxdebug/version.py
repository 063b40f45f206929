"""The version of this package, and nothing else: packaging reads it without importing the rest."""

from __future__ import annotations

__version__ = "0.1.0"
