"""The record of a feature: what it offers, each part by the place where it is."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

Place: TypeAlias = str  # "module:name"
OURS: Final = "fxdebug"
Kind: TypeAlias = Literal["trace", "comparison", "report", "training", "attention", "map", "matrix"]


@dataclass(frozen=True, kw_only=True)
class Feature:
    """A feature by its parts, each of which is imported when it is used.

    ``functions`` are public: ``fxdebug.<name>``; ``further`` ones are ``fxdebug.api.<name>``, for programs.

    ``check`` asks ``on_model``, which gets a :class:`~fxdebug.plugins.given.GivenModel`, or ``on_run``, which gets
    a run; both get the limits of the rules too, and return a report. ``needs`` are the ``inputs`` of a model, its
    ``loss``, its ``forward`` (not another method), or the ``tensors`` of a run: without them, it is not asked. With
    ``asked_for``, it is asked only where it is named. A run of a model is given to ``on_run`` where there is no
    ``on_model``. ``beside`` gets two models or runs before they are compared, and returns a function that gets the
    comparison and returns a report, or ``None``.

    ``folder`` is a :class:`~fxdebug.plugins.given.Folder`: what is asked of folders of a kind. ``card`` returns
    what ``serve`` lists of such a folder, a :class:`~fxdebug.plugins.given.Card`; ``verdict`` its sentence of verdict,
    for ``mcp``.
    ``opens`` is a :class:`~fxdebug.plugins.given.RunFiles`: files that ``fxdebug.load`` reads as runs.
    ``rules`` is a :class:`~fxdebug.data.rules.RuleBook`.

    ``measures`` are modules that register the measures of their reports; ``takes`` are functions that take one of a
    run, by its name. ``pictures`` draw reports and ``texts`` print them, by the name of their analysis; others are
    printed as tables. ``exporters`` write a trace, a comparison, a report or a training, by suffix or name.
    ``layouts`` draw the picture of a trace or a comparison in another layout than that of the page: they get it, a
    path and the options of drawing.
    ``sheet`` returns the report that the page of a run with tensors gets, or ``None``; the page shows the table,
    charts and findings of any report, and the maps that ``maps`` returns of one.

    ``commands`` is a tuple of :class:`~fxdebug.plugins.command.Command`; ``console`` are modules that register
    commands of the console (:func:`fxdebug.plugins.console.command`); ``tools`` are functions of a run that agents
    may ask, by name: they return a report, and their docstring tells the agent what they answer. ``package`` is
    that which brings the feature, with its version.

    >>> Feature(name="widths", functions={"widths": "widths:widths"}).package
    'fxdebug'
    """

    name: str
    functions: Mapping[str, Place] = field(default_factory=dict)
    further: Mapping[str, Place] = field(default_factory=dict)
    on_model: Place = ""
    on_run: Place = ""
    needs: tuple[str, ...] = ("inputs",)
    asked_for: bool = False
    beside: Place = ""
    folder: Place = ""
    card: Place = ""
    verdict: Place = ""
    opens: Place = ""
    rules: Place = ""
    measures: tuple[str, ...] = ()
    takes: Mapping[str, Place] = field(default_factory=dict)
    pictures: Mapping[str, Place] = field(default_factory=dict)
    texts: Mapping[str, Place] = field(default_factory=dict)
    layouts: Mapping[tuple[Kind, str], Place] = field(default_factory=dict)
    sheet: Place = ""
    maps: Place = ""
    exporters: Mapping[tuple[Kind, str], Place] = field(default_factory=dict)
    commands: Place = ""
    console: tuple[str, ...] = ()
    tools: Mapping[str, Place] = field(default_factory=dict)
    package: str = OURS


def at(place: Place) -> Any:
    """Import what stands at a place; the module itself where no name in it is given.

    >>> at("math:pi"), at("math").__name__
    (3.141592653589793, 'math')
    """
    module, _, name = place.partition(":")
    return functools.reduce(getattr, name.split(".") if name else [], importlib.import_module(module))


def answer(place: Place, *asked: Any) -> Any:
    """Import a function and call it: what the import raises is raised where the call is guarded."""
    return at(place)(*asked)
