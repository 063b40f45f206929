"""State that a model keeps from one call to the next: in attributes that no checkpoint has, or in what it is given."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from fxdebug import api
from fxdebug.data.findings import ADVICE, WARNING, Finding
from fxdebug.data.values import Value
from fxdebug.plugins import found
from fxdebug.query.network import Network

NAMED = 4
MEANT = ("cache", "state", "hidden", "memory", "past", "buffer", "carry", "out")  # in names of what is to be written


def find_changed_inputs(net: Network) -> Iterator[Finding]:
    """Yield the operation that writes into what a model is given, where a second call with it returns something else.

    A cache or a state that is given is there to be written. Numbers written at their place once more change nothing.
    """
    written = [
        (_name_of(net, slot, value), net.writes_to_input(value)) for slot, value in net.trace.root.inputs.named()
    ]
    changed = [(name, writes) for name, writes in written if writes and not _is_meant(name)]
    if not changed or not api.goes_on_from_its_inputs(net.trace):
        return
    name, writes = changed[0]
    node = writes[0][0]
    others = [other for _, several in changed for other, _ in several if other is not node]
    yield replace(
        found(
            node,
            f"{node.op} writes into {name}, which the caller gave: a second call with the same tensor returns "
            "something else",
            rule="state kept",
            severity=WARNING,
            advice=f"Write into a copy ({name.partition('[')[0]}.clone()), or compute without writing in place.",
        ),
        others=tuple(dict.fromkeys(other.id for other in others)),
    )


def _name_of(net: Network, slot: str, value: Value) -> str:
    """Return the name that an input has in the forward, or the place at which it was given."""
    given = net.given_to_model(value)
    return slot if given is None else net.nodes[given].target + (slot.partition("]")[2] if "]" in slot else "")


def _is_meant(name: str) -> bool:
    return any(word in name.lower() for word in MEANT)


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
