"""The list of plug-ins as text, JSON and CSV: group, name, package, place, meaning, or why one does not work."""

from __future__ import annotations

import json
import shutil

from fxdebug.analyses.measures import every_measure
from fxdebug.cells import wrapped
from fxdebug.exports.records import SCHEMAS, csv_text
from fxdebug.exports.registry import EXPORTERS
from fxdebug.plugins.installed import EXPORTERS as EXPORTER_GROUP
from fxdebug.plugins.installed import GROUPS, MEASURE_FUNCTIONS, Plugin, is_name_of_ours, plugins
from fxdebug.printable import printable, printable_json

_HEADS = ("group", "name", "package", "function", "about", "failure")


def plugins_text(*, width: int | None = None) -> str:
    """Return every plug-in under its group. All of them are imported, to tell those that do not work."""
    width = shutil.get_terminal_size().columns if width is None else width
    every_measure()  # so that all names of ours are known
    found = plugins()
    if not found:
        groups = ", ".join(f"fxdebug.{group}" for group in GROUPS)
        return "\n".join(
            wrapped(f"No package that is installed adds anything. Entry points are looked for in {groups}.", width)
        )
    lines: list[str] = []
    for group in GROUPS:
        ours = [plugin for plugin in found if plugin.group == group]
        lines += ["", group] if lines and ours else [group] if ours else []
        for plugin in ours:
            failure = _failure(plugin)
            told = f"does not work: {failure}" if failure else plugin.about
            text = f"  {plugin.name}  {told or plugin.place} ({plugin.package})"
            lines += wrapped(printable(text), width, further="    ")
    return "\n".join(lines)


def plugins_json() -> str:
    """Return every plug-in as JSON."""
    every_measure()
    rows = [dict(zip(_HEADS, _row(plugin))) for plugin in plugins()]
    data = {"schema": SCHEMAS["plugins"], "plugins": rows}
    return printable_json(json.dumps(data, indent=2, ensure_ascii=False))


def plugins_csv() -> str:
    """Return every plug-in as CSV."""
    every_measure()
    return csv_text(_HEADS, [_row(plugin) for plugin in plugins()])


def _row(plugin: Plugin) -> tuple[str, ...]:
    return plugin.group, plugin.name, plugin.package, plugin.place, plugin.about, _failure(plugin)


def _failure(plugin: Plugin) -> str:
    """Return the reason why a plug-in does not work: it cannot be imported, or its name is one of ours."""
    forms = [form for kind, form in EXPORTERS if kind == "trace"] if plugin.group == EXPORTER_GROUP else []
    if plugin.name in forms or (plugin.group == MEASURE_FUNCTIONS and is_name_of_ours(plugin.name)):
        return f"fxdebug has {plugin.name} itself"
    return plugin.failure
