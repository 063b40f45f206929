"""How often does each rule alarm where nothing is wrong: ``python tools/false_alarms.py``.

Sixteen kinds of small models (``trained_models.py``) learn while they are watched, and are then checked with all
analyses, in training and in evaluation, beside one that a package ships and the healthy trainings of
``bench_health.py`` and ``learn_healthy.py``. An alarm is a finding above advice. ``--write`` puts the counts of each
rule into ``src/fxdebug/analyses/rules/false_alarms.json``, which `fxdebug rules` and the table in docs/check.md state.
``--seeds N`` trains each with N seeds. Exits with 1 if there is an alarm, or a model that does not learn.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import torch

import fxdebug
from fxdebug.analyses.rules.false_alarms import FalseAlarms
from fxdebug.analyses.rules.table import (
    ANALYSES,
    GRADIENTS,
    PLUGINS,
    RULES,
    THRESHOLDS,
    TRAINING,
    rule_of,
)
from fxdebug.data.findings import Finding

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import bench_health  # noqa: E402
import learn_healthy  # noqa: E402
import learn_parts  # noqa: E402
import trained_models  # noqa: E402
from running import put_between  # noqa: E402

PAGE = HERE.parent / "docs" / "check.md"
FILE = HERE.parent / "src" / "fxdebug" / "analyses" / "rules" / "false_alarms.json"
CHECKED = tuple(name for name in ANALYSES if name not in (TRAINING, PLUGINS))
Seen = tuple[str, Sequence[Finding]]  # an analysis that was done of something healthy, and what it found


def of_training(name: str, seed: int, analyses: Sequence[str] = CHECKED, steps: int | None = None) -> Iterator[Seen]:
    """Train a model while it is watched, then check it in both modes. Raises ``ValueError`` if it did not learn."""
    one = trained_models.TRAININGS[name]
    torch.manual_seed(seed)
    model = one.make()
    optimizer = torch.optim.AdamW(model.parameters(), lr=one.rate)
    with tempfile.TemporaryDirectory() as folder:
        with fxdebug.watch(model, optimizer, every=20, save=folder) as watched:
            for _ in range(steps or one.steps):
                batch = one.batch()
                optimizer.zero_grad()
                one.of_output(_run(model, one.given(batch)), batch).backward()
                optimizer.step()
        yield TRAINING, watched.report().findings
    losses = [step.loss or 0.0 for step in watched.steps]
    first, last = mean(losses[:5]), mean(losses[-10:])
    if last > one.fall * first:
        raise ValueError(f"{name} does not learn: {first:.3g} → {last:.3g}")
    batch = one.batch()
    for mode in (True, False):
        model.train(mode)
        yield from checked(
            model, one.given(batch), analyses,
            loss=lambda output: one.of_output(output, batch), optimizer=optimizer,
        )  # fmt: skip


def _run(model: torch.nn.Module, given: Any) -> Any:
    return model(**given) if isinstance(given, dict) else model(*given) if isinstance(given, tuple) else model(given)


def checked(model: torch.nn.Module, inputs: Any, analyses: Sequence[str], **options: Any) -> Iterator[Seen]:
    """Check a model by each analysis alone, where it applies."""
    for analysis in analyses:
        if analysis == GRADIENTS and "loss" not in options:
            continue
        if analysis == "attention" and not fxdebug.attention(model, inputs).rows:
            continue
        yield analysis, fxdebug.check(model, inputs, analyses=[analysis], config=False, **options)


def of_bench(name: str, steps: int) -> Iterator[Seen]:
    """One of the healthy trainings of ``bench_health.py``, with its findings by analysis."""
    found, _ = bench_health.healthy_training(name, steps)
    yield from found


def of_loop(case: learn_parts.Case) -> Iterator[Seen]:
    """One of the healthy loops of ``learn_healthy.py``, with its findings while it was watched."""
    torch.manual_seed(0)
    random.seed(0)
    loop = case.make(False)
    with fxdebug.watch(loop.model, every=20, save=None) as watched:
        loop.run(loop.steps)
    yield TRAINING, watched.report().findings


def count(seen: Sequence[Seen]) -> dict[str, list[int]]:
    """Return for each rule how often its analysis was done, how often it alarmed, and how often it advised."""
    done: Counter[str] = Counter(analysis for analysis, _ in seen)
    done[GRADIENTS] += done[TRAINING]  # a watched training is judged by these rules, too
    alarms: Counter[str] = Counter()
    advice: Counter[str] = Counter()
    for analysis, findings in seen:
        for id, above in {(_id(analysis, f), f.severity != "advice") for f in findings}:
            (alarms if above else advice)[id] += 1
    return {id: [done[rule.analysis], alarms[id], advice[id]] for id, rule in RULES.items() if done[rule.analysis]}


def _id(analysis: str, finding: Finding) -> str:
    rule = rule_of(analysis, finding.rule)
    return f"{analysis}.{finding.rule}" if rule is None else rule.id


def main(arguments: Sequence[str]) -> int:
    """Train and check, print the alarms; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="parts of the names of models; all without any")
    parser.add_argument("--seeds", type=int, default=2, help="of each training (default: %(default)s)")
    parser.add_argument("--write", action="store_true", help=f"write the counts to {FILE.name}")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    seen: list[Seen] = []
    failed = False
    runs: list[tuple[str, Any]] = [
        (f"{name}, seed {seed}", lambda name=name, seed=seed: of_training(name, seed))
        for name in trained_models.TRAININGS
        for seed in range(options.seeds)
    ]
    runs.append(("MiniLM, shipped by a package", lambda: checked(*trained_models.minilm(), CHECKED)))
    runs += [(name, lambda name=name: of_bench(name, bench_health.STEPS)) for name in bench_health.HEALTHY]
    runs += [(case.name, lambda case=case: of_loop(case)) for case in learn_healthy.CASES.every]
    for name, run in runs:
        if options.names and not any(part in name for part in options.names):
            continue
        try:
            found = list(run())
        except ValueError as error:
            print(f"FAIL {error}", flush=True)
            failed = True
            continue
        above = [f"{analysis}: {finding}" for analysis, findings in found for finding in findings
                 if finding.severity != "advice"]  # fmt: skip
        print(f"{'ALARM' if above else 'ok   '} {name}" + "".join(f"\n      {line}" for line in above), flush=True)
        failed |= bool(above)
        seen += found
    if options.write:
        counts = count(seen)
        rows = [f'  "{id}": {json.dumps(row)}' for id, row in counts.items()]
        FILE.write_text("{\n" + ",\n".join(rows) + "\n}\n", encoding="utf-8")
        put_between(PAGE, "rules", table(counts))
    return int(failed)


def table(counts: Mapping[str, Sequence[int]]) -> str:
    """Return every rule as a row of the table in the docs, with its thresholds and its false alarms."""
    lines = ["| rule | gravest | thresholds | false alarms | advice |", "|---|---|---|---|---|"]
    for id, rule in RULES.items():
        limits = ", ".join(f"{name.partition('.')[2]} {THRESHOLDS[name].default:g}" for name in rule.thresholds)
        checks, alarms, advice = counts.get(id, (0, 0, 0))
        rate, advised = (str(FalseAlarms(checks, alarms, advice)), str(advice)) if checks else ("not tried", "")
        lines.append(f"| `{id}` | {rule.severity} | {limits} | {rate} | {advised} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
