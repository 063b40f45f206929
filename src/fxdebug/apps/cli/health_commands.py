"""The commands about the health of a model: gradients, weights, watch; the first docstring line is the help text."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from fxdebug import api
from fxdebug.apps.cli.commands import chosen_model
from fxdebug.apps.cli.cost_commands import show_report
from fxdebug.apps.cli.load_model import from_file

if TYPE_CHECKING:
    from torch import nn


def gradients(options: argparse.Namespace) -> int:
    """Report the gradients of one step: of the model's loss, or of the mean of its output."""
    model, inputs = chosen_model(options)
    return show_report(api.gradients(model, inputs, api.loss_or_mean), options)


def weights(options: argparse.Namespace) -> int:
    """Report the weights of a checkpoint or a model; of two, what changed from the first to the second."""
    a, b = (None if place is None else _checkpoint(place) for place in (options.a, options.b))
    assert a is not None
    return show_report(api.weights(a, b), options)


def watch(options: argparse.Namespace) -> int:
    """Report a training that was watched by fxdebug.watch, also one that still goes on."""
    return show_report(api.watched_training(options.folder, options.rank), options)


def _checkpoint(place: str) -> nn.Module | str:
    """Return a checkpoint's path, or the model that a factory makes (``FILE.py:factory``)."""
    file, _, factory = place.rpartition(":")
    if file.endswith(".py") and factory:
        model: nn.Module = from_file(place)[0]
        return model
    return place
