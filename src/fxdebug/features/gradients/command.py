"""The command ``gradients``; the first line of the docstring is its help."""

from __future__ import annotations

import argparse

from fxdebug import api
from fxdebug.api.commands.load_model import from_file
from fxdebug.api.commands.parts import chosen_model, show_report
from fxdebug.errors import UsageError
from fxdebug.plugins.command import MODEL, REPORT, Command, argument


def gradients(options: argparse.Namespace) -> int:
    """Report the gradients of one step, of the model's loss or of the mean of its output; of two, how they differ."""
    if options.other is not None:
        return _compared(options)
    model, inputs = chosen_model(options)
    return show_report(api.gradients(model, inputs, api.loss_or_mean), options)


def _compared(options: argparse.Namespace) -> int:
    """Compare the gradients of two models, with the inputs of the first, or of two runs that hold some."""
    if options.hf is not None or options.text:
        raise UsageError("--hf and --text are for one model: give two, FILE.py:factory, or two saved runs")
    models = [_is_factory(one) for one in (options.target, options.other)]
    if all(models):
        (model_a, inputs), (model_b, _) = from_file(options.target), from_file(options.other)
        return show_report(api.compare_gradients(model_a, model_b, inputs, api.loss_or_mean), options)
    if any(models):
        raise UsageError(f"{options.target} and {options.other}: give two models, FILE.py:factory, or two saved runs")
    return show_report(api.compare_gradients(options.target, options.other), options)


def _is_factory(text: str) -> bool:
    file, _, name = text.rpartition(":")
    return file.endswith(".py") and name.isidentifier()


COMMANDS = (
    Command(
        gradients,
        (
            MODEL[0],
            argument(
                "other",
                nargs="?",
                metavar="B",
                help="a second model, or two saved runs that hold gradients: report how B's gradients differ",
            ),
            *MODEL[1:],
            *REPORT,
        ),
        place=170,
    ),
)
