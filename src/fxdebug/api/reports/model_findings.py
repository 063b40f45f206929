"""The analyses of ``check`` that run a model: each in a separate run, all from the same state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from fxdebug.analyses.numbers.numerics import check_numerics
from fxdebug.analyses.rules.merged import Done
from fxdebug.analyses.rules.plugin_rules import plugin_report
from fxdebug.analyses.rules.settings import RuleSettings
from fxdebug.analyses.rules.table import NUMBERS, PLUGINS
from fxdebug.api.reports.unwritten_memory import with_unwritten_memory
from fxdebug.api.run_model import fx_debug, target_of
from fxdebug.capture.runs.same_start import deep_copy, state_restored
from fxdebug.data.trace import TraceData
from fxdebug.plugins.feature import OURS, Feature, Place, answer
from fxdebug.plugins.features import feature_of, part
from fxdebug.plugins.given import GivenModel
from fxdebug.plugins.installed import FAILURES


def given_model(
    model: nn.Module | Callable[..., Any],
    inputs: Any,
    kwargs: Mapping[str, Any] | None,
    loss: Callable[[Any], Tensor] | None,
    optimizer: torch.optim.Optimizer | None,
) -> GivenModel:
    """Return a model as its analyses get it. Raises ``UsageError`` for what is no module and no method of one."""
    return GivenModel(model, target_of(model, "forward")[0], inputs, kwargs, loss, optimizer)


def findings_of_model(given: GivenModel, chosen: list[str], settings: RuleSettings) -> tuple[str, int, Done]:
    """Run a model once traced, and once more for each further analysis; return its class, its calls, and the reports.

    Afterwards the model and random generators are as before. An exception of the model in the traced run passes
    through; an analysis that fails later has its reason among those of what was not done.
    """

    def copied() -> GivenModel:
        return replace(given, inputs=deep_copy(given.inputs))

    module, done, calls = given.module, Done(), 0
    if given.inputs is not None:
        with state_restored(module):
            trace = fx_debug(given.model, copied().inputs, given.kwargs)
            if NUMBERS in chosen:
                limits = settings.limits_of(NUMBERS)
                numbers = check_numerics(trace, limits=limits)
                done.reports[NUMBERS] = with_unwritten_memory(numbers, trace, given, limits)
            if PLUGINS in chosen:
                done.reports[PLUGINS] = plugin_report(trace)
            for one in filter(None, map(feature_of, chosen)):
                if one.on_run and not one.on_model and not _impossible(one.name, given):
                    _ask(done, one, one.on_run, lambda: trace, settings)
        calls = len(trace.calls)
        del trace  # it holds the model's output
    for name in chosen:
        reason = _impossible(name, given)
        feature = feature_of(name)
        if reason:
            done.reasons[name] = reason
        elif feature is not None and feature.on_model:
            _ask(done, feature, feature.on_model, copied, settings)
    return type(module).__name__, calls, done


def _impossible(name: str, given: GivenModel) -> str:
    """Return why an analysis cannot be done with a model, or nothing."""
    feature = feature_of(name)
    if feature is None:  # numbers, or the rules of plug-ins
        return "no inputs were given" if given.inputs is None else ""
    if not feature.on_model and (not feature.on_run or "tensors" in feature.needs):
        kind = part(feature, feature.folder)
        return "give a run" if kind is None else f"give the folder of {kind.made_by}"
    if "inputs" in feature.needs and given.inputs is None:
        return "no inputs were given"
    if "loss" in feature.needs and given.loss is None:
        return "no loss was given"
    if "forward" in feature.needs and given.model is not given.module:
        return "needs the model's forward, not another method"
    return ""


def _ask(
    done: Done, feature: Feature, place: Place, subject: Callable[[], GivenModel | TraceData], settings: RuleSettings
) -> None:
    """Do one analysis; the model ran, so that an exception is a reason why this one was not done."""
    limits = settings.limits_of(feature.name)
    caught = (Exception,) if feature.package == OURS else FAILURES
    done.ask(feature.name, lambda: answer(place, subject(), limits), caught)
