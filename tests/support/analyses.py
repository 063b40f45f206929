"""The analyses, by name: the function of each, and what it needs. A test runs all of them on all kinds of runs."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from fxdebug.api.losses import loss_or_mean
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
    return Analysis(name, needs, f"fxdebug.{module}", options)


ANALYSES: dict[str, Analysis] = {
    analysis.name: analysis
    for analysis in (
        _analysis("check", RUN, "api.check_run"),
        _analysis("flops", RUN, "features.flops.run"),
        _analysis("summary", RUN, "features.summary.run"),
        _analysis("profile", MODEL, "features.profile.run", repeats=1, warmup=0, peak=False),
        _analysis("memory", MODEL, "features.memory.run"),
        _analysis("activations", MODEL, "features.activations.run"),
        _analysis("attention", MODEL, "features.attention.run"),
        _analysis("gradients", MODEL, "features.gradients.run", loss=loss_or_mean),
        _analysis("weights", MODEL, "features.weights.run"),
        _analysis("shadow", MODEL, "features.shadow.run"),
    )
}
