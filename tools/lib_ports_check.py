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
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
sys.path.insert(0, str(Path(__file__).resolve().parent))

import torch

import fxdebug
import lib_ports
from lib_ports import Port
from running import put_between

PAGE = Path(__file__).resolve().parent.parent / "docs" / "other-libraries.md"
EQUAL = "equal"
ROUNDING = 2e-6  # how far the results of a right port may lie apart
BFLOAT16_ROUNDING = 0.1


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


def _swapped(name: str) -> Port:
    pair = lib_ports.built(name)
    return Port(pair.port, pair.reference, pair.inputs_b, pair.inputs, pair.result_b, pair.result)


def _eager(name: str) -> Port:
    pair = lib_ports.built(name)
    if hasattr(pair.reference, "set_attn_implementation"):
        pair.reference.set_attn_implementation("eager")
    return pair


def _in_bfloat16(name: str) -> Port:
    pair = lib_ports.built(name)
    for model in (pair.reference, pair.port):
        model.to(torch.bfloat16)
    return replace(pair, inputs=_cast(pair.inputs), inputs_b=_cast(pair.inputs_b))


def _cast(inputs: Any) -> Any:
    if isinstance(inputs, torch.Tensor):
        return inputs.to(torch.bfloat16) if inputs.is_floating_point() else inputs
    if isinstance(inputs, dict):
        return {name: _cast(value) for name, value in inputs.items()}
    return type(inputs)(map(_cast, inputs)) if isinstance(inputs, (list, tuple)) else inputs


VARIANTS: dict[str, Callable[[str], Port]] = {
    "as built": lib_ports.built,
    "swapped": _swapped,  # the port is the reference
    "eager": _eager,  # attention of transformers written out
    "bfloat16": _in_bfloat16,
    "initial": partial(lib_ports.built, initial=True),  # weights as they are before training
    "other seed": partial(lib_ports.built, seed=7),
}


def told(comparison: fxdebug.Comparison) -> str:
    """Return ``equal``, or the first finding and how many there are."""
    first = comparison.first
    if first is None:
        missing = getattr(comparison, "missing", ())
        return EQUAL if comparison.equal else f"could not compare: {missing}"
    return f"{len(comparison.findings)}: {first.kind} {first.where} {first.error:.2g} ({first.because})"


def checked(name: str, ways: list[str], variant: str = "as built", *, screen: bool = False) -> dict[str, str]:
    """Return for one pair, by way, ``equal`` or what was wrong.

    Raises ``ImportError`` where a library is missing, ``NotImplementedError`` where a model does not run so.
    """
    pair = VARIANTS[variant](name)
    try:
        difference = pair.difference()
    except RuntimeError as error:  # a model that runs in float32 alone
        raise NotImplementedError(str(error)) from error
    if not difference <= (ROUNDING if variant != "bfloat16" else BFLOAT16_ROUNDING):
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
    parser.add_argument("--variant", choices=VARIANTS, default="as built", help="of the pairs (default: %(default)s)")
    parser.add_argument("--screen", action="store_true", help="print the comparisons that are not equal")
    parser.add_argument("--write", action="store_true", help=f"put the table into docs/{PAGE.name}")
    options = parser.parse_args(arguments)
    if options.write and (options.names or options.only or options.variant != "as built"):
        parser.error("--write puts down what came out for all pairs in all ways: it takes nothing else")
    torch.set_num_threads(1)
    ways = options.only or list(WAYS)
    names = [name for name in lib_ports.names() if not options.names or any(part in name for part in options.names)]
    began, right, built = time.perf_counter(), dict.fromkeys(ways, 0), 0
    lines = ["| pair | " + " | ".join(ways) + " |", "|---" * (len(ways) + 1) + "|"]
    print(f"{'pair':24}" + "".join(f"{way:12}" for way in ways))
    for name in names:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                results = checked(name, ways, options.variant, screen=options.screen)
            except (ImportError, NotImplementedError) as error:
                print(f"{name:24}left out: {error}")
                lines.append(f"| {name} | {' | '.join(['not run here'] * len(ways))} |")
                continue
        built += 1
        print(f"{name:24}" + "".join(f"{'equal' if results[way] == EQUAL else 'WRONG':12}" for way in ways), flush=True)
        lines.append(f"| {name} | {' | '.join(results[way].replace('|', '/')[:80] for way in ways)} |")
        for way in ways:
            right[way] += results[way] == EQUAL
            if results[way] != EQUAL:
                print(f"    {way}: {results[way][:200]}", flush=True)
    print(f"{'equal':24}" + "".join(f"{f'{right[way]} of {built}':12}" for way in ways))
    print(f"{time.perf_counter() - began:.0f} s")
    lines.append(f"| equal | {' | '.join(f'{right[way]} of {built}' for way in ways)} |")
    if options.write:
        put_between(PAGE, "ports", "\n".join(lines))
    return 0 if all(count == built for count in right.values()) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
