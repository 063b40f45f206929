"""The list of plug-ins as text, JSON and CSV: group, name, package, place, meaning, or why one does not work."""

from __future__ import annotations

import json
import shutil

from fxdebug.analyses.measures import every_measure
from fxdebug.cells import wrapped
from fxdebug.exports.records import SCHEMAS, csv_text
from fxdebug.exports.registry import EXPORTERS
from fxdebug.plugins.feature import Feature
from fxdebug.plugins.features import broken, commands_of, of_others, part
from fxdebug.plugins.installed import EXPORTERS as EXPORTER_GROUP
from fxdebug.plugins.installed import GROUPS, MEASURE_FUNCTIONS, Plugin, is_name_of_ours, plugins
from fxdebug.printable import printable, printable_json

_HEADS = ("group", "name", "package", "function", "about", "failure")


def plugins_text(*, width: int | None = None) -> str:
    """Return every plug-in under its group. All of them are imported, to tell those that do not work."""
    width = shutil.get_terminal_size().columns if width is None else width
    every_measure()  # so that all names of ours are known
    found = plugins()
    if not found and not _features():
        groups = ", ".join(f"fxdebug.{group}" for group in (*GROUPS, "features"))
        return "\n".join(
            wrapped(f"No package that is installed adds anything. Entry points are looked for in {groups}.", width)
        )
    rows = [*_features(), *map(_row, found)]
    lines: list[str] = []
    for group in ("features", *GROUPS):
        of_group = [row for row in rows if row[0] == group]
        lines += ["", group] if lines and of_group else [group] if of_group else []
        for _, name, package, place, about, failure in of_group:
            shown = f"does not work: {failure}" if failure else about
            lines += wrapped(printable(f"  {name}  {shown or place} ({package})"), width, further="    ")
    return "\n".join(lines)


def plugins_json() -> str:
    """Return every plug-in as JSON."""
    every_measure()
    rows = [dict(zip(_HEADS, row)) for row in (*_features(), *map(_row, plugins()))]
    data = {"schema": SCHEMAS["plugins"], "plugins": rows}
    return printable_json(json.dumps(data, indent=2, ensure_ascii=False))


def plugins_csv() -> str:
    """Return every plug-in as CSV."""
    every_measure()
    return csv_text(_HEADS, [*_features(), *map(_row, plugins())])


def _features() -> list[tuple[str, ...]]:
    """Return a row for each feature of another package: what it adds, or why it does not work."""
    added = {one.name: (one.package, _added(one)) for one in of_others()}
    failures = broken()  # known once their parts were asked for
    working = [
        ("features", name, package, "", about, "")
        for name, (package, about) in added.items()
        if name not in [failed for failed, *_ in failures]
    ]
    return [*working, *[("features", name, package, "", "", failure) for name, package, failure in failures]]


def _added(feature: Feature) -> str:
    part(feature, feature.rules)
    parts = [f"fxdebug.{name}" for name in feature.functions]
    parts += ["an analysis of check"] * bool(feature.on_model or feature.on_run or feature.folder)
    parts += [f"the command {command.function.__name__}" for command in commands_of(feature)]
    return "adds " + ", ".join(parts or ["functions"])


def _row(plugin: Plugin) -> tuple[str, ...]:
    return plugin.group, plugin.name, plugin.package, plugin.place, plugin.about, _failure(plugin)


def _failure(plugin: Plugin) -> str:
    """Return the reason why a plug-in does not work: it cannot be imported, or its name is one of ours."""
    forms = [form for kind, form in EXPORTERS if kind == "trace"] if plugin.group == EXPORTER_GROUP else []
    if plugin.name in forms or (plugin.group == MEASURE_FUNCTIONS and is_name_of_ours(plugin.name)):
        return f"fxdebug has {plugin.name} itself"
    return plugin.failure
