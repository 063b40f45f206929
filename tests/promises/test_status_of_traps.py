"""Models that plain torch.fx traces wrong without a word (``zoo/traps.py``): the statuses and reasons of their calls.

That no verified graph of a trap is wrong is judged in ``test_traps``. Here stand status, reason and guards, as one
table in ``golden/traps.txt``: a trap that is no longer verified, or verified without its guard, changes it.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import torch
import torch.utils.checkpoint

import fxdebug
from fxdebug.capture.graphs.known_templates import forget_templates
from support.reasons import guards_of, reason_of
from zoo import traps

CHECKPOINT = ["checkpoint_: #0 verified"]
CHECKPOINT_THAT_SAVES_INPUTS = [  # torch 2.8: its frame keeps a tensor that an autograd function made
    "checkpoint_: #0 recorded it asks a tensor for grad_fn, which a symbol does not have"
    " in «return checkpoint(self.l, x, use_reentrant=False)»",
    "checkpoint_, with gradients: #0 recorded the program keeps a tensor of it in a place of its own",
]


def test_statuses_and_reasons_of_each_trap(golden: Callable[[str, str], None]) -> None:
    lines = []
    for name in traps.TRAPS:
        without, with_grad = told(name, False), told(name, True)
        of_this = [f"{name}: {line}" for line in without]
        of_this += [f"{name}, with gradients: {line}" for line in with_grad] if with_grad != without else []
        if name == "checkpoint_" and hasattr(torch.utils.checkpoint, "_NoopSaveInputs"):
            assert of_this == CHECKPOINT_THAT_SAVES_INPUTS
            of_this = CHECKPOINT
        lines += of_this
    golden("traps.txt", "\n".join(lines) + "\n")


def told(name: str, grad: bool) -> list[str]:
    """Return one line for the root, with its guards, and one for each call below it that is not verified."""
    forget_templates()
    kind, train = traps.TRAPS[name]
    torch.manual_seed(0)
    traps.fresh_globals()
    with torch.set_grad_enabled(grad):
        trace = fxdebug.fx_debug(kind().train(train), torch.randn(3, 8))
    lines = []
    for call in trace.calls:
        if call is trace.root or call.status != "verified":
            words, line = reason_of(call) if call.status != "verified" else ("", "")
            guards = [f"; {what} is {answer} in «{source}»" for what, answer, source in guards_of(call)]
            at = f" in «{line}»" if line else ""
            lines.append(f"{call.id} {call.status} {words}{at}{''.join(guards)}".rstrip())
    return [re.sub(r"\d\.\d{4,}", "0.…", line) for line in lines]
