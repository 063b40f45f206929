"""The table of all exporters: the function that writes a trace, a comparison or a report, for each form.

A form is a suffix, ``.svg``, or the name of the program that opens it, ``tensorboard``; some programs have both. An
exporter takes ``(thing, path, **options)``, or ``(thing, path, options)`` where ``options`` is a dataclass, and
returns the path. Its module is imported when it is used.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from fxdebug.data.trace import TraceData
from fxdebug.errors import FxDebugError, SaveError, UsageError, first_line, nearest
from fxdebug.files.system_errors import system_reason
from fxdebug.files.write_file import all_written_whole
from fxdebug.plugins import installed
from fxdebug.plugins.feature import OURS, Kind, at
from fxdebug.plugins.features import features
from fxdebug.query.measures import derived
from fxdebug.store.private import is_private, report_without_private, without_private

_OF_CORE: dict[tuple[Kind, str], str] = {
    ("trace", ".svg"): "fxdebug.exports.picture.write:write_picture",
    ("trace", ".png"): "fxdebug.exports.picture.write:write_picture",
    ("trace", ".pdf"): "fxdebug.exports.picture.write:write_picture",
    ("trace", ".html"): "fxdebug.exports.page.write:write_trace",
    ("trace", ".txt"): "fxdebug.exports.text:write_text",
    ("comparison", ".svg"): "fxdebug.exports.comparison.picture:write_picture",
    ("comparison", ".png"): "fxdebug.exports.comparison.picture:write_picture",
    ("comparison", ".pdf"): "fxdebug.exports.comparison.picture:write_picture",
    ("comparison", ".csv"): "fxdebug.exports.comparison.table:write_csv",
    ("comparison", ".json"): "fxdebug.exports.comparison.table:write_json",
    ("comparison", ".txt"): "fxdebug.exports.comparison.text:write_text",
    ("comparison", ".html"): "fxdebug.exports.page.write:write_comparison",
    ("report", ".csv"): "fxdebug.exports.report.files:write_csv",
    ("report", ".json"): "fxdebug.exports.report.files:write_json",
    ("report", ".txt"): "fxdebug.exports.report.text:write_text",
    ("report", ".html"): "fxdebug.exports.report.html:write_page",
    ("report", ".png"): "fxdebug.exports.report.plot:write_picture",
    ("report", ".svg"): "fxdebug.exports.report.plot:write_picture",
    ("report", ".pdf"): "fxdebug.exports.report.plot:write_picture",
}
# Forms in the order in which people are told of them; others follow.
_TOLD_FIRST: dict[Kind, str] = {
    "trace": ".dot .gv .svg .png .pdf .graphml .json .html .txt .gexf .mmd .md",
    "comparison": ".svg .png .pdf .dot .gv .csv .json .txt .html .md",
}
# Of two that write the same form, the first. Those of other packages for traces are plug-ins, called with care.
EXPORTERS: dict[tuple[Kind, str], str] = dict(_OF_CORE)
for _feature in features():
    for _form, _place in _feature.exporters.items():
        if _feature.package == OURS or _form[0] != "trace":
            EXPORTERS.setdefault(_form, _place)


def _rank(form: tuple[Kind, str]) -> int:
    """Return the place of a form among those of its kind: that of its name, the last for names that are not told."""
    told = _TOLD_FIRST.get(form[0], "").split()
    return told.index(form[1]) if form[1] in told else len(told)


EXPORTERS = dict(sorted(EXPORTERS.items(), key=lambda item: _rank(item[0])))


def suffixes(kind: Kind) -> list[str]:
    """Return the suffixes of the files that a trace, a comparison or a report can be written to."""
    return [form for form in _all_forms(kind) if form.startswith(".")]


def names(kind: Kind) -> list[str]:
    """Return the programs that a trace, a comparison or a report can be written for: what ``to`` takes."""
    return [form for form in _all_forms(kind) if not form.startswith(".")]


def _all_forms(kind: Kind) -> list[str]:
    """Return our forms, then those that plug-ins add; these write traces."""
    ours = [form for known, form in EXPORTERS if known == kind]
    others = installed.plugins(installed.EXPORTERS) if kind == "trace" else ()
    return [*ours, *(one.name for one in others if one.name not in ours)]


def form_of(kind: Kind, path: Path, to: str | None = None) -> str:
    """Return the form to write: ``to``, or the longest suffix of the path that is one (``.speedscope.json``).

    ``to`` is the name of a program, or a suffix with or without its dot. Raises ``UsageError`` with the forms there
    are.

    >>> form_of("trace", Path("run.svg")), form_of("trace", Path("run"), "json")
    ('.svg', '.json')
    """
    if to is None:
        found = [suffix for suffix in suffixes(kind) if path.name.lower().endswith(suffix.lower())]
        if found:
            return max(found, key=len)
        raise UsageError(f"nothing exports to {path.suffix or 'a file without suffix'!r}: {_forms(kind)}")
    wanted = _spelled(to)
    forms = {_spelled(form): form for form in reversed(_all_forms(kind))}  # of two that are spelled alike, the first
    form = forms.get(wanted) or forms.get(f".{wanted}")
    if form is None:
        near = nearest(wanted, [*names(kind), *suffixes(kind)])
        raise UsageError(f"nothing exports to {to!r}: {_forms(kind)}.{near}")
    return form


def _spelled(form: str) -> str:
    return form.lower().replace("_", "-")


def _forms(kind: Kind) -> str:
    """Return what can be asked for instead."""
    programs = names(kind)
    return f"use {', '.join(suffixes(kind))}" + (f", or to={' or '.join(map(repr, programs))}" if programs else "")


def exporter(kind: Kind, form: str) -> Callable[..., Path]:
    """Return the function that writes a form, as :func:`form_of` returns it."""
    place = EXPORTERS.get((kind, form))
    if place is None:
        plugin = installed.plugin(installed.EXPORTERS, form)
        assert plugin is not None, f"{form} is no form of a {kind}"
        return _of_plugin(plugin)
    function: Callable[..., Path] = at(place)
    return function


def _of_plugin(plugin: installed.Plugin) -> Callable[..., Path]:
    """Return the exporter of a plug-in; whatever it raises becomes a ``SaveError`` that names the plug-in.

    It writes whole or not at all, as ours do. An earlier file or folder is shown to it under no name: it writes anew.
    """
    function, what = plugin.function(), f"the plug-in {plugin.name!r} of {plugin.package}"
    try:
        signature = inspect.signature(function)
    except ValueError as error:
        raise UsageError(f"{what} has no signature that can be read: {error}") from None
    _require_parameters(signature, what)

    @functools.wraps(function)
    def write(thing: object, path: Path, **options: Any) -> Path:
        with all_written_whole(path) as new:
            try:
                function(thing, new, **options)
            except FxDebugError:
                raise
            except installed.FAILURES as error:
                text = first_line(error).replace(str(new), str(path))
                raise SaveError(f"{what} failed: {type(error).__name__}: {text}") from error
            if not new.exists():
                raise SaveError(f"{what} wrote nothing to {path}")
        return path

    return write


def _require_parameters(signature: inspect.Signature, what: str) -> None:
    """Raise ``UsageError`` for an exporter that cannot be given a trace and a path."""
    try:
        signature.bind(None, None)
    except TypeError as error:
        raise UsageError(f"{what} cannot be called with a trace and a path: {error}") from None


def _kept_private(trace: TraceData, options: dict[str, Any]) -> tuple[TraceData, dict[str, Any]]:
    """Return a private trace and the options of its export without texts that were attached to it since."""
    if "reports" in options:
        options = {**options, "reports": tuple(map(report_without_private, options["reports"]))}
    kept = without_private(trace)
    derived(kept).update(derived(trace))  # the measures of this export were derived already
    return kept, options


def option_names(function: Callable[..., Path]) -> list[str]:
    """Return the names of an exporter's options: its parameters after the path, or the fields of their dataclass."""
    _, _, *parameters = inspect.signature(function).parameters.values()
    defaults = _defaults(parameters)
    return [field.name for field in fields(defaults)] if defaults is not None else [p.name for p in parameters]


def _defaults(parameters: list[inspect.Parameter]) -> Any:
    """Return the default of the one parameter that takes a dataclass of options, or ``None``."""
    default = parameters[0].default if len(parameters) == 1 else None
    return default if is_dataclass(default) else None


def export(kind: Kind, thing: object, path: Path, *, to: str | None = None, **options: Any) -> Path:
    """Write ``path`` by its suffix, or in the form ``to``: the name of a program, or another suffix.

    Raises ``UsageError`` for a form that there is not, and for an option that its exporter does not have.
    """
    form = form_of(kind, path, to)
    write = exporter(kind, form)
    known = option_names(write)
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise UsageError(f"{form} has no option {unknown[0]!r}; it has {', '.join(known) or 'none'}")
    defaults = _defaults(list(inspect.signature(write).parameters.values())[2:])
    if kind == "trace" and isinstance(thing, TraceData) and is_private(thing):
        thing, options = _kept_private(thing, options)
    arguments = options if defaults is None else {"options": replace(defaults, **options)}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return write(thing, path, **arguments)
    except OSError as error:
        if isinstance(error, SaveError):
            raise
        if isinstance(error, IsADirectoryError):
            raise SaveError(f"{path} cannot be written: it is a folder") from error
        raise SaveError(f"cannot write {path}: {system_reason(error)}") from error
