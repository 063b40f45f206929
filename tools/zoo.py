"""Every zoo model against transformers' debugger, and every graph of it against what really ran: ``make zoo``.

``python tools/zoo.py [NAME ...]`` runs the entries whose name contains one of the names, all of them
without any. For each: the reference, the drop-in (``use_repr`` True and False, pruning on and off) and
``fx_debug``, and what they wrote compared letter for letter; then the graphs, with the default cache,
with caches off and with gradients, every verified one executed by an independent judge, and on inputs
of other sizes. ``FXDEBUG_NATIVE=0`` has Python record alone, as where no native core is built. Ends
with tables, the bars, and the lines for the README, which ``--write`` puts there; exits with 1 if a bar
is missed or anything differs that nobody explained.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import logging
import os
import sys
import time
import traceback
import warnings
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
HERE = Path(__file__).resolve().parent
TESTS = HERE.parent / "tests"
sys.path[:0] = [str(TESTS), str(HERE)]

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import torch
    from torch.utils._pytree import tree_map

from rich.console import Console  # noqa: E402

import zoo_graphs  # noqa: E402
import zoo_parity  # noqa: E402
from running import each, put_between, way_of_recording  # noqa: E402
from support.parity import Report, compared  # noqa: E402
from support.trust import DEFAULT, GRAD, NO_CACHE, Trust, trap_entries, trust  # noqa: E402
from zoo import zoo  # noqa: E402

PARTS = ("parity", "graphs")
README = HERE.parent / "README.md"

_builds: dict[str, Any] = {}
_parts: list[str] = []


@dataclass
class Found:
    """What came out for one entry."""

    name: str
    seconds: float = 0.0
    report: Report | None = None
    trusts: list[Trust] = field(default_factory=list)

    @property
    def problems(self) -> list[str]:
        """What must not be."""
        unexplained = [] if self.report is None else self.report.unexplained
        return [*unexplained, *(text for found in self.trusts for text in zoo_graphs.problems(found))]


def main(arguments: list[str]) -> int:
    """Run the entries, print progress, tables and bars; return the exit status."""
    options = _options(arguments)
    _prepare([options.only] if options.only else list(PARTS), options.device)
    names = [name for name in _builds if not options.names or any(part in name for part in options.names)]
    print(way_of_recording())
    began = time.perf_counter()
    results: list[Found] = []
    for done, found in enumerate(each(_one, names, options.jobs, _prepare, (_parts, options.device)), 1):
        results.append(found)
        print(f"{done:4}/{len(names)} {found.name:<60} {found.seconds:6.1f} s  {_verdict(found)}", flush=True)
        for what in found.problems[:5]:
            print(f"          {what[:300]}", flush=True)
    if options.json:
        options.json.write_text(json.dumps(results, default=vars, indent=1))
    return _tell(results, time.perf_counter() - began, whole=not options.names, write=options.write)


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[2])
    parser.add_argument("names", nargs="*", metavar="NAME", help="parts of the names of entries; all without any")
    parser.add_argument("--only", choices=PARTS, help="one half of it")
    parser.add_argument(
        "--jobs", type=int, default=min(os.cpu_count() or 1, 8), help="processes (default: %(default)s)"
    )
    parser.add_argument("--device", help="where the models run, such as cuda (default: where they are built)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything that was counted")
    parser.add_argument("--write", action="store_true", help="put the summary into README.md")
    options = parser.parse_args(arguments)
    if options.write and options.device:
        parser.error("--write puts down what came out on the CPU")
    if options.write and (options.names or options.only):
        parser.error("--write puts down what came out for the whole zoo: it takes no names and no --only")
    return options


# Running -----------------------------------------------------------------------------------------


def _prepare(parts: list[str], device: str | None) -> None:
    _parts[:] = parts
    torch.set_num_threads(1)
    torch._logging.set_logs(dynamo=logging.ERROR)
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _builds.update(zoo.zoo())
    if "graphs" in parts:
        _builds.update(trap_entries())
    if device is not None:
        torch.use_deterministic_algorithms(True, warn_only=True)  # else two plain runs differ
        _builds.update({name: partial(_built_on, build, device) for name, build in _builds.items()})
    gc.collect()
    gc.freeze()  # what the libraries hold is not looked through at each collection


def _built_on(build: Any, device: str) -> Any:
    """Return a model and its arguments on a device."""
    model, given = build()
    return model.to(device), tree_map(lambda leaf: leaf.to(device) if isinstance(leaf, torch.Tensor) else leaf, given)


def _one(name: str) -> Found:
    found = Found(name)
    began = time.perf_counter()
    with warnings.catch_warnings(), open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):  # noqa: PTH123
        warnings.simplefilter("ignore")
        if "parity" in _parts and not name.startswith("trap/"):
            try:
                found.report = compared(name, _builds[name])
            except Exception as error:  # a report is owed for every entry
                why = f"the comparison failed: {error!r}: {traceback.format_exc()[-800:]}"
                found.report = Report(name, drop_in=[why])
        if "graphs" in _parts:
            for setting in (DEFAULT, NO_CACHE, GRAD):
                try:
                    counted = trust(name, _builds[name], setting, other_inputs=setting != GRAD)
                except Exception as error:  # it cannot be built on that device, for one
                    counted = Trust(name, setting, failed=f"{type(error).__name__}: {error}")
                if counted is not None:
                    found.trusts.append(counted)
    found.seconds = time.perf_counter() - began
    return found


# Telling -----------------------------------------------------------------------------------------


def _verdict(found: Found) -> str:
    words = [] if found.report is None else [zoo_parity.verdict(found.report)]
    return "; ".join(words + [zoo_graphs.verdict(found.trusts)] * bool(found.trusts))


def _tell(results: list[Found], seconds: float, *, whole: bool, write: bool) -> int:
    reports = [found.report for found in results if found.report is not None]
    trusts = [counted for found in results for counted in found.trusts]
    console = Console(width=max(130, Console().width), highlight=False, soft_wrap=True)
    lines: list[str] = []
    met = True
    if reports:
        zoo_parity.tell(console, reports)
        lines.append(zoo_parity.summary(reports))
        met = not any(report.unexplained for report in reports)
    if trusts:
        met = zoo_graphs.tell(console, trusts, whole=whole) and met
        lines.append(zoo_graphs.summary(trusts))
    text = "\n\n".join(lines if whole else lines[:1] if reports else [])
    print(f"\n{seconds:.0f} s\n{text}")
    if write:
        put_between(README, "zoo summary", text)
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
