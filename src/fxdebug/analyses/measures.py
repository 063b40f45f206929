"""All measures there are, and those that follow from a trace alone, taken when one is first asked for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from fxdebug.analyses.cost.flops import BACKWARD, count_flops, counted_names, flops_report
from fxdebug.data.calls import Note
from fxdebug.data.measures import CALL, MEASURES, OPERATION, Measure, Taken, register
from fxdebug.data.trace import TraceData
from fxdebug.errors import MissingExtra, UsageError
from fxdebug.plugins.features import features, part
from fxdebug.plugins.installed import numbers_of_plugin, plugin_measures
from fxdebug.query.measures import EVERY_RUN, UNREGISTERED, derived, id_of, measures_of, size_of

MACS = register("macs", "MAC", "multiply-adds of products, forward: half of flops", [CALL, OPERATION], adds=True)
_NAMES = re.compile(r"[A-Za-z_][\w.]*")
FLOPS = ("flops", "flops.self", "flops.backward", MACS.name)


def every_measure() -> dict[str, Measure]:
    """Return every measure by name: those that each run has, then those of the analyses, by their names.

    >>> every_measure()["time.self"].unit
    's'
    """
    for one in features():
        for module in one.measures:
            try:
                part(one, module)
            except MissingExtra:  # an analysis that cannot run here takes no measures here
                continue
    plugin_measures()
    others = sorted(name for name in MEASURES if name not in EVERY_RUN)
    return EVERY_RUN | {name: MEASURES[name] for name in others}


def available(trace: TraceData) -> dict[str, Measure]:
    """Return the measures that a trace has numbers of, or that follow from it, by name."""
    found = measures_of(trace)
    further = (() if trace.graph_source is None else FLOPS, plugin_measures())
    return found | {name: MEASURES[name] for names in further for name in names}


def derive(trace: TraceData, *asked: object) -> None:
    """Take the measures that the texts ask for and that follow from a run: names of measures, or ``where=`` lines.

    These are operations, and the measures of plug-ins. Raises ``UsageError`` for a run without graphs.
    """
    names = {name for text in asked if isinstance(text, str) for name in _NAMES.findall(text)}
    for name, plugin in plugin_measures(names).items():
        if name not in trace.taken.keys() | derived(trace).keys():
            taken = numbers_of_plugin(plugin, trace)
            ids = {call.id: id_of(trace, call) for call in trace.calls}
            by_id = {ids.get(id, id): number for id, number in taken.numbers.items()}
            derived(trace)[name] = replace(taken, numbers=by_id)
    if not names.intersection(FLOPS) or names.intersection(FLOPS) <= trace.taken.keys() | derived(trace).keys():
        return
    report = flops_report(trace)
    macs = {id: int(number) // 2 for id, number in report.measures["flops"].items()}
    for name, numbers in {**report.measures, MACS.name: macs}.items():
        derived(trace)[name] = Taken(MEASURES[name], numbers, report.analysis)


def why_unknown(trace: TraceData, names: Iterable[str]) -> Iterator[str]:
    """Yield a line for measures that some calls of a run have no number of, with the reason.

    >>> import torch, fxdebug
    >>> class Inverse(torch.nn.Module):
    ...     def forward(self, x):
    ...         return torch.linalg.inv(x)
    >>> list(why_unknown(fxdebug.fx_debug(Inverse(), torch.eye(2)), ["flops", "macs"]))
    ['flops, macs: n/a where an operation is not counted: linalg_inv']
    """
    asked = list(dict.fromkeys(names))
    counted = [name for name in asked if name in FLOPS and name not in trace.taken]
    if counted and trace.graph_source is not None:
        whole = count_flops(trace)[0]
        for missing, those in (
            (whole.inside, [name for name in counted if name != BACKWARD.name]),
            (whole.behind, [name for name in counted if name == BACKWARD.name]),
        ):
            if missing and those:
                yield f"{', '.join(those)}: n/a where an operation is not counted: {counted_names(missing)}"
    of_modules = [name for name in asked if name in ("params", "trainable")]
    if of_modules and any(call.origin in UNREGISTERED for call in trace.calls):
        yield f"{', '.join(of_modules)}: n/a of modules that are registered nowhere"
    lazy = [one.name for one in trace.parameters if one.kind == "parameter" and one.elements is None]
    if of_modules and lazy:
        yield f"{', '.join(of_modules)}: n/a where a lazy module never ran: {lazy[0]}" + ", …" * (len(lazy) > 1)
    of_tensors = [name for name in asked if name in ("bytes", "numel")]
    if of_tensors and any(size_of(value) is None for value in trace.values):
        yield f"{', '.join(of_tensors)}: n/a of tensors that are sparse or of unknown length"


def derive_all(trace: TraceData) -> list[Note]:
    """Take every measure that follows from a run; return a note on each plug-in whose measure cannot be taken."""
    known = available(trace)
    derive(trace, *[name for name in FLOPS if name in known])  # a run may have some of them, as of a report
    notes = []
    for name in plugin_measures():
        try:
            derive(trace, name)
        except UsageError as error:
            notes.append(Note(f"{error}: its measure is left out"))
    return notes
