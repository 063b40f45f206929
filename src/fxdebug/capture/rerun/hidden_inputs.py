"""What reaches a call past its arguments: tensors by an attribute or a closure, a mode or a forward that a caller set.

A graph hands on arguments and nothing else. Where what is inside takes a tensor of the run that it was not
given, the graph is right for this run, and running it on other inputs would compute with stale tensors. Where
a caller saw to it that calls inside do something else than alone, running it would not do what the call did.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import FunctionType

from fxdebug.capture import reasons
from fxdebug.capture.reasons import Words
from fxdebug.capture.tape.call_tape import CallTape
from fxdebug.capture.tape.encoding import uids_in
from fxdebug.capture.tensors.describe import type_name
from fxdebug.capture.tensors.tensor_ref import TensorId


def hidden_input(body: CallTape, outermost: CallTape) -> Words | None:
    """The reason where a call inside ``body`` takes a tensor of the run that nothing hands it. ``None``: there is none.

    ``outermost`` is the run's first body: its arguments, and what is computed in it, are tensors of the run.
    """
    inner = list(_below(body))
    if not inner:
        return None
    from_inside = {uid for each in inner for uid in _computed(each)}
    of_the_run = {uid for each in (outermost, *_below(outermost)) for uid in _computed(each)}
    of_the_run.update(outermost.before)
    for each in inner:
        foreign = (_taken(each) - from_inside) & of_the_run
        if foreign:
            return reasons.HIDDEN_TENSOR(module=type_name(type(each.module)))
    return None


def set_by_a_caller(body: CallTape) -> Words | None:
    """What a caller changed for this call and the calls in it, so that it did other things than alone."""
    if body.under is not None:
        return reasons.RAN_UNDER_CALLERS_MODE(modes=body.under)
    for each in (body, *_below(body)):
        ran, has = (getattr(forward, "__func__", forward) for forward in (each.forward, each.module.forward))
        if type(ran) is type(has) is FunctionType and ran is not has and "__fxdebug__" not in has.__dict__:
            return reasons.RAN_OTHER_FORWARD(module=type_name(type(each.module)))
    return None


def _below(body: CallTape) -> Iterator[CallTape]:
    for entry in body.entries:
        if entry.body is not None:
            yield entry.body
            yield from _below(entry.body)


def _computed(body: CallTape) -> Iterator[TensorId]:
    """What the operations of a body made: not what it was given or holds, which they may return."""
    met = set(body.before)
    for entry in body.entries:
        met.update(uids_in(entry.args), uids_in(entry.kwargs))
        if entry.body is None:
            yield from (uid for uid in uids_in(entry.out) if uid not in met)
        met.update(uids_in(entry.out))


def _taken(body: CallTape) -> set[TensorId]:
    """What a body uses without having been given or having made it."""
    known = set(body.before) | set(uids_in(body.args)) | set(uids_in(body.kwargs))
    taken: set[TensorId] = set()
    for entry in body.entries:
        taken.update(uid for code in (entry.args, entry.kwargs) for uid in uids_in(code) if uid not in known)
        known.update(uids_in(entry.out))
    taken.update(uid for uid in uids_in(body.out) if uid not in known)
    return taken
