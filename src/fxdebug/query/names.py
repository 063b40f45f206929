"""Names in questions: globs, near matches for unknown ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias, TypeVar

from fxdebug.data.calls import Call
from fxdebug.data.trace import TraceData
from fxdebug.data.values import Value
from fxdebug.errors import NotFound, UsageError, nearest
from fxdebug.query.network import Node

MAGIC = frozenset("*?[")

Asked = TypeVar("Asked", Call, Node)
Where: TypeAlias = Callable[[Asked], object] | str | None  # a function of a call or node, or a line about its tensors
Place: TypeAlias = Node | Call | Value | str


def names(call: Call) -> tuple[str, ...]:
    return call.aliases or (call.path,)


def has_graphs(trace: TraceData, what: str) -> None:
    if trace.explain is None:
        raise UsageError(f"this run has no {what}: it was made with graph=False")


def known(what: str, name: str, known: Sequence[str]) -> None:
    if name not in known:
        raise UsageError(f"{what}={name!r}: use one of {', '.join(map(repr, known))}")


def refuse_unknown(what: str, name: str, known: set[str]) -> None:
    """Raise unless the name exists (a registered module that was never called is known, and empty)."""
    if name not in known:
        shown = sorted(known - {""})
        some = ", ".join(shown[:5]) + (", …" if len(shown) > 5 else "")
        raise NotFound(f"no {what} {name!r} in this trace of {len(known)}: {some}.{nearest(name, shown)}")
