"""Does the verdict name what keeps a training from learning, and leave healthy ones alone: ``make bench-learn``.

``python tools/bench_learn.py [NAME ...]`` runs the cases of these names, everything without any; ``--set`` chooses
``known`` (written beside the rules), ``blind`` (written after them, with the rules as they were), ``reports``,
``threads`` and ``held out`` (rebuilt from what people told), ``--seed N`` another seed, ``--short`` stops healthy ones
early too, ``--mended`` runs each fault again without it, which must learn.
``--write`` puts the numbers into docs/learning.md. Exits with 1 if a bar is missed.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import torch  # noqa: E402

import fxdebug  # noqa: E402
import learn_amounts  # noqa: E402
import learn_arrivals  # noqa: E402
import learn_begins  # noqa: E402
import learn_blind  # noqa: E402
import learn_classes  # noqa: E402
import learn_faults  # noqa: E402
import learn_general  # noqa: E402
import learn_healthy  # noqa: E402
import learn_held_out  # noqa: E402
import learn_links  # noqa: E402
import learn_others  # noqa: E402
import learn_reports  # noqa: E402
import learn_strangers  # noqa: E402
import learn_threads  # noqa: E402
import learn_wide  # noqa: E402
from fxdebug.features.training.verdict.judge import Verdict  # noqa: E402
from learn_parts import Case  # noqa: E402
from running import put_between  # noqa: E402

PAGE = HERE.parent / "docs" / "learning.md"
SHORT = (1, 3, 5, 10, 20, 30, 60, 100)
BARS = {
    "known": (0.95, 0, 0),
    "beginnings": (0.95, 0, 0),
    "strangers": (0.95, 0, 0),
    "general": (0.95, 0, 0),
    "links": (0.95, 0, 0),
    "classes": (0.85, 0, 0),
    "wide": (0.95, 0, 0),
    "amounts": (0.95, 0, 0),
    "arrivals": (0.95, 0, 0),
    "blind": (0.75, 1, 1),
    "others": (0.75, 1, 1),
    "reports": (0.75, 1, 1),
    "threads": (0.75, 1, 1),
    "held out": (0.75, 1, 1),
}  # named at least, wrong causes and false alarms at most
SETS = {
    "known": [*learn_faults.CASES.every, *learn_healthy.CASES.every],
    "beginnings": learn_begins.CASES.every,
    "strangers": learn_strangers.CASES.every,
    "general": learn_general.CASES.every,
    "links": learn_links.CASES.every,
    "classes": learn_classes.CASES.every,
    "wide": learn_wide.CASES.every,
    "amounts": learn_amounts.CASES.every,
    "arrivals": learn_arrivals.CASES.every,
    "blind": learn_blind.CASES.every,
    "others": learn_others.CASES.every,
    "reports": learn_reports.CASES.every,
    "threads": learn_threads.CASES.every,
    "held out": learn_held_out.CASES.every,
}


@dataclass
class Tally:
    """What the verdicts on a set of cases were."""

    faults: int = 0
    named: int = 0
    wrong: int = 0
    healthy: int = 0
    alarms: int = 0
    mended: int = 0
    learn: int = 0


def verdict_on(case: Case, bad: bool, seed: int, steps: int | None = None) -> Verdict:
    """Run a case under watch and return the verdict."""
    torch.manual_seed(seed)
    random.seed(seed)
    loop = case.make(bad)
    with warnings.catch_warnings(), fxdebug.watch(loop.model, save=None) as watched:
        warnings.simplefilter("ignore")
        loop.run(loop.steps if steps is None else steps)
    for gap in watched.report().findings:
        if gap.rule == "not looked at":
            print(f"  {case.name}: {gap.what}")
    return watched.verdict()


def run(case: Case, options: argparse.Namespace, tally: Tally) -> None:
    """Run one case, print its verdict, and count it."""
    since = time.perf_counter()
    verdict = verdict_on(case, True, options.seed)
    seconds = time.perf_counter() - since
    if case.rules:
        tally.faults += 1
        is_named = verdict.rule in case.rules
        is_wrong = not is_named and verdict.state == "fault"
        tally.named, tally.wrong = tally.named + is_named, tally.wrong + is_wrong
        mark = "named" if is_named else "WRONG" if is_wrong else "silent"
    else:
        tally.healthy += 1
        is_alarm = verdict.state == "fault"
        tally.alarms += is_alarm
        mark = "ALARM" if is_alarm else "quiet"
    print(f"{mark:6} {case.name:28} {seconds:5.1f} s  {verdict.rule or verdict.state}: {verdict.sentence}", flush=True)
    for steps in SHORT if options.short else ():
        early = verdict_on(case, True, options.seed, steps)
        if early.state == "fault" and early.rule not in case.rules:
            tally.wrong += bool(case.rules)
            tally.alarms += not case.rules
            print(
                f"{'WRONG' if case.rules else 'ALARM':6} {case.name} after {steps}: {early.rule}: {early.sentence}",
                flush=True,
            )
    if case.rules and options.mended and case.mends:
        after = verdict_on(case, False, options.seed)
        tally.mended += 1
        tally.learn += after.state == "learns"
        if after.state != "learns":
            print(f"       {case.name} mended: {after.sentence}", flush=True)


def table(name: str, tally: Tally) -> str:
    """Return one line of the table of the docs."""
    mended = f"{tally.learn} of {tally.mended}" if tally.mended else "–"
    return (
        f"| {name} | {tally.named} of {tally.faults} | {tally.wrong} | {tally.alarms} of {tally.healthy} | {mended} |"
    )


def main() -> int:
    """Run what was asked for; return 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--set", choices=SETS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--mended", action="store_true")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    lines, missed = [], False
    for name, cases in SETS.items():
        if options.set not in (None, name):
            continue
        tally = Tally()
        for case in cases:
            if not options.names or case.name in options.names:
                run(case, options, tally)
        least, wrong, alarms = BARS[name]
        missed |= tally.named < least * tally.faults or tally.wrong > wrong or tally.alarms > alarms
        lines.append(table(name, tally))
        print(lines[-1])
    if options.write:
        head = "| set | named first | wrong causes | false alarms | learn once mended |\n|---|---|---|---|---|"
        put_between(PAGE, "bench-learn", "\n".join([head, *lines]))
    return int(missed)


if __name__ == "__main__":
    raise SystemExit(main())
