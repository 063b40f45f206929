"""The command ``gradients``; the first line of the docstring is its help."""

from __future__ import annotations

import argparse

from fxdebug import api
from fxdebug.api.commands.parts import chosen_model, show_report
from fxdebug.plugins.command import MODEL, REPORT, Command


def gradients(options: argparse.Namespace) -> int:
    """Report the gradients of one step: of the model's loss, or of the mean of its output."""
    model, inputs = chosen_model(options)
    return show_report(api.gradients(model, inputs, api.loss_or_mean), options)


COMMANDS = (Command(gradients, (*MODEL, *REPORT), place=170),)
