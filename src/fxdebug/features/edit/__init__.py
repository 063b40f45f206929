"""Runs that are changed or paused: ``edit``, ``ablate``, ``patch``, ``replay``."""

from __future__ import annotations

from fxdebug.plugins.feature import Feature

FEATURE = Feature(
    name="edit",
    functions={
        "ablate": "fxdebug.features.edit.edit_run:ablate",
        "edit": "fxdebug.features.edit.edit_run:edit",
        "patch": "fxdebug.features.edit.edit_run:patch",
        "replay": "fxdebug.features.edit.replay_call:replay",
    },
    further={
        "edit_of": "fxdebug.features.edit.edit_run:edit_of",
        "paused_run": "fxdebug.features.edit.pause_run:paused_run",
        "constant_like": "fxdebug.features.edit.changes:constant_like",
    },
)
