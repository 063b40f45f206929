"""The commands about findings: check, rules; the first docstring line is the help text."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from fxdebug import api
from fxdebug.api.commands.parts import FAILED, OK, chosen_model, form_of, load_run
from fxdebug.errors import FxDebugError, UsageError
from fxdebug.exports import records
from fxdebug.plugins.features import folder_kind

if TYPE_CHECKING:
    from fxdebug.api.check_run import CheckOptions
    from fxdebug.api.reports.findings import Findings


def check(options: argparse.Namespace) -> int:
    """Find what is wrong with a model, a saved run or a watched training: everything that applies, worst first."""
    asked: CheckOptions = {
        "off": options.off,
        "limits": limits_of(options.limit),
        "config": not options.no_config,
        "analyses": None if options.analyses is None else options.analyses.split(","),
    }
    findings, form = _checked(options, asked), form_of(options)
    if form == "json":
        print(records.findings_json(findings))
    else:
        print(records.findings_csv(findings.findings) if form == "csv" else str(findings))
    return FAILED if api.fails(findings, options.fail_on) else OK


def _checked(options: argparse.Namespace, asked: CheckOptions) -> Findings:
    target = options.target
    if target is not None and (Path(target).exists() or ":" not in target):
        if options.hf is not None:
            raise UsageError(f"give either the run {target} or --hf {options.hf}, not both")
        if options.backward:
            raise UsageError("--backward needs a model: a saved run has no gradients")
        if folder_kind(Path(target)) is not None:
            return api.check(target, rank=options.rank, **asked)
        return api.check(load_run(target, options), **asked)
    if options.rank is not None:
        raise UsageError("--rank chooses one of the ranks of a saved run: a model is run in this process")
    import torch

    model, inputs = chosen_model(options)
    before = api.last_failed()
    with torch.set_grad_enabled(options.grad or options.backward):
        try:
            return api.check(model, inputs, api.loss_or_mean if options.backward else None, **asked)
        except FxDebugError:
            raise
        except Exception:
            partial = api.last_failed()
            if partial is not None and partial is not before:
                print(api.check(partial, **asked))
            raise


def limits_of(texts: Iterable[str]) -> dict[str, float]:
    """Return thresholds by name from texts such as ``attention.leak=1e-4``. Raises ``UsageError`` for others.

    >>> limits_of(["attention.leak=1e-4", "activations.samples = 10"])
    {'attention.leak': 0.0001, 'activations.samples': 10.0}
    """
    limits = {}
    for text in texts:
        name, _, number = text.partition("=")
        try:
            limits[name.strip()] = float(number)
        except ValueError:
            raise UsageError(f"--limit {text}: give a threshold and a number, such as attention.leak=1e-4") from None
    return limits


def rules(options: argparse.Namespace) -> int:
    """List the rules of all analyses with the thresholds that are in force in this folder."""
    form = form_of(options)
    settings = api.project_settings(config=not options.no_config)
    if form == "json":
        print(api.rules_json(settings))
    else:
        print(api.rules_csv(settings) if form == "csv" else api.rules_text(settings, width=options.width))
    return OK
