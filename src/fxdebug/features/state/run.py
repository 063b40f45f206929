"""The state of a model, for ``check``: nothing is run."""

from __future__ import annotations

from typing import Any

import torch

from fxdebug.api.reports.report import Report
from fxdebug.capture.probe import members, untracked
from fxdebug.data.report import Cell, ReportData
from fxdebug.features.shared.drawn.as_drawn import is_trained
from fxdebug.features.state.buffers import find_buffers
from fxdebug.features.state.decay import find_decay
from fxdebug.features.state.epsilon import find_epsilon
from fxdebug.features.state.modes import find_modes, find_statistics
from fxdebug.features.state.not_loaded import find_not_loaded, note_as_made
from fxdebug.features.state.shared import find_broken_ties, find_repeated
from fxdebug.features.state.unregistered import find_unregistered
from fxdebug.plugins import report
from fxdebug.plugins.given import GivenModel


def on_model(given: GivenModel, limits: None) -> ReportData[Any]:
    """Answer ``check`` about a model."""
    model = given.module
    with untracked(), torch.no_grad():
        trained = is_trained(model)
        findings = [
            *find_buffers(model),
            *find_not_loaded(model),
            *find_unregistered(model),
            *find_statistics(model, trained=trained),
            *find_modes(model),
            *find_broken_ties(model, trained=trained),
            *find_repeated(model),
            *find_epsilon(model, given.optimizer),
            *find_decay(model, given.optimizer),
        ]
        notes = list(note_as_made(model)) if given.inputs is None else []
        rows: list[dict[str, Cell]] = [
            {"kind": "buffers", "count": len(members.named_buffers_of(model))},
            {"kind": "parameters", "count": len(members.named_parameters_of(model))},
            {"kind": "modules", "count": len(members.modules_of(model))},
        ]
    return Report.of(report("state", _Named(type(model).__name__), rows, notes=notes, findings=findings))


class _Named:
    def __init__(self, model: str) -> None:
        self.model = model
