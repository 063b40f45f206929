"""Subjects of features: a model with all that its analyses need, a folder and its card, a file of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
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
    """A kind of folder that ``check``, exports and ``serve`` read.

    ``holds`` tells whether a path is one. ``report`` gets it, a rank or ``None``, and a function that returns the
    limits of an analysis by name; it returns the name of the model and a report. ``what`` is what
    lies in it, ``made_by`` whose folder to give. ``read`` gets the folder and a rank, and returns what exporters of the
    kind ``exported`` write; without it, such a folder is checked, and not exported.

    ``files`` returns those of the names in a folder that are files of this kind, one for each rank; without it,
    ``serve`` and ``mcp`` do not list such folders. ``page`` returns the page of one as HTML, ``pages`` that of several,
    by their names; both get the address that tells whether they have changed. Without ``page``, the report is shown.
    """

    holds: Callable[[Path], bool]
    report: Callable[[Path, int | None, Callable[[str], Any]], tuple[str, ReportData[Any]]]
    what: str
    made_by: str
    read: Callable[[Path, int | None], Any] | None = None
    exported: Kind = "training"
    files: Callable[[Iterable[str]], list[str]] | None = None
    page: Callable[[Path, Mapping[str, Any] | None], str] | None = None
    pages: Callable[[Mapping[str, Path], Mapping[str, Any] | None], str] | None = None


@dataclass(frozen=True)
class Card:
    """Facts that a list of folders shows of one: a word for its state, the verdict, further facts, a small curve.

    ``is_fault`` and ``is_good`` colour the verdict. The state of one that ``moves`` may change while its files do not.
    ``follows``: a page follows it step by step, as that of a training.
    """

    state: str
    verdict: str
    facts: tuple[str, ...] = ()
    curve: tuple[float, ...] = ()
    is_fault: bool = False
    is_good: bool = False
    moves: bool = False
    follows: bool = False


@dataclass(frozen=True)
class RunFiles:
    """Files of another program that ``fxdebug.load`` reads as runs.

    ``is_one`` tells whether a file is one. ``find`` returns the one in a folder, ``None`` where there is none.
    ``read`` returns the run, and raises ``LoadError`` for a file that is damaged.
    """

    is_one: Callable[[Path], bool]
    find: Callable[[Path], Path | None]
    read: Callable[[Path], TraceData]
