"""The commands about tensors in a run: attention, activations; the first docstring line is the help text."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from fxdebug import api
from fxdebug.apps.cli.commands import chosen_model, load_run
from fxdebug.apps.cli.cost_commands import show_report
from fxdebug.apps.cli.load_model import tokenizer_of


def attention(options: argparse.Namespace) -> int:
    """Show where each head of a model looks: sinks, unused heads, masks that let tokens through."""
    import torch

    model, inputs = _model_or_run(options)
    tokens = tokenizer_of(options.hf) if options.hf is not None else None
    with torch.set_grad_enabled(options.grad):
        return show_report(api.attention(model, inputs, tokens=tokens), options)


def activations(options: argparse.Namespace) -> int:
    """Measure what the modules of a model return: distributions, outliers, dead units."""
    import torch

    model, inputs = _model_or_run(options)
    with torch.set_grad_enabled(options.grad):
        return show_report(api.activations(model, inputs), options)


def _model_or_run(options: argparse.Namespace) -> tuple[Any, Any]:
    """Return the model and its inputs, or a saved run and no inputs, where the target is a folder."""
    if options.target is not None and options.hf is None and Path(options.target).is_dir():
        return load_run(options.target, options), ()
    return chosen_model(options)
