"""Equal pairs made of any zoo model: the same twice, a saved run against a live one, sdpa against eager.

A pair counts only where the two models really return the same: what a model draws from memory or a clock is no pair.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import fxdebug
from fxdebug import Trace
from support.same import difference

from .judge import told, traced

__all__ = ["EXPLAINED", "KINDS", "ZooPair", "apart", "output", "zoo_pairs"]

KINDS = ("twice", "saved", "sdpa-and-eager")
# What is found in these is really there, though the outputs are the same.
_MASK_OF_ZEROS = (
    "masks are asked `== 0`, or negated, which means hidden for booleans (sdpa) and visible for what is added (eager)"
)
EXPLAINED = {
    ("hf/nemotron_asr_streaming/NemotronAsrStreamingForRNNT", "sdpa-and-eager"): _MASK_OF_ZEROS,
    ("hf/nemotron_asr_streaming_encoder/NemotronAsrStreamingEncoder", "sdpa-and-eager"): _MASK_OF_ZEROS,
}
_NO_NUMBERS = "no numbers are known of what is returned"
SAME = 1e-3  # relative: by so much may outputs of sdpa and eager attention differ in models of random weights


@dataclass(frozen=True)
class ZooPair:
    """What came out for one pair; ``skipped`` says why there is none."""

    name: str
    kind: str
    alarms: tuple[str, ...] = ()
    skipped: str = ""

    @property
    def explained(self) -> str:
        """Why what is found is no false alarm."""
        return EXPLAINED.get((self.name, self.kind), "") if self.alarms else ""


def zoo_pairs(name: str, build: Callable[[], tuple[Any, Any]], mode: str = "statistics") -> Iterator[ZooPair]:
    """Every kind of pair that can be made of a zoo entry."""
    with tempfile.TemporaryDirectory(prefix="fxdebug-faults-") as folder:
        (model, inputs), (other, same_inputs) = build(), build()
        a, b = _run(model, inputs, mode, Path(folder) / "a"), _run(other, same_inputs, mode)
        unequal = difference(output(a), output(b))
        for kind, reference in (("twice", a), ("saved", os.fspath(Path(folder) / "a"))):
            yield (
                ZooPair(name, kind, skipped=f"its outputs differ: {unequal}")
                if unequal
                else _compared(name, kind, reference, b)
            )
        del a, model
        if getattr(getattr(other, "config", None), "_attn_implementation", None) == "sdpa":
            yield _eager(name, b, build, mode)


def _eager(name: str, b: Trace, build: Callable[[], tuple[Any, Any]], mode: str) -> ZooPair:
    model, inputs = build()
    kind = KINDS[2]
    try:
        model.set_attn_implementation("eager")
        a = _run(model, inputs, mode)
    except Exception as error:
        return ZooPair(name, kind, skipped=f"no eager attention: {type(error).__name__}")
    if a.error is not None and b.error is None:
        return ZooPair(name, kind, skipped=f"with eager attention it raises {a.error.type}")
    gap = apart(output(a), output(b))
    if gap > SAME:
        return ZooPair(name, kind, skipped=f"sdpa and eager return values that are {gap:.1g} apart")
    return _compared(name, kind, a, b)


def output(trace: Trace) -> Any:
    """What the model returned; how it failed where it did."""
    return trace.output if trace.root.error is None else str(trace.root.error)


def _run(model: Any, inputs: Any, mode: str, save: Path | None = None) -> Trace:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return traced(model, inputs, mode, save)


def _compared(name: str, kind: str, a: Trace | str, b: Trace) -> ZooPair:
    found = fxdebug.compare(a, b)
    str(found)
    if not found.findings and found.missing and found.missing[0].startswith(_NO_NUMBERS):
        return ZooPair(name, kind, skipped=found.missing[0])  # tensors on the meta device
    texts = [told(row) for row in found.findings]
    return ZooPair(name, kind, tuple(texts) if texts or found.equal else ("not equal, and no finding says why",))


def apart(a: Any, b: Any) -> float:
    """The largest relative difference of the floating tensors in two results."""
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        if not a.is_floating_point() or a.is_nested or a.layout is not torch.strided or not a.numel():
            return 0.0
        if a.shape != b.shape:
            return float("inf")
        gap, size = (a.double() - b.double()).norm(), a.double().norm()
        return float(gap / size) if float(size) else float(gap)
    if isinstance(a, dict):
        return max((apart(x, b.get(key)) for key, x in a.items()), default=0.0)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return max((apart(x, y) for x, y in zip(a, b)), default=0.0)
    return 0.0
