"""Loops of ``tools``, watched, and what is concluded of them."""

from __future__ import annotations

import random
import warnings
from typing import Any

import torch

import fxdebug
from fxdebug.features.training.verdict.judge import Verdict
from support.tool import tool


def cases_of(file: str) -> dict[str, Any]:
    """Return the loops of a file of ``tools`` by their names."""
    return {case.name: case for case in tool(file).CASES.every}


def verdict_on(case: Any, bad: bool, steps: int) -> Verdict:
    """Return what is concluded of a loop, with its fault or without it."""
    torch.manual_seed(0)
    random.seed(0)
    loop = case.make(bad)
    with warnings.catch_warnings(), fxdebug.watch(loop.model, save=None) as watched:
        warnings.simplefilter("ignore")
        loop.run(steps)
    return watched.verdict()


def warnings_of(verdict: Verdict) -> list[str]:
    """Return the rules whose findings are more than advice."""
    return [one.rule for one in verdict.findings if one.severity != "advice"]
