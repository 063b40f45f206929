"""``independent``: is a sample's result independent of what stands beside it, and if not, since which operation?"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from fxdebug.api.reports.report import Report
from fxdebug.api.run_model import arguments, settings_of
from fxdebug.capture.probe import ObservedRun, deep_copy, internals, members, state_restored
from fxdebug.data.calls import Note
from fxdebug.data.findings import ERROR, Finding
from fxdebug.data.report import Column, ReportData
from fxdebug.errors import UsageError
from fxdebug.features.independent.beside import KINDS, Alone, Over, token_dims_of, without_others
from fxdebug.features.independent.differing import Results, difference, places_of
from fxdebug.features.independent.turned_masks import turned_mask
from fxdebug.features.independent.weak_masks import weak_mask
from fxdebug.plugins import found
from fxdebug.query.network import network_of

OTHERS: Mapping[Over, str] = {
    "batch": "the other rows of the batch",
    "length": "later tokens",
    "padding": "padding",
    "pack": "its neighbours in the pack",
}
SHOWN = 8


@dataclass(frozen=True, slots=True)
class SampleRow:
    """One sample: the ``error`` of what is returned for it, relative to its largest element; 0 within rounding.

    ``first`` is the first operation that differs, ``compared`` counts the results that were compared, ``unpaired``
    those that have no part of the sample's shape.
    """

    sample: str
    error: float
    first: str | None
    compared: int
    unpaired: int


COLUMNS = (
    Column("sample", "sample"),
    Column("error", "error", about="of what is returned, relative to its largest element"),
    Column("first", "first", about="the first operation that differs"),
    Column("compared", "compared", about="results that were compared"),
    Column("unpaired", "unpaired", about="results without a part of the sample's shape"),
)


@internals.not_compiled
def independent(
    model: nn.Module, inputs: Any = (), kwargs: Mapping[str, Any] | None = None, *, over: Over = "batch"
) -> Report[SampleRow]:
    """Run a model on what is given and on samples of it alone, and tell where a sample depends on its neighbours.

    ``over="batch"`` runs rows alone; ``"length"`` the first half of the tokens, and all of them with others at the end:
    what a token returns must not depend on later ones (tokens are in dimension 1, or in the last one of a signal whose
    channels cannot be halved); ``"padding"`` padded rows without their padding, by the mask or
    the lengths among the inputs, or the ``padding_idx`` of an embedding; ``"pack"`` the samples of a pack, by
    ``position_ids`` that begin again at 0, cumulative lengths, or the number of its sample for each token. Results are
    compared at the places of the sample, operation by operation; within what a sum in another order explains, they are
    equal. A finding names the first operation that differs and that what is returned depends on, with the tokens. There
    is a row for each sample; no finding means independent. ``inputs`` are as for :func:`fxdebug.fx_debug`. Random
    generators start alike, and the model is as before. Raises ``UsageError`` for inputs without neighbours; exceptions
    of the model pass through.

    >>> import torch, fxdebug
    >>> class Shares(torch.nn.Module):
    ...     def forward(self, x):
    ...         return x / x.max()
    >>> found = fxdebug.independent(Shares(), torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    >>> [(finding.op, finding.what[:45]) for finding in found.findings]
    [('max', 'row 0 depends on the other rows of the batch:')]
    """
    if over not in KINDS:
        raise UsageError(f"over={over!r}: give one of {', '.join(map(repr, KINDS))}")
    args, keywords = arguments(inputs, kwargs)
    named = _named(model, args, keywords)
    settings = settings_of(values="stats", method="forward", prune=False)

    def observed(given: Mapping[str, Any]) -> tuple[ObservedRun, Results]:
        results = Results()
        with state_restored(model):
            copied = deep_copy(dict(given))
            places = tuple(value for name, value in copied.items() if name.startswith("*"))
            rest = {name: value for name, value in copied.items() if not name.startswith("*")}
            run = ObservedRun(model, places, rest, settings, results.look, weights=False)
        if run.raised is not None:
            raise run.raised
        return run, results

    tables = [one for one in members.modules_of(model) if isinstance(one, nn.Embedding)]
    pads = dict.fromkeys(one.padding_idx for one in tables if one.padding_idx is not None)
    samples = list(_samples(named, over, pads, observed))
    run, results = observed(named)
    rows: list[SampleRow] = []
    findings: dict[str, Finding] = {}
    unknown: list[str] = []
    half: Results | None = None
    for alone in samples:
        if alone.beside and findings:
            break  # the first half told it
        other = observed(alone.inputs)[1]
        half = half or other
        differs = difference(run, results, other, alone, half)
        node = differs.first
        rows.append(
            SampleRow(alone.name, differs.error, None if node is None else node.id, differs.compared, differs.unpaired)
        )
        if not differs.is_known:
            unknown.append(alone.name)
        if not differs.error:
            continue
        where = run.trace.root if node is None else node
        tokens = f", at tokens {_listed(differs.places)}" if differs.places else ""
        apart = f"differs by {differs.error:.2g} of its largest"
        if not math.isfinite(differs.error):
            apart = "is NaN or infinite, in the one or in the other"
        mask = ""
        if over != "batch" and node is not None:
            by_id = {id: results.of[place][1] for id, place in places_of(run).items() if place in results.of}
            net = network_of(run.trace)
            turned = turned_mask(net, node, alone, by_id) if over == "padding" else ""
            mask = turned or weak_mask(net, node, by_id)
        why = f"{mask}; " if mask else ""
        what = (
            f"{alone.name} depends on {OTHERS[over]}: {why}this is the first operation that gives it other numbers"
            f"{tokens}; what is returned {apart}"
        )
        findings.setdefault(
            where.id,
            found(where, what, rule="depends", severity=ERROR, measured=differs.error, threshold=0.0),
        )
    notes = [f"paired with the same {'rows' if over == 'batch' else 'tokens'} alone, over={over!r}"]
    if unknown:
        notes.append(f"nothing is known of {', '.join(unknown)}: no part of what is returned is surely the sample's")
    return Report.of(
        ReportData(
            analysis="independent",
            subject=run.trace.model,
            columns=COLUMNS,
            rows=tuple(rows),
            findings=tuple(findings.values()),
            notes=tuple(map(Note, notes)),
            ranked=False,
            folds=False,
        )
    )


def _samples(
    named: Mapping[str, Any], over: Over, pads: Collection[int], observed: Callable[[Mapping[str, Any]], object]
) -> Iterator[Alone]:
    """Return the samples alone. Where a model does not take half of dimension 1, tokens may be in the last one."""
    first, *others = token_dims_of(named, over)
    samples = list(without_others(named, over, pads, first))
    for dim in others:
        try:
            observed(samples[0].inputs)
        except Exception:
            in_last = list(without_others(named, over, pads, dim))
            try:
                observed(in_last[0].inputs)
            except Exception:
                break  # the first exception is raised then
            samples = in_last
    yield from samples


def _named(model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments by the names of the forward's parameters; those beyond by their place, ``*2``."""
    try:
        expected = [
            one.name
            for one in inspect.signature(model.forward).parameters.values()
            if one.kind is one.POSITIONAL_OR_KEYWORD
        ]
    except (TypeError, ValueError):
        expected = []
    if len(expected) < len(args):
        return {f"*{place}": value for place, value in enumerate(args)} | dict(kwargs)
    return dict(zip(expected, args)) | dict(kwargs)


def _listed(places: tuple[int, ...]) -> str:
    return ", ".join(map(str, places[:SHOWN])) + (", …" if len(places) > SHOWN else "")
