"""The plug-ins that are installed: found by their entry points, imported when they are used."""

from __future__ import annotations

import functools
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final, Literal, TypeAlias, get_args

from fxdebug.data.calls import Note
from fxdebug.data.findings import SEVERITIES, WARNING, Finding, Severity
from fxdebug.data.measures import CALL, MEASURES, Measure, Taken, register
from fxdebug.errors import UsageError, first_line
from fxdebug.plugins.feature import Feature
from fxdebug.plugins.features import of_others, package_of
from fxdebug.plugins.making import MARK

FAILURES: Final = (Exception, SystemExit)  # whatever a plug-in does: one that ends the program must not end this one
Group: TypeAlias = Literal["exporters", "analyses", "measures", "rules"]

EXPORTERS: Final = "exporters"
ANALYSES: Final = "analyses"
MEASURE_FUNCTIONS: Final = "measures"
RULES: Final = "rules"

GROUPS: tuple[Group, ...] = get_args(Group)


@dataclass(frozen=True)
class Plugin:
    """A function of another package: ``place`` is ``module:function``, ``package`` the distribution and its version."""

    group: Group
    name: str
    place: str
    package: str

    @property
    def about(self) -> str:
        """The first line of its docstring; empty for one that cannot be imported."""
        function = self._function_or_failure
        return "" if isinstance(function, str) else (function.__doc__ or "").strip().partition("\n")[0]

    @property
    def failure(self) -> str:
        """The reason why it cannot be imported; empty where it can."""
        function = self._function_or_failure
        return function if isinstance(function, str) else ""

    def function(self) -> Callable[..., Any]:
        """Return the function. Raises ``UsageError`` with the reason where it cannot be imported."""
        function = self._function_or_failure
        if isinstance(function, str):
            raise UsageError(f"the plug-in {self.name!r} of {self.package} cannot be imported: {function}")
        return function

    @functools.cached_property
    def _function_or_failure(self) -> Callable[..., Any] | str:
        try:
            found = EntryPoint(self.name, self.place, f"fxdebug.{self.group}").load()
        except FAILURES as error:  # whatever the other package does when it is imported
            return f"{type(error).__name__}: {first_line(error)}"
        return found if callable(found) else f"{self.place} is no function"


@functools.cache
def plugins(group: Group | None = None) -> tuple[Plugin, ...]:
    """Return the plug-ins that are installed, of one group or of all, by group and name; none of them is imported."""
    found = []
    for one in GROUPS if group is None else (group,):
        for entry in sorted(entry_points(group=f"fxdebug.{one}"), key=lambda entry: entry.name):
            found.append(Plugin(one, entry.name, entry.value, package_of(entry)))
        found += [
            Plugin(one, name, place, feature.package) for feature in of_others() for name, place in _of(feature, one)
        ]
    return tuple(found)


def _of(feature: Feature, group: Group) -> list[tuple[str, str]]:
    """Return the functions of a feature that are those of a group, by their names."""
    if group == EXPORTERS:
        return [(form, place) for (kind, form), place in feature.exporters.items() if kind == "trace"]
    if group == MEASURE_FUNCTIONS:
        return list(feature.takes.items())
    return []


def plugin(group: Group, name: str) -> Plugin | None:
    """Return the plug-in of a group by its name."""
    return next((one for one in plugins(group) if one.name == name), None)


# Measures and rules ---------------------------------------------------------------------------------

_registered: dict[str, Measure] = {}  # of plug-ins


def plugin_measures(names: Container[str] | None = None) -> dict[str, Plugin]:
    """Return the plug-ins that take measures, by the measure's name, and register these; broken ones are left out.

    ``names``: only these are imported.
    """
    usable = {}
    for one in plugins(MEASURE_FUNCTIONS):
        if names is not None and one.name not in names:
            continue
        if one.failure or is_name_of_ours(one.name):
            continue
        marks = getattr(one.function(), MARK, None)
        unit, of, adds = marks if isinstance(marks, tuple) else ("", (CALL,), False)
        _registered[one.name] = register(one.name, unit, one.about or one.place, of, adds=adds)
        usable[one.name] = one
    return usable


def is_name_of_ours(measure: str) -> bool:
    """Is this the name of a measure of ours, which it stays? Only of those whose analyses were imported."""
    return measure in MEASURES and measure not in _registered


def numbers_of_plugin(plugin: Plugin, trace: Any) -> Taken:
    """Return the numbers that a plug-in takes of a trace. Raises ``UsageError`` with the reason where it cannot."""
    what = f"the plug-in {plugin.name!r} of {plugin.package}"
    try:
        answer = plugin.function()(trace)
        if not isinstance(answer, Mapping):
            raise UsageError(
                f"{what} returned {type(answer).__name__}, not numbers by the id of a call or an operation"
            )
        numbers = {str(id): float(number) for id, number in answer.items()}
    except UsageError:
        raise
    except FAILURES as error:
        raise UsageError(f"{what} failed: {type(error).__name__}: {first_line(error)}") from error
    return Taken(_registered[plugin.name], numbers, plugin.package)


def plugin_rules() -> dict[str, tuple[Severity, str]]:
    """Return the severity and the meaning of the rules of plug-ins, by their names; broken ones are left out."""
    return {one.name: (_severity(one), one.about or one.place) for one in plugins(RULES) if not one.failure}


def _severity(plugin: Plugin) -> Severity:
    marked = getattr(plugin.function(), MARK, WARNING)
    return next((severity for severity in SEVERITIES if severity == marked), WARNING)


def findings_of_plugins(trace: Any) -> tuple[list[Finding], list[Note]]:
    """Return what the rules of plug-ins find in a trace, and a note on each that does not work."""
    every: list[Finding] = []
    notes = []
    for one in plugins(RULES):
        try:
            every += [_of_rule(finding, one) for finding in one.function()(trace)]
        except FAILURES as error:
            what = f"the plug-in {one.name!r} of {one.package} was skipped"
            notes.append(Note(f"{what}: {type(error).__name__}: {first_line(error)}"))
    return every, notes


def _of_rule(finding: Any, plugin: Plugin) -> Finding:
    if not isinstance(finding, Finding):
        raise TypeError(f"a rule returned {type(finding).__name__}, not a Finding: make it with fxdebug.plugins.found")
    return replace(finding, rule=plugin.name, severity=_severity(plugin))
