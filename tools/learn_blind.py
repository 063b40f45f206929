"""Trainings written after the rules of the verdict."""

from __future__ import annotations

from learn_parts import Cases

CASES = Cases()
