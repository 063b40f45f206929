"""What the analyses of cost take, and what runs of very many calls or parameters do: a part of ``make bench``."""

from __future__ import annotations

import gc
import statistics
import tempfile
import time
from collections.abc import Callable, Collection
from typing import Any

import torch
from torch import nn

import fxdebug
from bench_bars import Verdict
from bench_models import MODELS, Inputs
from fxdebug.features.shared.times.timed_runs import TimedRuns

CALLS = 100_000
PARAMETERS = 2000
PAIRS = 7


class Repeated(nn.Module):
    """A block of three layers, called so often."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.block = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
        self.times = times

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(self.times):
            x = self.block(x)
        return x


def cost_verdicts(models: Collection[str]) -> list[Verdict]:
    """The bars of these models, and those of very many calls if all models are measured."""
    found = []
    with torch.no_grad():
        for name, bars in _BARS.items():
            if name in models:
                model, inputs = MODELS[name].make()
                found += [bar(name, model, inputs) for bar in bars]
        if set(models) >= set(MODELS):
            found += many_calls(CALLS)
    return found


def profile_adds(name: str, model: Any, inputs: Inputs) -> Verdict:
    """The times of the calls, taken in repeats of their own, by those of the plain repeats between them."""
    timings, _ = TimedRuns(model, model, (), inputs, None).run(repeats=15 if name == "minilm" else 5, warmup=2)
    measured = statistics.median(watched / plain for watched, plain in zip(timings.watched, timings.plain))
    return Verdict(f"profile on {name}: a repeat with calls timed, at most 1.05 × a plain one", measured, 1.05)


def memory_takes(name: str, model: Any, inputs: Inputs) -> Verdict:
    """The whole of ``memory``, with its report, by the plain forward right before."""
    measured = _times_plain(lambda: fxdebug.memory(model, dict(inputs)), model, inputs)
    return Verdict(f"memory on {name}: at most 3 × plain", measured, 3)


def flops_take(name: str, model: Any, inputs: Inputs) -> Verdict:
    """Milliseconds to count the operations of a run whose graphs are made."""
    trace = fxdebug.fx_debug(model, dict(inputs))
    fxdebug.flops(trace)
    measured = statistics.median([_timed(lambda: fxdebug.flops(trace)) for _ in range(PAIRS)]) * 1e3
    return Verdict(f"flops of {name}: milliseconds", measured, 50)


def duration_is(name: str, model: Any, inputs: Inputs) -> Verdict:
    """The duration that a run tells of its root, by the plain forward right before."""
    ratios = []
    for _ in range(PAIRS):
        plain = _timed(lambda: model(**inputs))
        ratios.append(fxdebug.fx_debug(model, dict(inputs)).root.duration / plain)
    return Verdict(f"duration of {name}: at most 1.15 × plain", statistics.median(ratios), 1.15)


def each_parameter(name: str, model: Any, inputs: Inputs) -> Verdict:
    """Microseconds that a tree adds for each parameter."""
    added = []
    for _ in range(PAIRS):
        plain = _timed(lambda: model(**inputs))
        added.append(_timed(lambda: fxdebug.fx_debug(model, dict(inputs), graph=False)) - plain)
    measured = statistics.median(added) / PARAMETERS * 1e6
    return Verdict(f"tree on {name}: microseconds for each of its {PARAMETERS} parameters", measured, 10)


def many_calls(count: int) -> list[Verdict]:
    """A run of so many calls with their graphs, saved and loaded."""
    model, x = Repeated(count // 4), torch.ones(1, 8)
    with tempfile.TemporaryDirectory() as folder:
        fxdebug.fx_debug(Repeated(2), x, save=f"{folder}/warm")
        fxdebug.fx_debug(Repeated(2), x, graph=False)
        tree = _timed(lambda: fxdebug.fx_debug(model, x, graph=False))
        saved = _timed(lambda: fxdebug.fx_debug(model, x, save=f"{folder}/run"))
        loaded = min(_timed(lambda: fxdebug.load(f"{folder}/run")) for _ in range(2))
    return [
        Verdict(f"tree of {count} calls: microseconds for each", tree / count * 1e6, 60),
        Verdict(f"graph, saved of {count} calls: microseconds for each", saved / count * 1e6, 150),
        Verdict(f"load of {count} calls: seconds", loaded, 3),
    ]


_BARS: dict[str, tuple[Callable[[str, Any, Inputs], Verdict], ...]] = {
    "minilm": (profile_adds, memory_takes, duration_is),
    "gpt2-124m": (profile_adds, flops_take, duration_is),
    f"weights-{PARAMETERS}": (each_parameter,),
}


def _times_plain(run: Callable[[], object], model: Any, inputs: Inputs) -> float:
    """The median of pairs: a time by that of the plain forward right before."""
    run()
    ratios = []
    for _ in range(PAIRS):
        plain = _timed(lambda: model(**inputs))
        ratios.append(_timed(run) / plain)
    return statistics.median(ratios)


def _timed(run: Callable[[], object]) -> float:
    gc.collect()
    began = time.perf_counter()
    result = run()
    seconds = time.perf_counter() - began
    del result
    return seconds
