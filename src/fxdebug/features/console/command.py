"""The command `fxdebug debug`: the console on a saved run, or on a model that runs."""

from __future__ import annotations

import argparse

from fxdebug.api.commands.parts import FAILED, OK, chosen_model, load_run
from fxdebug.plugins.command import BACKWARD, GRAD, MODEL, RANK, Command, argument


def debug(options: argparse.Namespace) -> int:
    """Step through a saved run, or through a model while it runs. Exit status 1: a command of a script failed."""
    from fxdebug.features.console.start import script_lines, start_recorded

    lines = script_lines(options.script or (), options.lines or ())
    if options.hf is None and options.target is not None and ".py:" not in options.target:
        return OK if start_recorded(load_run(options.target, options), lines) else FAILED
    import torch

    from fxdebug.features.console.start_live import live_session

    model, inputs = chosen_model(options)
    with torch.set_grad_enabled(options.grad or options.backward):
        _, worked = live_session(model, inputs, backward=options.backward, commands=lines)
    return OK if worked else FAILED


COMMANDS = (
    Command(
        debug,
        (
            argument(
                "target",
                nargs="?",
                metavar="RUN|FILE.py:factory",
                help="the folder of a saved run, or a Python file and a function in it that returns (model, inputs)",
            ),
            *MODEL[1:],
            GRAD,
            BACKWARD,
            argument(
                "-x", "--script", action="append", metavar="FILE", help="run the commands in this file; - is the input"
            ),
            argument(
                "-c",
                "--command",
                dest="lines",
                action="append",
                metavar="LINE",
                help="run this command; repeat it for more",
            ),
            RANK,
        ),
        place=120,
    ),
)
