"""What ``compare`` does not get right yet: each entry fails as soon as it does, so that the list stays short.

``MISSES``: faults by name, in the modes that miss. ``ALARMS``: equal pairs in which something is found.
"""

from __future__ import annotations

__all__ = ["ALARMS", "MISSES"]

MISSES: dict[str, str] = {}
ALARMS: dict[str, str] = {}
