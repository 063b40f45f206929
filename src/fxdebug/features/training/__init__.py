"""Follow a training: ``watch``."""

from __future__ import annotations

from fxdebug.plugins.feature import Feature

FEATURE = Feature(
    name="training",
    functions={
        "watch": "fxdebug.features.training.watch:watch",
    },
    further={
        "StopTraining": "fxdebug.features.training.actions:StopTraining",
        "FxDebugWarning": "fxdebug.features.training.watch:FxDebugWarning",
        "Watch": "fxdebug.features.training.watch:Watch",
        "page_of_training": "fxdebug.features.training.page:page_of_training",
        "page_of_trainings": "fxdebug.features.training.overlay:page_of_trainings",
        "Verdict": "fxdebug.features.training.verdict.judge:Verdict",
        "steps_since": "fxdebug.features.training.live:steps_since",
        "training_state": "fxdebug.features.training.live:training_state",
        "watched_training": "fxdebug.features.training.watch:watched_training",
    },
    folder="fxdebug.features.training.folder:FOLDER",
    card="fxdebug.features.training.saved.card:card_of",
    verdict="fxdebug.features.training.saved.card:verdict_of_folder",
    rules="fxdebug.features.training.rules:BOOK",
    pictures={"watch": "fxdebug.features.training.picture:draw"},
    exporters={
        ("training", ".html"): "fxdebug.features.training.page:write_training",
    },
    commands="fxdebug.features.training.command:COMMANDS",
)
