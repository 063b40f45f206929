"""Weight decay on what it is not meant for, told by its effect."""

from __future__ import annotations

import math
from collections.abc import Iterator

from torch import nn
from torch.optim import Optimizer

from fxdebug.capture.probe import members
from fxdebug.data.findings import ADVICE, Finding

NAMED = 3
SLOW = 10_000  # steps to halve from which decay is too slow to matter: AdamW by default takes seven times as many


def find_decay(model: nn.Module, optimizer: Optimizer | None) -> Iterator[Finding]:
    """Yield the norms and biases that an optimizer pulls to zero, with the time that it takes them to halve."""
    if optimizer is None:
        return
    names = {id(parameter): name for name, parameter in members.named_parameters_of(model)}
    decayed = []
    for group in optimizer.param_groups:
        rate, decay = group.get("lr"), group.get("weight_decay", 0)
        if not isinstance(rate, (int, float)) or not isinstance(decay, (int, float)) or rate * decay <= 0:
            continue
        decayed += [(names[id(p)], rate * decay) for p in group["params"] if p.ndim == 1 and id(p) in names]
    if not decayed or len(decayed) == len(names):
        return
    name, strength = max(decayed, key=lambda pair: pair[1])
    if math.log(2) / strength > SLOW:
        return
    named = ", ".join([one for one, _ in decayed[:NAMED]]) + (", …" if len(decayed) > NAMED else "")
    path = name.rpartition(".")[0]
    yield Finding(
        rule="decay",
        severity=ADVICE,
        path=path,
        call=f"{path}#0",
        op=type(optimizer).__name__,
        what=f"{len(decayed)} of the norms and biases ({named}) decay: without a gradient that holds them, they halve "
        f"in {math.log(2) / strength:.3g} steps",
        measured=strength,
        advice="Give them a group of their own with weight_decay=0.",
    )
