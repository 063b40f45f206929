"""One call as a separate run: the calls inside it, with paths relative to it, and the values that they passed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from fxdebug.data.calls import Call, Note, Parameter
from fxdebug.data.graphs import CallGraph, RunGraphs
from fxdebug.data.trace import ModuleClass, TraceData, trace_of
from fxdebug.data.values import Item, Value, leaves
from fxdebug.errors import NotFound, UsageError, nearest
from fxdebug.query.names import names_of_call

CALL = "call"  # the setting of such a run that names its call

_NUMBERED = re.compile(r"(.*)#(\d+)")


def call_named(trace: TraceData, name: str) -> Call:
    """Return a call by the path of its module, or by its id where that was called more than once: ``norm#1``.

    ``#2`` is the third call of the model itself, such as a step of ``generate``. Raises ``NotFound`` for a name that
    the trace does not know, ``UsageError`` for a path of several calls.

    >>> import torch, fxdebug
    >>> trace = fxdebug.fx_debug(torch.nn.Sequential(torch.nn.Identity(), torch.nn.ReLU()), torch.ones(2))
    >>> call_named(trace, "1").type, call_named(trace, "#0").type
    ('ReLU', 'Sequential')
    """
    numbered = _NUMBERED.fullmatch(name)
    path = name if numbered is None else numbered[1]
    calls = [call for call in trace.calls if path in names_of_call(call)]
    if not calls:
        known = dict.fromkeys(path for call in trace.calls for path in names_of_call(call))
        raise NotFound(f"no call {name!r} in this run of {trace.model}.{nearest(path, list(known))}")
    if numbered is not None:
        calls = [call for call in calls if call.number == int(numbered[2])] or calls
    if len(calls) > 1:
        raise UsageError(f"{name!r} was called {len(calls)} times: name one call, {calls[0].id} … {calls[-1].id}")
    if numbered is not None and calls[0].number != int(numbered[2]):
        raise NotFound(f"there is no call {name!r}: {path or trace.model} was called once, as {calls[0].id}")
    return calls[0]


def run_of_call(call: Call) -> TraceData:
    """Return a call as a separate run.

    Paths of modules and names of weights are relative to the call, where they are inside it; calls are counted anew.
    Raises ``UsageError`` for a call that belongs to no trace.
    """
    trace = trace_of(call)
    inside = sorted(trace.calls[call.index].walk(), key=lambda each: each.index)
    places = {each.index: place for place, each in enumerate(inside)}
    graphs = trace.call_graphs
    bodies = [_replaced_body(graphs.bodies[each.index], places) for each in inside] if graphs is not None else []
    values = {value.number: value for value in _values(inside, bodies)}
    settings = dict(trace.settings) | {CALL: call.id, "of": trace.model}
    return TraceData(
        model=call.type,
        calls=tuple(_relative_calls(inside, places, call)),
        values=tuple([_renamed(values[number], call.path) for number in sorted(values)]),
        parameters=tuple(
            [_under(parameter, call.path) for parameter in trace.parameters if _is_in(parameter, call.path)]
        ),
        modules={_relative(path, call.path): kind for path, kind in trace.modules.items() if _inside(path, call.path)},
        classes=tuple(_relative_classes(trace.classes, call.path)),
        notes=tuple(_relative_notes(trace.notes, places)),
        started=trace.started,
        duration=call.duration,
        versions=trace.versions,
        settings=settings,
        graph_source=None if graphs is None else RunGraphs(graphs.graphs, tuple(bodies)),
        _class_of_call={places[index]: kind for index, kind in trace._class_of_call.items() if index in places},
        data=trace.data,
        folder=trace.folder,
    )


def _inside(path: str, whole: str) -> bool:
    return not whole or path == whole or path.startswith(f"{whole}.")


def _is_in(parameter: Parameter, whole: str) -> bool:
    return any(_inside(name, whole) for name in parameter.names)


def _under(parameter: Parameter, whole: str) -> Parameter:
    """Return the record of a weight with its names relative to the call."""
    return replace(parameter, names=tuple([_relative(name, whole) for name in parameter.names if _inside(name, whole)]))


def _relative(path: str, whole: str) -> str:
    """Return a path relative to the module it is in; a path outside as it is.

    >>> _relative("layers.3.attn", "layers.3"), _relative("layers.3", "layers.3"), _relative("norm", "layers.3")
    ('attn', '', 'norm')
    """
    return path[len(whole) :].removeprefix(".") if _inside(path, whole) else path


def _relative_classes(classes: Iterable[ModuleClass], whole: str) -> Iterator[ModuleClass]:
    for each in classes:
        paths = [_relative(path, whole) for path in each.paths if _inside(path, whole)]
        if paths:
            yield ModuleClass(each.names, tuple(paths))


def _relative_calls(inside: list[Call], places: dict[int, int], whole: Call) -> Iterator[Call]:
    counts: dict[str, int] = {}
    for place, call in enumerate(inside):
        path = _relative(call.path, whole.path)
        number = counts.setdefault(path, 0)
        counts[path] += 1
        yield replace(
            call,
            index=place,
            path=path,
            number=number,
            parent_index=None if call.parent_index is None else places.get(call.parent_index),
            depth=call.depth - whole.depth,
            aliases=tuple([_relative(name, whole.path) for name in call.aliases]),
            invoked_in=None if call.invoked_in is None else places.get(call.invoked_in),
        )


def _replaced_body(body: CallGraph, places: dict[int, int]) -> CallGraph:
    """Return a body that refers to the calls by their new places; without operations if it called one outside."""
    if any(index not in places for index in body.calls):
        return CallGraph("opaque", body.reason)
    return replace(body, calls=tuple([places[index] for index in body.calls]))


def _relative_notes(notes: Iterable[Note], places: dict[int, int]) -> Iterator[Note]:
    return (replace(note, call=places[note.call]) for note in notes if note.call is not None and note.call in places)


def _values(calls: Iterable[Call], bodies: Iterable[CallGraph]) -> Iterator[Value]:
    """Yield every value that the calls and their operations pass on."""
    for call in calls:
        for slots in (call.inputs, call.outputs, call.given, call.returned):
            yield from slots or ()
    for body in bodies:
        yield from (value for item in body.results for value in _in(item))
        yield from (value for _, value in body.writes)


def _in(item: Item) -> Iterator[Value]:
    return (value for _, value in leaves(item))


def _renamed(value: Value, whole: str) -> Value:
    """Return a weight with its name relative to the call, so that those of two layers are a pair."""
    if value.name is None or not whole or not _inside(value.name, whole):
        return value
    return replace(value, name=_relative(value.name, whole))
