"""The names that users and programs import: each by the module that has it, once.

Those of features are in their records. ``__init__.pyi`` beside ``fxdebug/__init__.py`` and ``api/__init__.py`` has
them for editors and type checkers; a test writes both.
"""

from __future__ import annotations

import functools

# fxdebug.<name>
PUBLIC = {
    "__version__": "fxdebug.version",
    "analyse": "fxdebug.api.reports.plugin_analyses",
    "Call": "fxdebug.data.calls",
    "check": "fxdebug.api.check_run",
    "compare": "fxdebug.api.compare_runs",
    "compare_models": "fxdebug.api.compare_live",
    "fx_debug": "fxdebug.api.run_model",
    "FxDebugError": "fxdebug.errors",
    "last_failed": "fxdebug.api.run_model",
    "last_failed_report": "fxdebug.api.reports.failed_report",
    "load": "fxdebug.api.files",
    "LoadError": "fxdebug.errors",
    "MissingExtra": "fxdebug.errors",
    "model_addition_debugger_context": "fxdebug.api.transformers_context",
    "NonFinite": "fxdebug.errors",
    "NotFound": "fxdebug.errors",
    "region": "fxdebug.capture.hooks.regions",
    "Report": "fxdebug.api.reports.report",
    "SaveError": "fxdebug.errors",
    "snapshot": "fxdebug.capture.hooks.regions",
    "Stats": "fxdebug.data.values",
    "Trace": "fxdebug.api.trace",
    "trace_forwards": "fxdebug.api.traced_forwards",
    "UsageError": "fxdebug.errors",
    "Value": "fxdebug.data.values",
}
# fxdebug.api.<name>: for the command line and other programs
FURTHER = {
    "Comparison": "fxdebug.api.comparison",
    "export_ranks": "fxdebug.api.exported_folders",
    "export_training": "fxdebug.api.exported_folders",
    "fails": "fxdebug.analyses.rules.settings",
    "findings_of_model": "fxdebug.api.reports.model_findings",
    "given_model": "fxdebug.api.reports.model_findings",
    "histogram": "fxdebug.stats.histogram",
    "listing": "fxdebug.exports.text",
    "loss_or_mean": "fxdebug.api.losses",
    "mean_of_output": "fxdebug.api.losses",
    "measures_csv": "fxdebug.exports.measures",
    "measures_json": "fxdebug.exports.measures",
    "measures_text": "fxdebug.exports.measures",
    "page_of": "fxdebug.api.page.text",
    "plugins_csv": "fxdebug.exports.plugins",
    "plugins_json": "fxdebug.exports.plugins",
    "plugins_text": "fxdebug.exports.plugins",
    "project_settings": "fxdebug.api.check_run",
    "require_columns": "fxdebug.exports.columns",
    "rules_csv": "fxdebug.exports.rules",
    "rules_json": "fxdebug.exports.rules",
    "rules_text": "fxdebug.exports.rules",
    "run_to_compare": "fxdebug.api.compare_runs",
    "save_measures": "fxdebug.api.files",
    "seen_by_elements": "fxdebug.api.rerun.tried_in_traces",
    "shows_ranks": "fxdebug.api.exported_folders",
    "goes_on_from_its_inputs": "fxdebug.api.rerun.second_runs",
    "kept_between_calls": "fxdebug.api.rerun.second_runs",
    "own_difference": "fxdebug.api.rerun.second_runs",
    "have_other_bits": "fxdebug.api.rerun.second_runs",
    "told_of_parts": "fxdebug.api.rerun.parts_again",
    "told_of_draws": "fxdebug.api.rerun.second_runs",
    "told_in_wide_dtype": "fxdebug.api.rerun.tried_in_traces",
    "tried_in_traces": "fxdebug.api.rerun.tried_in_traces",
    "VALUES": "fxdebug.data.values",
    "viewer_command": "fxdebug.exports.viewers",
    "VIEWERS": "fxdebug.exports.viewers",
    "with_saved_weights": "fxdebug.analyses.given_weights",
    "with_weights": "fxdebug.analyses.given_weights",
}


@functools.cache
def _of_features() -> tuple[dict[str, str], dict[str, str]]:
    """Return the names that features bring for users, and their further ones, with the module of each."""
    from fxdebug.plugins.features import features

    public = {name: place.partition(":")[0] for one in features() for name, place in one.functions.items()}
    return public, {name: place.partition(":")[0] for one in features() for name, place in one.further.items()}


def public_names() -> dict[str, str]:
    """Return the names that users import, with those of features, and the module of each."""
    return PUBLIC | _of_features()[0]


def is_public(name: str) -> bool:
    """Is this a name that users import?

    >>> is_public("check"), is_public("findings_of_model")
    (True, False)
    """
    return name in PUBLIC or name in _of_features()[0]


def every_name() -> dict[str, str]:
    """Return the names of ``fxdebug.api``, with those of features, and the module of each."""
    public, further = _of_features()
    return PUBLIC | public | FURTHER | further


def module_of(name: str) -> str | None:
    """Return the module that has a name of ``fxdebug.api``; ``None`` where there is no such name.

    >>> module_of("check"), module_of("nothing")
    ('fxdebug.api.check_run', None)
    """
    return PUBLIC.get(name) or FURTHER.get(name) or every_name().get(name)
