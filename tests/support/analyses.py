"""The analyses, by name: the function of each, and what it needs. A test runs all of them on all kinds of runs."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from fxdebug.api.reports.gradient_flow import loss_or_mean
from fxdebug.api.reports.report import Report

Needs: TypeAlias = Literal["run", "model"]

RUN: Final = "run"
MODEL: Final = "model"


@dataclass(frozen=True, slots=True)
class Analysis:
    """An analysis: a function that answers with a :class:`Report`, and its place.

    ``needs`` is ``run`` where it reads a trace or the folder of one, ``model`` where it runs a model itself.
    ``options`` are those with which it is done soonest.
    """

    name: str
    needs: Needs
    module: str
    options: Mapping[str, object]

    @property
    def function(self) -> Callable[..., Report[Any]]:
        """The function; its module is imported when it is asked for."""
        function: Callable[..., Report[Any]] = getattr(importlib.import_module(self.module), self.name)
        return function


def _analysis(name: str, needs: Needs, module: str, **options: object) -> Analysis:
    return Analysis(name, needs, f"fxdebug.api.{module}", options)


ANALYSES: dict[str, Analysis] = {
    analysis.name: analysis
    for analysis in (
        _analysis("check", RUN, "check_run"),
        _analysis("flops", RUN, "reports.cost"),
        _analysis("summary", RUN, "reports.cost"),
        _analysis("profile", MODEL, "reports.cost", repeats=1, warmup=0, peak=False),
        _analysis("memory", MODEL, "reports.cost"),
        _analysis("activations", MODEL, "reports.activation_statistics"),
        _analysis("attention", MODEL, "reports.attention_maps"),
        _analysis("gradients", MODEL, "reports.gradient_flow", loss=loss_or_mean),
        _analysis("weights", MODEL, "reports.weight_statistics"),
        _analysis("shadow", MODEL, "shadow_run"),
    )
}
