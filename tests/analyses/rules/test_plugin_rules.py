"""The rules of other packages as one report: what they find, and a finding for each that does not work."""

from __future__ import annotations

import pytest
from torch import nn, ones

from fxdebug import fx_debug
from fxdebug.analyses.rules import plugin_rules
from fxdebug.data.calls import Note
from fxdebug.data.findings import Finding, not_looked_at


def test_a_rule_that_does_not_work_is_a_finding_beside_those_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = fx_debug(nn.ReLU(), ones(2))
    own, broken = Finding("mine", "advice", "a", "a#0", "ReLU", "it is so"), Note("rule 'x' raised ValueError: no")
    monkeypatch.setattr(plugin_rules, "findings_of_plugins", lambda _: ([own], [broken]))
    report = plugin_rules.plugin_report(trace)
    assert report.findings == (own, not_looked_at("plugins", "ReLU", "plugins", broken.what))
    assert (report.analysis, report.subject, report.rows, report.notes) == ("plugins", "ReLU", (), (broken,))
