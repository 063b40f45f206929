"""Do ``profile --try`` and ``tune`` name what makes a model slow, and promise nothing else: ``make bench-tune``.

``planted`` are fourteen slow models with one cause each (tests/support/slow_models.py), ``shared`` those of
``../shared/cases/slow``, where that is, ``reports`` those of ``tune_reports.py``, ``held out`` those of
``tune_held_out.py``. A cause is named where the first finding of a profile,
with its advice tried, or the fastest change that ``tune`` takes is the one that fits. Their twins without the cause,
and six tuned models, must have no finding, and what ``tune`` takes there must be taken again when it is measured once
more. Twenty times a model is tried against itself. Times are those of the clock on the wall; on a machine that is too
busy for them, those of processors.

``python tools/bench_tune.py [NAME ...]`` runs the models of these names; ``--clock`` sets the clock; ``--write``
puts the table into docs/tune.md.
Exits with 1 if a bar is missed.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "tests")]
import torch  # noqa: E402

import fxdebug  # noqa: E402
from fxdebug.features.shared.tried_settings.knobs import Knob, Try  # noqa: E402
from fxdebug.features.shared.tried_settings.process_knobs import cores  # noqa: E402
from fxdebug.features.shared.tried_settings.trial import KNOBS, Clock  # noqa: E402
from running import put_between  # noqa: E402
from support.slow_models import SLOW, TUNED, Slow  # noqa: E402
from tune_held_out import HELD_OUT  # noqa: E402
from tune_reports import REPORTS  # noqa: E402

PAGE = HERE.parent / "docs" / "tune.md"
BARS = {"planted": 13, "shared": 6, "reports": 20, "held out": 16}  # causes named at least
OF_SHARED = {
    "r04_watched": (("unused results",), ("without hooks",)),
    "r06_half": (("float16 on the CPU",), ("float32 weights", "bfloat16 weights")),
    "r07_rows": (("row by row",), ()),
    "s14_distances": (("repeated work",), ()),
    "s16_sentences": (("padding",), ("inputs cut from 384 to 40 steps",)),
    "s18_scene": (("repeated work",), ()),
}


def shared() -> dict[str, Slow]:
    """Return the slow models that a checkout beside this one shares; none where there is no such folder."""
    folder = next((one for parent in HERE.parents if (one := parent / "shared/cases/slow").is_dir()), None)
    if folder is None:
        return {}
    sys.path.append(str(folder))
    found = {}
    for name, (rules, changes) in OF_SHARED.items():
        build = importlib.import_module(name).build
        found[name] = Slow(lambda fixed, build=build: (*build(fixed), None, None)[:4], rules, changes)  # type: ignore[misc]
    return found


SETS = {"planted": SLOW, "shared": shared(), "reports": REPORTS, "held out": HELD_OUT}
CONTROLS = 20
CLOCK: list[Clock | None] = [None]
TRIED = [name for name, knob in KNOBS.items() if not knob.asked_for and name != "compile"]  # compiling takes a minute


@dataclass
class Tally:
    """What was named, and what was promised without need."""

    named: int = 0
    slow: int = 0
    alarms: int = 0
    broken: int = 0
    lines: list[str] = field(default_factory=list)


@contextmanager
def set_for(slow: Slow, fixed: bool) -> Iterator[Any]:
    """Set the threads of a model, and what is around its runs; yield its model, inputs, loss and optimizer."""
    torch.manual_seed(0)
    model, args, loss, optimizer = slow.build(fixed)
    torch.set_num_threads(1 if fixed else slow.threads)
    try:
        with torch.set_grad_enabled(loss is not None), slow.around(fixed):
            yield model, args, loss, optimizer
    finally:
        torch.set_num_threads(1)


def tuned(model: Any, args: Any, loss: Any, optimizer: Any, more: tuple[str, ...] = ()) -> list[Any]:
    """Return the changes that ``tune`` takes, the fastest first; ``more`` are knobs that take long to try."""
    report = fxdebug.tune(model, args, knobs=[*TRIED, *more], loss=loss, optimizer=optimizer, clock=CLOCK[0])
    return [row for row in report.rows if row.verdict == "take"]


def seconds(slow: Slow, fixed: bool) -> float:
    """Return the median time of five steps."""
    with set_for(slow, fixed) as (model, args, loss, make):
        times, optimizer = [], None if make is None else make(model.parameters())
        for _ in range(6):
            model.zero_grad()
            begin = time.perf_counter()
            out = model(*args)
            if loss is not None:
                loss(out).backward()
            if optimizer is not None:
                optimizer.step()
            times.append(time.perf_counter() - begin)
    return median(times[1:])


def named(slow: Slow) -> tuple[str, str]:
    """Return what names the cause first, and what it brings; empty where nothing does."""
    with set_for(slow, False) as (model, args, loss, make):
        report = fxdebug.profile(model, args, loss=loss, repeats=7, warmup=1, peak=False, tried=True)
        first = report.findings[0] if report.findings else None
        if first is not None and first.rule in slow.rules:
            _, is_tried, gain = first.advice.partition("Tried: ")
            has_gain = is_tried and " times as fast" in gain and "cannot tell" not in gain
            measured = f"{gain.partition(' times as fast')[0].rpartition(': ')[2]} times as fast"
            return f"profile: {first.rule}", measured if has_gain else f"{first.measured:.0f} % at stake"
        if slow.changes:
            more = ("compile",) if "compile" in slow.changes else ()
            best = next(iter(tuned(model, args, loss, make, more)), None)
            if best is not None and best.change_of in slow.changes:
                return f"tune: {best.change_of}", f"{best.gain:.2f} [{best.low:.2f}, {best.high:.2f}] times as fast"
            if best is not None:
                return "", f"takes {best.change_of}"
        said = f"{first.rule} first" if first is not None else "nothing"
    return "", said


def promised(model: Any, args: Any, loss: Any, make: Any) -> tuple[list[str], list[str]]:
    """Return what is told of a model without a cause, and what ``tune`` takes once and not again."""
    report = fxdebug.profile(model, args, loss=loss, repeats=7, warmup=1, peak=False)
    found = tuned(model, args, loss, make)
    again = [row.change_of for row in tuned(model, args, loss, make)] if found else []
    told = [f"{row.change_of} {row.gain:.2f} [{row.low:.2f}, {row.high:.2f}]" for row in found]
    broken = [text for row, text in zip(found, told) if row.change_of not in again]
    return [finding.rule for finding in report.findings], broken


def run(name: str, slow: Slow, tally: Tally) -> None:
    """Put one slow model and its twin to ``profile`` and ``tune``, print what they say, and count it."""
    by, gain = named(slow)
    before, after = seconds(slow, False), seconds(slow, True)
    with set_for(slow, True) as (model, args, loss, make):
        rules, broken = promised(model, args, loss, make)
    tally.slow += 1
    tally.named += bool(by)
    rules = [rule for rule in rules if rule not in slow.left]
    tally.alarms += bool(rules)
    tally.broken += bool(broken)
    print(f"{'named' if by else 'MISSED':6} {name:34} {before / after:5.1f} ×  {by or gain}: {gain}", flush=True)
    for what in (*[f"finding: {rule}" for rule in rules], *[f"not taken again: {one}" for one in broken]):
        print(f"       its twin: {what}", flush=True)
    tally.lines.append(f"| {name} | {before / after:.1f} | {f'`{by}`' if by else 'not named'} | {gain} |")


def controls() -> int:
    """Try models against themselves; return how often nothing was taken for a gain."""
    nothing = Try("nothing", "", lambda subject: subject.changeable())
    KNOBS["nothing"] = Knob("nothing", "", lambda _: iter([nothing]))
    wrong = 0
    builds = list(TUNED.values())
    for number in range(CONTROLS):
        model, args = builds[number % len(builds)]()
        with torch.no_grad():
            report = fxdebug.tune(model.eval(), args, knobs=["nothing"], clock=CLOCK[0])
            wrong += any(row.verdict == "take" for row in report.rows)
    del KNOBS["nothing"]
    return CONTROLS - wrong


def main() -> int:
    """Run what was asked for; return 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--clock", choices=("wall", "processor"))
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    CLOCK[0] = options.clock
    missed, lines = False, []
    for kind, models in SETS.items():
        tally = Tally()
        for name, slow in models.items():
            if not options.names or name in options.names:
                run(name, slow, tally)
        print(f"{kind}: {tally.named} of {tally.slow} named; twins: {tally.alarms} findings, {tally.broken} not kept")
        missed |= bool(models and not options.names) and (
            tally.named < BARS[kind] or tally.alarms > 0 or tally.broken > 0
        )
        lines += (
            tally.lines if kind in ("planted", "reports") else []
        )  # docs/tune.md has these with their first answers
    if options.names:
        return int(missed)
    for name, build in TUNED.items():
        torch.manual_seed(0)
        model, args = build()
        with torch.no_grad():
            rules, broken = promised(model.eval(), args, None, None)
        print(f"tuned  {name:34} findings: {rules or 'none'}, taken once and not again: {broken or 'none'}", flush=True)
        missed |= bool(rules or broken)
    kept = controls()
    print(f"a model against itself: nothing to take in {kept} of {CONTROLS}; {cores()} cores")
    if options.write:
        head = "| slow model | twin, times as fast | named first by | gain or share |\n|---|---|---|---|"
        put_between(PAGE, "bench-tune", "\n".join([head, *lines]))
    return int(missed or kept < CONTROLS)


if __name__ == "__main__":
    raise SystemExit(main())
