"""Is ``fxdebug`` quiet on right ports: ``python tools/lib_ports_check.py [NAME ...]``.

Compares each pair of ``lib_ports.py`` in three ways: by statistics, by tensors, and with ``compare_models``. Prints a
table with ``equal`` or the first false finding, and exits with 1 unless all that could be built are equal. ``--screen``
prints the whole comparisons. It needs transformers and the libraries of the ports, which ``make libs`` installs.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
sys.path.insert(0, str(Path(__file__).resolve().parent))

import torch

import fxdebug
import lib_ports
from lib_ports import Port

EQUAL = "equal"
ROUNDING = 2e-6  # how far the results of a right port may lie apart


def _by_statistics(pair: Port) -> fxdebug.Comparison:
    return fxdebug.compare(fxdebug.fx_debug(pair.reference, pair.inputs), fxdebug.fx_debug(pair.port, pair.inputs_b))


def _by_tensors(pair: Port) -> fxdebug.Comparison:
    runs = ((pair.reference, pair.inputs), (pair.port, pair.inputs_b))
    return fxdebug.compare(*(fxdebug.fx_debug(model, inputs, values="tensors") for model, inputs in runs))


def _by_models(pair: Port) -> fxdebug.Comparison:
    return fxdebug.compare_models(pair.reference, pair.port, pair.inputs, inputs_b=pair.inputs_b)


WAYS: dict[str, Callable[[Port], fxdebug.Comparison]] = {
    "statistics": _by_statistics,
    "tensors": _by_tensors,
    "models": _by_models,
}


def told(comparison: fxdebug.Comparison) -> str:
    """Return ``equal``, or the first finding and how many there are."""
    first = comparison.first
    if first is None:
        return EQUAL if comparison.equal else str(getattr(comparison, "verdict", "not equal"))
    return f"{len(comparison.findings)}: {first.kind} {first.where} {first.error:.2g} ({first.because})"


def checked(name: str, ways: list[str], *, screen: bool = False) -> dict[str, str]:
    """Return for one pair, by way, ``equal`` or what was wrong; raises ``ImportError`` where a library is missing."""
    pair = lib_ports.built(name)
    difference = pair.difference()
    if not difference <= ROUNDING:
        return dict.fromkeys(ways, f"the port is not right: {difference:.2g}")
    results = {}
    for way in ways:
        try:
            with torch.no_grad():
                comparison = WAYS[way](pair)
            results[way] = told(comparison)
            if screen and results[way] != EQUAL:
                print(comparison)
        except Exception as error:
            results[way] = f"{type(error).__name__}: {error}"
            if screen:
                traceback.print_exc()
    return results


def main(arguments: list[str]) -> int:
    """Check what was asked for; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="parts of the names of pairs; all without any")
    parser.add_argument("--only", choices=WAYS, action="append", help="a way; may be given more than once")
    parser.add_argument("--screen", action="store_true", help="print the comparisons that are not equal")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    ways = options.only or list(WAYS)
    names = [name for name in lib_ports.names() if not options.names or any(part in name for part in options.names)]
    began, right, built = time.perf_counter(), dict.fromkeys(ways, 0), 0
    print(f"{'pair':24}" + "".join(f"{way:12}" for way in ways))
    for name in names:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                results = checked(name, ways, screen=options.screen)
            except ImportError as error:
                print(f"{name:24}left out: {error}")
                continue
        built += 1
        print(f"{name:24}" + "".join(f"{'equal' if results[way] == EQUAL else 'WRONG':12}" for way in ways), flush=True)
        for way in ways:
            right[way] += results[way] == EQUAL
            if results[way] != EQUAL:
                print(f"    {way}: {results[way][:200]}", flush=True)
    print(f"{'equal':24}" + "".join(f"{f'{right[way]} of {built}':12}" for way in ways))
    print(f"{time.perf_counter() - began:.0f} s")
    return 0 if all(count == built for count in right.values()) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
