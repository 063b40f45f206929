"""What does ``watch`` conclude of loops after public reports: ``make bench-loops``.

``tools/loops`` has sets of trainings that were written by somebody who had seen neither code nor documentation of this
project. Each file has ``build(bad)``, which returns a model, its optimizer, and a function that makes one step, and
``STEPS``; further optimizers are in ``OTHERS``. Or it has ``train(tick, mended)``, the whole loop, which calls
``tick.model`` with its model before the first step. In files that begin with f the loop has the fault of the report
where it is ``bad``; those with h learn, though they may look as if they would not. ``truth.json`` says what is wrong.

``python tools/bench_loops.py [NAME ...]`` watches the loops with one of the names in theirs, prints the verdict on
each fault beside the truth, to be judged by hand, and the warnings on loops that learn. Exits with 1 where a loop that
learns has a warning, or watching one raises.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import random
import sys
import traceback
import warnings
from pathlib import Path

import torch
from torch import nn

import fxdebug
from fxdebug.features.training.verdict.judge import Verdict

LOOPS = Path(__file__).resolve().parent / "loops"


class Tick:
    """Watches the model that a loop names; its optimizers and losses are found."""

    def __init__(self) -> None:
        self._open = contextlib.ExitStack()

    def __enter__(self) -> Tick:
        return self

    def __exit__(self, *raised: object) -> None:
        self._open.close()

    def model(self, model: nn.Module) -> None:
        """Watch a model from here on."""
        self._watch = self._open.enter_context(fxdebug.watch(model, save=None))

    def optimizer(self, optimizer: object) -> None:
        """Pass by: optimizers are found."""

    def step(self, *given: object) -> None:
        """Pass by: steps are seen."""

    def verdict(self) -> Verdict:
        """Return the verdict on what was watched."""
        return self._watch.verdict()


def watched(path: Path, bad: bool) -> Verdict:
    """Return the verdict on a loop, watched as a user would."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    random.seed(0)
    torch.manual_seed(0)
    if hasattr(module, "train"):
        with Tick() as tick:
            module.train(tick, not bad)
            return tick.verdict()
    model, optimizer, step = module.build(bad)
    given = [] if getattr(module, "OTHERS", None) else [optimizer]  # of several, all are found
    with fxdebug.watch(model, *given, save=None) as watch:
        for number in range(module.STEPS):
            step(number)
        return watch.verdict()


def main() -> int:
    """Watch all loops, or those that are named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    failed = False
    for folder in sorted(each for each in LOOPS.iterdir() if each.is_dir()):
        truth, alarms, asked = json.loads((folder / "truth.json").read_text()), 0, 0
        for path in sorted(folder.glob("[fh]*.py")):
            if options.names and not any(name in f"{folder.name}/{path.stem}" for name in options.names):
                continue
            for bad in (True, False) if path.stem.startswith("f") else (False,):
                asked += 1
                try:
                    found = watched(path, bad)
                except Exception:
                    print(f"{folder.name}/{path.stem}: {traceback.format_exc()}", flush=True)
                    failed = True
                    continue
                if bad:
                    print(f"{folder.name}/{path.stem}\n  truth    {truth[path.stem]['cause']}", flush=True)
                    print(f"  verdict  {found.rule or found.state}: {found.sentence}", flush=True)
                    continue
                told = [each for each in found.findings if each.severity in ("warning", "error")]
                alarms += bool(told)
                for each in told:
                    print(f"{folder.name}/{path.stem}, which learns: {each.rule}: {each.what}", flush=True)
        if asked:
            print(f"{folder.name}: {asked} loops, of which {alarms} learn and have a warning", flush=True)
        failed |= bool(alarms)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
