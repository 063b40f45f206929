"""The command ``tune``; the first line of the docstring is its help."""

from __future__ import annotations

import argparse
from typing import Any

from fxdebug import api
from fxdebug.api.commands.parts import chosen_model, loss_of, show_report
from fxdebug.errors import UsageError, nearest
from fxdebug.plugins.command import BACKWARD, GRAD, MODEL, REPORT, Command, argument, integer_from


def tune(options: argparse.Namespace) -> int:
    """Try settings on copies of a model: what each brings, measured, and what it changes."""
    import torch

    model, inputs = chosen_model(options)
    with torch.set_grad_enabled(options.grad):
        report = api.tune(
            model,
            inputs,
            knobs=options.knobs.split(",") if options.knobs else None,
            loss=loss_of(options) or (api.mean_of_output if options.optimizer else None),
            optimizer=_optimizer(options.optimizer),
            tolerance=options.tolerance,
            pairs=options.pairs,
            clock=options.clock,
        )
    return show_report(report, options)


def _optimizer(name: str | None) -> Any:
    """Return the class of ``torch.optim`` with a name; raises ``UsageError`` where there is none."""
    import torch

    known = [one for one in dir(torch.optim) if isinstance(getattr(torch.optim, one), type) and one != "Optimizer"]
    if name is not None and name not in known:
        raise UsageError(f"no optimizer {name!r} in torch.optim.{nearest(name, known)}")
    return None if name is None else getattr(torch.optim, name)


COMMANDS = (
    Command(
        tune,
        (
            *MODEL,
            argument("--knobs", metavar="NAMES", help="what to try, with commas (default: all that need no asking)"),
            argument("--tolerance", type=float, metavar="X", help="the change of a result that may be taken"),
            argument("--pairs", type=integer_from(7), default=9, metavar="N", help="timed pairs (default: 9)"),
            argument(
                "--clock",
                choices=("wall", "processor"),
                default=None,
                help="the time to compare (default: wall, or processor where other work disturbs it)",
            ),
            BACKWARD,
            argument("--optimizer", metavar="NAME", help="also step with this optimizer of torch.optim, such as AdamW"),
            GRAD,
            *REPORT,
        ),
        place=155,
    ),
)
