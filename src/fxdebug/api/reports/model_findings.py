"""The analyses of ``check`` that run a model: each in a run of its own, all from the same start."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from fxdebug.analyses.numbers.numerics import check_numerics
from fxdebug.analyses.rules.merged import Done
from fxdebug.analyses.rules.plugin_rules import plugin_report
from fxdebug.analyses.rules.settings import RuleSettings
from fxdebug.analyses.rules.table import (
    ACTIVATIONS,
    ATTENTION,
    GRADIENTS,
    NUMBERS,
    PLUGINS,
    PROFILE,
    SHADOW,
    TRAINING,
    WEIGHTS,
)
from fxdebug.api.reports.activation_statistics import activations
from fxdebug.api.reports.attention_maps import attention
from fxdebug.api.reports.cost import profile
from fxdebug.api.reports.gradient_flow import gradients
from fxdebug.api.reports.weight_statistics import weights
from fxdebug.api.run_model import fx_debug, target_of
from fxdebug.api.shadow_run import shadow
from fxdebug.capture.runs.same_start import copied_inputs, state_restored
from fxdebug.data.report import ReportData
from fxdebug.errors import UsageError, first_line

REPEATS = 5  # timed runs, where a profile was asked for

Analyse = Callable[[], ReportData[Any]]


@dataclass(frozen=True)
class GivenModel:
    """A model to be checked: its module or a method of one, its inputs, and what its training needs.

    ``inputs`` are ``None`` where none were given: only the weights can be looked at then.
    """

    model: nn.Module | Callable[..., Any]
    inputs: Any = None
    kwargs: Mapping[str, Any] | None = None
    loss: Callable[[Any], Tensor] | None = None
    optimizer: torch.optim.Optimizer | None = None

    @property
    def module(self) -> nn.Module:
        """The module. Raises ``UsageError`` where the model is no module and no method of one."""
        return target_of(self.model, "forward")[0]


def findings_of_model(model: GivenModel, chosen: list[str], settings: RuleSettings) -> tuple[str, int, Done]:
    """Run a model once traced, and once more for each further analysis; return its class, its calls, and the reports.

    Afterwards the model and random generators are as before. An exception of the model in the traced run passes
    through; an analysis that fails later has its reason among those of what was not done.
    """
    module, done, calls = model.module, Done(), 0
    if model.inputs is not None:
        with state_restored(module):
            trace = fx_debug(model.model, copied_inputs(model.inputs), model.kwargs)
            if NUMBERS in chosen:
                done.reports[NUMBERS] = check_numerics(trace, limits=settings.limits_of(NUMBERS))
            if PLUGINS in chosen:
                done.reports[PLUGINS] = plugin_report(trace)
        calls = len(trace.calls)
        del trace  # it holds the model's output
    for name in chosen:
        reason = _impossible(name, model)
        if reason:
            done.reasons[name] = reason
        elif name not in done.reports:
            _add(done, name, model, settings)
    return type(module).__name__, calls, done


def _impossible(name: str, model: GivenModel) -> str:
    """Return why an analysis cannot be done with a model, or nothing."""
    if name == TRAINING:
        return "give the folder of a watched training"
    if name != WEIGHTS and model.inputs is None:
        return "no inputs were given"
    if name == GRADIENTS and model.loss is None:
        return "no loss was given"
    if name in (GRADIENTS, PROFILE, SHADOW) and not isinstance(model.model, nn.Module):
        return "needs the model's forward, not another method"
    return ""


def _analyse(name: str, model: GivenModel, settings: RuleSettings) -> ReportData[Any]:
    module, inputs, kwargs, limits = model.module, model.inputs, model.kwargs, settings.limits_of(name)
    analyses: dict[str, Analyse] = {
        ACTIVATIONS: lambda: activations(model.model, inputs, kwargs, limits=limits),
        ATTENTION: lambda: attention(model.model, inputs, kwargs, limits=limits, budget=0),
        WEIGHTS: lambda: weights(module, limits=limits, spectra=False),
        GRADIENTS: lambda: gradients(
            module, inputs, model.loss, kwargs=kwargs, optimizer=model.optimizer, limits=limits
        ),
        PROFILE: lambda: profile(module, inputs, kwargs, repeats=REPEATS, limits=limits),
        SHADOW: lambda: shadow(module, inputs, kwargs),
    }
    return analyses[name]()


def _add(done: Done, name: str, model: GivenModel, settings: RuleSettings) -> None:
    """Do one analysis; the model ran, so that an exception is a reason why this one was not done."""
    try:
        done.reports[name] = _analyse(name, replace(model, inputs=copied_inputs(model.inputs)), settings)
    except UsageError as error:
        done.reasons[name] = first_line(error)
    except Exception as error:
        done.reasons[name] = f"it raised {type(error).__name__}: {first_line(error)}"
        done.failed.add(name)
