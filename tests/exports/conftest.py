"""Fixtures that the tests of this folder share."""

from __future__ import annotations

from support.export_fixtures import rankdir, tower

__all__ = ["rankdir", "tower"]
