"""The bars that ``make bench`` holds every mode against, and the measurements of the last time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

PLAIN = "plain"
SLOWER = 1.2  # times the ratio of the last time that was written down: a regression


@dataclass(frozen=True)
class Bar:
    """What a mode may cost at most.

    ``against`` the plain forward: as many times its time. Against another mode: that part of what the
    other one adds to the plain forward.
    """

    model: str
    mode: str
    against: str
    limit: float

    def measured(self, modes: Mapping[str, Mapping[str, Any]]) -> float | None:
        """The figure, from the records of one model's modes; ``None`` if it was not measured."""
        own = modes.get(self.mode)
        if own is None:
            return None
        if self.against == PLAIN:
            return float(own["ratio_to_plain"])
        other = modes.get(self.against)
        return None if other is None else float(own["added_s"] / other["added_s"])

    def __str__(self) -> str:
        what = "× plain" if self.against == PLAIN else f"of what {self.against} adds"
        return f"{self.mode} on {self.model}: at most {self.limit:g} {what}"


@dataclass(frozen=True)
class Memory:
    """Megabytes beyond the plain forward's peak, and kilobytes more for each module call."""

    model: str
    mode: str
    megabytes: float
    per_call: float

    def limit(self, record: Mapping[str, Any]) -> float:
        """For a model with so many calls, in megabytes."""
        return self.megabytes + self.per_call * float(record["calls"]) / 1024


_MODELS = ("tiny-gpt2", "minilm", "gpt2-124m")
_TIMES = {
    "tree": (1.8, 1.25, 1.10),
    "graph, first": (7, 2, 1.25),
    "graph, later": (4, 1.5, 1.15),
    "tensors, saved": (10, 2, 1.5),
}
_EXPLAINED = (
    "densenet-121",
    "mobilenet-v2",
    "vit-tiny",
    "linear-1000",
    "weights-2000",
    "kernels",
    "resnet-50",
    "mlp-500",
)
BARS = [
    *[Bar(model, mode, PLAIN, limit) for mode, limits in _TIMES.items() for model, limit in zip(_MODELS, limits)],
    *[Bar(model, f"drop-in, {kind}", f"reference, {kind}", 1 / 4) for model in _MODELS for kind in ("repr", "files")],
    *[Bar(model, "graph, later", "graph, unasked", 2) for model in _EXPLAINED],  # explaining: at most once more
]
MEMORY = [Memory("gpt2-124m", "tree", 20, 2)]
DISK = ("gpt2-124m", "drop-in, files", "reference, files", 0.5)
GROWTH = ("mlp-12", "mlp-500", "tree", 1.2)  # the time added per call, of the deep one as against the shallow one


@dataclass(frozen=True)
class Verdict:
    """One bar, what was measured, and whether it holds."""

    what: str
    measured: float
    limit: float

    @property
    def met(self) -> bool:
        """Is it within its limit?"""
        return self.measured <= self.limit


def verdicts(models: Mapping[str, Mapping[str, Any]], bars: list[Bar]) -> list[Verdict]:
    """Every bar that what was measured tells something about."""
    found = []
    for bar in bars:
        measured = bar.measured(models.get(bar.model, {}).get("modes", {}))
        if measured is not None:
            found.append(Verdict(str(bar), measured, bar.limit))
    for memory in MEMORY:
        model = models.get(memory.model, {})
        record = model.get("modes", {}).get(memory.mode, {})
        if record.get("extra_mb") is not None:
            what = f"{memory.mode} on {memory.model}: megabytes at the peak, beyond the plain forward's"
            found.append(Verdict(what, record["extra_mb"], memory.limit(model)))
    model, mode, other, limit = DISK
    modes = models.get(model, {}).get("modes", {})
    if mode in modes and other in modes:
        part = modes[mode]["bytes"] / modes[other]["bytes"]
        found.append(Verdict(f"{mode} on {model}: bytes on disk, of what {other} writes", part, limit))
    few, many, mode, limit = GROWTH
    if few in models and many in models and mode in models[few]["modes"] and mode in models[many]["modes"]:
        each = [models[name]["modes"][mode]["added_s"] / models[name]["calls"] for name in (few, many)]
        found.append(Verdict(f"{mode}: time for each call of {many}, of that of {few}", each[1] / each[0], limit))
    return found


def regressions(models: Mapping[str, Mapping[str, Any]], before: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Modes of ours whose ratio to the plain forward grew by more than a fifth since ``before``."""
    found = []
    for name, model in models.items():
        for mode, record in model["modes"].items():
            known = before.get(name, {}).get("modes", {}).get(mode)
            if known is None or mode.startswith("reference") or mode in ("hooks", "torchlens", "nnsight"):
                continue
            now, then = record["ratio_to_plain"], known["ratio_to_plain"]
            if now > then * SLOWER:
                found.append(f"{mode} on {name}: {now:.2f} × plain, {then:.2f} when it was last written down")
    return found
