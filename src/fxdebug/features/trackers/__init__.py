"""Runs and reports for MLflow and W&B."""

from __future__ import annotations

from fxdebug.plugins.feature import Feature

FEATURE = Feature(
    name="trackers",
    exporters={
        ("trace", "mlflow"): "fxdebug.features.trackers.tracked:write_mlflow",
        ("trace", "wandb"): "fxdebug.features.trackers.tracked:write_wandb",
        ("report", "mlflow"): "fxdebug.features.trackers.tracked:report_to_mlflow",
        ("report", "wandb"): "fxdebug.features.trackers.tracked:report_to_wandb",
    },
)
