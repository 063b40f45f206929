"""The command ``activations``; the first line of the docstring is its help."""

from __future__ import annotations

import argparse

from fxdebug import api
from fxdebug.api.commands.parts import model_or_run, show_report
from fxdebug.plugins.command import GRAD, MODEL_OR_RUN, RANK, REPORT, Command


def activations(options: argparse.Namespace) -> int:
    """Measure what the modules of a model return: distributions, outliers, dead units."""
    import torch

    model, inputs = model_or_run(options)
    with torch.set_grad_enabled(options.grad):
        return show_report(api.activations(model, inputs), options)


COMMANDS = (Command(activations, (*MODEL_OR_RUN, GRAD, *REPORT, RANK), place=260),)
