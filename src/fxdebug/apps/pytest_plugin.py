"""Moved to another place: see ``fxdebug/moved.py``."""

from __future__ import annotations

from fxdebug.moved import names_of

__getattr__ = names_of(__name__)
