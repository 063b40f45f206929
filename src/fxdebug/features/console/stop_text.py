"""A stop on the screen: what begins, ran or ended, the line of the code, and the tensors that matter there."""

from __future__ import annotations

from fxdebug.cells import cell_len, padded, shortened_to
from fxdebug.features.console.expressions import value_line
from fxdebug.features.console.machine import Machine, Slots, Stop
from fxdebug.features.console.screen import Screen
from fxdebug.printable import printable

LEAST_ID = 16  # columns
MOST_TENSORS = 4  # of one kind; inspect shows all


def show_stop(screen: Screen, machine: Machine, stop: Stop) -> None:
    """Write a stop: two lines as pdb does, then its tensors."""
    _headline(screen, machine, stop)
    text = None if stop.source is None else machine.source_text(stop.source)
    if text:
        screen.line(("-> ", "bold"), text)
    if stop.error is not None:
        screen.line((f"   {stop.error}", "bold red"))
    given = [] if stop.kind == "return" else list(stop.inputs)
    made = [(result_slot(slot), value) for slot, value in stop.results]
    size = max([cell_len(slot) for slot, _ in (*given[:MOST_TENSORS], *made[:MOST_TENSORS])], default=0)
    for slots in (given, made):
        _tensors(screen, slots, size)


def _headline(screen: Screen, machine: Machine, stop: Stop) -> None:
    where = "" if stop.source is None else f"  {short_source(stop.source)}"
    of = "" if machine.count is None else f"/{machine.count}"
    place = (f"  [{stop.number + 1}{of}]", "dim")
    ended = "--Return--" if stop.error is None else "--Raised--"
    word = "> " if stop.kind == "op" else "--Call-- " if stop.kind == "call" else f"{ended} "
    kind = f"  {stop.op or stop.type}"
    size = sum(map(cell_len, (word, where, place[0])))
    if size + cell_len(stop.id) + cell_len(kind) > screen.width:  # what is left out stands in the id, or in where
        kind = ""
    id = shortened_to(printable(stop.id), max(screen.width - size - cell_len(kind), LEAST_ID), "ends")
    screen.line((word, "bold"), (id, "bold"), (kind, "cyan"), (where, "dim"), place)


def short_source(source: str) -> str:
    """Return a source line without the folders.

    >>> short_source("/home/me/model.py:12")
    'model.py:12'
    """
    return source.replace("\\\\", "/").rpartition("/")[2]


def _tensors(screen: Screen, slots: Slots, size: int) -> None:
    """Write tensors with their slots, each in one line."""
    for slot, value in slots[:MOST_TENSORS]:
        bad = value.stats is not None and value.stats.finite < value.stats.count
        screen.line(f"   {padded(slot, size)}  ", (value_line(value), "red" if bad else ""))
    if len(slots) > MOST_TENSORS:
        screen.line((f"   and {len(slots) - MOST_TENSORS} more: inspect", "dim"))


def result_slot(slot: str) -> str:
    """Return a slot of a result as expressions name it.

    >>> result_slot(""), result_slot("[1]"), result_slot("logits")
    ('out', 'out[1]', 'out.logits')
    """
    return "out" if not slot else f"out{slot}" if slot.startswith("[") else f"out.{slot}"
