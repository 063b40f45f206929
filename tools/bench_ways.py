"""What recording costs in place, with the native core and without it: a part of ``make bench``.

A plain forward before each recorded one pushes our code and data out of the processor's caches, as it does where
people trace. Both ways and all modes take turns in one process. Processor time is counted, so that other programs
disturb less.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from rich.table import Table

from bench_bars import Verdict
from bench_models import MODELS, Inputs
from fxdebug import fx_debug
from fxdebug.native import core, dispatch
from running import way_of_recording

ROUNDS, WARM_UP = 11, 2


def _tree(model: Any, inputs: Inputs) -> object:
    return fx_debug(model, dict(inputs), graph=False)


def _graph(model: Any, inputs: Inputs) -> object:
    return fx_debug(model, dict(inputs))


def _statuses(model: Any, inputs: Inputs) -> object:
    trace = fx_debug(model, dict(inputs))
    assert trace.graph_source is not None
    trace.graph_source.verified_call(0)
    return trace


RECORDINGS: dict[str, Callable[[Any, Inputs], object]] = {
    "tree + statistics": _tree,
    "graph, later": _graph,
    "… and its statuses": _statuses,
}

Limits = tuple[tuple[float, float | None], ...]
"""For each recording: × plain with the core, and without it; ``None``: no bar."""

BARS: Mapping[str, Limits] = {
    "minilm": ((1.2, 1.5), (1.4, 2.0), (1.6, None)),
    "gpt2-124m": ((1.05, 1.1), (1.1, 1.2), (1.15, None)),
    "vit-tiny": ((1.27, 1.6), (1.5, 2.3), (1.8, None)),
    "dense-423": ((2.4, 3.5), (3.0, 6.0), (4.0, None)),
    "linear-1000": ((4.3, 8.0), (5.8, 14.0), (8.0, None)),
}


@dataclass(frozen=True)
class Measured:
    """One recording of one model, in one of the two dispatch."""

    model: str
    recording: str
    is_native: bool
    ratio: float
    limit: float | None

    @property
    def verdict(self) -> Verdict:
        """The bar, as the others are told."""
        way = "native" if self.is_native else "without the core"
        what = f"{self.recording} on {self.model}, {way}: × plain, processor time in place"
        return Verdict(what, self.ratio, float("inf") if self.limit is None else self.limit)


def measured_ways(models: Collection[str], rounds: int = ROUNDS) -> list[Measured]:
    """Measure these models; without a build of the core, only the way in Python."""
    build = core.loaded().module
    found: list[Measured] = []
    for name, limits in BARS.items():
        if name in models:
            found += _measured(name, limits, [build, None] if build is not None else [None], rounds)
    return found


def _measured(name: str, limits: Limits, builds: list[Any], rounds: int) -> list[Measured]:
    model, inputs = MODELS[name].make()
    ratios: dict[tuple[str, bool], list[float]] = {}
    with torch.no_grad():
        for number in range(WARM_UP + rounds):
            for recording, record in RECORDINGS.items():
                for build in builds:
                    plain = _seconds(lambda: model(**inputs))
                    with dispatch.using(build):
                        seconds = _seconds(lambda record=record: record(model, inputs))
                    if number >= WARM_UP:
                        ratios.setdefault((recording, build is not None), []).append(seconds / plain)
    return [
        Measured(name, recording, is_native, statistics.median(ratios[recording, is_native]), limit)
        for recording, limit_of in zip(RECORDINGS, limits)
        for is_native, limit in zip((True, False), limit_of)
        if (recording, is_native) in ratios
    ]


def _seconds(run: Callable[[], object]) -> float:
    gc.collect()
    began = time.process_time()
    result = run()
    seconds = time.process_time() - began
    del result
    return seconds


def table(found: Collection[Measured]) -> Table:
    """Return both ways side by side, each with its bar and whether it is met."""
    title = f"Recording in place, × plain ({way_of_recording()})"
    shown = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for column in ("model", "recording"):
        shown.add_column(column)
    for column in ("native", "at most", "without", "at most"):
        shown.add_column(column, justify="right", no_wrap=True)
    by_key = {(each.model, each.recording, each.is_native): each for each in found}
    for model, recording in dict.fromkeys((each.model, each.recording) for each in found):
        cells: list[str] = []
        for is_native in (True, False):
            each = by_key.get((model, recording, is_native))
            cells += ["", ""] if each is None else [f"{each.ratio:.2f}", _limit(each)]
        shown.add_row(model, recording, *cells)
    return shown


def _limit(each: Measured) -> str:
    return "" if each.limit is None else f"{each.limit:g} {'met' if each.verdict.met else 'MISSED'}"


def page(found: Collection[Measured]) -> str:
    """Return the table as Markdown."""
    lines = ["### Recording in place", "", f"× plain, processor time; {way_of_recording()}.", ""]
    lines += ["| model | recording | native | at most | without | at most |", "|---|---|---:|---:|---:|---:|"]
    by_key = {(each.model, each.recording, each.is_native): each for each in found}
    for model, recording in dict.fromkeys((each.model, each.recording) for each in found):
        cells: list[str] = []
        for is_native in (True, False):
            each = by_key.get((model, recording, is_native))
            cells += ["", ""] if each is None else [f"{each.ratio:.2f}", _limit(each).replace("MISSED", "**missed**")]
        lines.append(f"| {model} | {recording} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", ""])
