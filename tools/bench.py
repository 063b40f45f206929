"""What tracing costs, against the plain forward and the peers: ``make bench``.

Every timed call is preceded by a plain forward, and all modes take turns in one process per model, so that a
machine that gets slower or faster meanwhile does so for all of them. Prints a table a model and the bars, writes
``out/bench.json``, and exits with 1 if a bar is missed or a ratio grew by more than a fifth since the figures in
``docs/performance.json``; ``--write`` puts the new ones there and into ``docs/performance.md``.

    python tools/bench.py                                    # everything, about a quarter of an hour
    python tools/bench.py --models tiny-gpt2 --modes tree    # a part; bars are judged where they can be
"""

from __future__ import annotations

import argparse
import atexit
import functools
import gc
import json
import os
import platform
import shutil
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
sys.path.insert(0, str(Path(__file__).parent))

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import torch

from rich.console import Console
from rich.table import Table

import fxdebug
from bench_bars import BARS, Bar, Verdict, regressions, verdicts
from bench_cost import cost_verdicts
from bench_kernel import kernel_verdicts
from bench_models import MODELS, Inputs, Model
from bench_modes import MODES, PEERS, REFERENCES, Mode, add_peers
from bench_ways import Measured, measured_ways
from bench_ways import page as page_of_ways
from bench_ways import table as table_of_ways

__all__ = ["BARS", "MODELS", "MODES", "Bar", "main"]

WARM_UP = 2  # rounds that are not counted: caches of torch and of weights' statistics fill in them
DOCS = Path(__file__).parent.parent / "docs"


# Measuring -------------------------------------------------------------------------------------------


@dataclass
class Cost:
    """One mode on one model, in seconds: its times, and those of the plain forwards right before."""

    times: list[float] = field(default_factory=list)
    plain: list[float] = field(default_factory=list)
    extra: float | None = None  # megabytes at the peak, beyond those of a plain forward
    written: int = 0  # bytes on disk

    @property
    def added(self) -> float:
        """What it adds to the plain forward: the median over the pairs."""
        return statistics.median(time - plain for time, plain in zip(self.times, self.plain))

    def record(self, others: Mapping[str, Cost]) -> dict[str, Any]:
        """For the JSON."""
        return {
            "median_s": statistics.median(self.times),
            "quartiles_s": _quartiles(self.times),
            "plain_median_s": statistics.median(self.plain),
            "ratio_to_plain": statistics.median(t / p for t, p in zip(self.times, self.plain)),
            "added_s": self.added,
            "added_of": {name: self.added / others[name].added for name in REFERENCES if name in others},
            "extra_mb": self.extra,
            "bytes": self.written,
            "rounds": len(self.times),
        }


def _quartiles(times: list[float]) -> tuple[float, float]:
    if len(times) < 2:
        return times[0], times[0]
    first, _, third = statistics.quantiles(times, n=4, method="inclusive")
    return first, third


def measure(module: Any, inputs: Inputs, modes: Mapping[str, Mode], rounds: int) -> dict[str, Cost]:
    """Time every mode ``rounds`` times, each time after a plain forward, in turns; then its memory and files."""
    costs = {name: Cost() for name in modes}
    for number in range(WARM_UP + rounds):
        for name in list(costs):
            before = _timed(plain, module, inputs)
            try:
                seconds = _timed(modes[name], module, inputs)
            except Exception as error:
                if name not in PEERS:
                    raise
                print(f"{name} cannot run it: {type(error).__name__}: {str(error).splitlines()[0][:90]}")
                del costs[name]
                continue
            if number >= WARM_UP:
                costs[name].plain.append(before)
                costs[name].times.append(seconds)
    least = _peak(plain, module, inputs)[0]
    for name, cost in costs.items():
        peak, cost.written = _peak(modes[name], module, inputs)
        cost.extra = None if peak is None or least is None else max(peak - least, 0.0)
    return costs


def plain(model: Any, inputs: Inputs, folder: str) -> object:
    """The forward alone."""
    return model(**inputs)


def _timed(mode: Mode, model: Any, inputs: Inputs) -> float:
    with _folder() as folder, _as_found(model), torch.no_grad():
        gc.collect()
        began = time.perf_counter()
        result = mode(model, inputs, folder)
        seconds = time.perf_counter() - began
        del result
    return seconds


def _peak(mode: Mode, model: Any, inputs: Inputs) -> tuple[float | None, int]:
    """Megabytes by which memory grows while a mode runs, where the system tells; and bytes it writes."""
    with _folder() as folder, _as_found(model), torch.no_grad():
        gc.collect()
        before = _resident(reset=True)
        result = mode(model, inputs, folder)
        after = _resident()
        del result
        files = [path.stat() for path in Path(folder).rglob("*") if path.is_file()]
        written = sum({(file.st_dev, file.st_ino): file.st_size for file in files}.values())  # hard links take none
    return (None if before is None or after is None else (after[1] - before[0]) / 1024), written


@contextmanager
def _folder() -> Iterator[str]:
    """An empty folder to write to, whose files are emptied afterwards and removed when all is over.

    ext4 looks at every file that was removed in the last half minute before it creates one (``recently_deleted``):
    where the rounds remove hundreds, that takes up to 0.8 ms a file, in place of 0.02.
    """
    folder = tempfile.mkdtemp(dir=_room())
    try:
        yield folder
    finally:
        for file in Path(folder).rglob("*"):
            if file.is_file():
                os.truncate(file, 0)


@functools.cache
def _room() -> str:
    room = tempfile.mkdtemp(prefix="fxdebug-bench-")
    atexit.register(shutil.rmtree, room, ignore_errors=True)
    return room


def _resident(reset: bool = False) -> tuple[int, int] | None:
    """Kilobytes in memory now, and the most since the last reset (Linux)."""
    try:
        if reset:
            Path("/proc/self/clear_refs").write_text("5")
        lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
        return int(lines["VmRSS"].split()[0]), int(lines["VmHWM"].split()[0])
    except (OSError, KeyError):
        return None


@contextmanager
def _as_found(model: Any) -> Iterator[None]:
    """Put back what the reference leaves on the model and in torch: the next forward must not pay for it."""
    from torch._tensor_str import get_printoptions

    options = get_printoptions()
    before = [(module, dict(module.__dict__)) for module in model.modules()]
    try:
        yield
    finally:
        torch.set_printoptions(**options)
        for module, attributes in before:
            for name in set(module.__dict__) - set(attributes):
                del module.__dict__[name]


# Telling ---------------------------------------------------------------------------------------------


def table(name: str, model: Model, costs: Mapping[str, Cost]) -> Table:
    """One model's modes."""
    shown = Table(title=f"{name}: {model.about}", title_justify="left", box=None, pad_edge=False)
    shown.add_column("mode")
    for column in (
        "median",
        "quartiles",
        "× plain",
        "added",
        "of ref. repr",
        "of ref. files",
        "extra MB",
        "MB on disk",
    ):
        shown.add_column(column, justify="right", no_wrap=True)
    plain = [time for cost in costs.values() for time in cost.plain]
    shown.add_row("plain", _ms(statistics.median(plain)), _range(plain), "1.00", "", "", "", "", "")
    for mode, cost in costs.items():
        record = cost.record(costs)
        parts = [f"{record['added_of'][r]:.3f}" if r in record["added_of"] else "" for r in REFERENCES]
        row = [_ms(record["median_s"]), _range(cost.times), f"{record['ratio_to_plain']:.2f}", _ms(cost.added)]
        extra = "" if cost.extra is None else f"{cost.extra:.1f}"
        shown.add_row(mode, *row, *parts, extra, f"{cost.written / 1e6:.1f}" if cost.written else "")
    return shown


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.2f} ms"


def _range(times: list[float]) -> str:
    return " – ".join(f"{time * 1e3:.2f}" for time in _quartiles(times))


def described(models: Mapping[str, Any], bars: list[Verdict]) -> dict[str, Any]:
    """Everything measured, and on what."""
    import transformers

    return {
        "machine": {"processor": platform.processor() or platform.machine(), "cpus": os.cpu_count(), "threads": 1},
        "versions": {
            "fxdebug": fxdebug.__version__, "torch": str(torch.__version__), "transformers": transformers.__version__,
            "python": platform.python_version(),
        },
        "models": dict(models),
        "bars": [{"what": bar.what, "measured": bar.measured, "limit": bar.limit, "met": bar.met} for bar in bars],
    }  # fmt: skip


def page(models: Mapping[str, Any], bars: list[Verdict]) -> str:
    """The tables as Markdown."""
    lines = []
    for name, model in models.items():
        lines += [f"### {name}", "", f"{model['about']}; {model['calls']} module calls.", ""]
        lines += ["| mode | median | × plain | added | extra memory | on disk |", "|---|---:|---:|---:|---:|---:|"]
        for mode, record in model["modes"].items():
            extra = "" if record["extra_mb"] is None else f"{record['extra_mb']:.1f} MB"
            disk = f"{record['bytes'] / 1e6:.1f} MB" if record["bytes"] else ""
            times = f"{_ms(record['median_s'])} | {record['ratio_to_plain']:.2f} | {_ms(record['added_s'])}"
            lines.append(f"| {mode} | {times} | {extra} | {disk} |")
        lines.append("")
    lines += ["### Bars", "", "| bar | measured | limit | |", "|---|---:|---:|---|"]
    lines += [f"| {b.what} | {b.measured:.2f} | {b.limit:.2f} | {'met' if b.met else '**missed**'} |" for b in bars]
    return "\n".join(lines) + "\n"


BEGIN, END = "<!-- measured -->", "<!-- end of measured -->"


def write_docs(content: dict[str, Any], bars: list[Verdict], recordings: list[Measured]) -> None:
    """Put the figures into the docs."""
    (DOCS / "performance.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    path = DOCS / "performance.md"
    before, rest = path.read_text(encoding="utf-8").split(BEGIN)
    text = f"{before}{BEGIN}\n\n{page_of_ways(recordings)}{page(content['models'], bars)}\n{END}{rest.split(END)[1]}"
    path.write_text(text, encoding="utf-8")


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, write; return 1 if a bar is missed or something got slower."""
    options = _parsed(arguments)
    import transformers

    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(1)
    console = Console(width=max(130, Console().width), highlight=False)
    models: dict[str, Any] = {}
    for name in options.models:
        model = MODELS[name]
        module, inputs = model.make()
        modes = {mode: MODES[mode] for mode in MODES if options.modes is None or mode in options.modes}
        costs = measure(module, inputs, modes, options.rounds or model.rounds)
        with torch.no_grad():
            calls = len(fxdebug.fx_debug(module, inputs, graph=False).calls)
        records = {mode: cost.record(costs) for mode, cost in costs.items()}
        models[name] = {"about": model.about, "calls": calls, "modes": records}
        console.print(table(name, model, costs), "")
    recordings = measured_ways(options.models)
    if recordings:
        console.print(table_of_ways(recordings), "")
    in_place = [each.verdict for each in recordings if each.limit is not None]
    bars = [*verdicts(models, BARS), *in_place, *kernel_verdicts(), *cost_verdicts(options.models)]
    for bar in bars:
        console.print(f"{'met' if bar.met else 'MISSED'}: {bar.what}: {bar.measured:.3f} (limit {bar.limit:.3f})")
    before = json.loads(options.baseline.read_text(encoding="utf-8"))["models"] if options.baseline.exists() else {}
    slower = [] if options.write else regressions(models, before)
    for line in slower:
        console.print(f"SLOWER: {line}")
    content = described(models, bars)
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    console.print(f"written to {options.json}")
    if options.write:
        write_docs(content, bars, recordings)
    return 1 if slower or not all(bar.met for bar in bars) else 0


def _parsed(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS), metavar="MODEL")
    parser.add_argument("--modes", nargs="+", metavar="MODE", help="all that can be run, unless given")
    parser.add_argument("--rounds", type=int, help="instead of each model's own number")
    parser.add_argument("--json", type=Path, default=Path("out/bench.json"))
    parser.add_argument("--baseline", type=Path, default=DOCS / "performance.json", help="figures to compare with")
    parser.add_argument("--peers", type=Path, help="a folder with torchlens and nnsight")
    parser.add_argument("--write", action="store_true", help="put the figures into the docs")
    options = parser.parse_args(arguments)
    if options.peers is not None:
        add_peers(options.peers)
    unknown = [mode for mode in options.modes or () if mode not in MODES]
    if unknown:
        parser.error(f"no mode {unknown[0]!r}; there is {', '.join(MODES)}")
    return options


if __name__ == "__main__":
    sys.exit(main())
