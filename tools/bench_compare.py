"""Does ``fxdebug.compare`` name the fault, and nothing where there is none: ``make bench-compare``.

``python tools/bench_compare.py [NAME ...]`` runs what has one of the names in its own, everything without any:

faults    models with one planted fault against the right ones: is the guilty call named, and in it the operation?
equal     pairs that compute the same in another way: ports, renamed copies, other dtypes, with and without cache
sweep     one weight, bias or epsilon changed in every module of the ports, and one of each in each transformers model
          of the zoo, also under other names: is the module named?
zoo       every zoo model twice, saved against live, and sdpa against eager attention where it has both
mutants   small models of our own with one fault at a random place, half of them under other names and with a healthy
          rewrite elsewhere: is the cause told? Other ones each time; the seed is printed, and ``--seed`` draws it again
numbers   planted producers of NaN and infinity for ``fxdebug.check``, and healthy zoo models

Prints a line for each, then tables, misses and false alarms; ``--write`` puts the tables into docs/comparing.md.
Exits with 1 if a bar is missed.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import gc
import json
import logging
import os
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
HERE = Path(__file__).resolve().parent
TESTS = HERE.parent / "tests"
sys.path[:0] = [str(TESTS), str(HERE)]

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import torch

import bench_compare_told as told  # noqa: E402
from bench_compare_told import Checked  # noqa: E402
from running import each, put_between  # noqa: E402
from zoo import zoo  # noqa: E402

PARTS = ("faults", "equal", "sweep", "zoo", "mutants", "numbers")
A_TASK = 10  # mutants drawn together
PAGE = HERE.parent / "docs" / "comparing.md"


def main(arguments: list[str]) -> int:
    """Run what was asked for, print lines, tables and bars; return the exit status."""
    options = _options(arguments)
    _prepare()
    tasks = [task for part in options.only or PARTS for task in _tasks(part, options) if _wanted(task, options.names)]
    if any(part == "mutants" for part, _ in tasks):
        print(f"mutants: --seed {options.seed}", flush=True)
    began = time.perf_counter()
    results: list[Checked] = []
    for done, found in enumerate(each(_one, tasks, options.jobs, _prepare), 1):
        results += found
        print(f"{done:4}/{len(tasks)} {told.line(found)}", flush=True)
        for what in [text for checked in found for text in (*checked.problems, checked.skipped) if text][:5]:
            print(f"          {what[:300]}", flush=True)
    if options.json:
        options.json.write_text(json.dumps(results, default=told.as_json, indent=1))
    text = told.page(results)
    print(f"\n{text}\n\n{time.perf_counter() - began:.0f} s")
    if options.write:
        put_between(PAGE, "bench", text)
    return 0 if all(bar.met for bar in told.bars(results)) else 1


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="parts of the names of entries; all without any")
    parser.add_argument("--only", choices=PARTS, action="append", help="a part of it; may be given more than once")
    parser.add_argument(
        "--jobs", type=int, default=min(os.cpu_count() or 1, 8), help="processes (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=time.time_ns() % 100_000, help="of the mutants (default: another)")
    parser.add_argument("--mutants", type=int, default=200, metavar="N", help="how many (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything that came out")
    parser.add_argument("--write", action="store_true", help=f"put the tables into {PAGE.name}")
    options = parser.parse_args(arguments)
    if options.write and (options.names or options.only):
        parser.error("--write puts down what came out for everything: it takes no names and no --only")
    return options


def _wanted(task: tuple[str, str], names: list[str]) -> bool:
    return not names or any(part in task[1] for part in names)


# Running -----------------------------------------------------------------------------------------


@functools.cache  # once in each process
def _prepare() -> None:
    torch.set_num_threads(1)
    torch._logging.set_logs(dynamo=logging.ERROR)
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    gc.collect()
    gc.freeze()  # what the libraries hold is not looked through at each collection


@functools.cache
def _zoo() -> dict[str, Callable[[], Any]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return dict(zoo.zoo())


def _tasks(part: str, options: argparse.Namespace) -> list[tuple[str, str]]:
    from faults.bench import EQUAL, FAULTS

    if part == "mutants":
        return [(part, f"mutants-{options.seed}-{at}") for at in range(0, options.mutants, A_TASK)]

    if part == "sweep":
        from faults.originals import NAMES

        return [(part, f"port-{name}") for name in NAMES] + [(part, name) for name in _zoo() if name.startswith("hf/")]
    if part == "numbers":
        cases = _numbers()
        return (
            [] if cases is None else [(part, case.name) for case in cases.CASES] + [(part, name) for name in _healthy()]
        )
    return [(part, name) for name in (_zoo() if part == "zoo" else FAULTS if part == "faults" else EQUAL)]


def _numbers() -> Any:
    """The cases of ``fxdebug.check``, where there are any."""
    with contextlib.suppress(ModuleNotFoundError):
        from support import numerics_cases

        return numerics_cases
    return None


def _healthy() -> list[str]:
    """Zoo models without NaN, infinity and advice of their own; tests/support/healthy.py has the others."""
    from support.healthy import ADVISED, NOT_HEALTHY

    return [name for name in _zoo() if name not in {*NOT_HEALTHY, *ADVISED} and not name.startswith("scale/")]


def _one(task: tuple[str, str]) -> list[Checked]:
    """What came out for one entry, in each mode or for each kind of pair."""
    part, name = task
    began = time.perf_counter()
    with warnings.catch_warnings(), open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):  # noqa: PTH123
        warnings.simplefilter("ignore")
        try:
            found = _CHECKS[part](name)
        except Exception as error:  # a report is owed for every entry
            why = f"the check failed: {error!r}: {traceback.format_exc()[-600:]}"
            found = [Checked(part, name, "", alarms=(why,))]
    for checked in found:
        checked.seconds = (time.perf_counter() - began) / len(found)
    return found


def _faults(name: str) -> list[Checked]:
    from faults.bench import FAULTS
    from faults.judge import MODES, answer

    answers = [answer(FAULTS[name], mode) for mode in MODES]
    return [Checked("faults", name, found.mode, answer=found, place=FAULTS[name].place) for found in answers]


def _equal(name: str) -> list[Checked]:
    from faults.bench import EQUAL
    from faults.judge import MODES, false_alarms

    found = [Checked("equal", name, mode, alarms=tuple(false_alarms(EQUAL[name], mode))) for mode in MODES]
    return [*found, Checked("equal", name, "saved", alarms=tuple(false_alarms(EQUAL[name], "tensors", saved=True)))]


def _pairs(name: str) -> list[Checked]:
    from faults.zoo_pairs import zoo_pairs

    return [
        Checked("zoo", name, pair.kind, alarms=pair.alarms, skipped=pair.skipped or pair.explained)
        for pair in zoo_pairs(name, _zoo()[name])
    ]


def _sweep(name: str) -> list[Checked]:
    from faults.zoo_faults import Planted, port_faults, zoo_faults

    def checked(found: Planted) -> Checked:
        wrong = () if found.right or found.skipped else (f"changed {found.wanted}, named {found.said}",)
        return Checked(
            "sweep", name, f"{'ports' if port else 'zoo'}: {found.sort}", alarms=wrong, skipped=found.skipped
        )

    port = name.startswith("port-")
    faults = port_faults(name.removeprefix("port-")) if port else zoo_faults(name, _zoo()[name])
    return [checked(found) for found in faults]


def _mutants(name: str) -> list[Checked]:
    """Draw mutants; the seed and the place in the row are in the name."""
    from faults.mutants.mutants import drawn, judged

    _, seed, at = name.split("-")
    found = []
    for verdict in map(judged, drawn(int(seed) * 1000 + int(at), A_TASK)):
        mutant = verdict.mutant
        what = f"{mutant.model}, {mutant.kind}, {mutant.what} {mutant.rewrite}: {verdict.cause}, told {verdict.said}"
        mode = verdict.cause if verdict.place else "elsewhere"
        found.append(Checked("mutants", name, mode, alarms=() if verdict.right else (what,)))
        if mutant.names:
            found.append(Checked("mutants", name, "sound", alarms=(verdict.alarm,) if verdict.alarm else ()))
    return found


def _checked_numbers(name: str) -> list[Checked]:
    from faults.judge import traced

    cases = _numbers()
    case = next((case for case in cases.CASES if case.name == name), None)
    if case is None:
        model, inputs = _zoo()[name]()
        return [
            Checked("numbers", name, "healthy", alarms=tuple(cases.false_alarms(traced(model, inputs, "statistics"))))
        ]
    model, inputs = case.build()
    miss = cases.misses(case, traced(model, inputs, "statistics"))
    return [Checked("numbers", name, "producer", alarms=() if miss is None else (str(miss),))]


_CHECKS: dict[str, Callable[[str], list[Checked]]] = {
    "faults": _faults,
    "equal": _equal,
    "sweep": _sweep,
    "zoo": _pairs,
    "mutants": _mutants,
    "numbers": _checked_numbers,
}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
