"""The command `fxdebug debug`: the console on a saved run, or on a model that runs."""

from __future__ import annotations

import argparse

from fxdebug.apps.cli.commands import FAILED, OK, chosen_model, load_run


def debug(options: argparse.Namespace) -> int:
    """Step through a saved run, or through a model while it runs. Exit status 1: a command of a script failed."""
    from fxdebug.apps.console.start import script_lines, start_recorded

    lines = script_lines(options.script or (), options.lines or ())
    if options.hf is None and options.target is not None and ".py:" not in options.target:
        return OK if start_recorded(load_run(options.target, options), lines) else FAILED
    import torch

    from fxdebug.apps.console.start_live import live_session

    model, inputs = chosen_model(options)
    with torch.set_grad_enabled(options.grad or options.backward):
        _, worked = live_session(model, inputs, backward=options.backward, commands=lines)
    return OK if worked else FAILED
