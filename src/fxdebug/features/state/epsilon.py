"""An optimizer's epsilon that the dtype of its weights does not hold."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn
from torch.optim import Optimizer

from fxdebug.capture.probe import members
from fxdebug.data.findings import ERROR, Finding
from fxdebug.data.measures import counted

NAMED = 2


def find_epsilon(model: nn.Module, optimizer: Optimizer | None) -> Iterator[Finding]:
    """Yield the weights of a dtype in which the optimizer's ``eps`` is 0: a gradient of 0 is divided by 0 there.

    A fused step computes in float32.
    """
    if optimizer is None:
        return
    names = {id(parameter): name for name, parameter in members.named_parameters_of(model)}
    for group in optimizer.param_groups:
        eps = group.get("eps")
        if type(eps) is not float or eps <= 0 or group.get("fused"):
            continue
        lost = [p for p in group["params"] if id(p) in names and not bool(torch.tensor(eps, dtype=p.dtype))]
        if not lost:
            continue
        kind, path = str(lost[0].dtype)[6:], names[id(lost[0])].rpartition(".")[0]
        named = ", ".join([names[id(one)] for one in lost[:NAMED]]) + (", …" if len(lost) > NAMED else "")
        yield Finding(
            rule="optimizer epsilon",
            severity=ERROR,
            path=path,
            call=f"{path}#0",
            op=type(optimizer).__name__,
            what=f"eps={eps:g} of {type(optimizer).__name__} is 0 in {kind}, the dtype of "
            f"{counted(len(lost), 'parameter')} ({named}): where a gradient is 0, as of rows that are not used, the "
            "step is 0 / 0, NaN",
            measured=float(len(lost)),
            threshold=0.0,
            advice="Keep the weights in float32 (autocast and GradScaler), or give a larger eps: 1e-4 in float16.",
        )
