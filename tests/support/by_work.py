"""Findings of a profile whose times are the work of each operation: bytes and multiplications, not a clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import fxdebug
from fxdebug.data.findings import Finding
from fxdebug.data.measured.timings import OpTiming, Timings
from fxdebug.features.profile.findings import Limits, findings_of
from fxdebug.features.profile.report import bytes_moved, profiles
from fxdebug.features.profile.surroundings import surroundings

CALL = 2_000  # what calling an operation costs, as bytes
PRODUCTS = 16  # operations that are computed while a byte is moved


def findings_by_work(
    model: nn.Module, args: tuple[Any, ...], loss: Callable[[Any], Tensor] | None = None
) -> tuple[Finding, ...]:
    """Return the findings of a run in which each operation takes as long as it has work; a backward twice that."""
    with torch.set_grad_enabled(loss is not None):
        trace = fxdebug.fx_debug(model, args)
    calls = profiles(trace, Timings())
    for profile in calls:
        flops = {op.node.rpartition("/")[2]: op.flops for op in profile.flops.ops}
        for position, (step, _) in enumerate(profile.steps):
            counted = flops.get(step.op.name)
            products = counted.forward if counted is not None and counted.forward else 0
            work = CALL + (bytes_moved(step) or 0) + products // PRODUCTS
            if step.op.op == "embedding":
                work = CALL
            timing = OpTiming(step.op.op, [work])
            if loss is not None:
                reads = [getattr(arg, "numel", 0) for arg in step.args]
                fills = step.op.op in ("embedding", "getitem")  # a gradient for all that was given
                timing.backward.append(4 * max(reads) if fills else 2 * work)
            profile.steps[position] = step, timing
        profile.own, profile.total = [1], [1]
    around = surroundings(model, args, {}, torch.device("cpu"), loss)
    return tuple([finding for _, finding in findings_of(trace, calls, Limits(), around=around)])
