"""``independent``: is a sample's result independent of what stands beside it, and if not, since which operation?"""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from fxdebug.api.reports.report import Report
from fxdebug.api.run_model import arguments, settings_of
from fxdebug.capture.probe import ObservedRun, deep_copy, internals, members, state_restored
from fxdebug.data.calls import Call, Note
from fxdebug.data.findings import ERROR, Finding
from fxdebug.data.measures import enumerated
from fxdebug.data.report import Column, ReportData
from fxdebug.errors import UsageError, first_line
from fxdebug.features.independent.beside import Alone, AloneInList, AloneInPack
from fxdebug.features.independent.differing import (
    Difference,
    OtherCount,
    Results,
    Seen,
    difference,
    mixed_by,
    other_count,
    places_of,
)
from fxdebug.features.independent.graphs import AloneInGraphs
from fxdebug.features.independent.turned_masks import turned_mask
from fxdebug.features.independent.ways import KINDS, Dim, Over, Way, last_half, ways_of
from fxdebug.features.independent.weak_masks import weak_mask
from fxdebug.plugins import found
from fxdebug.query.network import Node, network_of

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
    model: nn.Module,
    inputs: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    over: Over = "batch",
    dim: Dim = None,
) -> Report[SampleRow]:
    """Run a model on what is given and on samples of it alone, and tell where a sample depends on its neighbours.

    ``over="batch"`` runs rows alone; ``"length"`` the first half of the tokens, and all of them with others at the end:
    what a token returns must not depend on later ones; ``"padding"`` padded rows without their padding, by the mask or
    the lengths among the inputs, the ``padding_idx`` of an embedding, or one number at the ends of rows; ``"pack"`` the
    samples of a pack, by ``position_ids`` that begin again at 0, cumulative lengths, the number of its sample for each
    token, or each sample of a list alone. Which inputs hold the tokens, and in which dimension, is found out by their
    sizes, and by what the model runs with; ``dim=2``, or ``dim={"video": 2}``, says it (of rows, over a batch). Results
    are compared at the places of the sample, operation by operation; within what a sum in another order explains, they
    are equal. A finding names the first operation that differs and that what is returned depends on, with the tokens.
    There is a row for each sample; no finding means independent. ``inputs`` are as for :func:`fxdebug.fx_debug`. Random
    generators start alike, and the model is as before. Raises ``UsageError`` for inputs without neighbours, and where
    the model runs with no part of them; exceptions of the model that what was given raises pass through.

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
    tables = [one for one in members.modules_of(model) if isinstance(one, nn.Embedding)]
    pads = dict.fromkeys(one.padding_idx for one in tables if one.padding_idx is not None)
    groups = ways_of(named, over, pads, dim)
    runs = _Runs(model, named, over)
    judged = [each for ways in groups for each in runs.judged(ways, several=len(groups) > 1)]
    findings: dict[str, Finding] = {}
    for one in judged:
        for finding in one.findings:
            findings.setdefault(finding.node or finding.call, finding)
    of_graphs = any(row.sample.startswith("graph ") for one in judged for row in one.rows)
    paired = "nodes of each graph" if of_graphs else "rows" if over == "batch" else "tokens"
    notes = [f"paired with the same {paired} alone, over={over!r}"]
    notes += dict.fromkeys(note for one in judged for note in one.notes)
    unknown = [name for one in judged for name in one.unknown]
    if unknown:
        notes.append(f"nothing is known of {', '.join(unknown)}: no part of what is returned is surely the sample's")
    return Report.of(
        ReportData(
            analysis="independent",
            subject=runs.whole.run.trace.model,
            columns=COLUMNS,
            rows=tuple([row for one in judged for row in one.rows]),
            findings=tuple(findings.values()),
            notes=tuple(map(Note, notes)),
            ranked=False,
            folds=False,
        )
    )


@dataclass
class _Judged:
    """Answers of the samples of one way."""

    rows: list[SampleRow] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class _Runs:
    """Runs of a model on what was given and on parts of it."""

    def __init__(self, model: nn.Module, inputs: Mapping[str, Any], over: Over) -> None:
        self._model, self._inputs, self._over = model, inputs, over
        self._settings = settings_of(values="stats", method="forward", prune=False)
        self._seen: dict[int, Seen] = {}
        self.whole = self._observed(inputs)

    def judged(self, ways: Sequence[Way], *, several: bool) -> Iterator[_Judged]:
        """Yield what the first way tells that the model runs with.

        Where several dimensions may be those of tokens, and it looks ahead in the first of them, but in one alone only
        back, as no image does, that is the one of tokens.
        """
        running = self._running(ways)
        way = next(running)
        found = self._judged(way, several)
        if found.findings and self._over == "length":
            others = [(each, self._judged(each, several)) for each in running if _is_elsewhere(each, way)]
            causal = [one for each, one in others if not one.findings and not one.unknown and self._looks_back(each)]
            dims = [each.tokens.text for each, _ in others if each.tokens is not None]
            if len(causal) == 1:
                found = causal[0]
            elif dims and way.tokens is not None:
                here = f"tokens are taken to be along {way.tokens.text}, not along {', '.join(dims)}"
                found.notes.append(f"{here}: dim= says another one")
        yield found

    def _running(self, ways: Sequence[Way]) -> Iterator[Way]:
        """Yield the ways that the model runs with; over a length, those that it returns less with; else the first."""
        raised: dict[str, Exception] = {}
        fallback: Way | None = None
        places: set[tuple[str, int]] = set()  # of which one way is enough
        is_found = False
        for way in ways:
            place = (way.tokens.name, way.tokens.dim) if way.tokens is not None else ("", 0)
            if place in places:
                continue
            try:
                seen = self._of(way.samples[0])
            except Exception as error:  # of the model, with what is left of its inputs
                raised[way.text] = error
                continue
            if self._over != "length" or _returns_less(self.whole, seen):
                is_found = True
                places.add(place)
                yield way
            elif fallback is None:
                fallback = way
            if way is not fallback:
                self._seen.pop(id(way.samples[0]), None)
        if is_found:
            return
        if fallback is None:
            tried = "; ".join(f"{text} ({type(one).__name__}: {first_line(one)})" for text, one in raised.items())
            raise UsageError(
                f"over={self._over!r}: the model does not run with parts of what it was given: {tried}. Say which "
                "dimension is that of the "
                + ("rows" if self._over == "batch" else "tokens")
                + ': dim=2, or dim={"name": 2} of the inputs that have it'
            ) from next(reversed(raised.values()))
        yield fallback

    def _looks_back(self, way: Way) -> bool:
        """Does the last half depend on the first one?"""
        last = last_half(self._inputs, way)
        if last is None:
            return False
        try:
            return difference(self.whole, self._observed(last.inputs), last, []).error > 0
        except Exception:  # of the model
            return False

    def _judged(self, way: Way, several: bool) -> _Judged:
        found = _Judged(notes=[way.note] if way.note else [])
        of_list = all(isinstance(each, AloneInList) for each in way.samples)
        packed = [each for each in way.samples if isinstance(each, AloneInPack)]
        counted = other_count(self.whole, [(each, self._of(each)) for each in packed]) if packed else None
        if counted is not None:
            found.findings.append(self._count(counted, packed[0].samples))
        for alone in way.samples:
            if alone.beside and found.findings:
                break  # the first half told it
            other = self._of(alone)
            cut = [self._of(each) for each in way.samples] if of_list else [self._of(way.samples[0])]
            differs = difference(self.whole, other, alone, cut)
            node = differs.first
            name = f"{alone.name} ({way.tokens.text})" if several and way.tokens is not None else alone.name
            found.rows.append(
                SampleRow(name, differs.error, None if node is None else node.id, differs.compared, differs.unpaired)
            )
            if not differs.is_known:
                found.unknown.append(name)
            if differs.error:
                found.findings.append(self._finding(differs, alone, name))
            if alone is not way.samples[0] and not of_list:
                del self._seen[id(alone)]  # it holds a copy of every result
        return found

    def _count(self, counted: OtherCount, samples: int) -> Finding:
        lacking = f"; what {enumerated(counted.lacking)} has alone is none of them" if counted.lacking else ""
        where: Node | Call = self.whole.run.trace.root if counted.node is None else counted.node
        makes = (
            ""
            if counted.node is None
            else f", which this operation makes of the tokens: it takes other borders{lacking}"
        )
        what = f"{counted.count} results are returned for {samples} samples of the pack{makes or lacking}"
        return found(
            where, what, rule="depends", severity=ERROR, measured=float(counted.count), threshold=float(samples)
        )

    def _finding(self, differs: Difference, alone: Alone, name: str) -> Finding:
        run, node = self.whole.run, differs.first
        where: Node | Call = run.trace.root if node is None else node
        of_graphs = isinstance(alone, AloneInGraphs)
        others = "the other graphs" if of_graphs else OTHERS[self._over]
        tokens = f", at {'nodes' if of_graphs else 'tokens'} {_listed(differs.places)}" if differs.places else ""
        apart = f"differs by {differs.error:.2g} of its largest"
        if not math.isfinite(differs.error):
            apart = "is NaN or infinite, in the one or in the other"
        why = ""
        if differs.one_sided is not None:
            call = differs.one_sided.call
            if differs.one_sided.is_given:
                why, where = f"{call.path} runs here, and not for {alone.name} alone; ", call
            else:
                why = f"{call.path} runs for {alone.name} alone, and not here; "
        elif self._over == "batch" and node is not None and (shapes := mixed_by(run, node)):
            why = f"{shapes}, elements in their order, so that one row gets numbers of several; "
        elif self._over != "batch" and node is not None:
            by_id = {id: self.whole.of[place] for id, place in places_of(run).items() if place in self.whole.of}
            net = network_of(run.trace)
            turned = turned_mask(net, node, alone, by_id) if self._over == "padding" else ""
            mask = turned or weak_mask(net, node, by_id)
            why = f"{mask}; " if mask else ""
        what = (
            f"{name} depends on {others}: {why}this is the first operation that gives it other numbers"
            f"{tokens}; what is returned {apart}"
        )
        return found(where, what, rule="depends", severity=ERROR, measured=differs.error, threshold=0.0)

    def _of(self, alone: Alone) -> Seen:
        if id(alone) not in self._seen:
            self._seen[id(alone)] = self._observed(alone.inputs)
        return self._seen[id(alone)]

    def _observed(self, given: Mapping[str, Any]) -> Seen:
        results = Results()
        with state_restored(self._model):
            copied = deep_copy(dict(given))
            places = tuple(value for name, value in copied.items() if name.startswith("*"))
            rest = {name: value for name, value in copied.items() if not name.startswith("*")}
            run = ObservedRun(self._model, places, rest, self._settings, results.look, weights=False)
        if run.raised is not None:
            raise run.raised
        return Seen(run, results)


def _is_elsewhere(one: Way, other: Way) -> bool:
    """Is what a way cuts another dimension of the same input?"""
    if one.tokens is None or other.tokens is None:
        return False
    return one.tokens.name == other.tokens.name and one.tokens.dim != other.tokens.dim


def _returns_less(whole: Seen, part: Seen) -> bool:
    """Is something that is returned shorter along a dimension than in another run?"""
    returned = [seen.of.get(seen.run.place(seen.run.trace.root), []) for seen in (whole, part)]
    return any(
        one.ndim == other.ndim and any(size > less for size, less in zip(one.shape, other.shape))
        for one, other in zip(*returned)
    )


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
