"""The command ``attention``; the first line of the docstring is its help."""

from __future__ import annotations

import argparse

from fxdebug import api
from fxdebug.api.commands.load_model import tokenizer_of
from fxdebug.api.commands.parts import model_or_run, show_report
from fxdebug.plugins.command import GRAD, MODEL_OR_RUN, RANK, REPORT, Command


def attention(options: argparse.Namespace) -> int:
    """Show where each head of a model looks: sinks, unused heads, masks that let tokens through."""
    import torch

    model, inputs = model_or_run(options)
    tokens = tokenizer_of(options.hf) if options.hf is not None else None
    with torch.set_grad_enabled(options.grad):
        return show_report(api.attention(model, inputs, tokens=tokens), options)


COMMANDS = (Command(attention, (*MODEL_OR_RUN, GRAD, *REPORT, RANK), place=250),)
