"""The command ``weights``; the first line of the docstring is its help."""

from __future__ import annotations

import argparse
from typing import Any

from fxdebug import api
from fxdebug.api.commands.load_model import from_file
from fxdebug.api.commands.parts import show_report
from fxdebug.errors import UsageError
from fxdebug.plugins.command import REPORT, Command, argument


def weights(options: argparse.Namespace) -> int:
    """Report the weights of a checkpoint or a model; of two, what changed from the first to the second."""
    (a, inputs), (b, _) = (_checkpoint(place) for place in (options.a, options.b))
    if options.run and inputs is None:
        raise UsageError(f"--run needs a model and inputs, FILE.py:factory, and {options.a} is a checkpoint")
    return show_report(api.weights(a, b, inputs=inputs if options.run else None), options)


def _checkpoint(place: str | None) -> tuple[Any, Any]:
    """Return a checkpoint's path, or the model that a factory makes (``FILE.py:factory``), and the inputs of that."""
    file, _, factory = (place or "").rpartition(":")
    return from_file(f"{file}:{factory}") if file.endswith(".py") and factory else (place, None)


COMMANDS = (
    Command(
        weights,
        (
            argument("a", metavar="A", help="a .safetensors or .pt file, a folder with some, or FILE.py:factory"),
            argument("b", metavar="B", nargs="?", help="a second one: report what changed from A to B"),
            argument(
                "--run",
                action="store_true",
                help="also run the model of FILE.py:factory on its inputs: units that are never active",
            ),
            *REPORT,
        ),
        place=190,
    ),
)
