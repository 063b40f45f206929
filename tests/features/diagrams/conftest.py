"""Fixtures that the tests of this folder share."""

from __future__ import annotations

from support.export_fixtures import different, equal, rankdir, tower

__all__ = ["different", "equal", "rankdir", "tower"]
