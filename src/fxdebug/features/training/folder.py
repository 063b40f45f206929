"""Folders of watched trainings, for ``check``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from fxdebug.data.calls import Note
from fxdebug.data.report import ReportData
from fxdebug.features.training.overlay import beside_earlier, page_of_trainings
from fxdebug.features.training.page import page_of_training
from fxdebug.features.training.report import training_report
from fxdebug.features.training.saved.training_file import (
    is_training,
    read_ranks,
    read_training,
    training_files,
)
from fxdebug.plugins.given import Folder


def _report(folder: Path, rank: int | None, limits_of: Callable[[str], Any]) -> tuple[str, ReportData[Any]]:
    record, *others = read_ranks(folder, rank)
    report: ReportData[Any] = training_report(
        record, limits_of("gradients"), others, limits_of("training"), beside_earlier(record, folder, rank)
    )
    extent = Note(f"{len(record.steps)} steps, {len(record.watched)} of them watched")
    return record.model, replace(report, notes=(extent, *report.notes))


FOLDER = Folder(
    is_training,
    _report,
    "a training",
    "a watched training",
    read_training,
    files=training_files,
    page=page_of_training,
    pages=page_of_trainings,
)
