"""State that a model keeps from one call to the next, in attributes that no checkpoint has."""

from __future__ import annotations

from collections.abc import Iterator

from fxdebug import api
from fxdebug.data.findings import ADVICE, Finding
from fxdebug.query.network import Network

NAMED = 4


def find_kept_state(net: Network) -> Iterator[Finding]:
    """Yield the attributes by which a second call of a model in evaluation returns something else than the first."""
    root = net.trace.root
    if root.training or not hasattr(net.trace.graph_source, "model"):
        return
    kept = api.kept_between_calls(net.trace)
    if not kept:
        return
    named = ", ".join(kept[:NAMED]) + (", …" if len(kept) > NAMED else "")
    path = kept[0].rpartition(".")[0]
    yield Finding(
        rule="state kept",
        severity=ADVICE,
        path=path,
        call=f"{path}#0",
        op=kept[0],
        what=f"a second call with the same inputs returns something else: it goes on from {named}, which the first "
        "call has left",
        measured=float(len(kept)),
        threshold=0.0,
        advice="Reset it before each call that is to stand by itself; a buffer would be seen in checkpoints.",
        others=kept[1:],
    )
