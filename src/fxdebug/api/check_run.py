"""``check``: find everything that is wrong with a model, a run or a training; the worst first."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypedDict

from fxdebug import api
from fxdebug.analyses.numbers import numerics
from fxdebug.analyses.rules.merged import Done, merged_report
from fxdebug.analyses.rules.plugin_rules import has_plugin_rules, plugin_report
from fxdebug.analyses.rules.settings import RuleSettings, settings_of
from fxdebug.analyses.rules.table import ANALYSES, ASKED_FOR, NUMBERS, PLUGINS
from fxdebug.api.files import load
from fxdebug.api.reports.findings import Findings
from fxdebug.api.trace import Trace
from fxdebug.errors import UsageError, nearest
from fxdebug.plugins.feature import OURS, answer
from fxdebug.plugins.features import feature_of, features, folder_kind
from fxdebug.plugins.given import Folder
from fxdebug.plugins.installed import FAILURES
from fxdebug.store.project_settings import read_project_settings


class CheckOptions(TypedDict, total=False):
    """The options of :func:`check` that hold for models, runs and trainings alike."""

    analyses: Iterable[str] | None
    off: Iterable[str]
    limits: Mapping[str, float] | None
    config: bool


def check(
    model: Callable[..., Any] | Trace | str | os.PathLike[str],
    inputs: Any = None,
    loss: Callable[[Any], Any] | None = None,
    *,
    kwargs: Mapping[str, Any] | None = None,
    optimizer: Any = None,
    analyses: Iterable[str] | None = None,
    off: Iterable[str] = (),
    limits: Mapping[str, float] | None = None,
    config: bool = True,
    tensors: bool = True,
    rank: int | None = None,
) -> Findings:
    """Find what is wrong with a model, with a run, or with a watched training; report findings, the worst first.

    Of a ``model`` (a module, or a method of one) these are checked: the numbers of one traced run with ``inputs`` (in
    the form of :func:`fxdebug.fx_debug`; ``None``: only its weights are looked at), activations, attention, weights,
    and with ``loss`` (as for :func:`fxdebug.gradients`) the gradients; with an ``optimizer`` also its step. Of a run:
    the numbers, and where tensors were kept attention and activations. Of the folder of :func:`fxdebug.watch`: the
    training. Rules of plug-ins are asked about every run. ``analyses`` names those to do instead; ``profile`` and
    ``shadow`` are done only so. Notes say what was done, and why the others were not. What several analyses find at one
    place is told once.

    ``off`` are rules that find nothing, by name (``"dead unit"``) or with their analysis (``"weights.dead unit"``);
    ``limits`` are thresholds by name, such as ``{"activations.massive": 200}``. `fxdebug rules` lists both. With
    ``config`` they are also taken from ``[tool.fxdebug]`` in the nearest ``pyproject.toml`` at or above the working
    directory; ``limits`` win. ``tensors=False`` does not read the data that a run kept; ``rank`` chooses one rank of
    a folder. Afterwards the model and random generators are as before. The report is also a sequence of its findings.
    Raises ``UsageError`` for names that are not known, ``LoadError`` for a path that is no run. Exceptions of the
    model pass through.

    >>> import torch, fxdebug
    >>> _ = torch.manual_seed(0)
    >>> model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU())
    >>> with torch.no_grad():
    ...     _ = model[0].bias[3].fill_(-5)
    >>> found = fxdebug.check(model, torch.randn(64, 8))
    >>> [(finding.analysis, finding.rule, finding.path) for finding in found]
    [('activations', 'dead unit', '1')]
    >>> fxdebug.check(model, torch.randn(64, 8), off=["dead unit"]).healthy
    True
    """
    settings = settings_of(off, limits or {}, "check").over(project_settings(config=config))
    asked = None if analyses is None else _known(analyses)
    kind = folder_kind(Path(model)) if isinstance(model, (str, os.PathLike)) else None
    if kind is not None:
        subject, calls, done = _of_folder(kind, Path(model), rank, asked, settings)  # type: ignore[arg-type]
    elif isinstance(model, (str, os.PathLike, Trace)):
        trace = model if isinstance(model, Trace) else load(model, rank=rank)
        subject, calls, done = _of_trace(trace, asked, settings, tensors)
    else:
        given = api.given_model(model, inputs, kwargs, loss, optimizer)
        chosen = list(asked or (NUMBERS, *_by_default(), *_plugins()))
        subject, calls, done = api.findings_of_model(given, chosen, settings)
    if asked is None:
        done.leave_out_empty()
    done.failed |= done.reasons.keys() & set(asked or ())
    for name in ASKED_FOR if asked is None else ():
        done.reasons.setdefault(name, "only where analyses= names it")
    return Findings.of(merged_report(subject, done, settings, {"tensors": tensors}, calls))


def project_settings(*, config: bool = True) -> RuleSettings:
    """Return the rules that are off and the thresholds of ``[tool.fxdebug]`` in the nearest ``pyproject.toml``.

    Without ``config`` no file is read: they are the defaults.
    Raises ``UsageError`` for a damaged file and for names that are not known.
    """
    found = read_project_settings(Path.cwd()) if config else None
    return RuleSettings() if found is None else settings_of(found.off, found.limits, str(found.path), str(found.path))


def _known(analyses: Iterable[str]) -> tuple[str, ...]:
    """Return the analyses that were asked for, in the order in which they are done."""
    names = [analyses] if isinstance(analyses, str) else list(analyses)
    for name in names:
        if name not in ANALYSES:
            raise UsageError(f"no analysis {name!r}: there are {', '.join(ANALYSES)}.{nearest(name, ANALYSES)}")
    return tuple([name for name in ANALYSES if name in names])


def _plugins() -> tuple[str, ...]:
    return (PLUGINS,) if has_plugin_rules() else ()


def _by_default() -> list[str]:
    """Return the names of analyses that are asked about models without being named."""
    return [one.name for one in features() if (one.on_model or one.on_run) and not one.asked_for]


def _of_trace(
    trace: Trace, asked: tuple[str, ...] | None, settings: RuleSettings, tensors: bool
) -> tuple[str, int, Done]:
    done = Done()
    kept = tensors and any(value.saved is not None for call in trace.calls for value in call.outputs or ())
    for name in asked or (NUMBERS, *_by_default(), *_plugins()):
        if name == NUMBERS:
            limits = settings.limits_of(NUMBERS)
            done.reports[name] = numerics.check_numerics(trace, tensors=tensors, limits=limits)
            continue
        if name == PLUGINS:
            done.reports[name] = plugin_report(trace)
            continue
        feature = feature_of(name)
        if feature is None or not feature.on_run:
            done.reasons[name] = "a run does not tell: give the model and inputs"
        elif "tensors" in feature.needs and not kept:
            done.reasons[name] = "no tensors were kept: values='tensors'" if tensors else "tensors=False"
        else:
            caught = () if feature.package == OURS else FAILURES
            done.ask(name, partial(answer, feature.on_run, trace, settings.limits_of(name)), caught)
    return trace.model, len(trace.calls), done


def _of_folder(
    kind: tuple[str, Folder], path: Path, rank: int | None, asked: tuple[str, ...] | None, settings: RuleSettings
) -> tuple[str, int, Done]:
    name, folder = kind
    done = Done(reasons=dict.fromkeys(asked or (), f"the folder has {folder.what}, not a run"))
    subject, report = folder.report(path, rank, settings.limits_of)
    if asked is None or name in asked:
        done.reasons.pop(name, None)
        done.reports[name] = report
    return subject, 0, done
