"""Subjects that the core gives to features: a model with all that its analyses need, a folder, a file of a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fxdebug.data.report import ReportData
from fxdebug.data.trace import TraceData
from fxdebug.plugins.feature import Kind

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn


@dataclass(frozen=True)
class GivenModel:
    """A model to be checked: ``model`` is ``module`` or a method of it.

    ``inputs`` are ``None`` where none were given: only the weights can be looked at then.
    """

    model: nn.Module | Callable[..., Any]
    module: nn.Module
    inputs: Any = None
    kwargs: Mapping[str, Any] | None = None
    loss: Callable[[Any], Tensor] | None = None
    optimizer: torch.optim.Optimizer | None = None


@dataclass(frozen=True)
class Folder:
    """A kind of folder that ``check`` and exports read.

    ``holds`` tells whether a path is one. ``report`` gets it, a rank or ``None``, and a function that returns the
    limits of an analysis by name; it returns the name of the model and a report. ``what`` is what
    lies in it, ``made_by`` whose folder to give. ``read`` gets the folder and a rank, and returns what exporters of the
    kind ``exported`` write; without it, such a folder is checked, and not exported.
    """

    holds: Callable[[Path], bool]
    report: Callable[[Path, int | None, Callable[[str], Any]], tuple[str, ReportData[Any]]]
    what: str
    made_by: str
    read: Callable[[Path, int | None], Any] | None = None
    exported: Kind = "training"


@dataclass(frozen=True)
class RunFiles:
    """Files of another program that ``fxdebug.load`` reads as runs.

    ``is_one`` tells whether a file is one. ``find`` returns the one in a folder, ``None`` where there is none.
    ``read`` returns the run, and raises ``LoadError`` for a file that is damaged.
    """

    is_one: Callable[[Path], bool]
    find: Callable[[Path], Path | None]
    read: Callable[[Path], TraceData]
