"""The list of plug-ins as text, JSON and CSV, with those that do not work."""

from __future__ import annotations

import collections
import csv
import json

import pytest

from fxdebug.exports import plugins
from fxdebug.plugins.feature import Feature
from fxdebug.plugins.installed import Plugin


@pytest.fixture
def three(monkeypatch: pytest.MonkeyPatch) -> None:
    """A feature that works, one that does not, and three functions of other packages."""
    found = (
        Plugin("exporters", "counted", "collections:Counter", "one 1.0"),
        Plugin("exporters", "json", "collections:Counter", "one 1.0"),
        Plugin("rules", "gone", "no_module:f", "two 2.0"),
    )
    features = [Feature(name="doubling", functions={"doubled": "m:f"}, on_run="m:g", package="three 3.0")]
    monkeypatch.setattr(plugins, "plugins", lambda: found)
    monkeypatch.setattr(plugins, "of_others", lambda: features)
    monkeypatch.setattr(plugins, "part", lambda feature, place: None)
    monkeypatch.setattr(plugins, "broken", lambda: [("failing", "four 4.0", "no rules")])


@pytest.mark.usefixtures("three")
def test_all_forms_have_every_plugin_with_what_it_does_or_why_it_does_not_work() -> None:
    about, why = collections.Counter.__doc__.partition("\n")[0], "ModuleNotFoundError: No module named 'no_module'"
    assert plugins.plugins_text(width=200).splitlines() == [
        "features",
        "  doubling  adds fxdebug.doubled, an analysis of check (three 3.0)",
        "  failing  does not work: no rules (four 4.0)",
        "",
        "exporters",
        f"  counted  {about} (one 1.0)",
        f"  json  {about} (one 1.0)",
        "",
        "rules",
        f"  gone  does not work: {why} (two 2.0)",
    ]
    rows = [
        ("features", "doubling", "three 3.0", "", "adds fxdebug.doubled, an analysis of check", ""),
        ("features", "failing", "four 4.0", "", "", "no rules"),
        ("exporters", "counted", "one 1.0", "collections:Counter", about, ""),
        ("exporters", "json", "one 1.0", "collections:Counter", about, ""),
        ("rules", "gone", "two 2.0", "no_module:f", "", why),
    ]
    head, *lines = csv.reader(plugins.plugins_csv().splitlines())
    assert head == ["group", "name", "package", "function", "about", "failure"] and lines == [list(row) for row in rows]
    text = plugins.plugins_json()
    assert text.startswith('{\n  "schema": "fxdebug.plugins/1",\n  "plugins": [\n    {\n      "group": "features",')
    assert [tuple(row.values()) for row in json.loads(text)["plugins"]] == rows
