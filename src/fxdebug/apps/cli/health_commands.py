"""The commands about the health of a model: gradients, weights, watch; the first docstring line is the help text."""

from __future__ import annotations

import argparse
from typing import Any

from fxdebug import api
from fxdebug.apps.cli.commands import chosen_model
from fxdebug.apps.cli.cost_commands import show_report
from fxdebug.apps.cli.load_model import from_file
from fxdebug.errors import UsageError


def gradients(options: argparse.Namespace) -> int:
    """Report the gradients of one step: of the model's loss, or of the mean of its output."""
    model, inputs = chosen_model(options)
    return show_report(api.gradients(model, inputs, api.loss_or_mean), options)


def weights(options: argparse.Namespace) -> int:
    """Report the weights of a checkpoint or a model; of two, what changed from the first to the second."""
    (a, inputs), (b, _) = (_checkpoint(place) for place in (options.a, options.b))
    if options.run and inputs is None:
        raise UsageError(f"--run needs a model and inputs, FILE.py:factory, and {options.a} is a checkpoint")
    return show_report(api.weights(a, b, inputs=inputs if options.run else None), options)


def watch(options: argparse.Namespace) -> int:
    """Report a training that was watched by fxdebug.watch, also one that still goes on."""
    return show_report(api.watched_training(options.folder, options.rank), options)


def _checkpoint(place: str | None) -> tuple[Any, Any]:
    """Return a checkpoint's path, or the model that a factory makes (``FILE.py:factory``), and the inputs of that."""
    file, _, factory = (place or "").rpartition(":")
    return from_file(f"{file}:{factory}") if file.endswith(".py") and factory else (place, None)
