"""What does ``compare_models`` tell of ports after public reports: ``make bench-ports``.

``tools/ports`` has sets of ports that were written by somebody who had seen neither code nor documentation of this
project. Each file has ``build(fixed)``, which returns a model, its port, and inputs; the port has the fault of the
report unless it is ``fixed``. ``truth.json`` beside them says what is wrong. ``told.json`` has what was told first,
whether that was tried, and how it was judged by hand: ``right`` (the place and the cause), ``half`` (the place, and
less than the cause), ``vague`` or ``wrong``.

``python tools/bench_ports.py [NAME ...]`` asks of the ports with one of the names in theirs (``fifth/p03``), prints the
sentences that are others than in ``told.json`` beside the truth, and a table. ``--write`` keeps the new sentences, to
be judged: ``judged`` is then empty. Exits with 1 where a port is told as equal, a mended port has a finding, or one
raises.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import torch

import fxdebug

PORTS = Path(__file__).resolve().parent / "ports"
JUDGED = ("right", "half", "vague", "wrong", "")


def told_of(path: Path, budget: float) -> tuple[dict[str, Any], list[str]]:
    """Return what is told of a port first, and what must not be: of the mended port, or of equality."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    told, wrong = {}, []
    for fixed in (False, True):
        original, port, inputs = module.build(fixed)
        found = fxdebug.compare_models(original, port, inputs, budget=budget)
        if fixed:
            wrong += [f"the mended port: {row.where}: {row.because}" for row in found.findings]
        elif found.first is None:
            wrong.append("told as equal")
        else:
            told = {"told": f"{found.first.where}: {found.first.because}", "tried": found.first.proven}
    return told, wrong


def main() -> int:
    """Ask of all ports, or of those that are named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--budget", type=float, default=10.0, help="seconds of compare_models' trials (10)")
    parser.add_argument("--write", action="store_true", help="keep the sentences in told.json")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    failed = False
    for folder in sorted(each for each in PORTS.iterdir() if each.is_dir()):
        kept_at = folder / "told.json"
        truth, kept = (json.loads(at.read_text()) if at.exists() else {} for at in (folder / "truth.json", kept_at))
        judged: Counter[str] = Counter()
        tried, seconds, asked = 0, 0.0, 0
        for path in sorted(folder.glob("p*.py")):
            if options.names and not any(name in f"{folder.name}/{path.stem}" for name in options.names):
                continue
            begun = time.perf_counter()
            try:
                told, wrong = told_of(path, options.budget)
            except Exception:  # of this library, which is what is looked for
                told, wrong = {}, [traceback.format_exc()]
            seconds += time.perf_counter() - begun
            before = kept.get(path.stem, {})
            same = {key: before.get(key) for key in told} == told
            asked, tried = asked + 1, tried + bool(told.get("tried"))
            judged[before.get("judged", "") if same else ""] += 1
            if not same:
                print(f"{folder.name}/{path.stem}\n  truth  {truth[path.stem]['cause']}")
                print(
                    f"  before {before.get('told')} ({before.get('judged')})\n  now    {told.get('told')}", flush=True
                )
            for each in wrong:
                print(f"{folder.name}/{path.stem}: {each}", flush=True)
            failed |= bool(wrong)
            if options.write and told:
                kept[path.stem] = {**told, "judged": before.get("judged", "") if same else ""}
        if asked:
            counts = ", ".join(f"{judged[word]} {word or 'not judged'}" for word in JUDGED)
            print(f"{folder.name}: {asked} ports, {counts}; {tried} tried; {seconds:.0f} s", flush=True)
        if options.write:
            kept_at.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
