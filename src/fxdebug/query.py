"""Finding calls in a trace."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable
from typing import Any

from fxdebug.errors import NotFound, nearest
from fxdebug.trace import Call, Trace

_MAGIC = frozenset("*?[")


def find(
    trace: Trace,
    path: str | None = None,
    *,
    type: str | None = None,
    where: Callable[[Call], Any] | None = None,
) -> list[Call]:
    """Calls in execution order, narrowed down by every argument that is given.

    ``path``: a glob over module paths and their aliases; ``*`` also matches dots. ``type``: a glob
    over class names. ``where``: a predicate on the call. A ``path`` or ``type`` without wildcards
    that this trace does not know raises :class:`~fxdebug.errors.NotFound` and offers the nearest.

    >>> import torch, fxdebug
    >>> trace = fxdebug.fx_debug(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU()), torch.ones(1, 2))
    >>> [call.path for call in find(trace, type="Linear")]
    ['0']
    """
    calls = list(trace.calls)
    if path is not None:
        calls = [call for call in calls if any(fnmatch.fnmatchcase(name, path) for name in _names(call))]
        if not calls and not _MAGIC & set(path):
            _refuse_unknown("module", path, {*trace.modules, *(call.path for call in trace.calls)})
    if type is not None:
        kinds = {call.type for call in trace.calls} | set(trace.modules.values())
        calls = [call for call in calls if fnmatch.fnmatchcase(call.type, type)]
        if not calls and not _MAGIC & set(type):
            _refuse_unknown("module type", type, kinds)
    return [call for call in calls if where(call)] if where is not None else calls


def _names(call: Call) -> tuple[str, ...]:
    return call.aliases or (call.path,)


def _refuse_unknown(what: str, name: str, known: set[str]) -> None:
    """Raise unless the name exists (a registered module that was never called is known, and empty)."""
    if name not in known:
        shown = sorted(known - {""})
        some = ", ".join(shown[:5]) + (", …" if len(shown) > 5 else "")
        raise NotFound(f"no {what} {name!r} in this trace of {len(known)}: {some}.{nearest(name, shown)}")
