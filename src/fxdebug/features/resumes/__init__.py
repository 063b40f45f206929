"""Trainings that are saved and loaded: ``resumes``."""

from __future__ import annotations

from fxdebug.plugins.feature import Feature

FEATURE = Feature(
    name="resumes",
    functions={"resumes": "fxdebug.features.resumes.run:resumes"},
    rules="fxdebug.features.resumes.rules:BOOK",
    commands="fxdebug.features.resumes.command:COMMANDS",
)
